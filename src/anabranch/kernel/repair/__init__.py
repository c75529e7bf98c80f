"""Finding what is wrong with a table, and bringing it back."""

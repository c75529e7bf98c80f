"""Reading text and JSON: tokens, names, intervals."""

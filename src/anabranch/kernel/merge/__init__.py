"""Three-way merges of branches into main, by metadata alone."""

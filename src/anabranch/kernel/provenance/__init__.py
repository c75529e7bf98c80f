"""Changes and row ages of a branch, tracked across rewrites of its files."""

"""Which branch is main, and putting another in its place."""

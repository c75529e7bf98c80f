"""Branches: made from a tag of main, compared with it, merged into it, put in its place."""

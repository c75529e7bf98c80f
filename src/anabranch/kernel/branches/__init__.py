"""Branches: created from a tag of main, compared with it, merged into it, or replacing it."""

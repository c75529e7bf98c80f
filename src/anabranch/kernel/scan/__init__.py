"""Scan planning: from a snapshot and a predicate to the files that must be read."""

"""Merging a branch into main three ways, by metadata alone."""

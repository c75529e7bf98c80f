"""Rows between data files and Spark's Python tasks."""

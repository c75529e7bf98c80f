"""The embedded engine: rows of any kind to data files, and data files to rows in Arrow."""

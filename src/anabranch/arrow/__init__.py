"""The embedded engine: writes rows of any kind to data files, and reads data files as Arrow rows."""

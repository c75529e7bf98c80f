"""Keeping a table fast and small: compaction, sorting, clean-up, health; the kernel decides, an engine works."""

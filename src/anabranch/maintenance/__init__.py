"""Table maintenance: compaction, sorting, clean-up, health; the kernel decides, an engine does the work."""

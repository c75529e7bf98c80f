"""Compaction planning: which small files to rewrite into larger ones; the engine rewrites them."""

"""Streaming reads of tables."""

"""Detects damage to a table and repairs it."""

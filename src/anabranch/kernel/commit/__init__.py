"""Committing changes: the base, the conflict table, the attempts, and exactly-once."""

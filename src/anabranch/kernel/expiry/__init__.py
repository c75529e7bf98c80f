"""Letting go of old snapshots: what every ref reaches, and what may be deleted."""

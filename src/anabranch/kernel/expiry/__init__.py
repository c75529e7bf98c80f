"""Snapshot expiry: computes what every ref reaches, and removes the rest."""

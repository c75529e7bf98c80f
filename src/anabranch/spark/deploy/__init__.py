"""Clusters: what executors have, and whether a master answers."""

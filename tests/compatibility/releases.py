"""Warehouses that releases left."""

from pathlib import Path

RELEASES = sorted((Path(__file__).parents[1] / "data" / "releases").iterdir())

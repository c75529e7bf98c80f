"""The public table API, by subject."""

from anabranch.table.table import Table

__all__ = ["Table"]

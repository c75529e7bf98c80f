"""The facade: what a user does with a table, by subject."""

from anabranch.table.table import Table

__all__ = ["Table"]

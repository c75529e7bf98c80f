"""Comparison of two moments of a table: files, columns, counts, and exactly which rows differ."""

from anabranch.compare.diff import Diff
from anabranch.compare.rows import RowCounts, RowDiff

__all__ = ["Diff", "RowCounts", "RowDiff"]

"""Rules that every row of a manifest or manifest list must satisfy, whoever wrote it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn, cast

import numpy as np
import polars as pl

from anabranch.errors import CorruptTableError, UnsupportedFeatureError

_NOT_A_PLAIN_NAME = r"[/\\\x00-\x1f\x7f-\x9f]|^\.{0,2}$"
"""What `layout.check_file_name` refuses, for whole columns."""


class ColumnRule(ABC):
    """A rule over one column.

    Attributes:
        column: the column it looks at.
        expected: what the rule asks for, for messages.
        feature: name of the feature that rows use which break it; None if they are damaged.
    """

    def __init__(self, column: str, expected: str, feature: str | None = None) -> None:
        self.column = column
        self.expected = expected
        self.feature = feature

    def holds(self, values: pl.Series) -> bool:
        """Whether no value breaks the rule."""
        return not self.broken(values).any()

    @abstractmethod
    def broken(self, values: pl.Series) -> pl.Series:
        """Returns which values break the rule; null means no."""


class Present(ColumnRule):
    """The column has a value."""

    def __init__(self, column: str) -> None:
        super().__init__(column, "a value")

    def holds(self, values: pl.Series) -> bool:
        return values.null_count() == 0

    def broken(self, values: pl.Series) -> pl.Series:
        return values.is_null()


class Within(ColumnRule):
    """The number is null or in the range, both ends included."""

    def __init__(self, column: str, low: int, high: int, *, feature: str | None = None) -> None:
        super().__init__(column, f"{low}" if low == high else f"a number from {low} to {high}", feature)
        self.low = low
        self.high = high

    def holds(self, values: pl.Series) -> bool:
        # A minimum and a maximum are found faster than a mask is made.
        low, high = cast("tuple[int | None, int]", (values.min(), values.max()))
        return low is None or (self.low <= low and high <= self.high)

    def broken(self, values: pl.Series) -> pl.Series:
        return ~values.is_between(self.low, self.high)


class NotZero(ColumnRule):
    """The number is null or not 0."""

    def __init__(self, column: str) -> None:
        super().__init__(column, "a number other than 0")

    def broken(self, values: pl.Series) -> pl.Series:
        return values == 0


class PlainName(ColumnRule):
    """The text names a file and leads nowhere else."""

    def __init__(self, column: str) -> None:
        super().__init__(column, "a plain file name")

    def broken(self, values: pl.Series) -> pl.Series:
        return values.str.contains(_NOT_A_PLAIN_NAME)


class PlainNames(ColumnRule):
    """Every text of the list names a file and leads nowhere else."""

    def __init__(self, column: str) -> None:
        super().__init__(column, "plain file names")

    def holds(self, values: pl.Series) -> bool:
        return not values.list.len().sum() or super().holds(values)

    def broken(self, values: pl.Series) -> pl.Series:
        return values.list.eval(pl.element().str.contains(_NOT_A_PLAIN_NAME).fill_null(True)).list.any()


def check_rows(
    df: pl.DataFrame, checks: Sequence[ColumnRule], paths: Sequence[str], counts: Sequence[int]
) -> None:
    """Check rows that come from some files.

    Args:
        df: the rows.
        checks: tried in this order.
        paths: of the files.
        counts: rows of each file.

    Raises:
        CorruptTableError: a rule is broken; names the file.
        UnsupportedFeatureError: a rule that stands for a feature is broken.
    """
    for check in checks:
        if not check.holds(df.get_column(check.column)):
            _report(df.get_column(check.column), check, paths, counts)


def _report(values: pl.Series, check: ColumnRule, paths: Sequence[str], counts: Sequence[int]) -> NoReturn:
    row = int(check.broken(values).fill_null(False).arg_max() or 0)
    file = int(np.searchsorted(np.cumsum(counts), row, side="right"))
    message = f"entry {row - sum(counts[:file])} has the {check.column} {values[row]!r:.200}; expected {check.expected}"
    if check.feature is not None:
        raise UnsupportedFeatureError(
            message,
            feature=check.feature,
            path=paths[file],
            hint="read the table with the engine that wrote it, or with a newer version of Anabranch.",
        )
    raise CorruptTableError(message, path=paths[file])

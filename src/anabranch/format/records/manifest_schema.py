"""Manifests and manifest lists: their Avro schemas as Anabranch writes them, and the rules that every row must satisfy."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import fastavro
import numpy as np
import polars as pl

from anabranch.errors import CorruptTableError, UnsupportedFeatureError
from anabranch.format.avro.files import RecordSchema
from anabranch.format.records.data_file import SimpleStats

FORMAT_VERSION = 2
"""`_VERSION` of every entry and of every manifest in a list; nothing else is read or written."""


def _nullable(avro_type: Any) -> list[Any]:
    return ["null", avro_type]


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _record(name: str, **fields: Any) -> dict[str, Any]:
    members = [
        {"name": field, "type": avro_type, **({"default": None} if isinstance(avro_type, list) else {})}
        for field, avro_type in fields.items()
    ]
    return {"type": "record", "name": name, "fields": members}


def _stats(name: str) -> dict[str, Any]:
    return _record(
        name, _MIN_VALUES="bytes", _MAX_VALUES="bytes", _NULL_COUNTS=_nullable(_array(_nullable("long")))
    )


def _schema(record: dict[str, Any]) -> RecordSchema:
    named = {
        "type": "record",
        "name": record["name"],
        "namespace": "org.apache.paimon.avro.generated",
        **record,
    }
    return RecordSchema(json.dumps(named, separators=(",", ":")).encode(), fastavro.parse_schema(named))


MANIFEST_ENTRY = _schema(
    _record(
        "record",
        _VERSION="int",
        _KIND="int",
        _PARTITION="bytes",
        _BUCKET="int",
        _TOTAL_BUCKETS="int",
        _FILE=_record(
            "record__FILE",
            _FILE_NAME="string",
            _FILE_SIZE="long",
            _ROW_COUNT="long",
            _MIN_KEY="bytes",
            _MAX_KEY="bytes",
            _KEY_STATS=_stats("record__FILE__KEY_STATS"),
            _VALUE_STATS=_stats("record__FILE__VALUE_STATS"),
            _MIN_SEQUENCE_NUMBER="long",
            _MAX_SEQUENCE_NUMBER="long",
            _SCHEMA_ID="long",
            _LEVEL="int",
            _EXTRA_FILES=_array("string"),
            _CREATION_TIME=_nullable({"type": "long", "logicalType": "timestamp-millis"}),
            _DELETE_ROW_COUNT=_nullable("long"),
            _EMBEDDED_FILE_INDEX=_nullable("bytes"),
            _FILE_SOURCE=_nullable("int"),
            _VALUE_STATS_COLS=_nullable(_array("string")),
            _EXTERNAL_PATH=_nullable("string"),
            _FIRST_ROW_ID=_nullable("long"),
            _WRITE_COLS=_nullable(_array("string")),
        ),
    )
)
"""A manifest entry with the data-file record of 20 fields."""

MANIFEST_FILE_META = _schema(
    _record(
        "record",
        _VERSION="int",
        _FILE_NAME="string",
        _FILE_SIZE="long",
        _NUM_ADDED_FILES="long",
        _NUM_DELETED_FILES="long",
        _PARTITION_STATS=_stats("record__PARTITION_STATS"),
        _SCHEMA_ID="long",
        _MIN_BUCKET=_nullable("int"),
        _MAX_BUCKET=_nullable("int"),
        _MIN_LEVEL=_nullable("int"),
        _MAX_LEVEL=_nullable("int"),
        _MIN_ROW_ID=_nullable("long"),
        _MAX_ROW_ID=_nullable("long"),
        _TOTAL_BUCKETS=_nullable("int"),
        _EXTRA_FILES=_nullable(_array("string")),
    )
)
"""A manifest as a manifest list describes it."""


def stats_record(stats: SimpleStats) -> dict[str, Any]:
    """Statistics as the record that fields of both schemas hold."""
    # fastavro takes a tuple for a branch number and a value.
    return {
        "_MIN_VALUES": stats.min_values,
        "_MAX_VALUES": stats.max_values,
        "_NULL_COUNTS": list(stats.null_counts),
    }


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
        checks: tried in this order.

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

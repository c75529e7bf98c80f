"""Counts and extremes of a snapshot that follow from its manifests alone, without opening a data file.

A manifest says of each file how many rows it has, and of each column how many nulls and which bounds. Counts are exact
wherever they are there. Bounds of numbers, dates, times and booleans are values that occur; those of text may be cut off,
and those of floating point numbers say nothing of NaN, so extremes of both are not answered. Of partition columns the values
are known; but NaN is the largest number to SQL and none to Arrow, which gathers them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.expr.prune import split_conjuncts
from anabranch.format.records.stats import has_bounds
from anabranch.format.types.arrow_types import no_rows, to_arrow_type
from anabranch.format.types.data_types import CharType, DoubleType, Field, FloatType, VarCharType
from anabranch.kernel.scan.pruning import Statistics, partition_values, statistics_of_files
from anabranch.kernel.scan.request import ScanRequest

_FLOATING = FloatType | DoubleType


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: of rows, or of the values of a column."""

    what: Literal["count", "min", "max"]
    column: Field | None = None
    """None for the number of rows; else nulls do not count."""


def answered(request: ScanRequest, asked: Sequence[Aggregate], by: Sequence[Field] = ()) -> pa.Table | None:
    """Return the aggregates of all rows, or of each group; None if they do not follow from the manifests.

    Args:
        by: the columns to group by, of the partition.

    Returns:
        A table with the columns of `by` and then ``a0``, ``a1`` ...; one row without `by`, else one for each group
        that has rows. An extreme of no value is null.

    Raises:
        CorruptTableError, UnsupportedFeatureError: as planning does.
    """
    if not asked and not by:
        return None  # it would be one row without columns, and tables of Arrow without columns have no rows
    schema = request.schema
    of_partition = {f.id for f in schema.partition_fields}
    if not {f.id for f in by} <= of_partition or any(not _is_exact(a, of_partition) for a in asked):
        return None
    if any(isinstance(f.type, _FLOATING) for f in by):
        return None  # 0.0 and -0.0 are two partitions and one group
    if request.limit is not None:
        return None
    if request.predicate is not None and split_conjuncts(request.predicate, of_partition)[1] is not None:
        return None
    has_columns = any(a.column is not None for a in asked)
    frame = request.live_files(statistics=has_columns)
    groups: Iterator[tuple[np.ndarray | None, Statistics | None]] = iter([(None, None)])
    if has_columns:  # whose statistics take as long to decode as all else
        groups = statistics_of_files(frame, schema, request.context.schemas)
    parts = []
    for rows, statistics in groups:
        part = _of_files(frame if rows is None else frame[rows], statistics, asked, by, request)
        if part is None:
            return None
        parts.append(part)
    empty = pa.schema(
        [
            *((f"b{i}", to_arrow_type(f.type)) for i, f in enumerate(by)),
            *((f"a{i}", _type(a)) for i, a in enumerate(asked)),
        ]
    )
    whole = pa.concat_tables([no_rows(empty), *(part.cast(empty) for part in parts)])
    keys = [f"b{i}" for i in range(len(by))]
    totals = [(f"a{i}", "sum" if a.what == "count" else a.what) for i, a in enumerate(asked)]
    found = whole.group_by(keys, use_threads=False).aggregate(totals)
    found = found.select([*keys, *(f"{name}_{how}" for name, how in totals)])
    found = found.rename_columns([*(f.name for f in by), *(name for name, _ in totals)])
    for i, a in enumerate(asked):
        if a.what == "count":  # of no file
            place = found.column_names.index(f"a{i}")
            found = found.set_column(place, f"a{i}", pc.fill_null(found.column(place), 0))
    return found


def _is_exact(asked: Aggregate, of_partition: set[int]) -> bool:
    """Whether such an aggregate follows from manifests that have all statistics."""
    if asked.column is None or asked.what == "count":
        return True
    data_type = asked.column.type
    if isinstance(data_type, _FLOATING):
        return False
    if asked.column.id in of_partition:
        return True
    return has_bounds(data_type) and not isinstance(data_type, CharType | VarCharType)


def _type(asked: Aggregate) -> pa.DataType:
    if asked.what == "count" or asked.column is None:
        return pa.int64()
    return to_arrow_type(asked.column.type)


def _of_files(
    files: pl.DataFrame,
    statistics: Statistics | None,
    asked: Sequence[Aggregate],
    by: Sequence[Field],
    request: ScanRequest,
) -> pa.Table | None:
    """The groups and aggregates of each file; None if one of them is not known."""
    columns: dict[str, Any] = {}
    if by:
        values = partition_values(files["partition"], request.schema)
        columns = {f"b{i}": values[f.name] for i, f in enumerate(by)}
    for i, a in enumerate(asked):
        found = files["row_count"].to_arrow() if statistics is None else _of_column(statistics, a)
        if found is None:
            return None
        columns[f"a{i}"] = found
    return pa.table(columns)


def _of_column(statistics: Statistics, asked: Aggregate) -> pa.Array | None:
    """An aggregate for each file; None if it is not known of one."""
    rows = statistics.row_count
    if asked.column is None:
        return rows
    nulls = statistics.null_count(asked.column.id)
    if asked.what == "count":
        return None if nulls is None or nulls.null_count else pc.subtract(rows, nulls)
    bounds = (statistics.min if asked.what == "min" else statistics.max)(asked.column.id)
    if bounds is None:
        return None
    # Without a bound there is no value, or it is not known.
    has_values = pc.greater(rows, 0) if nulls is None else pc.fill_null(pc.greater(rows, nulls), True)
    return None if pc.any(pc.and_(bounds.is_null(), has_values)).as_py() else bounds

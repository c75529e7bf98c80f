"""Facts about a scan's rows, reading as little as possible: counts, extremes, samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import SchemaError, UnsupportedFeatureError
from anabranch.expr.evaluate import filter_mask
from anabranch.expr.prune import split_conjuncts
from anabranch.format.text.names import name_list
from anabranch.format.types.arrow_types import no_rows
from anabranch.format.types.data_types import is_atomic
from anabranch.kernel.scan.answers import Aggregate
from anabranch.kernel.scan.pruning import partition_values
from anabranch.kernel.scan.split import Split

if TYPE_CHECKING:
    from anabranch.scan.scan import Scan


_COUNT: Final = "count"
"""Name of the number of rows in the result of `count_by`."""


def count(scan: Scan) -> int:
    """Return the number of rows; see `Scan.count`."""
    if _follows_from_partitions(scan):
        found = int(_of_partitions(scan)["row_count"].sum())
        return found if scan.limit is None else min(found, scan.limit)
    return sum(batch.num_rows for batch in scan.only_columns([]).to_batches())


def count_by(scan: Scan, columns: str | Sequence[str]) -> pa.Table:
    """Return the number of rows per combination of values; see `Scan.count_by`."""
    fields = [scan.schema.field(name) for name in name_list(columns, "columns")]
    if not fields:
        raise SchemaError("rows are counted by no column", hint="name one, or use count().")
    for field in fields:
        if not is_atomic(field.type):
            raise SchemaError(
                f"rows are not counted by column '{field.name}', which is {field.type}",
                hint="choose columns of plain types.",
            )
    names = [field.name for field in fields]
    if _COUNT in names:
        raise SchemaError(
            f"rows are counted by a column '{_COUNT}', which is the name of their number in the result",
            hint="rename the column, or group in SQL by `lake.sql`, which names both as you like.",
        )
    narrow = scan.only_columns(names)
    result = narrow.arrow_schema.append(pa.field(_COUNT, pa.int64()))
    if scan.limit is None and _follows_from_partitions(scan) and {*names} <= {*scan.schema.partition_keys}:
        rows = _of_partitions(scan)
        values = partition_values(rows["partition"], scan.schema).select(names)
        return _totals([values.append_column(_COUNT, rows["row_count"].to_arrow())], result)
    return _totals((_counted(batch, result) for batch in narrow.to_batches()), result)


def extreme(scan: Scan, column: str, which: Literal["min", "max"]) -> Any:
    """Return the smallest or largest value of a column; see `Scan.min`."""
    field = scan.schema.field(column)
    if not is_atomic(field.type):
        raise SchemaError(
            f"values of column '{field.name}' are in no order", hint="choose a column of a plain type."
        )
    known = scan.answer([Aggregate(which, field)])
    if known is not None:
        return _python_value(known["a0"][0], column)
    found = [_extreme(batch.column(0), which) for batch in scan.only_columns([field.name]).to_batches()]
    valid = [value for value in found if value.is_valid]
    if not valid:
        return None
    values = pa.concat_arrays([pa.repeat(value, 1) for value in valid])
    return _python_value(_extreme(values, which), column)


def _python_value(value: pa.Scalar, column: str) -> Any:
    """Return a value as a Python object. Raises `UnsupportedFeatureError` for a date that Python does not have."""
    try:
        return value.as_py()
    except (OverflowError, ValueError) as error:
        raise UnsupportedFeatureError(
            f"column '{column}' has {value.cast(pa.string()).as_py()}, which Python cannot express",
            feature="python-date",
            hint="read the column by to_arrow() or to_polars().",
        ) from error


def sample(scan: Scan, count: int, seed: int) -> pa.Table:
    """Return a random sample of rows; see `Scan.sample`."""
    total = scan.count()
    chosen = np.sort(np.random.default_rng(seed).choice(total, min(count, total), replace=False))
    found = [*_rows_at(scan, chosen)]
    return pa.Table.from_batches(found, schema=scan.arrow_schema)


def _rows_at(scan: Scan, chosen: np.ndarray) -> Iterator[pa.RecordBatch]:
    begin = 0
    for split in _parts(scan):
        rows = None if split is None else sum(file.row_count for file in split.files)
        if rows is not None and not _between(chosen, begin, begin + rows).size:
            begin += rows
            continue
        batches = scan.to_batches() if split is None else scan.reader.read_batches([split])
        for batch in batches:
            here = _between(chosen, begin, begin + batch.num_rows)
            if here.size:
                yield batch.take(pa.array(here - begin))
            begin += batch.num_rows


def _parts(scan: Scan) -> Iterator[Split | None]:
    """Yield each file as a split of its own if its number of rows is known; else None for all at once."""
    if scan.predicate is not None or scan.limit is not None:
        yield None
        return
    for split in scan.splits:
        yield from (Split(split.partition, split.bucket, (file,)) for file in split.files)


def _between(chosen: np.ndarray, begin: int, end: int) -> np.ndarray:
    return chosen[np.searchsorted(chosen, begin) : np.searchsorted(chosen, end)]


def _follows_from_partitions(scan: Scan) -> bool:
    """Whether the scan takes all or none of each partition's rows."""
    if scan.predicate is None:
        return True
    _, on_rows = split_conjuncts(scan.predicate, {f.id for f in scan.schema.partition_fields})
    return on_rows is None


def _of_partitions(scan: Scan) -> pl.DataFrame:
    """Return the partitions of the scan, with their row counts."""
    files = scan.live_files()
    rows = files.group_by("partition", maintain_order=True).agg(pl.col("row_count").sum())
    if scan.predicate is None or rows.is_empty():
        return rows
    mask = filter_mask(scan.predicate, partition_values(rows["partition"], scan.schema))
    return rows.filter(pl.Series(np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)))


def _counted(batch: pa.RecordBatch, result: pa.Schema) -> pa.Table:
    ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
    return _totals([pa.Table.from_batches([batch]).append_column(_COUNT, ones)], result)


def _totals(parts: Iterable[pa.Table], result: pa.Schema) -> pa.Table:
    """Return the sum of the last column for each combination of values of the others, with the columns of `result`."""
    whole = no_rows(result)
    # Names of columns might be those that Arrow gives its sums.
    *keys, number = (f"c{place}" for place in range(len(result)))
    for part in parts:
        rows = pa.concat_tables([whole, _with_one_zero(part).cast(result)]).rename_columns([*keys, number])
        grouped = rows.group_by(keys, use_threads=False).aggregate([(number, "sum")])
        whole = grouped.select([*keys, f"{number}_sum"]).rename_columns(result.names).cast(result)
    return whole


def _with_one_zero(rows: pa.Table) -> pa.Table:
    """Return the rows with -0.0 written as 0.0: they are equal, and one group, which Arrow would tell apart."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            same = pc.add(rows.column(place), pa.scalar(0.0, field.type))
            rows = rows.set_column(place, field, same)
    return rows


def _extreme(values: Any, which: str) -> pa.Scalar:
    """Return the minimum or maximum of values; NaN is the largest number, as in filters."""
    if pa.types.is_floating(values.type):
        is_nan = pc.fill_null(pc.is_nan(values), fill_value=False)
        numbers = pc.filter(values, pc.invert(is_nan))
        if pc.any(is_nan).as_py() and (which == "max" or len(numbers) == numbers.null_count):
            return pa.scalar(float("nan"), values.type)
        values = numbers
    return pc.min_max(values)[which]

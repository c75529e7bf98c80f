"""Groups of a table's data files that can be read under one set of column names.

A data file never changes, its table does: a name in it means what it meant in the schema it was written with.
Spark finds columns by name, and prunes by name; so every group of files is read under names that are right for all
of it, and what that gives becomes columns of the table afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql import functions as fn

from anabranch.expr.bound import BoundColumn, NaNTest, disjunction
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import (
    DataType,
    DoubleType,
    Field,
    FloatType,
    LocalZonedTimestampType,
    RowType,
    TimestampType,
)
from anabranch.format.types.grammar import inner_types
from anabranch.kernel.scan.request import ScanRequest
from anabranch.spark.native.conversions import Conversion, conversion, reads_the_same

if TYPE_CHECKING:
    from pyspark.sql import Column

    from anabranch.scan.scan import Scan


@dataclass(frozen=True)
class Generation:
    """Files that are read under the names of one schema."""

    schema: TableSchema
    """Schema that defines the names and types."""
    schema_ids: frozenset[int]
    """Ids of the schemas that the files were written with."""
    fields: tuple[Field, ...]
    """Columns of `schema` to read, partition columns among them."""
    columns: tuple[tuple[Field, str | None, Conversion | None], ...]
    """Per column of the table: the field, its name here (None if the files lack it), and its conversion."""

    @property
    def is_plain(self) -> bool:
        """Whether the file columns need no conversion to be those of the table."""
        return all(name == field.name and convert is None for field, name, convert in self.columns)


@dataclass(frozen=True)
class Obstacle:
    """Reason why something cannot be read natively."""

    reason: str


def generations(
    schema: TableSchema,
    wanted: Sequence[Field],
    schema_ids: Iterable[int],
    schema_of: Callable[[int], TableSchema],
    *,
    case_sensitive: bool,
) -> list[Generation] | Obstacle:
    """Return the groups in which files are read; the first, perhaps without files, has the table's names.

    Args:
        schema: the table as it is read.
        wanted: columns of it to read.
        schema_ids: those that the files were written with.
        schema_of: the schema of an id.
        case_sensitive: whether Spark tells names apart by their case.
    """
    alike = str if case_sensitive else str.lower
    clash = _clash(schema, alike)
    if clash is not None:
        return clash
    partition_ids = {f.id for f in schema.partition_fields}
    data = [f for f in wanted if f.id not in partition_ids]
    nanos = next((f.name for f in data if _has_nanos(f.type)), None)
    if nanos is not None:
        return Obstacle(
            f"column '{nanos}' has nanoseconds, which writers store in ways that Spark misreads or refuses"
        )
    today: set[int] = set()
    older: dict[object, tuple[TableSchema, set[int]]] = {}
    for schema_id in sorted(schema_ids):
        written = schema_of(schema_id)
        if not _partitioned_alike(schema, written):
            return Obstacle(f"files of schema {schema_id} are partitioned by other columns")
        if schema_id == schema.id or _by_name(written, data, alike):
            today.add(schema_id)
            continue
        clash = _clash(written, alike)
        if clash is not None:
            return clash
        key = tuple(written.field_by_id(f.id) for f in wanted)
        older.setdefault(key, (written, set()))[1].add(schema_id)
    found = [
        Generation(schema, frozenset(today), tuple(wanted), tuple((f, f.name, None) for f in wanted)),
    ]
    for written, ids in older.values():
        made = _converted(written, frozenset(ids), wanted)
        if isinstance(made, Obstacle):
            return made
        found.append(made)
    return found if found[0].schema_ids or len(found) == 1 else found[1:]


def _clash(schema: TableSchema, alike: Callable[[str], str]) -> Obstacle | None:
    for fields in _siblings(schema.row_type):
        seen: dict[str, str] = {}
        for name in (f.name for f in fields):
            other = seen.setdefault(alike(name), name)
            if other != name:
                return Obstacle(
                    f"'{other}' and '{name}' in schema {schema.id} differ in case only, which Spark overlooks unless "
                    "spark.sql.caseSensitive is true"
                )
    return None


def _has_nanos(data_type: DataType) -> bool:
    """Whether a type contains timestamps of more than six digits, at any depth.

    Spark refuses them as 64-bit numbers, and rounds INT96 with a negative time of day towards the future.
    """
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        return data_type.precision > 6
    return any(_has_nanos(inner) for inner in inner_types(data_type))


def _siblings(data_type: DataType) -> Iterator[tuple[Field, ...]]:
    """Yield the sibling fields of each nested row, at every depth."""
    if isinstance(data_type, RowType):
        yield data_type.fields
    for inner in inner_types(data_type):
        yield from _siblings(inner)


def _partitioned_alike(schema: TableSchema, written: TableSchema) -> bool:
    now, then = schema.partition_fields, written.partition_fields
    return [(f.id, f.name, f.type.with_nullable(True)) for f in now] == [
        (f.id, f.name, f.type.with_nullable(True)) for f in then
    ]


def _by_name(written: TableSchema, wanted: Sequence[Field], alike: Callable[[str], str]) -> bool:
    """Whether lookup by name in files of that schema finds the right column, or rightly none, for each."""
    named = {alike(f.name): f for f in written.fields}
    for field in wanted:
        source = written.field_by_id(field.id)
        if source is None:
            if alike(field.name) in named or not field.type.nullable:
                return False
        elif source.name != field.name or not reads_the_same(source.type, field.type):
            return False
    return len(named) == len(written.fields)


def _converted(
    written: TableSchema, schema_ids: frozenset[int], wanted: Sequence[Field]
) -> Generation | Obstacle:
    read: list[Field] = []
    columns: list[tuple[Field, str | None, Conversion | None]] = []
    for field in wanted:
        source = written.field_by_id(field.id)
        if source is None:
            if not field.type.nullable:
                return Obstacle(
                    f"column '{field.name}' is NOT NULL, and files of schema {written.id} lack it"
                )
            columns.append((field, None, None))
            continue
        read.append(source)
        if reads_the_same(source.type, field.type):
            columns.append((field, source.name, None))
            continue
        convert = conversion(source.type, field.type)
        if convert is None:
            return Obstacle(
                f"column '{field.name}' is {field.type}, but {source.type} in files of schema {written.id}"
            )
        columns.append((field, source.name, convert))
    return Generation(written, schema_ids, tuple(read), tuple(columns))


# Columns for which Spark may not use the bounds in the footers of Parquet files.
#
# Some writers, Arrow's among them, leave NaN out of these bounds; to Spark NaN is greater than every number, and it
# would skip row groups that hold rows of a query. Our own files have no bounds where there is NaN; of files of
# others the manifests say whether there may be.

_MOST_FILES = 20_000
"""Number of files above which looking up their statistics costs more than skipping row groups saves."""


def shielded(scan: Scan, generation: Generation, asked: Collection[str] | None = None) -> frozenset[str]:
    """Return the generation's column names whose footer statistics must not be used.

    Of a field inside of a row the manifests know nothing; elements of arrays and maps Spark does not look for.

    Args:
        scan: whose files they are.
        generation: what is read of them.
        asked: the only columns that may be asked for; all if None.
    """
    keys = {f.id for f in generation.schema.partition_fields}
    data = [f for f in generation.fields if f.id not in keys and (asked is None or f.name in asked)]
    floats = [f for f in data if isinstance(f.type, FloatType | DoubleType)]
    names = {f.name for f in data if isinstance(f.type, RowType) and _holds_floats(f.type)}
    if floats and _may_hold_nan(scan, generation, floats):
        names.update(f.name for f in floats)
    return frozenset(names)


def shield(column: Column, data_type: DataType) -> Column:
    """Wrap a column so that Spark does not look at its footer statistics; our planner sees through it."""
    if isinstance(data_type, FloatType | DoubleType):
        nan = fn.lit(float("nan"))
        return fn.nanvl(column, nan.cast("float") if isinstance(data_type, FloatType) else nan)
    return fn.when(column.isNotNull(), column)


def _may_hold_nan(scan: Scan, generation: Generation, floats: list[Field]) -> bool:
    """Whether a column may hold NaN, as do files without bounds in the manifests."""
    if scan.plan().files.height > _MOST_FILES:
        return True
    test = disjunction(NaNTest(BoundColumn((f,))) for f in floats)
    plan = ScanRequest(scan.context, scan.snapshot, generation.schema, test, None, scan.options).plan()
    return not plan.files.filter(pl.col("schema_id").is_in(sorted(generation.schema_ids))).is_empty()


def _holds_floats(data_type: DataType) -> bool:
    if isinstance(data_type, RowType):
        return any(_holds_floats(f.type) for f in data_type.fields)
    return isinstance(data_type, FloatType | DoubleType)

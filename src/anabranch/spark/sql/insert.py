"""Parser of the INSERT of `Lake.sql`, as far as needed: the target, which rows are replaced, and where the query begins.

``spark.sql("INSERT ...")`` is parsed by Spark itself, which writes by `anabranch.spark.catalog.writes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.errors import SchemaError, SqlError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.spark.sql.scanner import Word, assignments, closing, matches, name_at, properties, words_of
from anabranch.spark.types.columns import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField


@dataclass(frozen=True)
class Insert:
    """A statement that writes the rows of a query into a table."""

    target: tuple[str, ...]
    query: str
    overwrite: bool = False
    partition: Mapping[str, str | None] = field(default_factory=dict)
    """Partition columns in PARTITION: the expression of a value, or None for a column of the rows."""
    if_not_exists: bool = False
    """Whether to write only if that partition does not exist yet."""
    columns: tuple[str, ...] = ()
    """Target columns of the rows; () for all."""
    by_name: bool = False
    where: str | None = None
    """Condition of REPLACE WHERE."""
    options: Mapping[str, str] = field(default_factory=dict)


def insert(statement: str) -> Insert | None:
    """Parse an INSERT; None if it is another statement. Raises `SqlError` if it is not complete.

    Common table expressions may stand before INSERT; they go to the query.
    """
    words = words_of(statement)
    start = _start(words)
    if start is None:
        return None
    overwrite = words[start + 1].is_("OVERWRITE")
    place = start + 2
    if matches(words, place, "TABLE"):
        place += 1
    target, place = name_at(words, place)
    if not target:
        raise SqlError("INSERT names no table", hint="write INSERT INTO db.t SELECT ...")
    options: Mapping[str, str] = {}
    if matches(words, place, "WITH", "(") and words[place + 2].kind == "text":
        end = closing(words, place + 1)
        options, place = properties(words[place + 2 : end]), end + 1
    partition: Mapping[str, str | None] = {}
    if matches(words, place, "PARTITION", "("):
        end = closing(words, place + 1)
        partition, place = assignments(statement, words[place + 2 : end]), end + 1
    if_not_exists = matches(words, place, "IF", "NOT", "EXISTS")
    place += 3 if if_not_exists else 0
    by_name = matches(words, place, "BY", "NAME")
    place += 2 if by_name else 0
    where = None
    if matches(words, place, "REPLACE", "WHERE"):
        begin, place = place + 2, _query_after(words, place + 2)
        where = statement[words[begin].start : words[place - 1].end]
    columns: tuple[str, ...] = ()
    if _is_names(words, place):
        end = closing(words, place)
        columns, place = tuple(w.name for w in words[place + 1 : end : 2]), end + 1
    if place >= len(words):
        raise SqlError("INSERT has no rows", hint="write INSERT INTO db.t SELECT ... or VALUES (...).")
    common = statement[: words[start].start]
    query = common + statement[words[place].start :].rstrip().rstrip(";")
    return Insert(
        target,
        query,
        overwrite,
        partition,
        if_not_exists=if_not_exists,
        columns=columns,
        by_name=by_name,
        where=where,
        options=options,
    )


def _start(words: Sequence[Word]) -> int | None:
    """Return the index of INSERT INTO or INSERT OVERWRITE: first, or after a WITH clause; None if missing."""
    if not words or not words[0].is_("INSERT", "WITH"):
        return None
    place = 0
    while place < len(words) - 1:
        if words[place].is_("("):
            place = closing(words, place)
        elif words[place].is_("INSERT") and words[place + 1].is_("INTO", "OVERWRITE"):
            return place
        place += 1
    return None


def _query_after(words: Sequence[Word], place: int) -> int:
    """Return the index at which the query after a condition begins."""
    while place < len(words) and not words[place].is_("SELECT", "VALUES", "WITH", "FROM", "TABLE"):
        place = closing(words, place) + 1 if words[place].is_("(") else place + 1
    return place


def _is_names(words: Sequence[Word], place: int) -> bool:
    """Whether ``(a, b)`` stands at that index, and not a query in parentheses."""
    if not matches(words, place, "("):
        return False
    inner = words[place + 1 : closing(words, place)]
    names, commas = inner[::2], inner[1::2]
    return (
        len(inner) % 2 == 1
        and all(w.kind in ("word", "quoted") for w in names)
        and all(c.is_(",") for c in commas)
    )


def in_columns(
    frame: DataFrame, statement: Insert, schema: TableSchema, *, also: str | None = None
) -> DataFrame:
    """Return the rows with the names and types of the table; columns not named are left out.

    Args:
        frame: what the query gives.
        statement: says whether columns go by name or by place, and has values of partition columns.
        schema: of the table.
        also: a column that is used and not stored; it goes by name.

    Raises `SchemaError` for columns that are too few, too many, unknown, or of a type that cannot be stored.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    columns = {field.name.lower(): field for field in spark_schema(schema.fields)}
    places = [place for place, name in enumerate(frame.columns) if name != also]
    # Names of a query's columns may occur twice; places do not.
    plain, types = frame.toDF(*map(_at, range(len(frame.columns)))), [f.dataType for f in frame.schema.fields]
    fixed = {key: value for key, value in statement.partition.items() if value is not None}
    for name in (*fixed, *statement.columns):
        _known(columns, name, schema)
    named = [frame.columns[place] for place in places]
    targets = _targets(named, statement, schema, {name.lower() for name in fixed})
    given = [
        _stored(F.col(_at(place)), types[place], _known(columns, target, schema))
        for place, target in zip(places, targets, strict=True)
    ]
    constants = [
        F.expr(value).cast(columns[name.lower()].dataType).alias(columns[name.lower()].name)
        for name, value in fixed.items()
    ]
    beside = [F.col(_at(frame.columns.index(also))).alias(also)] if also in frame.columns else []
    return plain.select(*given, *constants, *beside)


def _at(place: int) -> str:
    return f"column_{place}"


def _targets(names: list[str], statement: Insert, schema: TableSchema, fixed: set[str]) -> list[str]:
    """Return the table column's name for each column of the rows."""
    if statement.by_name:
        return names
    targets = list(statement.columns) or [f.name for f in schema.fields if f.name.lower() not in fixed]
    if len(targets) != len(names):
        raise SchemaError(
            f"the rows have {len(names)} columns, but they are for {len(targets)}: {', '.join(targets)}",
            hint="name the columns they are for, INSERT INTO t (a, b), or write INSERT INTO t BY NAME.",
        )
    return targets


def _known(columns: dict[str, StructField], name: str, schema: TableSchema) -> StructField:
    found = columns.get(name.lower())
    if found is None:
        raise SchemaError(
            f"the table has no column '{name}'",
            hint=f"its columns are: {', '.join(f.name for f in schema.fields)}.",
        )
    return found


def _stored(column, there: DataType, target: StructField):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - PySpark's own
    """Convert the column to its stored type. Raises `SchemaError` where Spark's INSERT would refuse it too."""
    from pyspark.sql.types import BooleanType, NullType, NumericType, StringType

    wanted = target.dataType
    is_text, wants_text = isinstance(there, StringType), isinstance(wanted, StringType)
    unsafe = (
        (is_text and not wants_text and not isinstance(there, NullType))
        or (isinstance(there, BooleanType) and isinstance(wanted, NumericType))
        or (isinstance(there, NumericType) and not isinstance(wanted, NumericType | StringType))
    )
    if unsafe and there != wanted:
        raise SchemaError(
            f"cannot safely cast {there.simpleString()} to {wanted.simpleString()}, the type of '{target.name}'",
            hint=f"say in the query how: CAST(... AS {wanted.simpleString()}).",
        )
    return (column if there == wanted else column.cast(wanted)).alias(target.name)

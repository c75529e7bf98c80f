"""Conversion of columns of older files to columns of the table, as Spark expressions.

The same changes as `anabranch.arrow.evolution` offers, with the same results. What is null in the file although the
table says NOT NULL, or a change that is not offered, is an error there; such files are not read natively, so that
the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from anabranch.format.types import data_types as t
from anabranch.format.types.widening import ReadAs, reading
from anabranch.spark.types.columns import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column

Conversion = Callable[["Column"], "Column"]


def reads_the_same(source: t.DataType, target: t.DataType) -> bool:
    """Whether Spark's reader, asked for `target`, converts values of `source` exactly as the table does.

    What may be null in the file but not in the table does not: Spark would believe that it is not.
    """
    if source.nullable and not target.nullable:
        return False
    match source, target:
        case t.RowType(), t.RowType():
            # By names in the same order, so that ids decide whenever anything is different.
            return [(f.id, f.name) for f in source.fields] == [(f.id, f.name) for f in target.fields] and all(
                reads_the_same(a.type, b.type) for a, b in zip(source.fields, target.fields, strict=True)
            )
        case t.ArrayType(), t.ArrayType():
            return reads_the_same(source.element, target.element)
        case t.MapType(), t.MapType():
            return reads_the_same(source.key.with_nullable(False), target.key.with_nullable(False)) and (
                reads_the_same(source.value, target.value)
            )
        case _:
            return source.with_nullable(True) == target.with_nullable(True)


def conversion(source: t.DataType, target: t.DataType) -> Conversion | None:
    """Return the conversion from a file column's type to the table's; None if it may fail or is not offered."""
    if reads_the_same(source, target):
        return _same
    if source.nullable and not target.nullable:
        return None
    match source, target:
        case t.RowType(), t.RowType():
            return _of_rows(source, target)
        case t.ArrayType(), t.ArrayType():
            element = conversion(source.element, target.element)
            return None if element is None else lambda values: fn.transform(values, element)
        case (t.MapType(), t.MapType()) if reads_the_same(
            source.key.with_nullable(False), target.key.with_nullable(False)
        ):
            value = conversion(source.value, target.value)
            return (
                None if value is None else lambda values: fn.transform_values(values, lambda _, v: value(v))
            )
        case _:
            return _of_values(source, target)


def _same(column: Column) -> Column:
    return column


def _of_rows(source: t.RowType, target: t.RowType) -> Conversion | None:
    sources = {f.id: f for f in source.fields}
    members: list[tuple[str, str | None, Conversion]] = []
    for wanted in target.fields:
        found = sources.get(wanted.id)
        if found is None:
            if not wanted.type.nullable:
                return None
            members.append((wanted.name, None, _nothing_of(wanted.type)))
            continue
        convert = conversion(found.type, wanted.type)
        if convert is None:
            return None
        members.append((wanted.name, found.name, convert))

    def convert_rows(rows: Column) -> Column:
        made = fn.struct(
            *(
                convert(rows if name is None else rows.getField(name)).alias(alias)
                for alias, name, convert in members
            )
        )
        return fn.when(rows.isNotNull(), made)

    return convert_rows


def nothing(data_type: t.DataType) -> Column:
    """Return a null column of the table's type."""
    return fn.lit(None).cast(spark_type(data_type))


def _nothing_of(data_type: t.DataType) -> Conversion:
    return lambda _: nothing(data_type)


def _of_values(source: t.DataType, target: t.DataType) -> Conversion | None:
    wanted = spark_type(target)
    match reading(source, target):
        case ReadAs.SAME | ReadAs.TIME:
            return _same
        case ReadAs.CAST | ReadAs.ROUNDED | ReadAs.DIGITS:
            return lambda column: column.cast(wanted)
        case ReadAs.TEXT:
            assert isinstance(source, t.CharType | t.VarCharType)
            assert isinstance(target, t.CharType | t.VarCharType)
            return _of_texts(source.length, target)
        case None:
            return None


def _of_texts(source_length: int, target: t.CharType | t.VarCharType) -> Conversion:
    def convert_text(column: Column) -> Column:
        if target.length < source_length:
            column = fn.substring(column, 1, target.length)
        if isinstance(target, t.CharType):
            column = fn.rpad(column, fn.greatest(fn.length(column), fn.lit(target.length)), fn.lit(" "))
        return column

    return convert_text

"""Rules for rows written to a table: default values and conditions.

A DEFAULT lies with its column in the schema (``defaultValue``, as in Paimon): a null that a writer of ours is given becomes
the default; engines that do not know defaults write null. Nothing of it matters to readers. A CHECK lies in the options
under ``anabranch.check.<name>``: rows for which it is FALSE are refused; unknown is no violation, as in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import OptionError, PredicateError, SchemaError, UnsupportedFeatureError
from anabranch.expr.bind import bind
from anabranch.expr.bound import BoundColumn, BoundPredicate
from anabranch.expr.coerce import Spot, place
from anabranch.expr.evaluate import filter_mask
from anabranch.expr.nodes import Not
from anabranch.expr.parse import parse
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types import data_types as t
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.python_rows import rows_of
from anabranch.options import CHECK_PREFIX

_NAME = re.compile(r"[\w-]{1,100}")


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A condition that rows must not make FALSE."""

    name: str
    condition: str
    violated: BoundPredicate
    """TRUE for the rows for which the condition is FALSE."""


@dataclass(frozen=True, slots=True)
class RowRules:
    """Row rules of one schema."""

    fields: tuple[t.Field, ...]
    """Columns with a default."""
    checks: tuple[RowCheck, ...]

    @classmethod
    def of(cls, schema: TableSchema) -> RowRules:
        """The rules of a schema.

        Raises:
            OptionError: a check cannot be read, or does not fit the columns.
            SchemaError: a default is no value of its column.
        """
        defaults = tuple(f for f in schema.fields if f.default is not None)
        for field in defaults:
            default_of(field)
        checks = [
            _check(key.removeprefix(CHECK_PREFIX), text, schema.fields)
            for key, text in schema.options.items()
            if key.startswith(CHECK_PREFIX)
        ]
        return cls(defaults, tuple(checks))

    def applied(self, rows: pa.Table) -> pa.Table:
        """The rows with defaults in the place of nulls. Raises `SchemaError`: a row violates a check."""
        for field in self.fields:
            position = rows.schema.get_field_index(field.name)
            column = rows.column(position)
            if column.null_count:
                rows = rows.set_column(position, rows.schema.field(position), filled(column, field))
        for check in self.checks:
            _refuse_violations(check, rows)
        return rows


def check_rules(schema: TableSchema) -> None:
    """Check that a schema's rules can be held; raises as `RowRules.of` does."""
    RowRules.of(schema)


def filled(values: Any, field: t.Field) -> Any:
    """An array with the column's default in the place of nulls."""
    return values.fill_null(default_of(field)) if values.null_count else values


def default_of(field: t.Field) -> Any:
    """The default of a column as a scalar of its Arrow type. Raises `SchemaError`, `UnsupportedFeatureError`."""
    assert field.default is not None
    return _default(field)


@lru_cache(maxsize=256)
def _default(field: t.Field) -> Any:
    text = field.default or ""
    if not t.is_atomic(field.type):
        raise UnsupportedFeatureError(
            f"column '{field.name}' is {field.type} and has a default, which only columns of simple types can have here",
            feature="column-default",
            hint="leave the default out.",
        )
    value: Any = None
    match field.type:
        case t.CharType(length=length) | t.VarCharType(length=length):
            value = text if len(text) <= length else None
        case t.BinaryType(length=length) | t.VarBinaryType(length=length):
            value = text.encode() if len(text.encode()) <= length else None
        case _:
            column = BoundColumn((field,))
            with suppress(PredicateError):
                spot = place(column, text)
                if isinstance(spot, Spot) and spot.exact:
                    return column.scalar(spot.value)
    if value is None:
        raise SchemaError(
            f"the default '{text}' of column '{field.name}' is no value of {field.type.spelling}",
            hint="write numbers as 5, texts as they are, dates as 2026-01-31.",
        )
    return pa.scalar(value, to_arrow_type(field.type))


def _check(name: str, text: str, fields: Sequence[t.Field]) -> RowCheck:
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"'{name}' cannot name a check", hint="use letters, digits, underscores and hyphens, at most 100."
        )
    try:
        return RowCheck(name, text, bind(Not(parse(text)), fields))
    except PredicateError as error:
        raise OptionError(
            f"the check '{name}' of the table, {text}, does not fit its columns: {error.message}",
            hint=f"drop or change it first, in the same change: t.alter().drop_check('{name}').",
        ) from error


def _refuse_violations(check: RowCheck, rows: pa.Table) -> None:
    try:
        violated = filter_mask(check.violated, rows)
    except PredicateError as error:
        raise SchemaError(
            f"the check '{check.name}', {check.condition}, cannot be computed of the rows: {error.message}",
            hint=f"mend the rows, or the check: t.alter().add_check('{check.name}', ...).apply().",
        ) from error
    count = pc.sum(violated).as_py() or 0
    if count:
        first = rows_of(rows.filter(violated).slice(0, 1))[0]
        raise SchemaError(
            f"{count:,} of {rows.num_rows:,} rows violate the check '{check.name}', {check.condition}; the first of "
            f"them: {first}",
            hint=f"mend or leave out these rows; t.alter().drop_check('{check.name}').apply() ends the check.",
        )

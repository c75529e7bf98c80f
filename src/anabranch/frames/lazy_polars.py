"""Lazy Polars frame: the columns and filters of a query reach the planner, which prunes the rest.

Polars filters what it gets once more, so what has no counterpart here is filtered by it alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from inspect import signature
from io import BytesIO
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.errors import PredicateError
from anabranch.expr.nodes import Column, Comparison, In, IsNull, Literal, Not, Operator, Predicate, StartsWith
from anabranch.format.types.arrow_types import no_rows
from anabranch.frames.narrowing import Narrowing
from anabranch.lineage.recording import captured

_OPERATORS = {
    "Eq": Operator.EQ,
    "NotEq": Operator.NE,
    "Lt": Operator.LT,
    "LtEq": Operator.LE,
    "Gt": Operator.GT,
    "GtEq": Operator.GE,
}


def lazy_frame(rows: Narrowing) -> pl.LazyFrame:
    """Return the rows as a lazy Polars frame; nothing is read before it is collected."""
    from polars.io.plugins import register_io_source

    empty = pl.from_arrow(no_rows(rows.arrow_schema))
    assert isinstance(empty, pl.DataFrame)
    # The name in plans came with Polars 2.
    named: dict[str, Any] = (
        {"explain_name": rows.title} if "explain_name" in signature(register_io_source).parameters else {}
    )
    return register_io_source(_source(rows), schema=empty.schema, is_pure=True, **named)


def _source(rows: Narrowing) -> Callable[..., Iterator[pl.DataFrame]]:
    job = captured()

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        asked = rows if n_rows is None else rows.first(n_rows)
        if predicate is not None and n_rows is None:
            for part in conditions(predicate):
                asked = asked.where(part) or asked
        needed = set(asked.arrow_schema.names)
        if columns is not None:
            needed = {*columns, *(predicate.meta.root_names() if predicate is not None else ())}
        asked = asked.only_columns([name for name in asked.arrow_schema.names if name in needed])
        is_empty = True
        with job():
            batches = asked.to_batches()
        for batch in batches:
            is_empty = False
            yield _chosen(batch, predicate, columns)
        if is_empty:
            yield _chosen(no_rows(asked.arrow_schema), predicate, columns)

    return read


def _chosen(
    rows: pa.Table | pa.RecordBatch, predicate: pl.Expr | None, columns: list[str] | None
) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    if predicate is not None:
        frame = frame.filter(predicate)
    # Not by select, which takes a name like ^a.*$ for a pattern.
    return frame if columns is None else pl.DataFrame([frame.get_column(name) for name in columns])


def conditions(predicate: pl.Expr) -> list[Predicate]:
    """Return necessary conditions of a Polars filter, as far as they can be translated."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError, TypeError):
        return []
    found = []
    for part in _conjuncts(tree):
        try:
            found.append(_translated(part))
        except (PredicateError, _UnknownError, KeyError, ValueError, OverflowError, TypeError):
            continue
    return found


class _UnknownError(Exception):
    """A part of an expression has no counterpart."""


def _conjuncts(node: Any) -> Iterator[Any]:
    match node:
        case {"BinaryExpr": {"op": "And", "left": left, "right": right}}:
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield node


def _translated(node: Any) -> Predicate:
    match node:
        case {"Column": str() as name}:
            return Comparison(Operator.EQ, Column((name,)), Literal(True))
        case {"BinaryExpr": {"op": "And", "left": left, "right": right}}:
            return _translated(left) & _translated(right)
        case {"BinaryExpr": {"op": "Or", "left": left, "right": right}}:
            return _translated(left) | _translated(right)
        case {"BinaryExpr": {"op": op, "left": {"Column": str() as name}, "right": {"Literal": literal}}}:
            return Comparison(_OPERATORS[op], Column((name,)), _literal(literal))
        case {"BinaryExpr": {"op": op, "left": {"Literal": literal}, "right": {"Column": str() as name}}}:
            return Comparison(_OPERATORS[op].flipped, Column((name,)), _literal(literal))
        case {"Function": {"input": [{"Column": str() as name}, *arguments], "function": function}}:
            return _function(Column((name,)), function, arguments)
        case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
            return Not(_translated(inner))
    raise _UnknownError


def _function(column: Column, function: Any, arguments: list[Any]) -> Predicate:
    match function, arguments:
        case {"Boolean": "Not"}, []:
            return Not(Comparison(Operator.EQ, column, Literal(True)))
        case {"Boolean": "IsNull"}, []:
            return IsNull(column)
        case {"Boolean": "IsNotNull"}, []:
            return Not(IsNull(column))
        case {"Boolean": {"IsBetween": {"closed": closed}}}, [{"Literal": low}, {"Literal": high}]:
            above = Operator.GE if closed in ("Both", "Left") else Operator.GT
            below = Operator.LE if closed in ("Both", "Right") else Operator.LT
            return Comparison(above, column, _literal(low)) & Comparison(below, column, _literal(high))
        case {"StringExpr": "StartsWith"}, [{"Literal": {"Scalar": {"String": str() as text}}}]:
            return StartsWith(column, text)
        case {"Boolean": {"IsIn": how}}, [{"Literal": {"Scalar": {"List": stored}}}]:
            values = pa.ipc.open_stream(BytesIO(bytes(stored))).read_all().column(0).to_pylist()
            if not values or None in values:
                raise _UnknownError
            found = In(column, tuple(map(Literal, values)))
            # With nulls_equal null is not in the list, where else it is unknown: inside of a NOT these differ.
            return found & Not(IsNull(column)) if how.get("nulls_equal") else found
    raise _UnknownError


def _literal(node: Mapping[str, Any]) -> Literal:
    scalar = node.get("Scalar")
    if not isinstance(scalar, dict):
        raise _UnknownError
    [(kind, value)] = scalar.items()
    match kind, value:
        case "Float32", (int() | float()):
            return Literal(float(np.float32(value)))  # it is written in as few digits as a FLOAT needs
        case (("String" | "Boolean" | "Float64"), (str() | bool() | int() | float())):
            return Literal(float(value) if kind == "Float64" else value)
        case "Binary", list():
            return Literal(bytes(value))
        case "Date", int():
            return Literal(date(1970, 1, 1) + timedelta(days=value))
        case "Datetime", [int() as since, ("Milliseconds" | "Microseconds") as unit, zone]:
            micros = since * (1_000 if unit == "Milliseconds" else 1)
            instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
            moment = instant.replace(tzinfo=None) if zone is None else instant.astimezone(ZoneInfo(zone))
            return Literal(moment)
        case "Decimal", [int() as digits, int(), int() as scale]:
            return Literal(Decimal(f"{digits}e{-scale}"))  # exact, where arithmetic would round
        case str(), int() if kind.startswith(("Int", "UInt")) and not isinstance(value, bool):
            return Literal(value)
    raise _UnknownError

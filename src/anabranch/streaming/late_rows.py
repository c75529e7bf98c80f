"""Late rows of a table: those behind the watermark that the table had before their snapshot.

That is a property of the table, the same for every reader, whatever batches it reads in: a row of snapshot k is
late if its event time is smaller than the watermark of snapshot k-1. Rows without an event time never are, nor
rows that a stream begins with because they were there already.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import OptionError
from anabranch.expr.bind import bind
from anabranch.expr.bound import NEVER, BoundColumn, BoundPredicate, NullTest, disjunction
from anabranch.expr.nodes import Column, Comparison, Literal, Operator
from anabranch.expr.values import Timestamp
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import watermark_definition
from anabranch.format.types.data_types import Field, LocalZonedTimestampType

_NANOS_PER_MILLI = 1_000_000
_FIRST_MILLI = -62_135_596_800_000
"""Year 1, the earliest that timestamps in predicates express."""
_END_MILLI = 253_402_300_800_000
"""Year 10000, the first that they do not express. Some engines end a stream with an infinite watermark."""


def late(event_time: Field, before: int) -> BoundPredicate:
    """Return a predicate for rows with an event time before a moment, in epoch milliseconds."""
    if before >= _END_MILLI:
        return NullTest(BoundColumn((event_time,)), negated=True)
    if before <= _FIRST_MILLI:
        return NEVER
    return _compared(event_time, Operator.LT, before)


def on_time(event_time: Field, before: int) -> BoundPredicate:
    """Return a predicate for all other rows, including those without an event time."""
    unknown = NullTest(BoundColumn((event_time,)))
    if before >= _END_MILLI:
        return unknown
    return disjunction([_compared(event_time, Operator.GE, max(before, _FIRST_MILLI)), unknown])


def event_time_of(schema: TableSchema, *, wanted_for: str) -> Field:
    """Return the event time column. Raises `OptionError` if the table does not define one."""
    definition = watermark_definition(schema)
    if definition is None:
        raise OptionError(
            f"{wanted_for} asks for late rows, but the table has no watermark definition",
            hint="define one: WATERMARK FOR <column> AS <column> - INTERVAL '5' SECOND when the table is created, "
            "or the options schema.watermark.0.* of a table that is there.",
        )
    return schema.field(definition.column)


def _compared(event_time: Field, op: Operator, before: int) -> BoundPredicate:
    moment = Timestamp(before * _NANOS_PER_MILLI, zoned=isinstance(event_time.type, LocalZonedTimestampType))
    fields: Sequence[Field] = (event_time,)
    return bind(Comparison(op, Column((event_time.name,)), Literal(moment)), fields)

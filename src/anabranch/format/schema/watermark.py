"""The definition of a table's watermark: which column is its event time, and how far out of order rows may come.

It lies in the table's options under the keys that Flink and Paimon use, so that every engine knows it::

    schema.watermark.0.rowtime              order_time
    schema.watermark.0.strategy.expr        `order_time` - INTERVAL '5' SECOND
    schema.watermark.0.strategy.data-type   TIMESTAMP(3)

Only expressions of that form are understood here: the column, less a fixed time. Others are left to the engine that
wrote them; for us such a table has no definition.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

from anabranch.errors import AnabranchError, OptionError, SchemaError, UnsupportedFeatureError
from anabranch.format.text.tokens import Tokens, interval_text, read_interval
from anabranch.format.types.data_types import DataType, Field, LocalZonedTimestampType, TimestampType

if TYPE_CHECKING:
    from anabranch.format.schema.table_schema import TableSchema

_LOG = logging.getLogger(__name__)

WATERMARK_PREFIX: Final = "schema.watermark."
ROWTIME: Final = f"{WATERMARK_PREFIX}0.rowtime"
EXPRESSION: Final = f"{WATERMARK_PREFIX}0.strategy.expr"
DATA_TYPE: Final = f"{WATERMARK_PREFIX}0.strategy.data-type"
WATERMARK_KEYS: Final = (ROWTIME, EXPRESSION, DATA_TYPE)

_MOST_DELAY: Final = 3650 * 86_400_000


@dataclass(frozen=True, slots=True)
class WatermarkDefinition:
    """Rows may come `delay_millis` later than rows with a newer event time, without being late."""

    column: str
    """The column of event times: TIMESTAMP, taken as UTC, or TIMESTAMP WITH LOCAL TIME ZONE."""
    delay_millis: int

    @property
    def expression(self) -> str:
        """The watermark in SQL, as the options hold it."""
        quoted = "`" + self.column.replace("`", "``") + "`"
        return f"{quoted} - {interval_text(self.delay_millis)}" if self.delay_millis else quoted

    def options(self, data_type: DataType) -> dict[str, str]:
        """The options of a table with this definition, whose column has that type."""
        return {ROWTIME: self.column, EXPRESSION: self.expression, DATA_TYPE: str(data_type)}


def watermark_definition(schema: TableSchema) -> WatermarkDefinition | None:
    """The table's definition; None if it has none, or one of another engine that is not understood here.

    Never raises. What is not understood is said once in the log.
    """
    if EXPRESSION not in schema.options and ROWTIME not in schema.options:
        return None
    types = tuple((f.name, f.type) for f in schema.fields)
    return _understood(schema.options.get(ROWTIME), schema.options.get(EXPRESSION), types)


def defined_by_write(schema: TableSchema, options: Mapping[str, str]) -> TableSchema:
    """The schema for one write, with the definition that its options have, if the table has none of its own.

    Raises:
        OptionError, UnsupportedFeatureError: as `check_watermark`.
        SchemaError: the column cannot be the event time of rows.
    """
    given = {key: options[key] for key in WATERMARK_KEYS if key in options}
    if not given or schema.options.keys() & set(WATERMARK_KEYS):
        return schema
    check_watermark(schema.fields, given)
    return replace(schema, options={**schema.options, **given})


def read_watermark(tokens: Tokens) -> WatermarkDefinition:
    """Take what stands after WATERMARK FOR: ``order_time AS order_time - INTERVAL '5' SECOND``.

    Raises:
        SchemaError: it is no definition, the delay is negative or absurd, or two columns are named.
        UnsupportedFeatureError: the expression is of another form.
    """
    column = tokens.name("the column of event times")
    tokens.expect("AS")
    return WatermarkDefinition(column, _read_delay(tokens, column))


def check_watermark(fields: Sequence[Field], options: Mapping[str, str]) -> None:
    """Check the definition among the options of a table that is made or changed here.

    Raises:
        OptionError: the keys contradict each other, or name no column of event times.
        UnsupportedFeatureError: the expression is of a form that only other engines evaluate.
    """
    for key in options:
        if key.startswith(WATERMARK_PREFIX) and key not in WATERMARK_KEYS:
            raise OptionError(
                f"unknown option '{key}'",
                hint=f"a table has one watermark, defined by {', '.join(WATERMARK_KEYS)}.",
            )
    if not options.keys() & set(WATERMARK_KEYS):
        return
    for key in (ROWTIME, EXPRESSION):
        if key not in options:
            other = EXPRESSION if key == ROWTIME else ROWTIME
            raise OptionError(
                f"the watermark of the table is not complete: option '{key}' is not set",
                hint=f"set '{ROWTIME}' and '{EXPRESSION}' together, or write WATERMARK FOR among the columns; "
                f"remove '{other}' as well if the table shall have no watermark.",
            )
    definition = _parsed(options[ROWTIME], options[EXPRESSION])
    if definition is None:
        raise OptionError(
            f"option '{EXPRESSION}' is about another column than '{ROWTIME}', which is '{options[ROWTIME]}'",
            hint=f"write `{options[ROWTIME]}` - INTERVAL '5' SECOND, for example.",
        )
    check_event_time(fields, definition.column)


def check_event_time(fields: Sequence[Field], column: str) -> None:
    """Check that a column can be the event time of rows. Raises `SchemaError`."""
    types = {f.name: f.type for f in fields}
    if column not in types:
        raise SchemaError(
            f"the watermark is about '{column}', which is no column; columns are {', '.join(list(types)[:20])}",
            hint="name a column of the table; computed columns are not implemented.",
        )
    if not _is_event_time(types[column]):
        raise SchemaError(
            f"the watermark is about '{column}', which is {types[column]}",
            hint="event times are TIMESTAMP or TIMESTAMP WITH LOCAL TIME ZONE; let the job that writes convert them.",
        )


def with_watermark(
    fields: Sequence[Field], definition: WatermarkDefinition | None, options: Mapping[str, str] | None
) -> dict[str, str]:
    """The options of a new table, with the definition that its column list has.

    Raises:
        SchemaError: the column cannot be the event time of rows.
        OptionError: the options define another watermark.
    """
    given = dict(options or {})
    if definition is None:
        return given
    if given.keys() & set(WATERMARK_KEYS):
        raise OptionError(
            "the watermark of the table is defined twice: among the columns and by options",
            hint=f"leave out {', '.join(WATERMARK_KEYS)}.",
        )
    check_event_time(fields, definition.column)
    data_type = next(f.type for f in fields if f.name == definition.column)
    return {**given, **definition.options(data_type)}


def watermark_settled(
    fields: Sequence[Field], options: Mapping[str, str], *, before: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options, with the type of the column beside a definition, because other engines expect it there.

    Args:
        fields: the columns.
        options: of the table; a definition that is not understood stays as it is.
        before: the options before a change: with a definition that was removed goes what is left of it.
    """
    settled = dict(options)
    if not options.keys() & {ROWTIME, EXPRESSION}:
        if (before or {}).keys() & {ROWTIME, EXPRESSION}:
            settled.pop(DATA_TYPE, None)
        return settled
    data_type = {f.name: f.type for f in fields}.get(options.get(ROWTIME, ""))
    if data_type is not None and _is_event_time(data_type) and _delay_of(options) is not None:
        settled[DATA_TYPE] = str(data_type)
    return settled


def watermark_renamed(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The options, after the column `old` was renamed: a definition about it follows."""
    if options.get(ROWTIME) != old:
        return dict(options)
    delay = _delay_of(options)
    if delay is None:
        raise SchemaError(
            f"column '{old}' cannot be renamed: the watermark of the table is an expression of it that is not "
            f"understood here: {options.get(EXPRESSION)}",
            hint="rename it with the engine that defined the watermark.",
        )
    return {**options, ROWTIME: new, EXPRESSION: WatermarkDefinition(new, delay).expression}


def _delay_of(options: Mapping[str, str]) -> int | None:
    """The delay of the definition; None if it is not understood."""
    try:
        definition = _parsed(options.get(ROWTIME, ""), options.get(EXPRESSION, ""))
    except AnabranchError:
        return None
    return None if definition is None else definition.delay_millis


def _refuse_form(column: str) -> NoReturn:
    raise UnsupportedFeatureError(
        f"the watermark of '{column}' is an expression that is not implemented here",
        feature="watermark-expression",
        hint=f"write `{column}` - INTERVAL '5' SECOND: the column, less a fixed time.",
    )


def _is_event_time(data_type: DataType) -> bool:
    return isinstance(data_type, TimestampType | LocalZonedTimestampType)


@lru_cache(maxsize=256)  # so that what is not understood is said once, not with every batch
def _understood(
    rowtime: str | None, expression: str | None, types: tuple[tuple[str, DataType], ...]
) -> WatermarkDefinition | None:
    columns = dict(types)
    problem = "it is not complete"
    if rowtime is not None and expression is not None:
        try:
            definition = _parsed(rowtime, expression)
            if definition is not None and _is_event_time(columns.get(rowtime, DataType())):
                return definition
            problem = f"'{rowtime}' is no column of event times, or not what the expression is about"
        except AnabranchError as error:
            problem = error.message
    _LOG.warning(
        "the watermark of a table is ignored, %s AS %s: %s", rowtime or "(no column)", expression, problem
    )
    return None


def _parsed(rowtime: str, expression: str) -> WatermarkDefinition | None:
    """The definition; None if the expression is about another column. Raises as `read_watermark` does."""
    tokens = Tokens(expression)
    found = tokens.here.value
    if found != rowtime:
        if "(" in expression:
            _refuse_form(rowtime)
        return None
    delay = _read_delay(tokens, rowtime)
    tokens.expect_end("the end of the watermark")
    return WatermarkDefinition(rowtime, delay)


def _read_delay(tokens: Tokens, column: str) -> int:
    """Take ``column - INTERVAL '5' SECOND`` or ``column``; milliseconds."""
    at = tokens.here
    named = tokens.name(f"'{column}', the column of event times")
    hint = f"write for example: WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND"
    if tokens.here.value in ("(", "."):
        _refuse_form(column)
    if named != column:
        tokens.fail(f"the watermark of '{column}' is computed from '{named}'", at=at, hint=hint)
    if tokens.here.value in ("+", "*", "/"):
        _refuse_form(column)
    if not tokens.accept("-"):
        return 0
    at = tokens.here
    delay = read_interval(tokens)
    if delay < 0:
        tokens.fail("the delay of the watermark is negative", at=at, hint=hint)
    if delay > _MOST_DELAY:
        tokens.fail(
            f"the delay of the watermark is {delay // 86_400_000:,} days; at most 3,650 are allowed", at=at
        )
    return delay

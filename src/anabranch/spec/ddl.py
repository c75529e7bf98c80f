"""Column lists as SQL spells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from anabranch.errors import SchemaError, UnsupportedFeatureError
from anabranch.spec.field_ids import UNASSIGNED_ID, assign_field_ids
from anabranch.spec.schema_rules import primary_key_error
from anabranch.spec.tokens import TokenKind, Tokens
from anabranch.spec.type_grammar import read_comment, read_type
from anabranch.spec.types import Field
from anabranch.spec.watermark import WatermarkDefinition, read_watermark


@dataclass(frozen=True, slots=True)
class ColumnList:
    """What may stand between the parentheses of CREATE TABLE."""

    fields: tuple[Field, ...]
    """The columns, numbered as those of a new table."""
    watermark: WatermarkDefinition | None = None


def parse_column_list(text: str) -> ColumnList:
    """Columns from text such as ``id BIGINT NOT NULL, v STRING COMMENT 'what it is'``.

    Names with other signs than letters, digits and ``_`` stand between back-ticks. The list may stand in
    parentheses. Among the columns one clause ``WATERMARK FOR v AS v - INTERVAL '5' SECOND`` may stand; whether
    its column is there and a time is not checked here.

    Raises:
        SchemaError: the text is no column list; names the position.
        UnsupportedFeatureError: it asks for a primary key, for a type or for a watermark that is not implemented.
    """
    tokens = Tokens(text)
    if tokens.at_end:
        raise SchemaError("the column list is empty", hint="write for example: id BIGINT NOT NULL, v STRING")
    parenthesised = tokens.accept("(")
    fields: list[Field] = []
    watermark: WatermarkDefinition | None = None
    while True:
        at = tokens.here
        if not tokens.accept("WATERMARK", "FOR"):
            fields.append(_read_column(tokens))
        elif watermark is not None:
            tokens.fail("the column list has a second WATERMARK FOR clause", at=at, hint="a table has one.")
        else:
            watermark = read_watermark(tokens)
        if not tokens.accept(","):
            break
    if parenthesised:
        tokens.expect(")")
    tokens.expect_end("a comma or the end of the column list")
    return ColumnList(assign_field_ids(fields)[0], watermark)


def parse_columns(text: str) -> tuple[Field, ...]:
    """The columns of text that has nothing but columns; raises as `parse_column_list` does."""
    columns = parse_column_list(text)
    if columns.watermark is not None:
        raise SchemaError(
            "the columns have a WATERMARK FOR clause, which only the columns of a table can have",
            hint="leave the clause out.",
        )
    return columns.fields


def _read_column(tokens: Tokens) -> Field:
    _refuse_keys(tokens)
    name = tokens.name("the name of a column")
    tokens.accept(":")
    data_type = read_type(tokens)
    comment = None
    while not tokens.at_end and tokens.here.kind is not TokenKind.SIGN:
        if tokens.accept("PRIMARY", "KEY") or tokens.accept("UNIQUE"):
            _refuse_key(name)
        if tokens.accept("DEFAULT"):
            _refuse_default(name)
        at = tokens.here
        read = read_comment(tokens)
        if read is None or comment is not None:
            tokens.fail(f"expected a comma or a COMMENT after the type of '{name}', found {at.shown}", at=at)
        comment = read
    return Field(UNASSIGNED_ID, name, data_type, comment)


def _refuse_keys(tokens: Tokens) -> None:
    """Refuse what may stand in place of a column; a column may still have such a name."""
    if tokens.accept("PRIMARY", "KEY") or tokens.accept("CONSTRAINT", None, "PRIMARY", "KEY"):
        _refuse_key(None)


def _refuse_key(column: str | None) -> NoReturn:
    where = "the column list" if column is None else f"the column '{column}'"
    raise primary_key_error(f"{where} defines a key")


def _refuse_default(column: str) -> NoReturn:
    raise UnsupportedFeatureError(
        f"the column '{column}' has a DEFAULT, which is not implemented",
        feature="column-default",
        hint="write the value with every row.",
    )

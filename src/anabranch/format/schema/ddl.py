"""Column lists as SQL spells them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from anabranch.errors import OptionError, SchemaError, UnsupportedFeatureError
from anabranch.format.schema.rules import primary_key_error
from anabranch.format.schema.watermark import WatermarkDefinition, read_watermark, with_watermark
from anabranch.format.text.tokens import TokenKind, Tokens
from anabranch.format.types.data_types import Field
from anabranch.format.types.field_tree import assign_field_ids
from anabranch.format.types.grammar import UNASSIGNED_ID, read_comment, read_type
from anabranch.options import CHECK_PREFIX


@dataclass(frozen=True, slots=True)
class ColumnList:
    """The parenthesised part of CREATE TABLE: columns, watermark and checks."""

    fields: tuple[Field, ...]
    """The columns, numbered as those of a new table."""
    watermark: WatermarkDefinition | None = None
    checks: Mapping[str, str] = field(default_factory=dict)
    """Conditions on rows, by their names."""

    def options(self, given: Mapping[str, str] | None) -> dict[str, str]:
        """The options of a new table, with what its column list says besides columns.

        Raises:
            SchemaError: the column of the watermark cannot be the event time of rows.
            OptionError: the options say something else.
        """
        options = with_watermark(self.fields, self.watermark, given)
        for name, condition in self.checks.items():
            key = f"{CHECK_PREFIX}{name}"
            if key in options:
                raise OptionError(
                    f"the check '{name}' of the table is defined twice: among the columns and by options",
                    hint=f"leave out the option '{key}'.",
                )
            options[key] = condition
        return options


def parse_column_list(text: str) -> ColumnList:
    """Columns from text such as ``id BIGINT NOT NULL, v STRING COMMENT 'what it is'``.

    Names with other signs than letters, digits and ``_`` stand between back-ticks. The list may stand in
    parentheses. A column may have a ``DEFAULT 5``. Among the columns ``CONSTRAINT positive CHECK (v > 0)`` may stand, for
    conditions of filters that every row must satisfy, and one clause ``WATERMARK FOR v AS v - INTERVAL '5' SECOND`` may stand; whether
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
    checks: dict[str, str] = {}
    while True:
        at = tokens.here
        check = _read_check(tokens, len(checks) + 1)
        if check is not None:
            if check[0] in checks:
                tokens.fail(f"the column list has a second check '{check[0]}'", at=at)
            checks[check[0]] = check[1]
        elif not tokens.accept("WATERMARK", "FOR"):
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
    return ColumnList(assign_field_ids(fields)[0], watermark, checks)


def parse_columns(text: str) -> tuple[Field, ...]:
    """The columns of text that has nothing but columns; raises as `parse_column_list` does."""
    columns = parse_column_list(text)
    if columns.watermark is not None or columns.checks:
        clause = "WATERMARK FOR" if columns.watermark is not None else "CHECK"
        raise SchemaError(
            f"the columns have a {clause} clause, which only the columns of a table can have",
            hint="leave the clause out.",
        )
    return columns.fields


def _read_column(tokens: Tokens) -> Field:
    _refuse_keys(tokens)
    name = tokens.name("the name of a column")
    tokens.accept(":")
    data_type = read_type(tokens)
    comment = default = None
    while not tokens.at_end and tokens.here.kind is not TokenKind.SIGN:
        if tokens.accept("PRIMARY", "KEY") or tokens.accept("UNIQUE"):
            _refuse_key(name)
        if default is None and tokens.accept("DEFAULT"):
            default = _read_default(tokens, name)
            continue
        at = tokens.here
        read = read_comment(tokens)
        if read is None or comment is not None:
            tokens.fail(f"expected a comma or a COMMENT after the type of '{name}', found {at.shown}", at=at)
        comment = read
    return Field(UNASSIGNED_ID, name, data_type, comment, default)


def _read_default(tokens: Tokens, column: str) -> str | None:
    """The text of a default, from a literal as SQL spells it."""
    at = tokens.here
    negative = tokens.accept("-")
    token = tokens.take()
    if token.kind is TokenKind.NUMBER:
        digits = token.value
        if tokens.accept("."):
            digits = f"{digits}.{tokens.take().value}"
        digits += _read_exponent(tokens)
        return f"-{digits}" if negative else digits
    if not negative and token.kind is TokenKind.TEXT:
        return token.value
    if not negative and token.kind is TokenKind.WORD:
        if token.value.upper() == "NULL":
            return None
        if token.value.upper() in {"TRUE", "FALSE"}:
            return token.value.lower()
        if tokens.here.kind is TokenKind.TEXT and token.value.upper() in {"DATE", "TIME", "TIMESTAMP"}:
            return tokens.take().value
    raise UnsupportedFeatureError(
        f"the column '{column}' has a DEFAULT that is no plain value, at {at.shown}",
        feature="column-default",
        hint="write a number, 'text', TRUE, FALSE, DATE '...' or TIMESTAMP '...'.",
    )


def _read_exponent(tokens: Tokens) -> str:
    """The exponent of a number, ``e3`` or ``e-3``, if one comes next; else empty text."""
    word = tokens.here.value if tokens.here.kind is TokenKind.WORD else ""
    if re.fullmatch("[eE][0-9]+", word):
        return tokens.take().value
    if word in ("e", "E"):
        for sign in ("+", "-"):
            if tokens.accept(word.upper(), sign):
                return f"e{sign}{tokens.take().value}"
    return ""


def _read_check(tokens: Tokens, number: int) -> tuple[str, str] | None:
    """Name and condition of a CHECK, if one comes next; a column may be called check."""
    if tokens.accept("CHECK", "("):
        name = f"check_{number}"
    elif tokens.accept("CONSTRAINT", None, "CHECK", "("):
        name = tokens.before(3)
    else:
        return None
    begin, depth = tokens.here.position, 1
    while depth:
        if tokens.at_end:
            tokens.fail("a parenthesis of the CHECK is not closed")
        at = tokens.take()
        if at.kind is TokenKind.SIGN:
            depth += {"(": 1, ")": -1}.get(at.value, 0)
    return name, tokens.text[begin : at.position].strip()


def _refuse_keys(tokens: Tokens) -> None:
    """Refuse what may stand in place of a column; a column may still have such a name."""
    if tokens.accept("PRIMARY", "KEY") or tokens.accept("CONSTRAINT", None, "PRIMARY", "KEY"):
        _refuse_key(None)


def _refuse_key(column: str | None) -> NoReturn:
    where = "the column list" if column is None else f"the column '{column}'"
    raise primary_key_error(f"{where} defines a key")

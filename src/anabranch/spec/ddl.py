"""Column lists as SQL spells them."""

from __future__ import annotations

from typing import NoReturn

from anabranch.errors import SchemaError, UnsupportedFeatureError
from anabranch.spec.field_ids import UNASSIGNED_ID, assign_field_ids
from anabranch.spec.schema_rules import primary_key_error
from anabranch.spec.tokens import TokenKind, Tokens
from anabranch.spec.type_grammar import read_comment, read_type
from anabranch.spec.types import Field


def parse_columns(text: str) -> tuple[Field, ...]:
    """Columns from text such as ``id BIGINT NOT NULL, v STRING COMMENT 'what it is'``.

    Names with other signs than letters, digits and ``_`` stand between back-ticks. The list may stand in
    parentheses. Columns are numbered as those of a new table.

    Raises:
        SchemaError: the text is no column list; names the position.
        UnsupportedFeatureError: it asks for a primary key, a watermark, or a type that is not implemented.
    """
    tokens = Tokens(text)
    if tokens.at_end:
        raise SchemaError("the column list is empty", hint="write for example: id BIGINT NOT NULL, v STRING")
    parenthesised = tokens.accept("(")
    fields = [_read_column(tokens)]
    while tokens.accept(","):
        fields.append(_read_column(tokens))
    if parenthesised:
        tokens.expect(")")
    tokens.expect_end("a comma or the end of the column list")
    return assign_field_ids(fields)[0]


def _read_column(tokens: Tokens) -> Field:
    _refuse_clauses(tokens)
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


def _refuse_clauses(tokens: Tokens) -> None:
    """Refuse what may stand in a column list besides columns; a column may still have such a name."""
    if tokens.accept("PRIMARY", "KEY") or tokens.accept("CONSTRAINT", None, "PRIMARY", "KEY"):
        _refuse_key(None)
    if tokens.accept("WATERMARK", "FOR"):
        raise UnsupportedFeatureError(
            "the column list has a WATERMARK FOR clause, which is not implemented here",
            feature="watermark-ddl",
            hint="leave the clause out and give the watermark to the job that writes the table.",
        )


def _refuse_key(column: str | None) -> NoReturn:
    where = "the column list" if column is None else f"the column '{column}'"
    raise primary_key_error(f"{where} defines a key")


def _refuse_default(column: str) -> NoReturn:
    raise UnsupportedFeatureError(
        f"the column '{column}' has a DEFAULT, which is not implemented",
        feature="column-default",
        hint="write the value with every row.",
    )

"""Parser of CREATE TABLE in our dialect: types that Spark's grammar lacks, and WATERMARK FOR among the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from anabranch.catalog import Identifier
from anabranch.catalog.connectors import CONNECTOR
from anabranch.errors import AlreadyExistsError, SqlError
from anabranch.format.schema.ddl import parse_column_list
from anabranch.format.types.data_types import Field
from anabranch.spark.catalog.properties import table_properties
from anabranch.spark.kafka import definition as kafka
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.scanner import Word, closing, matches, name_at, spliced, words_of


@dataclass(frozen=True)
class CreateTable:
    """A parsed CREATE or REPLACE TABLE statement."""

    name: tuple[str, ...]
    """One to three name parts, as typed."""
    columns: str
    """Text between the column parentheses."""
    if_not_exists: bool = False
    comment: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    query: str | None = None
    """Query that supplies the rows."""
    creates: bool = True
    """Whether a new table may be created."""
    replaces: bool = False
    """Whether an existing table may be replaced."""


def create_table(statement: str) -> CreateTable | None:
    """Parse a CREATE TABLE without rows; None if it is another statement, or says what only Spark understands.

    Understood are, after the columns and in any order: COMMENT, PARTITIONED BY (names), TBLPROPERTIES and WITH.
    """
    found = table_statement(statement)
    return None if found is None or found.replaces or found.query is not None else found


def table_statement(statement: str) -> CreateTable | None:
    """Parse CREATE TABLE, REPLACE TABLE or CREATE OR REPLACE TABLE, also AS SELECT; None as in `create_table`."""
    words = words_of(statement)
    while words and words[-1].is_(";"):
        words.pop()
    place = next((len(how) for how in _HOW if matches(words, 0, *how)), 0)
    if not place:
        return None
    creates, replaces = words[0].is_("CREATE"), any(w.is_("REPLACE") for w in words[:place])
    if_not_exists = matches(words, place, "IF", "NOT", "EXISTS")
    name, place = name_at(words, place + 3 if if_not_exists else place)
    if not name:
        return None
    columns = None
    if matches(words, place, "("):
        end = closing(words, place)
        columns, place = _columns(statement, words, place, end), end + 1
    clauses, place = _clauses(words, place)
    query = None
    if matches(words, place, "AS") and place + 1 < len(words):
        query = statement[words[place + 1].start : words[-1].end]
    elif place < len(words):
        return None
    if (columns is None) == (query is None):
        return None
    return CreateTable(
        name, columns or "", if_not_exists, query=query, creates=creates, replaces=replaces, **clauses
    )


_HOW = (("CREATE", "TABLE"), ("CREATE", "OR", "REPLACE", "TABLE"), ("REPLACE", "TABLE"))


def _columns(statement: str, words: Sequence[Word], opening: int, end: int) -> str:
    """Return the text between the column parentheses, with Spark's BINARY, of any length, as our BYTES."""
    start = words[opening].end
    bare = [
        (word.start - start, word.end - start, "BYTES")
        for word, coming in pairwise(words[opening + 1 : end + 1])
        if word.is_("BINARY") and coming.is_(",", ")", ">", "NOT", "NULL", "COMMENT")
    ]
    return spliced(statement[start : words[end].start], bare)


def create(new: CreateTable, names: Names) -> bool:
    """Create the table; False if its name is not one of this lake. Raises what `Lake.create_table` does."""
    name = names.full(new.name)
    if name is None:
        return False
    columns = parse_column_list(new.columns)
    options = columns.options(table_properties(new.options))
    identifier = names.identifier(new.name)
    if CONNECTOR.key in options:
        create_elsewhere(names, identifier, columns.fields, options, new)
        return True
    if names.connector(name) is not None:
        if new.if_not_exists:
            return True
        raise AlreadyExistsError(
            f"table '{name}' exists already", hint="drop it first, or choose another name."
        )
    names.files.create_table(
        identifier,
        columns.fields,
        partition_by=new.partition_by,
        options=options,
        comment=new.comment,
        if_not_exists=new.if_not_exists,
    )
    return True


def create_elsewhere(
    names: Names,
    identifier: Identifier,
    fields: tuple[Field, ...],
    options: Mapping[str, str],
    new: CreateTable,
) -> None:
    """Store the definition of an external table. Raises what `Connectors.create` does."""
    kafka.check(fields, options)
    if new.partition_by:
        raise SqlError("a topic is not partitioned by columns", hint="leave PARTITIONED BY out.")
    names.files.create_database(identifier.database, if_not_exists=True)
    if identifier.table in names.files.tables(identifier.database):
        if new.if_not_exists:
            return
        raise AlreadyExistsError(
            f"table '{identifier.full_name}' exists already", hint="drop it first, or choose another name."
        )
    names.connectors.create(
        identifier, fields, options=options, comment=new.comment, if_not_exists=new.if_not_exists
    )


def _clauses(words: Sequence[Word], place: int) -> tuple[dict[str, Any], int]:
    """Parse the clauses after the columns as far as they are understood; return them and the index after them."""
    found: dict[str, Any] = {}
    while place < len(words):
        word = words[place]
        following = words[place + 1] if place + 1 < len(words) else None
        if word.is_("COMMENT") and following is not None and following.kind == "text":
            found["comment"], place = following.value, place + 2
        elif matches(words, place, "PARTITIONED", "BY", "("):
            end = closing(words, place + 2)
            names = words[place + 3 : end : 2]
            commas = words[place + 4 : end : 2]
            if not all(w.kind in ("word", "quoted") for w in names) or not all(c.is_(",") for c in commas):
                break
            found["partition_by"], place = tuple(w.name for w in names), end + 1
        elif word.is_("WITH", "TBLPROPERTIES") and matches(words, place + 1, "("):
            end = closing(words, place + 1)
            found["options"], place = properties(words[place + 2 : end]), end + 1
        else:
            break
    return found, place


def properties(words: Sequence[Word]) -> dict[str, str]:
    """Parse ``'k' = 'v', ...``. Raises `SqlError`."""
    found: dict[str, str] = {}
    for place in range(0, len(words), 4):
        entry = words[place : place + 4]
        shape = [w.kind for w in entry[:3]]
        last = len(entry) == 3 or (len(entry) == 4 and entry[3].is_(","))
        if len(shape) < 3 or shape[0] != "text" or not entry[1].is_("=") or not last:
            raise SqlError(
                "the properties of the table are not written as 'key' = 'value'",
                hint="write WITH ('bucket' = '8', 'bucket-key' = 'id').",
            )
        found[entry[0].value] = entry[2].value if shape[2] == "text" else entry[2].text
    return found

"""Parser of CREATE and ALTER TABLE in our dialect: types that Spark's grammar lacks, and WATERMARK FOR among the columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from anabranch.catalog import Identifier
from anabranch.catalog.connectors import CONNECTOR
from anabranch.errors import AlreadyExistsError, SqlError, UnsupportedFeatureError
from anabranch.format.schema import change as c
from anabranch.format.schema.ddl import parse_column_list
from anabranch.format.types.data_types import DataType, Field
from anabranch.format.types.field_tree import After, First, Last, Position
from anabranch.spark.catalog.properties import set_properties, table_properties, unset_properties
from anabranch.spark.kafka import definition as kafka
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.scanner import (
    Word,
    WordReader,
    closing,
    matches,
    name_at,
    properties,
    spliced,
    words_of,
)


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


TypeOf = Callable[[str], DataType]
"""Function from a type in Spark's SQL to the table type."""


def changes(reader: WordReader, type_of: TypeOf) -> list[c.SchemaChange] | None:
    """Parse the changes after ALTER TABLE and the name; None if they are not of columns or properties.

    Raises `SqlError` for what is not understood, `UnsupportedFeatureError` for what tables do not have.
    """
    if reader.accept("SET", "TBLPROPERTIES"):
        return set_properties(properties(reader.inside("( ... )")))
    if reader.accept("UNSET", "TBLPROPERTIES"):
        reader.accept("IF", "EXISTS")
        return unset_properties(word.value for word in reader.inside("( ... )")[::2])
    if reader.accept("ADD") and reader.accept_any("COLUMN", "COLUMNS"):
        return _added(reader, type_of)
    if reader.accept("DROP") and reader.accept_any("COLUMN", "COLUMNS"):
        return _dropped(reader)
    if reader.accept("RENAME", "COLUMN"):
        name = reader.name("a column")
        reader.expect("TO")
        return [c.RenameColumn(name, reader.name("a new name")[-1])]
    if reader.accept_any("ALTER", "CHANGE"):
        reader.accept("COLUMN")
        return _changed(reader, type_of)
    return None


def _added(reader: WordReader, type_of: TypeOf) -> list[c.SchemaChange]:
    parenthesised = reader.accept("(")
    found: list[c.SchemaChange] = []
    while True:
        name = reader.name("a column")
        reader.accept(":")
        spelled = reader.until("COMMENT", "FIRST", "AFTER", "NOT", "DEFAULT", ",", ")")
        nullable = not reader.accept("NOT", "NULL")
        if reader.accept("DEFAULT"):
            raise UnsupportedFeatureError(
                "tables do not have a column's DEFAULT", feature="table-change", hint="leave it out."
            )
        comment = reader.text("a text") if reader.accept("COMMENT") else None
        position = _position(reader)
        found.append(c.AddColumn(name, type_of(spelled).with_nullable(nullable), comment, position or Last()))
        if not reader.accept(","):
            break
    if parenthesised:
        reader.expect(")")
    return found


def _dropped(reader: WordReader) -> list[c.SchemaChange]:
    if_exists = reader.accept("IF", "EXISTS")
    parenthesised = reader.accept("(")
    names = [reader.name("a column")]
    while reader.accept(","):
        names.append(reader.name("a column"))
    if parenthesised:
        reader.expect(")")
    return [DropIfExists(name) if if_exists else c.DropColumn(name) for name in names]


class DropIfExists(c.DropColumn):
    """Drop of a column, if it exists."""


def _changed(reader: WordReader, type_of: TypeOf) -> list[c.SchemaChange]:
    name = reader.name("a column")
    found: list[c.SchemaChange] = []
    while reader.here is not None:
        position = _position(reader)
        if position is not None:
            found.append(c.MoveColumn(name, position))
        elif reader.accept("TYPE"):
            spelled = reader.until("COMMENT", "FIRST", "AFTER", "SET", "DROP")
            found.append(c.WidenColumn(name, type_of(spelled)))
        elif reader.accept("COMMENT"):
            found.append(c.SetColumnComment(name, reader.text("a text")))
        elif reader.accept("DROP", "NOT", "NULL"):
            found.append(c.SetNullable(name, True))
        elif reader.accept("SET", "NOT", "NULL"):
            found.append(c.SetNullable(name, False))
        elif found or reader.name("a change of the column")[-1].lower() != name[-1].lower():
            reader.fail("TYPE, COMMENT, FIRST, AFTER, SET NOT NULL or DROP NOT NULL")
        else:  # CHANGE COLUMN a a BIGINT, as Hive writes it
            found.append(c.WidenColumn(name, type_of(reader.until("COMMENT", "FIRST", "AFTER"))))
    return found


def _position(reader: WordReader) -> Position | None:
    if reader.accept("FIRST"):
        return First()
    return After(reader.name("a column")[-1]) if reader.accept("AFTER") else None

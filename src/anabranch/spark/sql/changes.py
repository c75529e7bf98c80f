"""Parser of ALTER TABLE into changes of a table; for sessions whose Spark does not know the tables."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.errors import UnsupportedFeatureError
from anabranch.format.schema.change import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetColumnComment,
    SetNullable,
    WidenColumn,
)
from anabranch.format.types.data_types import DataType
from anabranch.format.types.field_tree import After, First, Last, Position
from anabranch.spark.catalog.properties import set_properties, unset_properties
from anabranch.spark.sql.create import properties
from anabranch.spark.sql.reader import WordReader

TypeOf = Callable[[str], DataType]
"""Function from a type in Spark's SQL to the table type."""


def changes(reader: WordReader, type_of: TypeOf) -> list[SchemaChange] | None:
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
        return [RenameColumn(name, reader.name("a new name")[-1])]
    if reader.accept_any("ALTER", "CHANGE"):
        reader.accept("COLUMN")
        return _changed(reader, type_of)
    return None


def _added(reader: WordReader, type_of: TypeOf) -> list[SchemaChange]:
    parenthesised = reader.accept("(")
    found: list[SchemaChange] = []
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
        found.append(AddColumn(name, type_of(spelled).with_nullable(nullable), comment, position or Last()))
        if not reader.accept(","):
            break
    if parenthesised:
        reader.expect(")")
    return found


def _dropped(reader: WordReader) -> list[SchemaChange]:
    if_exists = reader.accept("IF", "EXISTS")
    parenthesised = reader.accept("(")
    names = [reader.name("a column")]
    while reader.accept(","):
        names.append(reader.name("a column"))
    if parenthesised:
        reader.expect(")")
    return [DropIfExists(name) if if_exists else DropColumn(name) for name in names]


class DropIfExists(DropColumn):
    """Drop of a column, if it exists."""


def _changed(reader: WordReader, type_of: TypeOf) -> list[SchemaChange]:
    name = reader.name("a column")
    found: list[SchemaChange] = []
    while reader.here is not None:
        position = _position(reader)
        if position is not None:
            found.append(MoveColumn(name, position))
        elif reader.accept("TYPE"):
            spelled = reader.until("COMMENT", "FIRST", "AFTER", "SET", "DROP")
            found.append(WidenColumn(name, type_of(spelled)))
        elif reader.accept("COMMENT"):
            found.append(SetColumnComment(name, reader.text("a text")))
        elif reader.accept("DROP", "NOT", "NULL"):
            found.append(SetNullable(name, True))
        elif reader.accept("SET", "NOT", "NULL"):
            found.append(SetNullable(name, False))
        elif found or reader.name("a change of the column")[-1].lower() != name[-1].lower():
            reader.fail("TYPE, COMMENT, FIRST, AFTER, SET NOT NULL or DROP NOT NULL")
        else:  # CHANGE COLUMN a a BIGINT, as Hive writes it
            found.append(WidenColumn(name, type_of(reader.until("COMMENT", "FIRST", "AFTER"))))
    return found


def _position(reader: WordReader) -> Position | None:
    if reader.accept("FIRST"):
        return First()
    return After(reader.name("a column")[-1]) if reader.accept("AFTER") else None

"""Statements that change or write tables, where Spark's SQL does not know them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.catalog import Identifier
from anabranch.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    SqlError,
    UnsupportedFeatureError,
)
from anabranch.expr.nodes import Column, ColumnExpression, Predicate, all_of
from anabranch.expr.parse import parse
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.types.data_types import CharType, DataType, VarCharType
from anabranch.options import DYNAMIC_PARTITION_OVERWRITE, WATERMARK_SOURCE_COLUMN
from anabranch.spark.catalog.properties import TableDefinition, table_properties
from anabranch.spark.sql.create import CreateTable, DropIfExists, changes
from anabranch.spark.sql.insert import Insert, in_columns
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.scanner import WordReader, assignments
from anabranch.spark.tasks.engine import SparkEngine
from anabranch.spark.types.columns import fields_from_spark, spark_schema, type_from_spark
from anabranch.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MODE = "spark.sql.sources.partitionOverwriteMode"
_WITH_LENGTH = re.compile(r"(CHAR|CHARACTER|VARCHAR)\s*\(\s*(\d+)\s*\)", re.IGNORECASE)


class TableStatements:
    """Executor of statements on the tables of the lake."""

    def __init__(self, spark: SparkSession, names: Names) -> None:
        """Create it for one session and one warehouse."""
        self._spark = spark
        self._names = names

    def open(self, name: str) -> Table:
        """Open the table ``db.t``, or a branch of it. Raises `NotFoundError`, `UnsupportedFeatureError` for a topic."""
        if self._names.connector(name) is not None:
            raise UnsupportedFeatureError(
                f"'{name}' is a topic, whose definition is not changed, and which is only read",
                feature="connector-tables",
                hint="drop it and define it anew; the topic stays as it is.",
            )
        identifier = Identifier.parse(name)
        if identifier.system is not None:
            raise InvalidInputError(
                f"'{name}' is a system table, which is only read", hint="name the table itself."
            )
        try:
            context = self._names.files.open(replace(identifier, branch=None))
        except NotFoundError as error:
            raise NotFoundError(
                f"table '{self._names.catalog}.{identifier.full_name}' does not exist", hint=error.hint
            ) from error
        table = Table(context, engine=SparkEngine(self._spark))
        return table if identifier.branch is None else table.branch(identifier.branch)

    def named(self, parts: tuple[str, ...]) -> Table:
        """Open the table that a statement names. Raises as `open` does."""
        name = self._names.full(parts)
        if name is None:
            raise NotFoundError(f"'{'.'.join(parts)}' is no table of the lake")
        return self.open(name)

    # Rows

    def insert(self, statement: Insert, frame: DataFrame) -> None:
        """Write the rows of a query.

        Raises what `Table.append` and `Table.replace` do, and `UnsupportedFeatureError` for IF NOT EXISTS.
        """
        if statement.if_not_exists:
            raise UnsupportedFeatureError(
                f"rows of '{'.'.join(statement.target)}' are not written IF NOT EXISTS",
                feature="insert-if-not-exists",
                hint="leave it out, and look first whether the partition is there: SHOW PARTITIONS.",
            )
        table = self.named(statement.target).with_options(statement.options)
        rows = in_columns(frame, statement, table.schema, also=WATERMARK_SOURCE_COLUMN.of(table.options))
        if not statement.overwrite and statement.where is None:
            table.append(rows)
        elif statement.where is not None:
            table.replace(rows, parse(statement.where))
        elif table.schema.partition_keys and str(self._spark.conf.get(_MODE, "static")).lower() == "dynamic":
            table.with_options({DYNAMIC_PARTITION_OVERWRITE.key: "true"}).overwrite(rows)
        else:
            table.replace(rows, self.condition(statement.partition, table))

    def truncate(self, reader: WordReader) -> None:
        """``[PARTITION (...)]`` after the name."""
        table = self.named(reader.name())
        partition = reader.partition()
        reader.end()
        table.replace([], self.condition(partition, table))

    def condition(self, partition: Mapping[str, str | None], table: Table) -> Predicate | None:
        """Return the predicate for PARTITION; None for all rows. Raises `InvalidInputError` for other columns."""
        given = {name: text for name, text in partition.items() if text is not None}
        keys = {key.lower(): key for key in table.schema.partition_keys}
        unknown = [name for name in partition if name.lower() not in keys]
        if unknown:
            raise InvalidInputError(
                f"'{unknown[0]}' is no partition column of '{table.name}'",
                hint=f"partition columns are: {', '.join(keys.values()) or 'none'}.",
            )
        if not given:
            return None
        types = {f.name: f.dataType.simpleString() for f in spark_schema(table.schema.partition_fields)}
        columns = [f"CAST(({text}) AS {types[keys[name.lower()]]})" for name, text in given.items()]
        row = self._spark.sql(f"SELECT {', '.join(columns)}").first()
        assert row is not None, "a query without FROM has one row"
        values = zip(given, row, strict=True)
        return all_of(
            ColumnExpression(Column((keys[name.lower()],))).same_as(value) for name, value in values
        )

    # Definitions

    def make(self, new: CreateTable, frame: DataFrame | None) -> None:
        """Execute CREATE TABLE AS, REPLACE TABLE, CREATE OR REPLACE TABLE.

        A table that is new is removed again if its rows cannot be had; one that is replaced stays as it is.
        """
        identifier = self._names.identifier(new.name)
        there = identifier.table in self._tables_of(identifier.database)
        if there and new.creates and not new.replaces:
            if new.if_not_exists:
                return
            raise AlreadyExistsError(
                f"table '{identifier.full_name}' exists already",
                hint="drop it first, or choose another name.",
            )
        if not there and not new.creates:
            self.open(identifier.full_name)
        # What a query gives may be null, as in Spark's own CREATE TABLE AS SELECT, whatever its literals say.
        fields = parse_columns(new.columns) if frame is None else fields_from_spark(frame.schema.toNullable())
        definition = TableDefinition(fields, new.partition_by, table_properties(new.options), new.comment)
        if there:
            self._replace(self.open(identifier.full_name), definition, frame)
        else:
            self._create(identifier, definition, frame)

    def drop(self, reader: WordReader) -> None:
        """``[IF EXISTS] t [PURGE]``"""
        if_exists = reader.accept("IF", "EXISTS")
        identifier = self._names.identifier(reader.name())
        reader.accept("PURGE")
        reader.end()
        if identifier.table in self._names.connectors.names(identifier.database):
            self._names.connectors.drop(identifier)
        else:
            self._names.files.drop_table(identifier, if_exists=if_exists)

    def comment(self, reader: WordReader) -> None:
        """``t IS 'text'``"""
        table = self.named(reader.name())
        reader.expect("IS")
        table.alter().set_comment(None if reader.accept("NULL") else reader.text("a text")).apply()

    def alter(self, reader: WordReader) -> None:
        """Execute the rest of an ALTER TABLE statement."""
        parts = reader.name()
        if reader.accept("RENAME", "TO"):
            target = reader.name("a new name")
            reader.end()
            self.named(parts)
            source = self._names.identifier(parts)
            whole = target if len(target) > 1 else (source.database, *target)
            self._names.files.rename_table(source, self._names.identifier(whole))
            return
        table = self.named(parts)
        if self._of_partitions(reader, table):
            return
        asked = changes(reader, self._type)
        if asked is None:
            raise UnsupportedFeatureError(
                f"a table cannot be changed by {reader.rest or 'nothing'}",
                feature="table-change",
                hint="understood are ADD, DROP, RENAME and ALTER COLUMN, SET and UNSET TBLPROPERTIES, DROP PARTITION.",
            )
        reader.end()
        names = {f.name for f in table.schema.fields}
        wanted = [
            c for c in asked if not isinstance(c, DropIfExists) or len(c.name) > 1 or c.name[0] in names
        ]
        alter = table.alter()
        for change in wanted:
            alter = alter.with_change(change)
        if wanted:
            alter.apply()

    def refuse(self, command: str) -> Callable[[WordReader], None]:
        """Return a handler that refuses a statement that changes single rows."""

        def refuse(reader: WordReader) -> None:
            reader.accept("INTO")
            parts = reader.name()
            raise UnsupportedFeatureError(
                f"{command} on '{'.'.join(parts)}': tables are append-only, no row of them is changed by itself",
                feature="row-level-operations",
                hint="replace whole partitions with INSERT OVERWRITE, or correct the rows on a branch and put it in place.",
            )

        return refuse

    def _of_partitions(self, reader: WordReader, table: Table) -> bool:
        """Execute the statement if it is about partitions; return whether it was."""
        if reader.accept("ADD", "PARTITION") or reader.accept("ADD", "IF", "NOT", "EXISTS", "PARTITION"):
            self._refuse_partition(
                table, "added: it comes with its first rows", "INSERT rows of that partition."
            )
        if reader.accept("PARTITION"):
            self._refuse_partition(table, "renamed", "INSERT its rows under the other value, and drop it.")
        if_exists = reader.accept("DROP", "IF", "EXISTS", "PARTITION")
        if not if_exists and not reader.accept("DROP", "PARTITION"):
            return False
        from anabranch.expr.nodes import any_of

        wanted = []
        while True:
            given = assignments(reader.statement, reader.inside("( ... )"))
            condition = self.condition(given, table)
            if condition is None or len(given) < len(table.schema.partition_keys):
                raise SqlError(
                    "a partition is named by all partition columns",
                    hint=f"they are: {', '.join(table.schema.partition_keys)}.",
                )
            if table.scan(condition).plan().splits:
                wanted.append(condition)
            elif not if_exists:
                raise NotFoundError(
                    f"table '{table.name}' has no partition {given}", hint="SHOW PARTITIONS lists them."
                )
            if not (reader.accept(",") and reader.accept("PARTITION")):
                break
        reader.accept("PURGE")
        reader.end()
        if wanted:
            table.replace([], any_of(wanted))
        return True

    def _refuse_partition(self, table: Table, what: str, hint: str) -> None:
        raise UnsupportedFeatureError(
            f"a partition of '{table.name}' cannot be {what}", feature="partition-management", hint=hint
        )

    def _tables_of(self, database: str) -> list[str]:
        if database not in self._names.files.databases():
            raise NotFoundError(
                f"database '{database}' does not exist", hint=f"CREATE DATABASE {database} makes it."
            )
        return self._names.tables(database)

    def _create(self, identifier: Identifier, new: TableDefinition, frame: DataFrame | None) -> None:
        context = self._names.files.create_table(
            identifier, new.fields, partition_by=new.partition_by, options=new.options, comment=new.comment
        )
        table = Table(context, engine=SparkEngine(self._spark))
        if frame is None:
            return
        try:
            table.append(frame)
        except BaseException:
            there = self.open(identifier.full_name)
            if there.table_uuid == table.table_uuid and there.snapshot is None:
                self._names.files.drop_table(identifier, if_exists=True)
            raise

    def _replace(self, table: Table, new: TableDefinition, frame: DataFrame | None) -> None:
        from anabranch.spark.catalog.replacement import NewContent

        replacement = NewContent(table, new)
        if frame is not None:
            replacement.write(frame)
        replacement.put_in_place()

    def _type(self, text: str) -> DataType:
        """Return the table type for a type in Spark's SQL. Raises `SchemaError`."""
        length = _WITH_LENGTH.fullmatch(text.strip())
        if length is not None:  # Spark forgets the length in a CAST
            kind = VarCharType if length[1].upper() == "VARCHAR" else CharType
            return kind(int(length[2]))
        found: Any = self._spark.sql(f"SELECT CAST(NULL AS {text}) AS type").schema[0].dataType
        return type_from_spark(found, nullable=True, where=text)

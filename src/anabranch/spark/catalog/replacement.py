"""Staged creation, and replacement, of a table: new schema as changes of the old one, new rows as one overwrite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.errors import CommitConflictError, UnsupportedFeatureError
from anabranch.format.schema import change as c
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.format.types.field_tree import After, First, Position
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.commit.transaction import NOT_PUBLISHED
from anabranch.kernel.commit.watermark import claim
from anabranch.options import BUCKET, BUCKET_KEY
from anabranch.spark.catalog import java
from anabranch.spark.catalog.properties import TableDefinition
from anabranch.spark.catalog.source import TableLocation
from anabranch.spark.catalog.tables import Relation, shown_properties
from anabranch.spark.catalog.writes import FrameWrite
from anabranch.spark.jvm.proxy import JavaProxy, Jvm, WithoutMetrics
from anabranch.spark.tasks.frame_writer import write_frame
from anabranch.spark.types.columns import spark_schema
from anabranch.table import Table
from anabranch.table.alter import Alter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.kernel.commit.commit_message import CommitMessage

_REPLACED_PREFIX = "replaced-"


class NewContent:
    """New columns and rows for a table, first written invisibly and then put in place.

    It never drops: after the files come one new version of the schema and one overwrite of all rows. Whatever dies in
    between, the old rows can still be read, and they are right under the new schema: columns that keep name and type
    are the same columns.
    """

    def __init__(self, table: Table, new: TableDefinition) -> None:
        """Raises `UnsupportedFeatureError` if partition keys or buckets would change, and what `Alter.preview` does."""
        _check_layout(table.schema, new)
        self._table = table
        self._alter = _collected(table.alter(), replacing(table.schema, new))
        self._is_same = not replacing(table.schema, new)
        self.schema = table.schema if self._is_same else self._alter.preview()
        """Schema of the table after the replacement."""
        self._files: list[CommitMessage] = []
        self._origin: Mapping[str, str] = {}

    def write(self, frame: DataFrame) -> None:
        """Write the rows, without committing them. Raises what `Table.append` does."""
        written = write_frame(frame, self._table, self.schema)
        if written is not None:
            self._files, self._origin = [*written.messages], written.origin

    def put_in_place(self) -> None:
        """Commit the schema change, then one overwrite.

        Raises `CommitConflictError` if others changed the schema meanwhile; the old rows stay then.
        """
        try:
            self._check_schema()
            action = Overwrite(self._files)
            options = {**self.schema.options, **self._table.options}
            watermark = claim(self.schema, options, self._files)
            self._table.commit(action, properties=self._origin, watermark=watermark)
        except NOT_PUBLISHED:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Remove the files that were written."""
        self._table.writer().abort(self._files)
        self._files = []

    def _check_schema(self) -> None:
        applied = self._table.schema if self._is_same else self._alter.apply()
        if (applied.id, applied.fields) != (self.schema.id, self.schema.fields):
            raise CommitConflictError(
                f"'{self._table.name}' was not replaced: others changed its columns while the rows were written",
                hint="look at the table, and run the statement again.",
            )


def replacing(old: TableSchema, new: TableDefinition) -> list[c.SchemaChange]:
    """Return the changes that turn a schema into that of the definition; options it does not name stay.

    Columns of the same name and type stay the same columns; others are dropped and made.
    """
    known = {f.name: f for f in old.fields}
    wanted = {f.name: f for f in new.fields}
    kept = {name for name, f in wanted.items() if name in known and _is_same_type(known[name], f)}
    changes: list[c.SchemaChange] = []
    # A column in the way steps aside until its successor is there, because a table always has a column.
    aside = [(name, f"{_REPLACED_PREFIX}{name}") for name in wanted if name in known and name not in kept]
    changes += [c.RenameColumn((name,), away) for name, away in aside]
    changes += [c.AddColumn((f.name,), f.type, f.description) for f in new.fields if f.name not in kept]
    changes += [c.DropColumn((name,)) for name in known if name not in wanted]
    changes += [c.DropColumn((away,)) for _, away in aside]
    for name in (f.name for f in old.fields if f.name in kept):
        if wanted[name].type.nullable != known[name].type.nullable:
            changes.append(c.SetNullable((name,), wanted[name].type.nullable))
        if wanted[name].description != known[name].description:
            changes.append(c.SetColumnComment((name,), wanted[name].description))
    changes += _moves([f.name for f in old.fields if f.name in kept], [f.name for f in new.fields], kept)
    changes += [
        c.SetOption(key, value) for key, value in new.options.items() if old.options.get(key) != value
    ]
    if new.comment != old.comment:
        changes.append(c.SetComment(new.comment))
    return changes


def _moves(kept_order: list[str], wanted: list[str], kept: set[str]) -> list[c.SchemaChange]:
    if [*kept_order, *(name for name in wanted if name not in kept)] == wanted:
        return []
    places: list[Position] = [First(), *(After(name) for name in wanted)]
    return [c.MoveColumn((name,), place) for name, place in zip(wanted, places, strict=False)]


def _is_same_type(old: Field, new: Field) -> bool:
    return old.type.with_nullable(True).spelling == new.type.with_nullable(True).spelling


def _check_layout(old: TableSchema, new: TableDefinition) -> None:
    if tuple(new.partition_by) != tuple(old.partition_keys):
        _refuse(
            f"partition columns would become ({', '.join(new.partition_by)}), "
            f"they are ({', '.join(old.partition_keys)})"
        )
    for option in (BUCKET, BUCKET_KEY):
        if option.key in new.options and new.options[option.key] != old.options.get(option.key):
            _refuse(f"{option.key} would become {new.options[option.key]}, it is {option.of(old.options)}")


def _refuse(what: str) -> None:
    raise UnsupportedFeatureError(
        f"a table cannot be replaced by one that lies in other folders: {what}",
        feature="replace-layout",
        hint="name the same ones, or make a table of another name, drop this one and rename.",
    )


def _collected(alter: Alter, changes: list[c.SchemaChange]) -> Alter:
    for change in changes:
        alter = alter.with_change(change)
    return alter


# Staged tables: created together with their rows, and held by Spark until they are committed.
#
# A creation makes the table first, so that nobody else can, and takes it back if the rows cannot be had. For a
# replacement see `NewContent`.

_CATALOG = f"{java.CONNECTOR}.catalog"
_WRITE = f"{java.CONNECTOR}.write"
_ABILITIES = ("BATCH_WRITE", "V1_BATCH_WRITE", "TRUNCATE")


class Staged(WithoutMetrics, Relation):
    """Common part of staged tables."""

    def __init__(self, jvm: Jvm, place: TableLocation, schema: TableSchema) -> None:
        super().__init__(jvm, place, jvm.struct(spark_schema(schema.fields)))
        self._schema = schema

    def partitioning(self) -> Any:
        return java.identities(self.jvm, self._schema.partition_keys)

    def properties(self) -> Any:
        return self.jvm.map(shown_properties(self._schema))

    def newWriteBuilder(self, _info: Any) -> WholeWrite:  # noqa: N802
        return WholeWrite(self.jvm, self.place, self._write)

    def _write(self, frame: DataFrame) -> None:
        raise NotImplementedError

    def _abilities(self) -> tuple[str, ...]:
        return _ABILITIES


class StagedCreation(Staged):
    """A staged new table."""

    class Java:
        implements = [f"{_CATALOG}.StagedTable", f"{_CATALOG}.SupportsWrite"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, table: Table, place: TableLocation, undo: Callable[[], None]) -> None:
        super().__init__(jvm, place, table.schema)
        self._table = table
        self._undo = undo

    def commitStagedChanges(self) -> None:  # noqa: N802
        """Do nothing: the rows were committed when they were written."""

    def abortStagedChanges(self) -> None:  # noqa: N802
        self._undo()

    def _write(self, frame: DataFrame) -> None:
        self._table.append(frame)


class StagedReplacement(Staged):
    """A staged table that replaces an existing one."""

    class Java:
        implements = [f"{_CATALOG}.StagedTable", f"{_CATALOG}.SupportsWrite"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, table: Table, place: TableLocation, new: TableDefinition) -> None:
        self._replacement = NewContent(table, new)
        super().__init__(jvm, place, self._replacement.schema)

    def commitStagedChanges(self) -> None:  # noqa: N802
        self._replacement.put_in_place()

    def abortStagedChanges(self) -> None:  # noqa: N802
        self._replacement.give_up()

    def _write(self, frame: DataFrame) -> None:
        self._replacement.write(frame)


class WholeWrite(JavaProxy):
    """A write of all rows; which rows it replaces is already decided."""

    class Java:
        implements = [f"{_WRITE}.SupportsTruncate"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, place: TableLocation, write: Callable[[DataFrame], None]) -> None:
        self.jvm = jvm
        self._place = place
        self._write = write

    def truncate(self) -> WholeWrite:
        return self

    def build(self) -> FrameWrite:
        return FrameWrite(self.jvm, self._place, self._write, None)

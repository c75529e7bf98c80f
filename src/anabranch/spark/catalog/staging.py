"""Staged tables: created together with their rows, and held by Spark until they are committed.

A creation makes the table first, so that nobody else can, and takes it back if the rows cannot be had. For a
replacement see `anabranch.spark.catalog.replacement`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.format.schema.table_schema import TableSchema
from anabranch.spark.catalog import java
from anabranch.spark.catalog.properties import TableDefinition
from anabranch.spark.catalog.replacement import NewContent
from anabranch.spark.catalog.source import TableLocation
from anabranch.spark.catalog.tables import Relation, shown_properties
from anabranch.spark.catalog.writes import FrameWrite
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.types.columns import spark_schema
from anabranch.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CATALOG = f"{java.CONNECTOR}.catalog"
_WRITE = f"{java.CONNECTOR}.write"
_ABILITIES = ("BATCH_WRITE", "V1_BATCH_WRITE", "TRUNCATE")


class Staged(Relation):
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

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self.jvm.array(f"{java.CONNECTOR}.metric.CustomTaskMetric", [])

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

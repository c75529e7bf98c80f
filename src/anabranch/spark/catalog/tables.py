"""A table as Spark's catalog hands it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from anabranch.errors import OptionError, UnsupportedFeatureError
from anabranch.expr.bind import bind
from anabranch.expr.parse import parse
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.cache import MetadataCache
from anabranch.lineage.reads import note_changes, note_state
from anabranch.options import SCAN_COLUMNS, SCAN_FILTER, SCAN_MODE
from anabranch.scan.metadata import METADATA_FIELDS
from anabranch.scan.scan import Scan
from anabranch.spark.catalog import java
from anabranch.spark.catalog.properties import OWN_PREFIX
from anabranch.spark.catalog.source import TableLocation, source_stream
from anabranch.spark.catalog.writes import WriteBuilder
from anabranch.spark.context.options import refuse_incremental, spelled
from anabranch.spark.context.table_state import STATE_OPTIONS, TABLES, TableState
from anabranch.spark.jvm.answers import answered
from anabranch.spark.jvm.proxy import JavaProxy, Jvm, WithoutMetrics
from anabranch.spark.lineage.batch_reads import reading
from anabranch.spark.lineage.job_marks import taking_part
from anabranch.spark.native.scan_builder import ScanBuilder
from anabranch.spark.types.columns import catalog_schema_json, spark_schema_json

_CATALOG = f"{java.CONNECTOR}.catalog"
PROVIDER = "anabranch"
LOAD_OPTIONS = (*STATE_OPTIONS, SCAN_MODE.key)
"""Options of a read that decide which columns a table has."""

_BATCH_READ = ("BATCH_READ",)
# Whatever columns are read, the rows and values are the same: so Spark may read several subqueries' columns at once,
# since 4.3.
_ANY_COLUMNS = (*_BATCH_READ, "SCAN_MERGING")
_READ_AND_WRITE = (
    *_ANY_COLUMNS,
    *("MICRO_BATCH_READ", "STREAMING_WRITE", "BATCH_WRITE", "V1_BATCH_WRITE"),
    *("TRUNCATE", "OVERWRITE_BY_FILTER", "OVERWRITE_DYNAMIC"),
)


class Relation(JavaProxy):
    """Base of the tables of all kinds."""

    def __init__(self, jvm: Jvm, place: TableLocation, schema: Any) -> None:
        self.jvm = jvm
        self.place = place
        self._java_schema = schema
        self._columns: Any = None

    def name(self) -> str:
        return self.place.name

    def id(self) -> str | None:
        return None

    def version(self) -> str | None:
        return None

    def schema(self) -> Any:
        return self._java_schema

    def columns(self) -> Any:
        if self._columns is None:
            self._columns = java.columns(self.jvm, self._java_schema)
        return self._columns

    def partitioning(self) -> Any:
        return java.identities(self.jvm, [])

    def properties(self) -> Any:
        return self.jvm.map({"provider": PROVIDER})

    def for_spark(self, _kept: MetadataCache) -> Any:
        """Return the JVM object for Spark.

        Args:
            _kept: what it was given, by names: of a table the same as long as nothing is committed.
        """
        return self

    def constraints(self) -> Any:
        return self.jvm.array(f"{_CATALOG}.constraints.Constraint", [])

    def capabilities(self) -> Any:
        known, names = self.jvm.of(f"{_CATALOG}.TableCapability"), self._abilities()

        def made() -> Any:
            of_this_version = {str(capability.name()) for capability in known.values()}
            return java.java_set(
                self.jvm, [getattr(known, name) for name in names if name in of_this_version]
            )

        return self.jvm.once(names, made)

    def _abilities(self) -> tuple[str, ...]:
        return _BATCH_READ


class LakeTable(WithoutMetrics, Relation):
    """One branch of a table, at its newest state or at a given moment."""

    class Java:
        implements = [  # noqa: RUF012 - Py4J reads it so
            f"{_CATALOG}.SupportsRead",
            f"{_CATALOG}.SupportsWrite",
            f"{_CATALOG}.SupportsDeleteV2",
            f"{_CATALOG}.SupportsRowLevelOperations",
            f"{_CATALOG}.SupportsMetadataColumns",
        ]

    def __init__(self, jvm: Jvm, seen: TableState, place: TableLocation, columns: Any = None) -> None:
        super().__init__(jvm, place, columns or jvm.struct(catalog_schema_json(seen.schema.fields)))
        self.table = seen.table
        self._snapshot = seen.snapshot
        self._schema = seen.schema
        self._past = seen.past
        # Spark loads a table often; equal ones share their state.
        name = self.toString(), self.version()
        self.seen = TABLES.setdefault(name, seen)
        if not self.seen.shows(seen):
            self.seen = TABLES[name] = seen

    def toString(self) -> str:  # noqa: N802 - Java's name
        """Return a text that is equal for views of the same rows: Spark finds its cached data by it."""
        at = "" if self.table.moment is None else f", {self.table.moment.name}"
        snapshot = "never written"
        if self._snapshot is not None:  # whose number may be given again
            snapshot = f"snapshot {self._snapshot.id} of {self._snapshot.time_millis}"
        return f"{self.place.name} ({self.table.branch_uuid}, {snapshot}, schema {self._schema.id}{at})"

    def for_spark(self, kept: MetadataCache) -> Any:
        if self.table.moment is not None:
            return self._answered()
        key = (self.place.name,)
        seen, made = kept.get(key) or (None, None)
        if seen is not self.seen:
            made = self._answered()
            kept.put(key, (self.seen, made), 1)
        return made

    def _answered(self) -> Any:
        known = {
            "name": self.name(),
            "id": self.id(),
            "version": self.version(),
            "schema": self.schema(),
            "columns": self.columns(),
            "partitioning": self.partitioning(),
            "capabilities": self.capabilities(),
            "metadataColumns": self.metadataColumns(),
            "canRenameConflictingMetadataColumns": self.canRenameConflictingMetadataColumns(),
        }
        return answered(self, known)

    def id(self) -> str:
        """Return an id that stays when main is replaced: Spark refuses what was opened on a table of another."""
        is_main = self.table.context.main_generation is not None
        return str(self.table.table_uuid if is_main else self.table.branch_uuid)

    def version(self) -> str | None:
        return None if self._snapshot is None else str(self._snapshot.id)

    def partitioning(self) -> Any:
        return java.identities(self.jvm, self._schema.partition_keys)

    def properties(self) -> Any:
        return self.jvm.map(shown_properties(self._schema))

    def metadataColumns(self) -> Any:  # noqa: N802
        return metadata_columns(self.jvm)

    def canRenameConflictingMetadataColumns(self) -> bool:  # noqa: N802
        """Return False: a column of the table that has the name of a metadata column is what the name means."""
        return False

    def newScanBuilder(self, options: Any) -> ScanBuilder:  # noqa: N802
        """Return a builder for reading the snapshot that was chosen or newest when the table was loaded."""
        asked = spelled(java.given_options(options), incremental=True)

        def streamed(checkpoint: str) -> Any:
            refuse_incremental(asked)
            if SCAN_COLUMNS.of(asked) is not None:
                raise OptionError(
                    f"Spark asks for the columns of '{self.place.name}' before it tells that a stream has "
                    f"{SCAN_COLUMNS.key}",
                    hint="choose columns with select(...), or read with spark.readStream.format('anabranch').",
                )
            return source_stream(self.jvm, self.place, self._java_schema, asked, checkpoint)

        return ScanBuilder(self.jvm, lambda: self._scan(asked), streams=streamed)

    def newWriteBuilder(self, info: Any) -> JavaProxy:  # noqa: N802
        return WriteBuilder(self.jvm, self.table, self.place, info)

    def truncateTable(self, *_options: Any) -> bool:  # noqa: N802
        with taking_part(self.jvm.spark):
            self.table.replace([])
        return True

    def canDeleteWhere(self, _predicates: Any) -> bool:  # noqa: N802
        raise self._refusal("DELETE")

    def deleteWhere(self, *_arguments: Any) -> None:  # noqa: N802
        raise self._refusal("DELETE")

    def newRowLevelOperationBuilder(self, info: Any) -> Any:  # noqa: N802
        raise self._refusal(str(info.command().toString()))

    def _abilities(self) -> tuple[str, ...]:
        return _ANY_COLUMNS if self._past else _READ_AND_WRITE

    def _scan(self, options: Mapping[str, str]) -> Scan:
        seen = self.seen.by(options)
        with reading(self.jvm.spark) as is_planned:
            note_read(seen, is_planned=is_planned)
        condition = SCAN_FILTER.of(options)
        if condition is None:
            return seen.scan
        return replace(seen.scan, predicate=bind(parse(condition), seen.schema.fields))

    def _refusal(self, command: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"{command} on '{self.place.name}': tables are append-only, no row of them is changed by itself",
            feature="row-level-operations",
            hint="replace whole partitions with INSERT OVERWRITE, or correct the rows on a branch and put it in place.",
        )


def note_read(seen: TableState, *, is_planned: bool) -> None:
    """Register that a batch reads a table as it is seen, or what was added to it."""
    between = seen.scan.between
    if between is None:
        note_state(seen.table.context, seen.snapshot, is_planned=is_planned)
    elif not is_planned:  # else the plan says it
        note_changes(seen.table.context, *between.positions)


def shown_properties(schema: TableSchema) -> dict[str, str]:
    """Return the properties of a table that users see."""
    options = {k: v for k, v in schema.options.items() if not k.startswith(OWN_PREFIX)}
    return {**options, "provider": PROVIDER, **({"comment": schema.comment} if schema.comment else {})}


_COLUMN = f"{java.CONNECTOR}.catalog.MetadataColumn"


class MetadataColumn(JavaProxy):
    """A metadata column."""

    class Java:
        implements: ClassVar = [_COLUMN]

    def __init__(self, jvm: Jvm, field: Field) -> None:
        self.jvm = jvm
        self._field = field

    def name(self) -> str:
        return self._field.name

    def dataType(self) -> Any:  # noqa: N802 - Java's name, as all of them
        return self.jvm.struct(spark_schema_json([self._field])).fields()[0].dataType()

    def isNullable(self) -> bool:  # noqa: N802
        return self._field.type.nullable

    def comment(self) -> str | None:
        return self._field.description

    def transform(self) -> Any:
        return None

    def metadataInJSON(self) -> str | None:  # noqa: N802
        return None


def metadata_columns(jvm: Jvm) -> Any:
    """Return the metadata columns of every table, as ``MetadataColumn[]``."""
    return jvm.once(_COLUMN, lambda: jvm.array(_COLUMN, [_told(jvm, field) for field in METADATA_FIELDS]))


def _told(jvm: Jvm, field: Field) -> Any:
    column = MetadataColumn(jvm, field)
    known = {
        "name": column.name(),
        "dataType": column.dataType(),
        "isNullable": column.isNullable(),
        "comment": column.comment(),
    }
    return answered(column, known)

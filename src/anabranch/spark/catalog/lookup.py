"""Resolution of names in statements to tables and views in the warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.catalog import FilesystemCatalog, Identifier
from anabranch.catalog.connectors import Connectors
from anabranch.engine import Engine
from anabranch.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import SYSTEM_DATABASE
from anabranch.lazy import lazy
from anabranch.options import BRANCH, SCAN_EXACT, SCAN_MODE, SCAN_PUBLISHED
from anabranch.spark.catalog import java
from anabranch.spark.catalog.partitions import PartitionedTable
from anabranch.spark.catalog.source import TableLocation, moment_options, source_scan
from anabranch.spark.catalog.tables import LakeTable, Relation, shown_properties
from anabranch.spark.context.options import spelled
from anabranch.spark.context.table_state import STATE_OPTIONS, TableState
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.types.columns import spark_schema
from anabranch.system_tables import LAKE_TABLES, lake_table, lake_table_of, system_table
from anabranch.table import Table
from anabranch.table.lake_lineage import LakeLineage


class NoSuchTableError(Exception):
    """The table does not exist in any state; translated into Spark's own error."""


@dataclass(frozen=True)
class AskedVersion:
    """View of a table that a statement asks for, besides its name."""

    version: str | None = None
    """Value of ``VERSION AS OF``."""
    millis: int | None = None
    """Value of ``TIMESTAMP AS OF``, in milliseconds since the epoch."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of ``WITH (...)`` or of a reader."""


@dataclass(frozen=True)
class Warehouse:
    """The tables of one warehouse, under the catalog name in a session."""

    catalog: str
    files: FilesystemCatalog
    options: Mapping[str, str]
    """Warehouse and credentials, for other processes."""
    engine: Engine

    def has_database(self, name: str) -> bool:
        """Whether the database exists; ``sys`` always does."""
        return name == SYSTEM_DATABASE or name in self.files.databases()

    def tables(self, database: str) -> list[str]:
        """Names of the tables of a database. Raises `NotFoundError`."""
        if database == SYSTEM_DATABASE:
            return sorted(LAKE_TABLES)
        return sorted({*self.files.tables(database), *self.connectors.names(database)})

    @lazy
    def lineage(self) -> LakeLineage:
        """Lineage of the warehouse: which jobs read and write which tables."""
        return LakeLineage(self.files, self.options)

    @property
    def connectors(self) -> Connectors:
        """Definitions of external tables."""
        return Connectors(self.files.storage)

    def topic(self, name: str) -> TableSchema | None:
        """Return the definition of an external table ``db.t``, or None if it is not external."""
        database, _, table = name.partition(".")
        return self.connectors.get(database, table)

    def place(self, name: str) -> TableLocation:
        """Return the location of the table, for readers and writers in other processes."""
        return TableLocation(self.catalog, name, self.options)

    def table(self, name: str) -> Table:
        """The table ``db.t``, or its branch ``db.t$branch_fix``.

        Raises:
            NoSuchTableError: there is no such table.
            NotFoundError: the table has no such branch.
            InvalidNameError: no table can be called so.
        """
        identifier = Identifier.parse(name)
        try:
            context = self.files.open(replace(identifier, branch=None))
            table = Table(context, engine=self.engine, lineage=self.lineage)
        except NotFoundError as error:
            raise NoSuchTableError(error.message) from error
        return table if identifier.branch is None else table.branch(identifier.branch)

    def relation(self, jvm: Jvm, name: str, asked: AskedVersion) -> Relation:
        """Return the relation that a statement reads or writes under that name.

        Raises what `table` does, and `NotFoundError` if there is no such moment or system table.
        """
        of_lake = lake_table_of(name)
        if of_lake is not None:
            if asked.version is not None or asked.millis is not None:
                raise InvalidInputError(
                    f"'{self.place(name).name}' tells what there is now: it has no past",
                    hint="leave VERSION AS OF and TIMESTAMP AS OF out.",
                )
            return SparkSystemTable(
                jvm, self.place(name), TableSchema.create(lake_table(of_lake), time_millis=0), {}
            )
        try:
            view, past = self._view(name, asked)
        except NoSuchTableError:
            topic = self.topic(name)
            if topic is None:
                raise
            return Topic(jvm, self.place(name), topic)
        system = Identifier.parse(name).system
        if system is None:
            seen = TableState.of(view, past=past)
            kind = PartitionedTable if seen.schema.partition_keys else LakeTable
            return kind(jvm, seen, self.place(name))
        moment = {} if view.moment is None else moment_options(view.moment, view.context)
        return SparkSystemTable(jvm, self.place(name), system_table(system).schema, moment)

    def _view(self, name: str, asked: AskedVersion) -> tuple[Table, bool]:
        """Return the table at the requested moment, and whether a clause of the statement named that moment."""
        table = self.table(name)
        named = {key: asked.options[key] for key in STATE_OPTIONS if key in asked.options}
        if SCAN_MODE.of(asked.options) == "from-snapshot":
            # Such a read has today's columns, and a stream begins there but does not stay.
            named = {key: value for key, value in named.items() if key == BRANCH.key}
        exact, published = SCAN_EXACT.of(named), SCAN_PUBLISHED.of(named)
        if asked.version is not None or asked.millis is not None:
            named = {k: v for k, v in named.items() if k not in (SCAN_EXACT.key, SCAN_PUBLISHED.key)}
        if named:
            table = table.with_options(named)
        if asked.version is not None:
            return table.at(asked.version, exact=exact, published=published), True
        if asked.millis is not None:
            return table.at(timestamp=asked.millis, exact=exact, published=published), True
        return table, False


_CATALOG = f"{java.CONNECTOR}.catalog"


class SparkSystemTable(Relation):
    """System table of a table or warehouse: computed from metadata when read, through the portable door."""

    class Java:
        implements = [f"{_CATALOG}.SupportsRead"]  # noqa: RUF012

    def __init__(
        self, jvm: Jvm, place: TableLocation, schema: TableSchema, options: Mapping[str, str]
    ) -> None:
        super().__init__(jvm, place, jvm.struct(spark_schema(schema.fields)))
        self._options = options

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802
        asked = {**self._options, **spelled(java.given_options(options))}
        return AnyScan(self.jvm, source_scan(self.jvm, self.place, self._java_schema, asked))


class Topic(Relation):
    """External table: Spark sees its definition, and statements of `lake.sql` read it."""

    class Java:
        implements = [f"{_CATALOG}.SupportsRead"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, place: TableLocation, schema: TableSchema) -> None:
        super().__init__(jvm, place, jvm.struct(spark_schema(schema.fields)))
        self._schema = schema

    def properties(self) -> Any:
        return self.jvm.map(shown_properties(self._schema))

    def newScanBuilder(self, _options: Any) -> Any:  # noqa: N802
        raise UnsupportedFeatureError(
            f"'{self.place.name}' is a topic, which a statement of Spark alone does not read",
            feature="connector-tables",
            hint="run the statement with lake.sql(...), or read with format('anabranch-kafka').",
        )

    def _abilities(self) -> tuple[str, ...]:
        return (*super()._abilities(), "MICRO_BATCH_READ")


class AnyScan(JavaProxy):
    """A read with nothing left to decide."""

    class Java:
        implements = [f"{java.CONNECTOR}.read.ScanBuilder"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, scan: Any) -> None:
        self.jvm = jvm
        self._scan = scan

    def build(self) -> Any:
        return self._scan

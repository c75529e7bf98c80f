"""The catalog: databases, tables and procedures of one warehouse, as Spark's interfaces ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py4j.java_collections import JavaArray

from anabranch.catalog import Identifier
from anabranch.catalog.connectors import CONNECTOR
from anabranch.errors import AlreadyExistsError, InvalidNameError, NotFoundError, UnsupportedFeatureError
from anabranch.format.text.names import SYSTEM_DATABASE
from anabranch.kernel.log.cache import MetadataCache
from anabranch.spark.catalog import java
from anabranch.spark.catalog.definitions import altered, definition, like
from anabranch.spark.catalog.lookup import AskedVersion, NoSuchTableError, Warehouse
from anabranch.spark.catalog.procedures import Procedure, procedure, procedure_names
from anabranch.spark.catalog.properties import TableDefinition
from anabranch.spark.catalog.replacement import StagedCreation, StagedReplacement
from anabranch.spark.catalog.tables import LOAD_OPTIONS
from anabranch.spark.context.options import spelled
from anabranch.spark.context.table_state import TABLES
from anabranch.spark.jvm.answers import answered
from anabranch.spark.jvm.proxy import Jvm, WithoutMetrics
from anabranch.table import Table

_CATALOG = f"{java.CONNECTOR}.catalog"
_TABLES = 32
"""Number of tables whose newest state, as given to Spark, is cached with the plans of their files."""


class LakeCatalog(WithoutMetrics):
    """One warehouse in one session."""

    class Java:
        implements = [  # noqa: RUF012 - Py4J reads it so
            f"{_CATALOG}.StagingTableCatalog",
            f"{_CATALOG}.SupportsNamespaces",
            f"{_CATALOG}.ProcedureCatalog",
        ]

    def __init__(self, jvm: Jvm, warehouse: Warehouse) -> None:
        self.jvm = jvm
        self._warehouse = warehouse
        self._tables = MetadataCache(_TABLES)

    def for_spark(self) -> Any:
        """The catalog as a JVM object."""
        known = {
            "name": self.name(),
            "defaultNamespace": self.defaultNamespace(),
            "tableStateOptionKeys": self.tableStateOptionKeys(),
        }
        return answered(self, known)

    # CatalogPlugin

    def name(self) -> str:
        return self._warehouse.catalog

    def initialize(self, _name: str, _options: Any) -> None:
        """Do nothing: the object was constructed with all it needs."""

    def defaultNamespace(self) -> Any:  # noqa: N802
        return java.strings(self.jvm, [])

    # SupportsNamespaces

    def namespaceExists(self, levels: Any) -> bool:  # noqa: N802
        names = list(levels)
        return not names or (len(names) == 1 and self._warehouse.has_database(names[0]))

    def listNamespaces(self, *arguments: Any) -> Any:  # noqa: N802
        levels = list(arguments[0]) if arguments else []
        if levels and not self.namespaceExists(levels):
            raise java.no_such_namespace(self.jvm, levels)
        return java.paths(self.jvm, [] if levels else [[name] for name in self._warehouse.files.databases()])

    def loadNamespaceMetadata(self, levels: Any) -> Any:  # noqa: N802
        names = list(levels)
        if not self.namespaceExists(names):
            raise java.no_such_namespace(self.jvm, names)
        url = self._warehouse.files.storage.url
        return self.jvm.map({"location": f"{url}/{names[0]}.db" if names else url})

    def createNamespace(self, levels: Any, metadata: Any) -> None:  # noqa: N802
        name = _database(levels)
        refused = sorted(set(java.python_map(metadata)) - {"owner"})
        if refused:
            raise UnsupportedFeatureError(
                f"database '{name}' cannot have {refused[0]}: a database is its folder in the warehouse",
                feature="database-properties",
                hint="leave COMMENT, LOCATION and DBPROPERTIES out.",
            )
        try:
            self._warehouse.files.create_database(name)
        except AlreadyExistsError as error:
            raise java.namespace_exists(self.jvm, [name]) from error

    def alterNamespace(self, levels: Any, _changes: Any) -> None:  # noqa: N802
        raise UnsupportedFeatureError(
            f"database '{_database(levels)}' has no properties to change",
            feature="database-properties",
            hint="describe the tables instead: COMMENT ON TABLE.",
        )

    def dropNamespace(self, levels: Any, cascade: bool) -> bool:  # noqa: N802
        name = _database(levels)
        if name not in self._warehouse.files.databases():
            return False
        self._warehouse.files.drop_database(name, cascade=cascade)
        return True

    # TableCatalog

    def capabilities(self) -> Any:
        return java.java_set(self.jvm)

    def tableStateOptionKeys(self) -> Any:  # noqa: N802
        return self.jvm.once("load options", lambda: java.java_set(self.jvm, LOAD_OPTIONS))

    def changelogStateOptionKeys(self) -> Any:  # noqa: N802
        return java.java_set(self.jvm)

    def useNullableQuerySchema(self) -> bool:  # noqa: N802
        return True

    def listTables(self, levels: Any) -> Any:  # noqa: N802
        return self.jvm.array(f"{_CATALOG}.Identifier", self._listed(levels))

    def listTableSummaries(self, levels: Any) -> Any:  # noqa: N802
        summary = self.jvm.of(f"{_CATALOG}.TableSummary")
        return self.jvm.array(
            f"{_CATALOG}.TableSummary", [summary.of(found, "MANAGED") for found in self._listed(levels)]
        )

    def loadTable(self, found: Any, *arguments: Any) -> Any:  # noqa: N802
        try:
            relation = self._warehouse.relation(self.jvm, java.name_of(found), _asked(arguments))
        except NoSuchTableError as error:
            raise java.no_such_table(self.jvm, found) from error
        return relation.for_spark(self._tables)

    def loadChangelog(self, found: Any, *_arguments: Any) -> Any:  # noqa: N802
        raise UnsupportedFeatureError(
            f"the changes of '{java.name_of(found)}' cannot be asked for in SQL",
            feature="changelog",
            hint="read them as a stream, or with table.changes(start, end) in Python.",
        )

    def tableExists(self, found: Any) -> bool:  # noqa: N802
        try:
            self._warehouse.relation(self.jvm, java.name_of(found), AskedVersion())
        except (NotFoundError, InvalidNameError, NoSuchTableError):
            return False
        return True

    def invalidateTable(self, _found: Any) -> None:  # noqa: N802
        """Do nothing: no cached entry can be out of date."""

    def createTable(self, found: Any, *arguments: Any) -> Any:  # noqa: N802
        return self._made(found, self._definition(arguments))

    def createTableLike(self, found: Any, info: Any, source: Any) -> Any:  # noqa: N802
        """Create a table with columns, partition columns, comment and options of ours, or columns only of another's."""
        new = self._definition([info])
        seen = TABLES.get((source.toString(), source.version()))
        return self._made(found, new if seen is None else like(seen.schema, new))

    def alterTable(self, found: Any, changes: Any) -> Any:  # noqa: N802
        table = self._opened(found)
        if asked := list(changes):  # there are none for DROP COLUMN IF EXISTS of a column that does not
            altered(table.alter(), asked).apply()
        return self.loadTable(found)

    def dropTable(self, found: Any) -> bool:  # noqa: N802
        table = java.identifier(found)
        try:
            self._warehouse.files.drop_table(table)
        except NotFoundError:
            return self._warehouse.connectors.drop(table)
        return True

    def purgeTable(self, found: Any) -> bool:  # noqa: N802
        return self.dropTable(found)

    def renameTable(self, found: Any, new: Any) -> None:  # noqa: N802
        try:
            target = java.identifier(new, catalog=self._warehouse.catalog)
            self._warehouse.files.rename_table(java.identifier(found), target)
        except NotFoundError as error:
            raise java.no_such_table(self.jvm, found) from error
        except AlreadyExistsError as error:
            raise java.table_exists(self.jvm, new) from error

    # StagingTableCatalog

    def stageCreate(self, found: Any, *arguments: Any) -> Any:  # noqa: N802
        table = self._create(found, self._definition(arguments))
        place = self._warehouse.place(java.name_of(found))
        return StagedCreation(self.jvm, table, place, lambda: self._undo_creation(table, found))

    def stageReplace(self, found: Any, *arguments: Any) -> Any:  # noqa: N802
        place = self._warehouse.place(java.name_of(found))
        return StagedReplacement(self.jvm, self._opened(found), place, self._definition(arguments))

    def stageCreateOrReplace(self, found: Any, *arguments: Any) -> Any:  # noqa: N802
        stage = self.stageReplace if self.tableExists(found) else self.stageCreate
        return stage(found, *arguments)

    # ProcedureCatalog

    def loadProcedure(self, found: Any) -> Procedure:  # noqa: N802
        return procedure(self.jvm, self._warehouse, list(found.namespace()), found.name())

    def listProcedures(self, levels: Any) -> Any:  # noqa: N802
        make = self.jvm.of(f"{_CATALOG}.Identifier").of
        names = procedure_names() if list(levels) == [SYSTEM_DATABASE] else []
        return self.jvm.array(f"{_CATALOG}.Identifier", [make(levels, name) for name in names])

    # Shared by the interfaces

    def _listed(self, levels: Any) -> list[Any]:
        names = list(levels)
        if len(names) != 1 or not self._warehouse.has_database(names[0]):
            raise java.no_such_namespace(self.jvm, names)
        make = self.jvm.of(f"{_CATALOG}.Identifier").of
        return [make(levels, name) for name in self._warehouse.tables(names[0])]

    def _definition(self, arguments: Sequence[Any]) -> TableDefinition:
        """Return the definition of the table to create, from any of the argument forms that Spark uses."""
        if len(arguments) == 1:
            (info,) = arguments
            schema, transforms, properties = info.schema(), info.partitions(), info.properties()
        else:
            schema, transforms, properties = arguments
        if isinstance(schema, JavaArray):
            schema = java.struct_of_columns(self.jvm, schema)
        usual = str(self.jvm.spark.conf.get("spark.sql.sources.default", "parquet"))
        return definition(schema, transforms, properties, default_provider=usual.lower())

    def _made(self, found: Any, new: TableDefinition) -> Any:
        if CONNECTOR.key in new.options:
            self._create_elsewhere(found, new)
        else:
            self._create(found, new)
        return self.loadTable(found)

    def _create(self, found: Any, new: TableDefinition) -> Table:
        identifier = self._free(found)
        if CONNECTOR.key in new.options:
            raise UnsupportedFeatureError(
                f"'{identifier.full_name}' would be a topic, which has the rows that it has",
                feature="connector-tables",
                hint="leave AS SELECT out.",
            )
        try:
            self._warehouse.files.create_table(
                identifier,
                new.fields,
                partition_by=new.partition_by,
                options=new.options,
                comment=new.comment,
            )
        except AlreadyExistsError as error:
            if self.tableExists(found):
                raise java.table_exists(self.jvm, found) from error
            raise
        return self._opened(found)

    def _create_elsewhere(self, found: Any, new: TableDefinition) -> None:
        from anabranch.spark.kafka.definition import check  # it imports what imports this

        identifier = self._free(found)
        check(new.fields, new.options)
        if self.tableExists(found):
            raise java.table_exists(self.jvm, found)
        self._warehouse.connectors.create(identifier, new.fields, options=new.options, comment=new.comment)

    def _free(self, found: Any) -> Identifier:
        """Return the identifier, after checking that its database exists and that no topic has the name."""
        identifier = java.identifier(found)
        if not self._warehouse.has_database(identifier.database):
            raise java.no_such_namespace(self.jvm, [identifier.database])
        if self._warehouse.topic(identifier.full_name) is not None:
            raise java.table_exists(self.jvm, found)
        return identifier

    def _undo_creation(self, table: Table, found: Any) -> None:
        """Remove a table made by a failed statement, unless others have changed it since."""
        try:
            there = self._warehouse.table(java.name_of(found))
        except (NotFoundError, NoSuchTableError):
            return
        if there.table_uuid == table.table_uuid and there.snapshot is None:
            self._warehouse.files.drop_table(java.identifier(found), if_exists=True)

    def _opened(self, found: Any) -> Table:
        try:
            return self._warehouse.table(java.name_of(found))
        except NoSuchTableError as error:
            if self._warehouse.topic(java.name_of(found)) is not None:
                raise UnsupportedFeatureError(
                    f"'{java.name_of(found)}' is a topic, whose definition is not changed",
                    feature="connector-tables",
                    hint="drop it and define it anew; the topic stays as it is.",
                ) from error
            raise java.no_such_table(self.jvm, found) from error


def _database(levels: Any) -> str:
    names = [str(level) for level in levels]
    if len(names) != 1:
        raise InvalidNameError(
            f"'{'.'.join(names)}' names no database", hint="databases have one level: catalog.database."
        )
    return names[0]


def _asked(arguments: Sequence[Any]) -> AskedVersion:
    """Parse the arguments with which Spark selects a view of a table, in the forms of all its versions.

    They are a version, a time in microseconds, privileges of a write, or (since 4.3) a context and options.
    """
    match arguments:
        case [str() as version]:
            return AskedVersion(version=version)
        case [int() as micros]:
            return AskedVersion(millis=micros // 1000)
        case [context, options]:
            given = spelled(java.given_options(options), incremental=True)
            travel = context.timeTravel()
            if not travel.isPresent():
                return AskedVersion(options=given)
            point = travel.get()
            if point.getClass().getSimpleName() == "AsOfVersion":
                return AskedVersion(version=point.version(), options=given)
            return AskedVersion(millis=point.micros() // 1000, options=given)
    return AskedVersion()

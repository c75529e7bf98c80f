"""Java Paimon 0.9 behind the driver protocol: run as `python -m interop.drivers.java_paimon` by its interpreter.

One JVM per driver process, reached through py4j; it ends with this process. Rows cross one value at a
time through the typed getters and writers of Paimon's own rows, so that nothing but Paimon's code decides
how a value is read or stored. The environment says where things are: `PEER_JAVA`, `PEER_CLASSPATH`,
`PEER_PY4J_JAR`.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from interop import canonical
from interop.drivers.java_rows import Rows
from interop.drivers.serve import serve

PREDICATES = {
    "equal": "equal",
    "not_equal": "notEqual",
    "less_than": "lessThan",
    "less_or_equal": "lessOrEqual",
    "greater_than": "greaterThan",
    "greater_or_equal": "greaterOrEqual",
    "is_null": "isNull",
    "is_not_null": "isNotNull",
    "startswith": "startsWith",
    "is_in": "in",
    "is_not_in": "notIn",
    "between": "between",
}
BOXED = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "CHAR", "VARCHAR")
"""Literals the bridge converts itself: py4j alone would choose the wrong class of Java number."""


class JavaError(Exception):
    """What was thrown inside the JVM."""


class Driver:
    """The operations, on one JVM."""

    def __init__(self) -> None:
        port = launch_gateway(
            jarpath=os.environ["PEER_PY4J_JAR"],
            classpath=os.environ["PEER_CLASSPATH"],
            java_path=os.environ["PEER_JAVA"],
            javaopts=["-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            die_on_exit=True,
            redirect_stdout=sys.stderr,
            redirect_stderr=sys.stderr,
        )
        self.gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        self.paimon = self.gateway.jvm.org.apache.paimon
        self.rows = Rows(self.gateway)
        # The classes that implement tables are not public: py4j reaches them through their interface only.
        jvm = self.gateway.jvm
        self.store_table = jvm.java.lang.Class.forName("org.apache.paimon.table.FileStoreTable")
        json_package = self.paimon.shade.jackson2.com.fasterxml.jackson.databind
        self.json = json_package.ObjectMapper()

    def hello(self) -> dict[str, str]:
        """Which peer this is."""
        return {"peer": "Java Paimon 0.9.0"}

    def create_table(
        self,
        warehouse: str,
        table: str,
        fields: list[dict[str, Any]],
        partition_keys: list[str],
        options: dict[str, str],
    ) -> None:
        """Create the table (and its database) from fields as schema files spell them."""
        catalog = self._catalog(warehouse)
        catalog.createDatabase(table.partition(".")[0], True)
        schema = self.paimon.schema.Schema.newBuilder()
        for field in fields:
            schema.column(field["name"], self._type(field["type"]))
        schema.partitionKeys(partition_keys)
        schema.options(options)
        catalog.createTable(self._identifier(table), schema.build(), False)

    def add_column(self, warehouse: str, table: str, name: str, type: str) -> None:
        """Add a nullable column at the end."""
        change = self.paimon.schema.SchemaChange.addColumn(name, self._type(type))
        self._catalog(warehouse).alterTable(self._identifier(table), [change], False)

    def append(self, warehouse: str, table: str, rows: list[list[Any]]) -> None:
        """Commit canonical rows, columns in schema order."""
        self._write(warehouse, table, rows, None)

    def overwrite(self, warehouse: str, table: str, rows: list[list[Any]], partition: dict[str, str]) -> None:
        """Replace the whole table, or one partition, by canonical rows."""
        self._write(warehouse, table, rows, partition)

    def read(
        self,
        warehouse: str,
        table: str,
        options: dict[str, str] | None = None,
        filter: dict[str, Any] | None = None,
        columns: list[str] | None = None,
    ) -> dict[str, Any]:
        """Canonical rows; `options` are dynamic table options such as scan.snapshot-id."""
        builder, splits = self._scan(warehouse, table, options, filter, columns)
        rows = [row for split in splits for row in self._rows(builder, split)]
        return {"columns": list(builder.readType().getFieldNames()), "rows": canonical.sorted_rows(rows)}

    def plan(self, warehouse: str, table: str, filter: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The splits a read would take: bucket, rows and file names."""
        _, splits = self._scan(warehouse, table, None, filter, None)
        return [
            {"bucket": s.bucket(), "rows": s.rowCount(), "files": [f.fileName() for f in s.dataFiles()]}
            for s in splits
        ]

    def buckets(self, warehouse: str, table: str, columns: list[str]) -> list[list[Any]]:
        """Pairs of bucket and canonical row of those columns, over the whole table."""
        builder, splits = self._scan(warehouse, table, None, None, columns)
        return [[split.bucket(), row] for split in splits for row in self._rows(builder, split)]

    def compact(self, warehouse: str, table: str) -> None:
        """Merge small files as Paimon's own jobs do: by tasks without fixed buckets, in the writer with them."""
        options = {"compaction.min.file-num": "2", "compaction.max.file-num": "2", "write-only": "false"}
        target = self._table(warehouse, table, options)
        user = str(uuid.uuid4())
        store = self._call(target, "store")
        unaware = str(self._call(target, "bucketMode")) == "BUCKET_UNAWARE"
        messages = self._run_tasks(target, store, user) if unaware else self._compact_buckets(target, user)
        commit = self._call(target, "newCommit", user)
        commit.commit(self.paimon.table.sink.BatchWriteBuilder.COMMIT_IDENTIFIER, messages)
        commit.close()

    def _run_tasks(self, table: Any, store: Any, user: str) -> list[Any]:
        coordinator = self.paimon.append.UnawareAppendTableCompactionCoordinator(table, False)
        write = store.newWrite(user)
        # One run sees the whole snapshot; a second would say that nothing follows it.
        messages = [task.doCompact(table, write) for task in coordinator.run()]
        write.close()
        return messages

    def _compact_buckets(self, table: Any, user: str) -> Any:
        write = self._call(table, "newWrite", user)
        write.withIOManager(self.paimon.disk.IOManager.create(os.environ["TMPDIR"]))
        builder = self.paimon.python.InvocationUtil.getReadBuilder(table)
        for split in builder.newScan().plan().splits():
            write.compact(split.partition(), split.bucket(), True)
        messages = write.prepareCommit(True, self.paimon.table.sink.BatchWriteBuilder.COMMIT_IDENTIFIER)
        write.close()
        return messages

    def _write(
        self, warehouse: str, table: str, rows: list[list[Any]], partition: dict[str, str] | None
    ) -> None:
        target = self._table(warehouse, table)
        builder = self.paimon.python.InvocationUtil.getBatchWriteBuilder(target)
        if partition is not None:
            builder.withOverwrite(partition)
        write, commit = builder.newWrite(), builder.newCommit()
        try:
            for row in self.rows.build(builder.rowType(), rows):
                write.write(row)
            commit.commit(write.prepareCommit())
        finally:
            write.close()
            commit.close()

    def _scan(
        self,
        warehouse: str,
        table: str,
        options: dict[str, str] | None,
        condition: dict[str, Any] | None,
        columns: list[str] | None,
    ) -> tuple[Any, list[Any]]:
        builder = self.paimon.python.InvocationUtil.getReadBuilder(self._table(warehouse, table, options))
        row_type = builder.readType()
        if condition is not None:
            builder.withFilter(self._predicate(row_type, condition))
        if columns is not None:
            positions = self.gateway.new_array(self.gateway.jvm.int, len(columns))
            for at, name in enumerate(columns):
                positions[at] = row_type.getFieldIndex(name)
            builder.withProjection(positions)
        return builder, list(builder.newScan().plan().splits())

    def _rows(self, builder: Any, split: Any) -> Iterator[list[Any]]:
        reader = builder.newRead().executeFilter().createReader(split)
        yield from self.rows.read(builder.readType(), reader.toCloseableIterator())

    def _predicate(self, row_type: Any, condition: dict[str, Any]) -> Any:
        util = self.paimon.python.PredicationUtil
        if condition["op"] in ("and", "or"):
            parts = [self._predicate(row_type, part) for part in condition["of"]]
            return util.buildAnd(parts) if condition["op"] == "and" else util.buildOr(parts)
        at = row_type.getFieldIndex(condition["column"])
        literals = [self.rows.literal(row_type.getTypeAt(at), v) for v in condition.get("values", [])]
        build = self.paimon.predicate.PredicateBuilder(row_type)
        operator = PREDICATES[condition["op"]]
        if row_type.getTypeAt(at).getTypeRoot().toString() not in BOXED:
            return getattr(build, operator)(at, *([literals] if operator in ("in", "notIn") else literals))
        return util.build(row_type, build, operator, at, literals)

    def _catalog(self, warehouse: str) -> Any:
        options = self.paimon.options.Options({"warehouse": warehouse})
        context = self.paimon.catalog.CatalogContext.create(options)
        return self.paimon.catalog.CatalogFactory.createCatalog(context)

    def _identifier(self, table: str) -> Any:
        return self.paimon.catalog.Identifier.fromString(table)

    def _table(self, warehouse: str, table: str, options: dict[str, str] | None = None) -> Any:
        found = self._catalog(warehouse).getTable(self._identifier(table))
        return self._call(found, "copy", options) if options else found

    def _call(self, table: Any, method: str, *arguments: Any) -> Any:
        """Call a method of FileStoreTable on an object whose own class is not public."""
        java = self.gateway.jvm.java
        classes = {
            str: java.lang.Class.forName("java.lang.String"),
            dict: java.lang.Class.forName("java.util.Map"),
        }
        types = self.gateway.new_array(java.lang.Class, len(arguments))
        values = self.gateway.new_array(java.lang.Object, len(arguments))
        for at, argument in enumerate(arguments):
            types[at] = classes[type(argument)]
            values[at] = java.util.HashMap(argument) if isinstance(argument, dict) else argument
        return self.store_table.getMethod(method, types).invoke(table, values)

    def operation(self, name: str) -> Callable[..., Any]:
        """A method whose Java exceptions name their innermost cause."""

        def run(**arguments: Any) -> Any:
            try:
                return getattr(self, name)(**arguments)
            except Py4JJavaError as error:
                cause = error.java_exception
                while cause.getCause() is not None:
                    cause = cause.getCause()
                raise JavaError(cause.toString()) from error

        return run

    def _type(self, spelled: Any) -> Any:
        return self.paimon.types.DataTypeJsonParser.parseDataType(self.json.readTree(json.dumps(spelled)))


if __name__ == "__main__":
    driver = Driver()
    names = [
        "hello",
        "create_table",
        "add_column",
        "append",
        "overwrite",
        "read",
        "plan",
        "buckets",
        "compact",
    ]
    try:
        serve({name: driver.operation(name) for name in names})
    finally:
        driver.gateway.shutdown()

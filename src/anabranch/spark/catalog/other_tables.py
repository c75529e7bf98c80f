"""Catalog entries that are not our tables: metadata tables and definitions of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import UnsupportedFeatureError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.spark.catalog import java
from anabranch.spark.catalog.source import TableLocation, source_scan
from anabranch.spark.catalog.tables import Relation, shown_properties
from anabranch.spark.context.options import spelled
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.types.columns import spark_schema

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

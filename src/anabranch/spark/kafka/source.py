"""The data source ``anabranch-kafka``. Its options and columns are those of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.errors import OptionError, SchemaError
from anabranch.kafka.options import KafkaSettings, columns_asked, settings_of
from anabranch.kafka.values import DEAD_LETTER, ON_ERROR, ROW, TABLE, WAREHOUSE
from anabranch.spark.kafka.sink import KafkaBatchWriter, KafkaStreamWriter, SinkSettings
from anabranch.spark.kafka.stream import KafkaBatchReader, stream_reader
from anabranch.spark.source.dead_letters import Rejecting
from anabranch.spark.types.columns import spark_type

_COLUMNS = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
)
_HEADERS = StructField("headers", ArrayType(StructType().add("key", StringType()).add("value", BinaryType())))


class KafkaSource(DataSource):
    """Batch and streaming data source and sink for topics."""

    defaults: ClassVar[Mapping[str, str]] = {}
    """Warehouse of the session, where dead letters go, and options of its store."""

    @classmethod
    def name(cls) -> str:
        return "anabranch-kafka"

    def schema(self) -> StructType:
        headers, values = columns_asked(self._given())
        fields = [*_COLUMNS.fields, *([_HEADERS] if headers else [])]
        if values is not None:
            row = StructType([StructField(f.name, spark_type(f.type)) for f in values.fields])
            fields.append(StructField(ROW, row))
        return StructType(fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = self._settings(schema, streaming=False)
        if settings.values is not None and settings.values.on_error == DEAD_LETTER:
            raise OptionError(
                f"'{ON_ERROR.key}' is '{DEAD_LETTER}' in a batch read, and dead letters are kept for streams only",
                hint="use fail or skip.",
            )
        return KafkaBatchReader(settings)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        settings = self._settings(schema, streaming=True)
        reader = stream_reader(settings)
        values = settings.values
        if values is not None and values.table is not None:
            if values.warehouse is None:
                raise OptionError(
                    f"'{TABLE.key}' is '{values.table}', but it is not said in which warehouse",
                    hint=f"set '{WAREHOUSE.key}', or use a session of anabranch.spark.session(warehouse).",
                )
            reader.rejecting = Rejecting(values.warehouse, values.table, tuple(self.defaults.items()))
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return KafkaBatchWriter(SinkSettings.of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return KafkaStreamWriter(SinkSettings.of(self.options, schema), self.options)

    def _settings(self, asked: StructType, *, streaming: bool) -> KafkaSettings:
        settings = settings_of(self._given(), streaming=streaming)
        there = self.schema()
        if asked != there:
            raise SchemaError(
                f"the columns of the Kafka source are {there.simpleString()}, but {asked.simpleString()} was asked for",
                hint="leave out .schema(...), and cast or parse the column value.",
            )
        return settings

    def _given(self) -> dict[str, str]:
        given = dict(self.options)
        known = self.defaults.get(WAREHOUSE.key)
        if (
            known is not None
            and WAREHOUSE.key not in given
            and any(key.lower() == TABLE.key for key in given)
        ):
            given[WAREHOUSE.key] = known
        return given


def kafka_source_with(defaults: Mapping[str, str]) -> type[KafkaSource]:
    """Return the data source class with the warehouse of a session, to be registered there."""
    # Defined at run time, so that the class is pickled by value together with the options.
    return type("KafkaSource", (KafkaSource,), {"defaults": dict(defaults)})

"""The data source ``anabranch-kafka``. Its options and columns are those of Spark's own Kafka source."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
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

from anabranch.errors import SchemaError
from anabranch.kafka.options import KafkaSettings, headers_of, settings_of
from anabranch.spark.kafka.batch import KafkaBatchReader
from anabranch.spark.kafka.stream import stream_reader

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
    """Batch and streaming reads of topics."""

    @classmethod
    def name(cls) -> str:
        return "anabranch-kafka"

    def schema(self) -> StructType:
        fields = _COLUMNS.fields
        return StructType([*fields, _HEADERS] if headers_of(self.options) else fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        return KafkaBatchReader(self._settings(schema, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return stream_reader(self._settings(schema, streaming=True))

    def _settings(self, asked: StructType, *, streaming: bool) -> KafkaSettings:
        settings = settings_of(self.options, streaming=streaming)
        there = self.schema()
        if asked != there:
            raise SchemaError(
                f"the columns of the Kafka source are {there.simpleString()}, but {asked.simpleString()} was asked for",
                hint="leave out .schema(...), and cast or parse the column value.",
            )
        return settings

"""Tables whose rows are the records of topics: ``CREATE TABLE ... WITH ('connector' = 'kafka', ...)``.

Options are Flink's, or those of ``format("anabranch-kafka")``. Values are read as JSON by the names of the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.catalog.connectors import CONNECTOR
from anabranch.errors import OptionError, UnsupportedFeatureError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import WATERMARK_KEYS, WatermarkDefinition, watermark_definition
from anabranch.format.types.data_types import Field, LocalZonedTimestampType
from anabranch.kafka import values
from anabranch.kafka.options import CLIENT_PREFIX, settings_of
from anabranch.option_kinds import Option, parse_bool
from anabranch.spark.types.columns import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PROPERTIES: Final = "properties."
_TOPIC, _PATTERN, _AT = "topic", "topic-pattern", "scan.startup.timestamp-millis"
_STARTS: Final = {"earliest-offset": "earliest", "latest-offset": "latest"}
_WHAT: Final = frozenset({"subscribe", "subscribePattern", "assign"})
_TIME: Final = "__anabranch_event_time"
MARK: Final = "spark.watermarkDelayMs"
"""Metadata key by which Spark marks an event time column."""


def _one_of(key: str, values: tuple[str, ...], meaning: str) -> Option[str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(text)
        return text

    return Option(key, parse, values[0], meaning, " or ".join(values))


FORMAT: Final = _one_of("format", ("json", "csv", "avro", "raw"), "What the values of records are.")
START: Final = _one_of(
    "scan.startup.mode", ("earliest-offset", "latest-offset", "timestamp"), "Where a new stream begins."
)
END: Final = _one_of(
    "scan.bounded.mode", ("unbounded", "latest-offset"), "Whether a stream ends with what is there."
)
IGNORE_ERRORS: Final = Option(
    "json.ignore-parse-errors", parse_bool, False, "Whether records that are no JSON are left out.", "boolean"
)
_OWN: Final = frozenset(
    {CONNECTOR.key, FORMAT.key, START.key, END.key, IGNORE_ERRORS.key, _TOPIC, _PATTERN, _AT, *WATERMARK_KEYS}
)


def check(fields: tuple[Field, ...], options: Mapping[str, str]) -> None:
    """Check the definition of a table over a topic.

    Raises:
        UnsupportedFeatureError: the connector is another one.
        OptionError: an option is unknown, missing or not understood.
    """
    connector = options.get(CONNECTOR.key)
    if connector != "kafka":
        raise UnsupportedFeatureError(
            f"there is no connector '{connector}'",
            feature="connector",
            hint="the connector that there is is 'kafka'; files are read by SELECT * FROM parquet.`path`.",
        )
    source = _source_options(options, fields, streaming=True)
    if not source.keys() & _WHAT:
        raise OptionError(
            "the table does not say of which topic it is",
            hint="add 'topic' = '...' and 'properties.bootstrap.servers' = 'host:9092'.",
        )
    settings_of(source, streaming=True)
    if FORMAT.of(options) == "raw" and len(fields) != 1:
        raise OptionError(
            f"a table of {len(fields)} columns cannot have the format raw", hint="it has one, the value."
        )


def is_bounded(definition: TableSchema) -> bool:
    """Whether a stream of it ends with the records that exist when it starts."""
    return END.of(definition.options) == "latest-offset"


def frame(
    spark: SparkSession, definition: TableSchema, options: Mapping[str, str], *, streaming: bool
) -> DataFrame:
    """Return the current rows, or a stream with the declared watermark.

    Args:
        definition: of the table.
        options: of the statement, which lie over those of the table.
    """
    given = {**definition.options, **options}
    reader = (spark.readStream if streaming else spark.read).format("anabranch-kafka")
    zone = spark.conf.get("spark.sql.session.timeZone")
    source = {values.ZONE.key: zone, **_source_options(given, definition.fields, streaming=streaming)}
    if values.FORMAT.key not in source:
        source.pop(values.ZONE.key)
    records = reader.options(**source).load().where("value IS NOT NULL")
    rows = records.select(f"{values.ROW}.*") if values.FORMAT.key in source else _raw(records, definition)
    watermark = watermark_definition(definition) if streaming else None
    return rows if watermark is None else _in_event_time(rows, definition, watermark)


def _source_options(
    options: Mapping[str, str], fields: Sequence[Field], *, streaming: bool
) -> dict[str, str]:
    """Return the options of the source. Raises `OptionError`."""
    found = {k: v for k, v in options.items() if k not in _OWN and not k.startswith(_PROPERTIES)}
    for key, value in options.items():
        if key.startswith(_PROPERTIES):
            found[f"{CLIENT_PREFIX}{key.removeprefix(_PROPERTIES)}"] = value
    if _TOPIC in options:
        found["subscribe"] = ",".join(name.strip() for name in options[_TOPIC].split(";"))
    if _PATTERN in options:
        found["subscribePattern"] = options[_PATTERN]
    END.of(options)
    if FORMAT.of(options) != "raw":
        found[values.FORMAT.key] = FORMAT.of(options)
        found[values.SCHEMA.key] = ", ".join(f"{_quoted(f.name)} {f.type}" for f in fields)
    if IGNORE_ERRORS.of(options) and FORMAT.of(options) != "raw":
        found.setdefault(values.ON_ERROR.key, values.SKIP)
    if values.TABLE.key in found:
        # Dead letters are kept by a stream; its WAREHOUSE is that of the session.
        found.setdefault(values.ON_ERROR.key, values.DEAD_LETTER)
        if not streaming:
            found.pop(values.TABLE.key)
            found[values.ON_ERROR.key] = values.SKIP
    start = START.of(options)
    if start == "timestamp":
        if _AT not in options:
            raise OptionError(f"'{START.key}' is 'timestamp'", hint=f"say when, with '{_AT}'.")
        found["startingTimestamp"] = options[_AT]
    elif not any(key.lower().startswith("starting") for key in found) and (
        streaming or _STARTS[start] == "earliest"
    ):
        found["startingOffsets"] = _STARTS[start]
    return found


def _raw(records: DataFrame, definition: TableSchema) -> DataFrame:
    """Return the column of a table whose value format is raw."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    (column,) = spark_schema(definition.fields)
    return records.select(F.col("value").cast(column.dataType).alias(column.name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _in_event_time(rows: DataFrame, definition: TableSchema, watermark: WatermarkDefinition) -> DataFrame:
    """Apply Spark's watermark as declared. Spark takes only instants, so a TIMESTAMP gets an extra instant column."""
    delay = f"{watermark.delay_millis} milliseconds"
    if isinstance(definition.field(watermark.column).type, LocalZonedTimestampType):
        return rows.withWatermark(watermark.column, delay)
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    column = _quoted(watermark.column)
    marked: Any = {MARK: watermark.delay_millis}
    timed = rows.withColumn(_TIME, _utc(column)).withWatermark(_TIME, delay)
    chosen: list[Column] = []
    for name in rows.columns:
        value = F.col(_quoted(name))
        chosen.append(value.alias(name, metadata=marked) if name == watermark.column else value)
    return timed.select(*chosen)


def _utc(column: str) -> Column:
    """Return the instant of a clock time in UTC, whatever the session's time zone is."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    return F.expr(
        f"timestamp_micros(unix_date(CAST({column} AS DATE)) * 86400000000L + hour({column}) * 3600000000L "
        f"+ minute({column}) * 60000000L + CAST(extract(SECOND FROM {column}) * 1000000 AS BIGINT))"
    )

"""Streams of tables whose watermark Spark takes over.

A table with a watermark definition records in every snapshot how far it is in event time. The source hands that on
beside the rows, in a column that Spark is told to take its watermark from, with no delay: after a batch, Spark's
watermark is the table's.

The rows' own event time is then marked as what that watermark is about, in the way that ``withWatermark`` marks a
column. Spark allows one definition of a watermark on a way through a query, so a second ``withWatermark`` would be
refused; it would also let the watermark come from the rows of the batch, which may be behind the table or, with
another delay, ahead of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.format.schema.watermark import WatermarkDefinition, watermark_definition
from anabranch.options import PATH, SCAN_LATE_ROWS, SCAN_WATERMARK_COLUMN
from anabranch.spark.context.attached import options_of
from anabranch.spark.context.options import refuse_catalog_options, spelled
from anabranch.spark.context.tables import open_table
from anabranch.streaming.offsets import WATERMARK_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EVENT_TIME_MARK = "spark.watermarkDelayMs"
"""Metadata key by which Spark marks an event time column; part of its checkpoints, so it stays."""


def read_stream(
    spark: SparkSession, name: str, *, late_rows: str | None = None, **options: str | int | bool
) -> DataFrame:
    """Return a stream of a table in event time: Spark's watermark is the one the table records.

    Windows, joins and deduplication over the column of the table's definition, ``WATERMARK FOR col AS col - INTERVAL
    '5' SECOND``, close and forget by it; nothing else is to be said, and ``withWatermark`` on the frame is refused by
    Spark. A table without a definition, columns (``scan.columns``) without the event time, and late rows alone give a
    stream without a watermark.

    Spark hears of the watermark with the rows: what snapshots without rows record, or whose rows are filtered out by
    ``scan.filter`` or a filter on the frame, reaches it with the next row.

    Args:
        spark: a session that was made or attached by Anabranch, classic or of Spark Connect.
        name: ``database.table``, also with a branch, or the path of a table.
        late_rows: ``keep`` (the default), ``drop`` or ``only`` those whose event time was behind the watermark of the
            table when they were committed: the option ``scan.late-rows``. Windows take every row that ``drop`` lets
            through, so rows in windows and rows of an ``only`` stream together are the rows of the table. Joins and
            deduplication may drop a row whose event time is exactly the watermark: Spark calls that late.
        options: of the stream, by their names as text: ``**{"scan.mode": "latest"}``.

    Raises:
        NotFoundError: there is no such table, or the session knows no warehouse.
        OptionError: an option is unknown or is not understood; or late rows are asked of a table that defines none.
    """
    refuse_catalog_options(options)
    known = options_of(spark, name)
    asked = spelled({key: _text(value) for key, value in options.items()}, besides=known)
    if late_rows is not None:
        asked[SCAN_LATE_ROWS.key] = late_rows
    table = open_table({**known, **asked, PATH.key: name})
    definition = watermark_definition(table.schema)
    is_late_only = SCAN_LATE_ROWS.of(table.options) == "only"
    reader = spark.readStream.format("anabranch").options(**asked)
    if definition is None or is_late_only:
        return reader.load(name)
    return _in_event_time(reader.option(SCAN_WATERMARK_COLUMN.key, "true").load(name), definition)


def _in_event_time(frame: DataFrame, definition: WatermarkDefinition) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    mark: Mapping[str, int] = {_EVENT_TIME_MARK: definition.delay_millis}
    columns = []
    for column in frame.columns:
        value = F.col("`" + column.replace("`", "``") + "`")
        if column == definition.column:
            columns.append(value.alias(column, metadata=mark))
        elif column != WATERMARK_COLUMN:
            columns.append(value)
    if definition.column not in frame.columns:
        return frame.select(*columns)
    return frame.withWatermark(WATERMARK_COLUMN, "0 seconds").select(*columns)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""``INSERT INTO ... SELECT`` from a stream: a streaming query with a name and a checkpoint of its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from anabranch.catalog import Identifier
from anabranch.errors import SqlError, UnsupportedFeatureError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import WatermarkDefinition, watermark_definition
from anabranch.options import JOB, PATH, WATERMARK_SOURCE_COLUMN
from anabranch.spark.context.options import CHECKPOINT, QUERY_NAME
from anabranch.spark.context.tables import open_table
from anabranch.spark.kafka.definition import MARK, is_bounded
from anabranch.spark.sql.frames import Frames
from anabranch.spark.sql.insert import Insert, in_columns
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.references import references
from anabranch.spark.sql.scanner import words_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_FOLDER = "_checkpoints"
"""Folder in the warehouse; no database can have this name."""
_TRIGGER = "trigger"


def start(statement: Insert, frames: Frames, names: Names, options: Mapping[str, str]) -> StreamingQuery:
    """Start the query.

    Its name is that of the option ``queryName``, else the table's with a mark of the statement: the same statement goes
    on where it stood, another one begins. Its checkpoint is where ``checkpointLocation`` says, else below the
    warehouse, under the name. The option ``trigger`` is ``available-now`` or an interval such as ``10 seconds``.

    Args:
        statement: whose query has a stream.
        names: what names mean.

    Raises:
        UnsupportedFeatureError: the statement replaces rows.
        SchemaError: the rows do not fit the table.
    """
    identifier = names.identifier(statement.target) if "$" not in statement.target[-1] else None
    name = names.full(statement.target)
    if name is None or (identifier is None and Identifier.parse(name).system is not None):
        raise SqlError(f"'{'.'.join(statement.target)}' is no table of the lake that can be written")
    if names.connector(name) is not None:
        raise UnsupportedFeatureError(
            f"'{name}' is a topic, which is only read", feature="kafka-sink", hint="insert into a table."
        )
    if statement.overwrite or statement.where is not None:
        raise UnsupportedFeatureError(
            "rows that come from a stream cannot replace others",
            feature="overwrite-by-stream",
            hint="write INSERT INTO.",
        )
    given = dict(statement.options)
    job = given.pop(QUERY_NAME, None) or _name(name, statement)
    checkpoint = given.pop(CHECKPOINT, None) or f"{_folder(options)}/{quote(job, safe='')}"
    trigger = given.pop(_TRIGGER, None)
    table = open_table({**options, PATH.key: name})
    rows = in_columns(
        frames.query(statement.query, names, inserted=True),
        statement,
        table.schema,
        also=WATERMARK_SOURCE_COLUMN.of({**table.options, **given}),
    )
    if watermark_definition(table.schema) is None:
        given = {**_watermark_of_rows(rows, table.schema, statement, names), **given}
    writer = rows.writeStream.format("anabranch").options(**{**options, JOB.key: job, **given})
    if trigger == "available-now" or (trigger is None and _ends(statement, names)):
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    return writer.queryName(job).option(CHECKPOINT, checkpoint).start(name)


def _name(table: str, statement: Insert) -> str:
    words = [word.text for word in words_of(statement.query)]
    text = "\n".join([*statement.target, *statement.columns, str(statement.by_name), *words])
    return f"{table}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _folder(options: Mapping[str, str]) -> str:
    return os.path.join(options["warehouse"], _FOLDER)  # noqa: PTH118 - it may be a URL


def _watermark_of_rows(
    rows: DataFrame, schema: TableSchema, statement: Insert, names: Names
) -> dict[str, str]:
    """Return write options that define the rows' watermark as their topic's table does, if it is the only source.

    Of several sources the newest row of all says nothing of the slowest; then the watermark is the one that Spark has.
    """
    found = [names.table(reference.parts) for reference in references(statement.query)]
    sources = [names.connector(name) for name in found if name is not None]
    marked = [field for field in rows.schema.fields if MARK in (field.metadata or {})]
    if len(sources) != 1 or sources[0] is None or len(marked) != 1:
        return {}
    column = next((field for field in schema.fields if field.name == marked[0].name), None)
    if column is None or watermark_definition(sources[0]) is None:
        return {}
    return WatermarkDefinition(column.name, int(marked[0].metadata[MARK])).options(column.type)


def _ends(statement: Insert, names: Names) -> bool:
    """Whether all topics are read only up to their current end."""
    found = [names.table(reference.parts) for reference in references(statement.query)]
    topics = [topic for name in found if name is not None and (topic := names.connector(name)) is not None]
    return bool(topics) and all(is_bounded(topic) for topic in topics)

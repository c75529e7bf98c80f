"""Rebuilds state: the corrected query reads its sources again, from where the first query began, up to the point.

Spark takes what a batch reads, and the watermark it runs under, from the offset log, if the batch is there and not
committed yet. So batches of the new query are written by us: the last one ends exactly at the positions of the point and has
the watermark of the point's batch. Mostly it is the only one: late rows are told by the watermark of the batch before, so that no
row is late, and what the watermark closes is emitted in this batch and withheld: it is in the table already. What stays is
the state that belongs to the point; `anabranch.jobs.state.replay` has the others. How the query's sources are written in
the log is seen from a query that is planned and not run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError
from anabranch.jobs.source import STARTING_OFFSETS
from anabranch.lineage.spark_offsets import parse_batch_offsets
from anabranch.options import SCAN_START_OFFSET
from anabranch.spark.context.options import CHECKPOINT
from anabranch.streaming.offsets import Offset, is_offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.jobs.checkpoint import JobCheckpoint

PLANNING = "anabranch/planning"
"""In a checkpoint: where queries run whose batches are no part of it."""
_NONE = "-"

Options = Mapping[str, Mapping[str, str]]


def batch_text(planned: str, begins: Options, ends: Options, watermark: int) -> str:
    """Return the offset log file of a batch of a query that is to end at certain positions.

    Args:
        planned: its file for the first batch, as Spark writes it.
        begins: by source, the option that says where its rows begin.
        ends: by source, the option that says where it is after the batch.
        watermark: that the batch runs under, epoch milliseconds.

    Raises `InvalidInputError`: a source of the query is none of these.
    """
    version, metadata, *lines = planned.split("\n")
    told = {**json.loads(metadata), "batchWatermarkMs": watermark}
    end_of = _by_identity(begins, ends)
    made = []
    for line in lines:
        source, sign, value = line.partition(":") if version.strip() == "v2" else ("", "", line)
        made.append(source + sign + (value if value == _NONE else _end(json.loads(value), end_of)))
    text = "\n".join([version, json.dumps(told), *made])
    parse_batch_offsets(text)
    return text


def next_batch(before: str, ends: Options, watermark: int) -> str:
    """Return the offset log file of a batch that begins where the one before ended, and ends at a point.

    Args:
        before: the file of the batch before.
        ends: by source, the option that says where it is at the point.
        watermark: that the point's batch ran under, epoch milliseconds.

    Raises `InvalidInputError`: it is not certain which source of the query a position belongs to.
    """
    ends_of = {frozenset(identities_of(end)): end for end in (_end_option(one) for one in ends.values())}
    version, metadata, *lines = before.split("\n")
    made = []
    for line in lines:
        source, sign, value = line.partition(":") if version.strip() == "v2" else ("", "", line)
        if value != _NONE:
            known = json.loads(value)
            end = ends_of.get(frozenset(identities_of(known)))
            if end is None:
                raise InvalidInputError(f"it is not known up to where a source was read: {value[:120]}")
            value = _following(known, end)
        elif len(lines) <= len(ends):
            raise InvalidInputError("it is not known which source was not read yet")
        made.append(source + sign + value)
    text = "\n".join([version, json.dumps({**json.loads(metadata), "batchWatermarkMs": watermark}), *made])
    parse_batch_offsets(text)
    return text


def _end_option(options: Mapping[str, str]) -> Any:
    return json.loads(options.get(SCAN_START_OFFSET.key) or options[STARTING_OFFSETS])


def identities_of(value: Any) -> Collection[str]:
    """Return what identifies a source in an offset: a table's identity, or the topics."""
    return [Offset.from_dict(value).table_uuid] if is_offset(value) else list(value)


def _following(known: Any, end: Any) -> str:
    if not is_offset(known):
        return json.dumps(end)
    begun = Offset.from_dict(known)
    position = Offset.from_dict(end).position
    return json.dumps(replace(begun, position=position, ended=0).to_dict())


def planned_batch(rows: DataFrame, checkpoint: JobCheckpoint) -> str | None:
    """Return what Spark writes to the offset log for the first batch of a query; None if no source has a row by now."""
    from pyspark.errors import StreamingQueryException  # Spark is imported once a job runs

    storage, path = checkpoint.storage, f"{PLANNING}/offsets/0"
    storage.delete_folder(PLANNING)
    # A batch whose rows nobody requests is planned and not computed.
    writer = rows.writeStream.foreachBatch(lambda _, __: None).outputMode("append").trigger(once=True)
    query = writer.option(CHECKPOINT, f"{checkpoint.location}/{PLANNING}").start()
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if not storage.exists(path):  # else Spark misses the state that was not computed
            raise
    finally:
        query.stop()
    found = storage.get(path).decode() if storage.exists(path) else None
    storage.delete_folder(PLANNING)
    return found


def _by_identity(begins: Options, ends: Options) -> Callable[[Any], str | None]:
    """Return a function from a source's offset to its end as the log has it; None for a source not read by then."""
    tables: dict[str, str] = {}
    topics: dict[frozenset[str], str] = {}
    for name, options in ends.items():
        text = options.get(SCAN_START_OFFSET.key)
        if text is not None:
            end = Offset.from_dict(json.loads(text))
            begin = Offset.from_dict(json.loads(begins[name][SCAN_START_OFFSET.key]))
            tables[end.table_uuid] = json.dumps(replace(end, origin=begin.position).to_dict())
        elif STARTING_OFFSETS in options:
            value = json.loads(options[STARTING_OFFSETS])
            topics[frozenset(value)] = json.dumps(value)

    def end_of(value: Any) -> str | None:
        if is_offset(value):
            return tables.get(Offset.from_dict(value).table_uuid)
        return topics.get(frozenset(value)) if isinstance(value, dict) else None

    return end_of


def _end(value: Any, end_of: Callable[[Any], str | None]) -> str:
    found = end_of(value)
    if found is not None:
        return found
    if is_offset(value):
        return _NONE  # not read by then: it begins as it is declared, after the point
    raise InvalidInputError(
        f"a source of the query cannot be read again up to a position: {json.dumps(value)[:120]}"
    )

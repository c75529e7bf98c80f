"""Runs the batches of a former query once more, to make state that depends on which rows came together.

In one batch no row is late, no timer fires between two rows, and no session or key is closed before the next row comes: state
of such operators would hold what was published and closed long ago. Commits say how far each batch had read and under which
watermark. So each batch is written to the offset log and run by itself, with nobody to take its rows, in a checkpoint
aside; only the last one is left to the query that goes on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anabranch.errors import NotFoundError
from anabranch.jobs.source import STARTING_OFFSETS
from anabranch.jobs.state.carry import Moved, carry
from anabranch.jobs.state.held import HeldState, held_state
from anabranch.jobs.state.point import Point
from anabranch.jobs.state.rebuild import PLANNING, identities_of
from anabranch.lineage.model import Input, LineageEntry, TableInput
from anabranch.lineage.store import CommitStore
from anabranch.options import SCAN_START_OFFSET
from anabranch.runtime import SYSTEM
from anabranch.spark.context.options import CHECKPOINT
from anabranch.streaming.offsets import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.jobs.checkpoint import JobCheckpoint

_LOG = logging.getLogger(__name__)

MOST = 500
"""Batches that are run again at most: each takes a second or more."""

Options = Mapping[str, Mapping[str, str]]


def _same(offset: Offset) -> Offset:
    return offset


@dataclass(frozen=True, slots=True)
class FormerBatch:
    """A batch of the query that made the point."""

    ends: Options
    """By source, the option that says where it was after the batch; without those that were not read by then."""
    watermark: int
    """That it ran under, epoch milliseconds."""


def former_batches(
    store: CommitStore,
    table_uuid: str,
    point: Point,
    *,
    begins: Options,
    ends: Options,
    moved: Callable[[Offset], Offset],
) -> list[FormerBatch]:
    """Return the batches up to a point that read what comes after `begins`, the oldest first; the last one ends at the point.

    Args:
        store: knows the commits of the table, those that have expired included.
        table_uuid: the table that the query wrote to.
        point: its last batch.
        begins: by source, the option that says where its rows begin.
        ends: by source, the option that says where it is at the point.
        moved: maps a position to the same one on the table that is read now.

    Raises `NotFoundError`: they are not all known, or they are too many.
    """
    found: list[FormerBatch] = []
    batches = [*_batches(store, table_uuid, point, ends=ends, moved=moved, begins=begins)]
    for batch in batches:
        # A source of which nothing is needed yet begins with a later batch.
        begun = {name: end for name, end in batch.ends.items() if _is_beyond(end, begins[name])}
        if begun or found:
            found.append(replace(batch, ends=begun))
    return _up_to_point(found[:-1], replace(batches[-1], ends=ends))


def later_batches(
    store: CommitStore,
    table_uuid: str,
    point: Point,
    after: int,
    *,
    ends: Options,
    moved: Callable[[Offset], Offset],
) -> list[FormerBatch]:
    """Return the batches after batch `after` up to a point. Arguments and errors as for `former_batches`."""
    *found, last = [*_batches(store, table_uuid, point, ends=ends, moved=moved)][after + 1 :]
    return _up_to_point(found, replace(last, ends=ends))


def _up_to_point(found: list[FormerBatch], last: FormerBatch) -> list[FormerBatch]:
    """Return the batches and the last one. Raises `NotFoundError`: they are too many."""
    if len(found) >= MOST:
        raise NotFoundError(f"they are {len(found) + 1}, and not more than {MOST} are run again")
    return [*found, last]


def _batches(
    store: CommitStore,
    table_uuid: str,
    point: Point,
    *,
    ends: Options,
    moved: Callable[[Offset], Offset],
    begins: Options | None = None,
) -> Iterator[FormerBatch]:
    """Yield all batches up to a point, the oldest first."""
    names: dict[frozenset[str], list[str]] = {}
    for name, option in ends.items():
        names.setdefault(_identity(option), []).append(name)
    at: dict[str, Mapping[str, str]] = {}
    for entry in _entries(store, table_uuid, point):
        for read in entry.streams:
            option = _option(read, moved)
            for name in names.get(_identity(option), ()):
                if name not in at and begins is not None:
                    _check_begin(name, begins[name], read)
                if _branch(option) != _branch(ends[name]):
                    raise NotFoundError(f"source '{name}' was read on another branch before")
                at[name] = option
        yield FormerBatch(dict(at), entry.watermark or 0)


def replay(
    rows: DataFrame,
    checkpoint: JobCheckpoint,
    texts: Sequence[str],
    job: str,
    *,
    held: HeldState | None = None,
    moved: Moved = _same,
) -> None:
    """Run batches, and put the state after them into a checkpoint in which no query has begun.

    Args:
        rows: of the query, with sources that begin where the first of the batches does.
        checkpoint: of that query.
        texts: the offset log file of each.
        job: its name, for the log.
        held: the state before the first of them; None if there was none.
        moved: as `carry` takes it, for that state.
    """
    aside = checkpoint.storage.scoped(PLANNING)
    checkpoint.storage.delete_folder(PLANNING)
    first = 0
    if held is not None:
        carry(held, aside, moved)
        first = held.batch + 1
    # Spark wants a log that has batches to have the id of their query.
    aside.put("metadata", json.dumps({"id": SYSTEM.ids.uuid()}).encode())
    for number, text in enumerate(texts, first):
        _LOG.info("job '%s': batch %d of %d is run again for its state", job, number - first + 1, len(texts))
        aside.put(f"offsets/{number}", text.encode())
        # Started with a batch in the log that is not done, it does this one as it is written there, and ends.
        writer = rows.writeStream.format("noop").outputMode("append").trigger(once=True)
        query = writer.option(CHECKPOINT, f"{checkpoint.location}/{PLANNING}").start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
    made = held_state(aside, first + len(texts) - 1)
    if isinstance(made, str):
        raise NotFoundError(made)
    carry(made, checkpoint.storage, _same)
    checkpoint.storage.delete_folder(PLANNING)


def _entries(store: CommitStore, table_uuid: str, point: Point) -> list[LineageEntry]:
    """Return what the commits of all batches up to a point say, in their order."""
    found: dict[int, LineageEntry] = {}
    for entry in _of_query(store, table_uuid, point.query):
        number = entry.engine.batch
        if number is None or number > point.batch:
            continue
        known = found.setdefault(number, entry)
        if not entry.knows_positions or known.ranges != entry.ranges or entry.watermark is None:
            raise NotFoundError(f"what batch {number} had read is not certain")
    missing = next((number for number in range(point.batch + 1) if number not in found), None)
    if missing is not None:
        raise NotFoundError(f"no commit tells what batch {missing} of query {point.query} had read")
    return [found[number] for number in range(point.batch + 1)]


def _of_query(store: CommitStore, table_uuid: str, query: str) -> Iterable[LineageEntry]:
    for line in store.lines(table_uuid):
        for commit in store.commits(line.branch_uuid):
            if commit.entry is not None and commit.entry.engine.query == query:
                yield commit.entry


def _option(read: Input, moved: Callable[[Offset], Offset]) -> dict[str, str]:
    """Return the option with which a source begins where a batch had read it up to."""
    if isinstance(read, TableInput):
        offset = moved(Offset(read.table_uuid, read.branch_uuid, read.name, read.end))
        return {SCAN_START_OFFSET.key: json.dumps(offset.to_dict())}
    if read.kind != "kafka":
        raise NotFoundError(f"source '{read.name or read.source}' cannot be read again up to a position")
    return {STARTING_OFFSETS: json.dumps(read.end)}


def _check_begin(name: str, begin: Mapping[str, str], first: Input) -> None:
    """Raise `NotFoundError` if what a source's first batches had read is left as one snapshot only."""
    if not isinstance(first, TableInput):
        return
    position = _position(begin)
    if position.full and position.snapshot > max(first.start.snapshot, 1):
        raise NotFoundError(f"what source '{name}' had first is left as one snapshot")


def _value(option: Mapping[str, str]) -> Any:
    return json.loads(option.get(SCAN_START_OFFSET.key) or option[STARTING_OFFSETS])


def _identity(option: Mapping[str, str]) -> frozenset[str]:
    return frozenset(identities_of(_value(option)))


def _branch(option: Mapping[str, str]) -> str | None:
    return Offset.from_dict(_value(option)).branch_uuid if SCAN_START_OFFSET.key in option else None


def _position(option: Mapping[str, str]) -> Any:
    return Offset.from_dict(_value(option)).position


def _is_beyond(end: Mapping[str, str], begin: Mapping[str, str]) -> bool:
    """Whether a batch that ended there had read something after the beginning; of topics all is read again."""
    if SCAN_START_OFFSET.key not in end:
        return True
    return bool(_position(end).snapshot > _position(begin).delivered_through)

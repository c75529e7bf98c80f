"""Decides how a job that begins at a point gets its state: once, before its first batch."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, CorruptTableError, InvalidInputError, NotFoundError
from anabranch.jobs.checkpoint import JobCheckpoint
from anabranch.jobs.starts import lost_hint, reads_files_on
from anabranch.jobs.state.carry import carry, moved_offsets, wipe
from anabranch.jobs.state.checks import (
    CHANGED,
    check_files_there,
    check_positions,
    check_same_operators,
    record_operators,
)
from anabranch.jobs.state.closing import closing_watermark, without_rows
from anabranch.jobs.state.file_logs import check_there, logs_of_files
from anabranch.jobs.state.held import all_of, held_state, newest_committed, newest_offsets, query_of
from anabranch.jobs.state.operators import Operators
from anabranch.jobs.state.origins import Since, origins
from anabranch.jobs.state.point import Point
from anabranch.jobs.state.reach import reach_of
from anabranch.jobs.state.rebuild import batch_text, next_batch, planned_batch
from anabranch.jobs.state.replay import FormerBatch, former_batches, later_batches, replay
from anabranch.kernel.log.context import TableContext
from anabranch.lineage.spark_offsets import parse_batch_offsets
from anabranch.options import SCAN_START_OFFSET
from anabranch.runtime import SYSTEM
from anabranch.streaming.offsets import Offset
from anabranch.streaming.sink_identity import BegunState, begun_state, record_begun_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.jobs.prepare import Prepared, Run
    from anabranch.lake import Lake

_LOG = logging.getLogger(__name__)

_STAYS = "rows up to there stay as the operators before made them"

Remake = Callable[[Mapping[str, Mapping[str, str]]], "DataFrame"]


def settle(
    prepared: Prepared, rows: DataFrame, operators: Operators | None, remake: Remake, lake: Lake, *, run: Run
) -> Settled:
    """Give a streaming job the state that belongs to the point at which it begins, if it has operators with state.

    Which files a job has read belongs to it too: Spark takes no position of a source of files but from a checkpoint.

    Args:
        prepared: the job.
        rows: its DataFrame, with sources that begin at the point.
        operators: those of it that keep state; None if there are none.
        remake: the same with sources that begin as the argument says.

    Raises `InvalidInputError`: there is no way, which the message explains.
    """
    checkpoint = prepared.checkpoint
    assert checkpoint is not None, "a streaming job has one"
    state = begun_state(checkpoint.storage)
    is_new = not checkpoint.is_in_use
    if (operators is not None or reads_files_on(prepared.starts)) and is_new and prepared.point is not None:
        state = _Settling(prepared, prepared.point, operators, remake, lake, run, checkpoint).settle(rows)
    elif is_new and reads_files_on(prepared.starts):
        raise InvalidInputError(
            f"job '{prepared.job.name}' reads files, and no commit of it says after which batch it is to begin",
            hint="begin at another tag.",
        )
    elif is_new and run.makes_branch and prepared.job.reads_files:
        check_files_there(prepared, lake, run)
    if operators is not None:
        record_operators(checkpoint, operators)
    return Settled(state, operators is not None)


@dataclass(frozen=True, slots=True)
class Settled:
    """What is known about a job's state when it starts."""

    begun: BegunState | None
    """How it got the state of the point at which it begins, by this start or an earlier one; None if it needed none."""
    has_state: bool
    """Whether it keeps state between batches."""


@dataclass(frozen=True)
class _Settling:
    prepared: Prepared
    point: Point
    operators: Operators | None
    """None if only the positions of files are needed."""
    remake: Remake
    lake: Lake
    run: Run
    checkpoint: JobCheckpoint

    def settle(self, rows: DataFrame) -> BegunState:
        """Choose a way, prepare the checkpoint, and record it. Repeated after a kill it starts over."""
        former = self._former()
        is_whole = self.prepared.job.mode == "complete"
        ways = (self._beginning, self._carried) if is_whole else (self._carried, self._rebuilt)
        obstacles = []
        for way in ways:
            try:
                state = way(former, rows)
                if state.way == "rebuilt" and CHANGED in obstacles:
                    state = replace(state, reason=f"{state.reason}; {_STAYS}")
                break
            except (NotFoundError, InvalidInputError, CorruptTableError) as error:
                obstacles.append(error.message)
        else:
            state = self._empty(obstacles)
        storage = self.checkpoint.storage
        record_begun_state(storage, state)
        # Last, because a checkpoint in which a query has begun is left as it is from then on.
        storage.put("metadata", json.dumps({"id": SYSTEM.ids.uuid()}).encode())
        return state

    def _former(self) -> JobCheckpoint | None:
        """Return the checkpoint of the query that made the point."""
        job, table, options = self.prepared.job.name, self.prepared.table.context, self.lake.storage_options
        found = all_of(self.lake.url, options, self.run.places, job, table)
        return next((one for one in found if query_of(one.storage) == self.point.query), None)

    def _carried(self, former: JobCheckpoint | None, rows: DataFrame) -> BegunState:
        if former is None:
            raise NotFoundError("the checkpoint of the query that made the point is not there")
        has_state = self.operators is not None
        if self.operators is not None:
            check_same_operators(former, self.point.batch, self.operators)
        held = held_state(former.storage, self.point.batch, has_state=has_state)
        if isinstance(held, str):
            return self._caught_up(former, held, rows)
        check_positions(held, self.prepared, self._moved)
        if reads_files_on(self.prepared.starts):
            text = held.offsets(held.batch)
            assert text is not None, "its state was found with it"
            read = logs_of_files(parse_batch_offsets(text))
            check_there(former.storage, self.lake.storage_options, after=read)
            check_files_there(self.prepared, self.lake, self.run, after=read, but=self.point.query)
        watermark = closing_watermark(former.storage, held, self.point, self.prepared.table.context)
        carry(held, self.checkpoint.storage, self._moved)
        if watermark is not None:
            following = without_rows(self.checkpoint.storage.get(f"offsets/{held.batch}").decode(), watermark)
            self.checkpoint.storage.put(f"offsets/{held.batch + 1}", following.encode())
        return self._state(
            "carried",
            self.point.batch + 1,
            f"as it was after batch {self.point.batch} of query {self.point.query}",
        )

    def _caught_up(self, former: JobCheckpoint, why: str, rows: DataFrame) -> BegunState:
        """From the state after an earlier batch, and what the sources had from there up to the point.

        Raises `NotFoundError`, with `why`: there is none.
        """
        if reads_files_on(self.prepared.starts):
            raise NotFoundError(
                why
            )  # which files came between two batches is in the log of the later one only
        batch = newest_committed(former.storage)
        held = why if batch is None or batch >= self.point.batch else held_state(former.storage, batch)
        if isinstance(held, str):
            raise NotFoundError(why)
        text = held.offsets(held.batch)
        assert text is not None, "its state was found with it"
        at_once = [FormerBatch(self.prepared.starts, self._watermark(former))]
        later = partial(later_batches, after=held.batch)
        is_one = held.batch + 1 == self.point.batch
        batches, told = (at_once, "") if is_one else self._in_batches(at_once, later)
        text = moved_offsets(text, self._moved)
        texts = []
        for one in batches:
            text = next_batch(text, one.ends, one.watermark)
            texts.append(text)
        *before, last = texts
        if before:
            replay(*(rows, self.checkpoint, before, self.prepared.job.name), held=held, moved=self._moved)
        else:
            carry(held, self.checkpoint.storage, self._moved)
        first = held.batch + len(texts)
        self.checkpoint.storage.put(f"offsets/{first}", last.encode())
        return self._state(
            "carried",
            first + 1,
            f"as it was after batch {held.batch} of query {self.point.query}, and what was read up to batch "
            f"{self.point.batch} once more{told}",
        )

    def _rebuilt(self, former: JobCheckpoint | None, rows: DataFrame) -> BegunState:
        self._check_reread()
        if self.operators is not None and self.operators.has_processing_time:
            raise InvalidInputError("the state depends on when rows are processed")
        watermark = self._watermark(former)
        begins = self._origins(former, self._since(rows, watermark))
        at_once = [FormerBatch(self.prepared.starts, watermark)]
        batches, why = self._in_batches(at_once, partial(former_batches, begins=begins))
        wipe(self.checkpoint.storage)
        rows = self.remake(begins)
        planned = planned_batch(rows, self.checkpoint)
        if planned is None:
            return self._state("rebuilt", 0, "its sources had no row by then")
        texts = [batch_text(planned, begins, one.ends, one.watermark) for one in batches]
        *before, last = texts
        if before:
            replay(rows, self.checkpoint, before, self.prepared.job.name)
        self.checkpoint.storage.put(f"offsets/{len(before)}", last.encode())
        told = ", ".join(
            f"{self.prepared.job.sources[name]}{_after(begin)}" for name, begin in begins.items()
        )
        return self._state("rebuilt", len(texts), f"from {told}{why}", begins)

    def _in_batches(
        self, at_once: list[FormerBatch], former: Callable[..., list[FormerBatch]]
    ) -> tuple[list[FormerBatch], str]:
        """Return the batches in which state is made again, and what is to be told of that: all in one, unless it follows them.

        Raises `InvalidInputError`: it cannot be made in one, and the batches of before are not known.
        """
        if self.operators is None or not self.operators.follows_batches:
            return at_once, ""
        table = self.prepared.table.table_uuid
        try:
            with self.lake.lineage.reading() as known:
                found = former(known.store, table, self.point, ends=self.prepared.starts, moved=self._moved)
        except NotFoundError as error:
            if self.operators.timers:
                raise InvalidInputError(
                    "the state depends on timers, which fire between the batches in which it was made, and these cannot be run "
                    f"again: {error.message}"
                ) from error
            return (
                at_once,
                f", all in one batch, because those of before cannot be run again ({error.message})",
            )
        return found, f", in the {len(found)} batches of before" if len(found) > 1 else ""

    def _since(self, rows: DataFrame, watermark: int) -> dict[str, Since]:
        """Return which rows of its tables may be in the state, as far as event times tell."""
        has_event_time = self.operators is not None and self.operators.has_event_time
        reach = reach_of(rows) if has_event_time and watermark > 0 else None
        if reach is None:
            return {}
        line = watermark - reach.bound_millis
        found = {}
        for name, source in self.prepared.job.sources.items():
            column = reach.columns.get(self._context(name).branch_uuid) if source.kind == "table" else None
            if column is not None:
                found[name] = Since(column, line)
        return found

    def _beginning(self, former: JobCheckpoint | None, _: DataFrame) -> BegunState:
        self._check_reread()
        begins = self._origins(former, {})
        wipe(self.checkpoint.storage)
        return self._state("beginning", 0, "output mode complete makes all rows again", begins)

    def _empty(self, obstacles: list[str]) -> BegunState:
        job = self.prepared.job.name
        told = "; ".join(dict.fromkeys(obstacles))
        if reads_files_on(self.prepared.starts):
            by_hand = ", or do it by hand: --by-hand" if self.run.makes_branch else ""
            raise InvalidInputError(
                f"job '{job}' reads files, and cannot go on after those that it had read at the point: {obstacles[0]}",
                hint=lost_hint(job)
                if self.run.from_tag is None and not self.run.makes_branch
                else f"begin at a tag whose batch its checkpoint still has{by_hand}. What arrives can be written into a table "
                "first, which can be read again from any moment.",
            )
        if job not in self.run.accept_empty_state:
            raise InvalidInputError(
                f"job '{job}' keeps state ({self.operators}), and the state that belongs to the point where it begins can be "
                f"neither carried nor made again: {told}",
                hint="begin at a tag or savepoint that is kept with its state; or accept that rows which were open then are "
                f"wrong or missing: --accept-empty-state {job}.",
            )
        wipe(self.checkpoint.storage)
        return self._state("empty", 0, told)

    def _state(
        self,
        way: Any,
        first: int,
        reason: str,
        starts: Mapping[str, Mapping[str, str]] | None = None,
    ) -> BegunState:
        return BegunState(way, first, reason, self.point.query, self.point.batch, starts or {})

    def _origins(self, former: JobCheckpoint | None, since: Mapping[str, Since]) -> dict[str, dict[str, str]]:
        read = {
            name: self._context(name)
            for name, source in self.prepared.job.sources.items()
            if source.kind == "table" and name in self.prepared.starts
        }
        offsets = None if former is None else newest_offsets(former.storage)
        return origins(self.prepared, read, offsets, self._moved, since)

    def _check_reread(self) -> None:
        """Raise `InvalidInputError` if a source cannot be read a second time up to where it is at the point."""
        for name, source in self.prepared.job.sources.items():
            if source.kind in ("files", "function"):
                raise InvalidInputError(f"source '{name}' ({source}) cannot be read again up to a position")

    def _context(self, name: str) -> TableContext:
        source = self.prepared.job.sources[name]
        branch = self.run.source_branches.get(source.table or "")
        title = source.name if branch is None or source.names_branch else f"{source.name}$branch_{branch}"
        return self.lake.table(title).context

    def _watermark(self, former: JobCheckpoint | None) -> int:
        if self.operators is None or not self.operators.has_event_time:
            return 0
        if self.point.watermark is not None:
            return self.point.watermark
        try:
            assert former is not None
            text = former.storage.get(f"offsets/{self.point.batch}").decode()
            found = parse_batch_offsets(text).batch_watermark
        except (AnabranchError, AssertionError):
            found = None
        if found is None:
            raise NotFoundError(f"it is not known which watermark batch {self.point.batch} ran under")
        return found

    def _moved(self, offset: Offset) -> Offset:
        return offset if self.run.moved is None else self.run.moved(offset)


def _after(begin: Mapping[str, str]) -> str:
    """Say where a source is read again from, for people."""
    text = begin.get(SCAN_START_OFFSET.key)
    position = None if text is None else Offset.from_dict(json.loads(text)).position
    if position is None or position.full or position.snapshot == 0:
        return ", read again from the beginning"
    return f", read again after snapshot {position.snapshot}"

"""Decides how a job that begins at a point gets its state: once, before its first batch."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, CorruptTableError, InvalidInputError, NotFoundError
from anabranch.jobs.checkpoint import JobCheckpoint, checkpoints_of, opened
from anabranch.jobs.source import STARTING_OFFSETS
from anabranch.jobs.state.carry import carry, moved_offsets, wipe
from anabranch.jobs.state.closing import closing_watermark, without_rows
from anabranch.jobs.state.held import HeldState, held_state, newest_committed, newest_offsets, query_of
from anabranch.jobs.state.operators import Operators
from anabranch.jobs.state.origins import Since, origins
from anabranch.jobs.state.point import Point
from anabranch.jobs.state.reach import reach_of
from anabranch.jobs.state.rebuild import first_batch, next_batch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.provenance.job_states import job_states
from anabranch.lineage.spark_offsets import parse_batch_offsets
from anabranch.options import SCAN_START_OFFSET
from anabranch.runtime import SYSTEM
from anabranch.streaming.offsets import Offset, Position, is_offset
from anabranch.streaming.sink_identity import BegunState, begun_state, record_begun_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.jobs.prepare import Prepared, Run
    from anabranch.lake import Lake

_LOG = logging.getLogger(__name__)

_OPERATORS = "anabranch/operators"
"""In a checkpoint: a file for each start with other operators, named by the first batch that it runs."""

_CHANGED = "the operators with state, or what they are computed from, have changed"
_STAYS = "rows up to there stay as the operators before made them"

Remake = Callable[[Mapping[str, Mapping[str, str]]], "DataFrame"]


def settle(
    prepared: Prepared, rows: DataFrame, operators: Operators | None, remake: Remake, lake: Lake, *, run: Run
) -> Settled:
    """Give a streaming job the state that belongs to the point at which it begins, if it has operators with state.

    Args:
        prepared: the job.
        rows: its DataFrame, with sources that begin at the point.
        operators: those of it that keep state; None if there are none.
        remake: the same with sources that begin as the argument says.
        lake: the warehouse.
        run: how it is run.

    Raises `InvalidInputError`: there is no way, which the message explains.
    """
    checkpoint = prepared.checkpoint
    assert checkpoint is not None, "a streaming job has one"
    state = begun_state(checkpoint.storage)
    is_new = not checkpoint.is_in_use
    if operators is not None and is_new and prepared.point is not None:
        state = _Settling(prepared, prepared.point, operators, remake, lake, run, checkpoint).settle(rows)
    if operators is not None:
        _record_operators(checkpoint, operators)
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
    operators: Operators
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
                if state.way == "rebuilt" and _CHANGED in obstacles:
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
        job = self.prepared.job.name
        for found in checkpoints_of(self.lake.url, job, self.lake.storage_options, self.run.checkpoints):
            if query_of(found.storage) == self.point.query:
                return found
        main = main_of(self.prepared.table.context)
        told = {state.checkpoint for state in job_states(main) if state.job == job}
        for location in sorted(told):
            found = opened(location, self.lake.storage_options)
            if query_of(found.storage) == self.point.query:
                return found
        return None

    def _carried(self, former: JobCheckpoint | None, _: DataFrame) -> BegunState:
        if former is None:
            raise NotFoundError("the checkpoint of the query that made the point is not there")
        self._check_same_operators(former)
        held = held_state(former.storage, self.point.batch)
        if isinstance(held, str):
            return self._caught_up(former, held)
        self._check_positions(held)
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

    def _caught_up(self, former: JobCheckpoint, why: str) -> BegunState:
        """From the state after an earlier batch, and what the sources had from there up to the point.

        Raises `NotFoundError`, with `why`: there is none.
        """
        batch = newest_committed(former.storage)
        held = why if batch is None or batch >= self.point.batch else held_state(former.storage, batch)
        if isinstance(held, str):
            raise NotFoundError(why)
        text = held.offsets(held.batch)
        assert text is not None, "its state was found with it"
        watermark = self._watermark(former)
        carry(held, self.checkpoint.storage, self._moved)
        following = next_batch(moved_offsets(text, self._moved), self.prepared.starts, watermark)
        self.checkpoint.storage.put(f"offsets/{held.batch + 1}", following.encode())
        return self._state(
            "carried",
            held.batch + 2,
            f"as it was after batch {held.batch} of query {self.point.query}, and what was read up to batch "
            f"{self.point.batch} once more",
        )

    def _rebuilt(self, former: JobCheckpoint | None, rows: DataFrame) -> BegunState:
        if self.operators.has_processing_time:
            raise InvalidInputError("the state depends on when rows are processed")
        watermark = self._watermark(former)
        begins = self._origins(former, self._since(rows, watermark))
        wipe(self.checkpoint.storage)
        text = first_batch(self.remake(begins), self.checkpoint, begins, self.prepared.starts, watermark)
        if text is None:
            return self._state("rebuilt", 0, "its sources had no row by then")
        self.checkpoint.storage.put("offsets/0", text.encode())
        told = ", ".join(
            f"{self.prepared.job.sources[name]}{_after(begin)}" for name, begin in begins.items()
        )
        return self._state("rebuilt", 1, f"from {told}", begins)

    def _since(self, rows: DataFrame, watermark: int) -> dict[str, Since]:
        """Return which rows of its tables may be in the state, as far as event times tell."""
        reach = reach_of(rows) if self.operators.has_event_time and watermark > 0 else None
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
        begins = self._origins(former, {})
        wipe(self.checkpoint.storage)
        return self._state("beginning", 0, "output mode complete makes all rows again", begins)

    def _empty(self, obstacles: list[str]) -> BegunState:
        job = self.prepared.job.name
        told = "; ".join(obstacles)
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
        kinds = {name: source.kind for name, source in self.prepared.job.sources.items()}
        others = [name for name, kind in kinds.items() if kind in ("files", "function")]
        if others:
            source = self.prepared.job.sources[others[0]]
            raise InvalidInputError(f"source '{others[0]}' ({source}) cannot be read again up to a position")
        read = {
            name: self._context(name)
            for name, kind in kinds.items()
            if kind == "table" and name in self.prepared.starts
        }
        offsets = None if former is None else newest_offsets(former.storage)
        return origins(self.prepared, read, offsets, self._moved, since)

    def _context(self, name: str) -> TableContext:
        source = self.prepared.job.sources[name]
        branch = self.run.source_branches.get(source.table or "")
        title = source.name if branch is None or source.names_branch else f"{source.name}$branch_{branch}"
        return self.lake.table(title).context

    def _watermark(self, former: JobCheckpoint | None) -> int:
        if not self.operators.has_event_time:
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

    def _check_same_operators(self, former: JobCheckpoint) -> None:
        if self.operators.fingerprint is None:
            raise InvalidInputError("it cannot be seen whether the operators with state are the same")
        known = _recorded_operators(former, self.point.batch)
        if not known:
            raise InvalidInputError("it is not known by which operators the state was made")
        if known != {self.operators.fingerprint}:
            raise InvalidInputError(_CHANGED)

    def _check_positions(self, held: HeldState) -> None:
        """Raise `InvalidInputError` if the checkpoint's log says other positions than the commits of the table."""
        text = held.offsets(self.point.batch)
        assert text is not None, "its state was found with it"
        log = [value for value in parse_batch_offsets(text).ends.values() if value is not None]
        for name, options in self.prepared.starts.items():
            if SCAN_START_OFFSET.key in options:
                wanted = Offset.from_dict(json.loads(options[SCAN_START_OFFSET.key]))
                same = self._is_at(log, wanted)
            else:
                same = _has_records_up_to(log, json.loads(options[STARTING_OFFSETS]))
            if not same:
                raise InvalidInputError(
                    f"the checkpoint's log and the commits of '{self.prepared.sink}' differ in how far source '{name}' "
                    "had been read"
                )

    def _is_at(self, log: Sequence[Any], wanted: Offset) -> bool:
        """Whether a table had been read up to there, also inside a snapshot that was read in parts."""
        found = [self._moved(Offset.from_dict(value)) for value in log if is_offset(value)]
        places = {_place(one.position) for one in found if one.table_uuid == wanted.table_uuid}
        return places == {_place(wanted.position)}


def _after(begin: Mapping[str, str]) -> str:
    """Say where a source is read again from, for people."""
    text = begin.get(SCAN_START_OFFSET.key)
    position = None if text is None else Offset.from_dict(json.loads(text)).position
    if position is None or position.full or position.snapshot == 0:
        return ", read again from the beginning"
    return f", read again after snapshot {position.snapshot}"


def _place(position: Position) -> tuple[int, int | None, bool, str | None]:
    return position.snapshot, position.files, position.full, position.listing


def _has_records_up_to(log: Sequence[Any], wanted: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether topics had been read up to there; partitions that the log does not have yet begin later."""
    for value in log:
        if isinstance(value, dict) and value.keys() == wanted.keys():
            ends = {(topic, one): end for topic, found in value.items() for one, end in found.items()}
            return bool(ends) and all(wanted[topic].get(one) == end for (topic, one), end in ends.items())
    return False


def _record_operators(checkpoint: JobCheckpoint, operators: Operators) -> None:
    """Record the first batch whose state these operators make, to know later whether it can be carried."""
    done = newest_committed(checkpoint.storage)
    first = 0 if done is None else done + 1
    known = _recorded_operators(checkpoint, first)
    if known == {operators.fingerprint}:
        return
    value = {"kinds": list(operators.kinds), "fingerprint": operators.fingerprint}
    checkpoint.storage.put(f"{_OPERATORS}/{first}.json", json.dumps(value).encode())


def _recorded_operators(checkpoint: JobCheckpoint, batch: int) -> set[str | None]:
    """Return the fingerprints of all operators that took part in the state after a batch."""
    found: set[str | None] = set()
    for info in checkpoint.storage.list(_OPERATORS):
        name = info.path.rpartition("/")[2].removesuffix(".json")
        if name.isdigit() and int(name) <= batch:
            found.add(json.loads(checkpoint.storage.get(info.path)).get("fingerprint"))
    return found

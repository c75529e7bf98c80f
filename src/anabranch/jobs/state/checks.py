"""Checks what a former query has left: that it is whole, and belongs to the point at which a job begins, its operators and positions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from anabranch.errors import InvalidInputError
from anabranch.jobs.source import FILES_READ, STARTING_OFFSETS
from anabranch.jobs.state.carry import Moved
from anabranch.jobs.state.file_logs import check_there
from anabranch.jobs.state.held import HeldState, log_of, newest_committed
from anabranch.jobs.state.operators import Operators
from anabranch.lineage.spark_offsets import parse_batch_offsets
from anabranch.options import SCAN_START_OFFSET
from anabranch.streaming.offsets import Offset, Position, is_offset

if TYPE_CHECKING:
    from anabranch.jobs.checkpoint import JobCheckpoint
    from anabranch.jobs.prepare import Prepared, Run
    from anabranch.lake import Lake

_OPERATORS: Final = "anabranch/operators"
"""In a checkpoint: a file for each start with other operators, named by the first batch that it runs."""

CHANGED: Final = "the operators with state, or what they are computed from, have changed"


def check_whole(checkpoint: JobCheckpoint, job: str) -> None:
    """Raise `InvalidInputError` if the log of a query that began here has lost what its last batch read: none goes on with it.

    Where none has begun, what an interrupted preparation left is made anew.
    """
    done = newest_committed(checkpoint.storage) if checkpoint.is_in_use else None
    if done is not None and not checkpoint.storage.exists(f"offsets/{done}"):
        raise InvalidInputError(
            f"the checkpoint {checkpoint.location} of job '{job}' is damaged: batch {done} is done, and what it read, "
            f"offsets/{done}, is not there",
            hint=f"restore the checkpoint; or run with --renew {job}, which sets it aside and goes on after the job's last commit.",
        )


def record_operators(checkpoint: JobCheckpoint, operators: Operators) -> None:
    """Record the first batch whose state these operators make, to know later whether it can be carried."""
    done = newest_committed(checkpoint.storage)
    first = 0 if done is None else done + 1
    known = _recorded_operators(checkpoint, first)
    if known == {operators.fingerprint}:
        return
    value = {"kinds": list(operators.kinds), "fingerprint": operators.fingerprint}
    checkpoint.storage.put(f"{_OPERATORS}/{first}.json", json.dumps(value).encode())


def check_same_operators(former: JobCheckpoint, batch: int, operators: Operators) -> None:
    """Raise `InvalidInputError` unless these operators made the state of a checkpoint after a batch."""
    if operators.fingerprint is None:
        raise InvalidInputError("it cannot be seen whether the operators with state are the same")
    known = _recorded_operators(former, batch)
    if not known:
        raise InvalidInputError("it is not known by which operators the state was made")
    if known != {operators.fingerprint}:
        raise InvalidInputError(CHANGED)


def _recorded_operators(checkpoint: JobCheckpoint, batch: int) -> set[str | None]:
    """Return the fingerprints of all operators that took part in the state after a batch."""
    found: set[str | None] = set()
    for info in checkpoint.storage.list(_OPERATORS):
        name = info.path.rpartition("/")[2].removesuffix(".json")
        if name.isdigit() and int(name) <= batch:
            found.add(json.loads(checkpoint.storage.get(info.path)).get("fingerprint"))
    return found


def check_positions(held: HeldState, prepared: Prepared, moved: Moved) -> None:
    """Raise `InvalidInputError` if a checkpoint's log says other positions than the commits of the table.

    Args:
        held: what was found of the checkpoint.
        prepared: the job; its `starts` say where its sources are at the point.
        moved: maps a position to the same one on the table that is read now.
    """
    text = held.offsets(held.batch)
    assert text is not None, "its state was found with it"
    log = [value for value in parse_batch_offsets(text).ends.values() if value is not None]
    for name, options in prepared.starts.items():
        if SCAN_START_OFFSET.key in options:
            wanted = Offset.from_dict(json.loads(options[SCAN_START_OFFSET.key]))
            same = _is_at(log, wanted, moved)
        elif FILES_READ in options:
            same = json.loads(options[FILES_READ]) in log
        else:
            same = _has_records_up_to(log, json.loads(options[STARTING_OFFSETS]))
        if not same:
            raise InvalidInputError(
                f"the checkpoint's log and the commits of '{prepared.sink}' differ in how far source '{name}' had been read"
            )


def check_files_there(
    prepared: Prepared,
    lake: Lake,
    run: Run,
    *,
    after: Mapping[str, int] | None = None,
    but: str | None = None,
) -> None:
    """Raise `InvalidInputError` if files that were read for what is made again are not there, or nobody knows which they were.

    Args:
        after: only those after these batches of their logs, by source.
        but: a query whose log is left out.
    """
    places, job, table = run.places, prepared.job.name, prepared.table.context
    for query, batch in run.file_logs.items():
        if query == but:
            continue
        found = log_of(lake.url, lake.storage_options, places, job, table, query=query, batch=batch)
        if isinstance(found, str):
            raise InvalidInputError(
                f"job '{job}' cannot be run again: {found}", hint="restore that checkpoint."
            )
        check_there(found.storage, lake.storage_options, after=after)


def _is_at(log: Sequence[Any], wanted: Offset, moved: Moved) -> bool:
    """Whether a table had been read up to there, also inside a snapshot that was read in parts."""
    found = [moved(Offset.from_dict(value)) for value in log if is_offset(value)]
    places = {_place(one.position) for one in found if one.table_uuid == wanted.table_uuid}
    return places == {_place(wanted.position)}


def _place(position: Position) -> tuple[int, int | None, bool, str | None]:
    return position.snapshot, position.files, position.full, position.listing


def _has_records_up_to(log: Sequence[Any], wanted: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether topics had been read up to there; partitions that the log does not have yet begin later."""
    for value in log:
        if isinstance(value, dict) and value.keys() == wanted.keys():
            ends = {(topic, one): end for topic, found in value.items() for one, end in found.items()}
            return bool(ends) and all(wanted[topic].get(one) == end for (topic, one), end in ends.items())
    return False

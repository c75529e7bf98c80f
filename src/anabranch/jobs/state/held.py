"""Finds the checkpoint with the state of a batch, and the files of that state."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.jobs.checkpoint import JobCheckpoint, Places, checkpoints_of, opened
from anabranch.jobs.job import Job
from anabranch.jobs.state.point import Point
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.provenance.job_states import job_states
from anabranch.lineage.spark_offsets import BatchOffsets, parse_batch_offsets
from anabranch.storage.protocol import Storage

KEPT_FOLDER = "anabranch/kept"
"""In a checkpoint: a folder for each batch whose state is kept for a tag, a savepoint or a branch."""

_VERSION = re.compile(r"(\d+)(?:_[0-9A-Za-z-]+)?\.(delta|snapshot|zip|changelog)")
_WHOLE = ("snapshot", "zip")


@dataclass(frozen=True, slots=True)
class HeldState:
    """The files that make up the state of a query after a batch."""

    folder: Storage
    """With Spark's ``offsets``, ``commits``, ``state`` and ``sources``: a checkpoint, or what was kept of one."""
    batch: int
    paths: tuple[str, ...]
    """Below ``state/`` and ``sources/``; last the entry of the commit log."""

    def offsets(self, batch: int) -> str | None:
        """One file of the offset log, or None."""
        return _text(self.folder, f"offsets/{batch}")


def query_of(checkpoint: Storage) -> str | None:
    """Return the id of a checkpoint's query; None if there is none yet."""
    text = _text(checkpoint, "metadata")
    try:
        return None if text is None else str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError):
        return None


def newest_offsets(checkpoint: Storage) -> BatchOffsets | None:
    """Return the newest readable entry of the offset log."""
    for batch in sorted(_batches(checkpoint, "offsets"), reverse=True):
        text = _text(checkpoint, f"offsets/{batch}")
        try:
            return None if text is None else parse_batch_offsets(text)
        except AnabranchError:
            continue
    return None


def newest_committed(checkpoint: Storage) -> int | None:
    """Return the last batch that Spark has recorded as done; None if there is none."""
    return max(_batches(checkpoint, "commits"), default=None)


def held_state(checkpoint: Storage, batch: int, *, has_state: bool = True) -> HeldState | str:
    """Return the state after a batch, from the checkpoint itself or its kept copy; or why it is not there.

    A query without operators that keep state has its logs only.
    """
    kept = checkpoint.scoped(f"{KEPT_FOLDER}/{batch}")
    for folder in (kept, checkpoint) if kept.exists(f"commits/{batch}") else (checkpoint,):
        found = _held(folder, batch, has_state)
        if isinstance(found, HeldState):
            return found
    return found


def _held(folder: Storage, batch: int, has_state: bool) -> HeldState | str:
    logs = [f"commits/{batch}", f"offsets/{batch}", *([f"offsets/{batch - 1}"] if batch else [])]
    if any(not folder.exists(path) for path in logs):
        return f"the checkpoint does not have batch {batch} any more"
    versions: dict[str, dict[int, dict[str, str]]] = {}
    paths: list[str] = []
    for info in folder.list("state", recursive=True):
        place, _, name = info.path.rpartition("/")
        match = _VERSION.fullmatch(name)
        if match is not None:
            versions.setdefault(place, {}).setdefault(int(match[1]), {})[match[2]] = info.path
        elif not name.startswith("."):
            paths.append(info.path)
    for place, found in versions.items():
        chain = _chain(found, batch + 1)
        if chain is None:
            return f"the state after batch {batch} was cleaned up by Spark ({place})"
        paths += chain
    if has_state and not versions:
        return "the checkpoint holds no state"
    paths += [
        info.path
        for info in folder.list("sources", recursive=True)
        if not info.path.rpartition("/")[2].startswith(".")
    ]
    return HeldState(folder, batch, (*paths, f"commits/{batch}"))


def _chain(found: dict[int, dict[str, str]], version: int) -> list[str] | None:
    """Return the files of a version: the last whole one and the changes after it; None if some are missing."""
    chain: list[str] = []
    for number in range(version, 0, -1):
        kinds = found.get(number, {})
        whole = next((kinds[kind] for kind in _WHOLE if kind in kinds), None)
        if whole is not None:
            return [whole, *chain]
        change = kinds.get("delta") or kinds.get("changelog")
        if change is None:
            return None
        chain.append(change)
    return chain


def _batches(folder: Storage, log: str) -> Iterator[int]:
    for info in folder.list(log):
        name = info.path.rpartition("/")[2]
        if name.isascii() and name.isdigit():
            yield int(name)


def _text(folder: Storage, path: str) -> str | None:
    try:
        return folder.get(path).decode()
    except NotFoundError:
        return None


def expected_state(
    warehouse: str, options: Mapping[str, str], places: Places, job: Job, point: Point | None
) -> str | None:
    """Return how a job gets the state for a point; None if it seems to keep none.

    The operators of the job are known once it runs: only then it is certain whether they are the same. `places`
    are looked at beside those of the warehouse.
    """
    if point is None:
        return None
    former = former_of(warehouse, options, places, job, point)
    if former is None:
        return "if it keeps state: rebuilt from its sources, because its former checkpoint is not there"
    if not _has_state(former):
        return None
    if job.mode == "complete":
        return "from the beginning: all rows are made again"
    held = held_state(former.storage, point.batch)
    if isinstance(held, str):
        return f"rebuilt from its sources: {held}"
    return f"carried from batch {point.batch}, or rebuilt from its sources if the operators with state have changed"


def files_unknown(
    warehouse: str, options: Mapping[str, str], places: Places, job: Job, point: Point | None
) -> str | None:
    """Return why it cannot be told which files a job had read at a point; None if it can, or only its start will tell."""
    former = None if point is None else former_of(warehouse, options, places, job, point)
    if former is None or point is None:
        return None
    held = held_state(former.storage, point.batch, has_state=_has_state(former))
    return f"which files it had read is not known any more: {held}" if isinstance(held, str) else None


def former_of(
    warehouse: str, options: Mapping[str, str], places: Places, job: Job, point: Point
) -> JobCheckpoint | None:
    """Return the checkpoint of the query that made a point, if it is in one of these places, or where checkpoints are by default."""
    found = checkpoints_of(warehouse, job.name, options, places)
    return next((one for one in found if query_of(one.storage) == point.query), None)


def all_of(
    warehouse: str, options: Mapping[str, str], places: Places, job: str, table: TableContext
) -> Iterator[JobCheckpoint]:
    """Yield the checkpoints of a job: in these places, where they are by default, and then where its table says."""
    yield from checkpoints_of(warehouse, job, options, places)
    told = {state.checkpoint for state in job_states(main_of(table)) if state.job == job}
    yield from (opened(location, options) for location in sorted(told))


def log_of(
    warehouse: str,
    options: Mapping[str, str],
    places: Places,
    job: str,
    table: TableContext,
    *,
    query: str,
    batch: int,
) -> JobCheckpoint | str:
    """Return a checkpoint of a query that has its batches up to one; or why there is none: a copy may be older."""
    for found in all_of(warehouse, options, places, job, table):
        if query_of(found.storage) == query and max(_batches(found.storage, "offsets"), default=-1) >= batch:
            return found
    return f"which files it had read is not known any more: there is no checkpoint with batch {batch} of its query {query}"


def _has_state(checkpoint: JobCheckpoint) -> bool:
    return next(iter(checkpoint.storage.list_folders("state")), None) is not None

"""Records in the table of job state kept for tags, so that it is visible outside of the job.

A file ``STATE-<job>`` in the folder of the branch names the checkpoint of the job, and for each batch with kept
state the tags that need it, and its size. It is for people and for finding the checkpoint, which is authoritative.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.errors import NotFoundError
from anabranch.format.text.json_object import check_version
from anabranch.kernel.log.context import TableContext

_PREFIX = "STATE-"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeptState:
    """State of a job that is kept for tags."""

    batch: int
    files: int
    bytes: int
    """On a local disk hard links, which take space only once Spark has removed its own."""
    tags: tuple[str, ...] = ()
    """Names of the tags that need it."""


@dataclass(frozen=True, slots=True)
class JobState:
    """The kept state of one job that writes to a branch."""

    job: str
    checkpoint: str
    """Path or URL."""
    kept: tuple[KeptState, ...]

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.kept)

    @property
    def files(self) -> int:
        return sum(one.files for one in self.kept)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(sorted({tag for one in self.kept for tag in one.tags}))

    def needed_only_by(self, tags: Collection[str]) -> tuple[KeptState, ...]:
        """Return the state that is released once these tags are gone."""
        return tuple(one for one in self.kept if one.tags and set(one.tags) <= set(tags))


def record_job_state(context: TableContext, state: JobState) -> None:
    """Record the kept state of a job. Raises `UnsupportedFeatureError` if a newer version recorded it before."""
    path = context.layout.branch_file_path(f"{_PREFIX}{state.job}")
    own = {"version": _VERSION, **asdict(state)}
    before = _values(context, path) or {}
    others = {key: value for key, value in before.items() if key not in own}
    context.storage.put(path, json.dumps({**own, **others}).encode())


def job_states(context: TableContext) -> list[JobState]:
    """Return the kept states for the tags of a branch, by job name; unreadable records are skipped.

    Raises `UnsupportedFeatureError` for one that a newer version wrote.
    """
    found = []
    for info in context.storage.list(context.layout.branch_root):
        if info.path.rpartition("/")[2].startswith(_PREFIX):
            state = _read(context, info.path)
            if state is not None:
                found.append(state)
    return sorted(found, key=lambda one: one.job)


def _values(context: TableContext, path: str) -> dict[str, Any] | None:
    try:
        value: Any = json.loads(context.storage.get(path))
    except (NotFoundError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    check_version(value.get("version"), _VERSION, path=path)
    return value


def _read(context: TableContext, path: str) -> JobState | None:
    match _values(context, path):
        case {"version": 1, "job": str(job), "checkpoint": str(checkpoint), "kept": list(kept)}:
            return JobState(job, checkpoint, tuple(one for each in kept if (one := _kept(each)) is not None))
    return None


def _kept(value: Any) -> KeptState | None:
    match value:
        case {"batch": int(batch), "files": int(files), "bytes": int(size), "tags": list(tags)}:
            return KeptState(batch, files, size, tuple(str(tag) for tag in tags))
    return None

"""What a job with state keeps for the tags of the table it writes, told in the table so that others than the job see it.

A file ``STATE-<job>`` in the folder of the branch names the checkpoint of the job, and for each batch whose state is put
aside there the tags that need it, and its size. It is for people and for finding the checkpoint: what counts lies there.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.errors import NotFoundError
from anabranch.kernel.log.context import TableContext

_PREFIX = "STATE-"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeptState:
    """State of a job that is kept for tags."""

    batch: int
    files: int
    bytes: int
    """On a local disk links, which take room only once Spark has removed its own."""
    tags: tuple[str, ...] = ()
    """Those that need it, by name."""


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of one job that writes to a branch."""

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
        """What is released once these tags are gone."""
        return tuple(one for one in self.kept if one.tags and set(one.tags) <= set(tags))


def record_job_state(context: TableContext, state: JobState) -> None:
    """Tell what a job keeps."""
    value = {"version": _VERSION, **asdict(state)}
    context.storage.put(context.layout.branch_file_path(f"{_PREFIX}{state.job}"), json.dumps(value).encode())


def job_states(context: TableContext) -> list[JobState]:
    """What jobs keep for the tags of a branch, by the name of the job; records that cannot be read are left out."""
    found = []
    for info in context.storage.list(context.layout.branch_root):
        if info.path.rpartition("/")[2].startswith(_PREFIX):
            state = _read(context, info.path)
            if state is not None:
                found.append(state)
    return sorted(found, key=lambda one: one.job)


def _read(context: TableContext, path: str) -> JobState | None:
    try:
        value: Any = json.loads(context.storage.get(path))
    except (NotFoundError, ValueError):
        return None
    match value:
        case {"version": 1, "job": str(job), "checkpoint": str(checkpoint), "kept": list(kept)}:
            return JobState(job, checkpoint, tuple(one for each in kept if (one := _kept(each)) is not None))
    return None


def _kept(value: Any) -> KeptState | None:
    match value:
        case {"batch": int(batch), "files": int(files), "bytes": int(size), "tags": list(tags)}:
            return KeptState(batch, files, size, tuple(str(tag) for tag in tags))
    return None

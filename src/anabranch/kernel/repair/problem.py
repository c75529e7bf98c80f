"""Kinds of damage to a table, and the report of each case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """A kind of damage."""

    LEFTOVER = "leftover"
    """A snapshot above the newest that is not built on it."""
    GAP = "gap"
    """A snapshot between others is missing."""
    HEAD_GONE = "head-gone"
    """The newest snapshots are missing: the hint to the newest names one that is not there."""
    PARENT = "parent"
    """A snapshot is not built on the one before it."""
    FUTURE = "future"
    """A snapshot was made at a time that has not come yet."""
    SNAPSHOT = "snapshot"
    """A snapshot's file is damaged."""
    HINT = "hint"
    """A hint to the newest or oldest snapshot, by which other engines go, is missing or wrong."""
    FOREIGN_HEAD = "foreign-head"
    """The newest snapshot was made on another branch: another engine put it there."""
    MAIN_GONE = "main-gone"
    """The branch that is main was deleted or renamed."""
    POINTER = "pointer"
    """The record of which branch is main is missing, or not what was decided."""
    BRANCH = "branch"
    """A branch is half made, half deleted or not readable."""
    REF = "ref"
    """A tag or savepoint cannot be read."""
    PIN = "pin"
    """A tag by which a savepoint or branch keeps its files is missing."""
    RECORD = "record"
    """A record of ours is damaged: of a consumer, a merge, a replacement of main, the ledger, the archive and so on."""
    SCHEMA = "schema"
    """A version of the schema is missing or damaged."""
    MANIFEST = "manifest"
    """A manifest list or manifest is missing or damaged."""
    COUNT = "count"
    """A snapshot counts other rows than its manifests."""
    FILE_MISSING = "file-missing"
    FILE_SIZE = "file-size"
    FILE_DAMAGED = "file-damaged"
    """A data file cannot be read in full, or not as its checksums say."""
    FILE_STATISTICS = "file-statistics"
    """The values of a data file are not within its statistics."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A single problem of a table."""

    kind: Kind
    message: str
    path: str = ""
    """Path of the affected file."""
    branch: str | None = None
    """Folder name of its branch; None for the table's own folder."""
    snapshot_id: int | None = None
    partition: str | None = None
    rows: int | None = None
    """Number of rows that cannot be read because of it, as far as known."""
    time_millis: int | None = None
    """When the lost data was written, epoch milliseconds."""
    job: str | None = None
    """Its writer: the job's name, or else the commit user."""
    repair: str | None = None
    """What `repair` does about it; None if it cannot."""
    hint: str | None = None
    """What you can do about it, where `repair` cannot."""
    severity: str = "error"
    """``error``, or ``warning`` for what no rows depend on."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of `verify`."""

    table: str
    problems: tuple[Problem, ...]
    branches: int
    snapshots: int
    refs: int
    """Tags and savepoints."""
    manifests: int
    files: int
    bytes: int
    deep: bool
    """Whether data files were read."""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(found: Verification) -> Iterator[str]:
    looked = (
        f"{found.branches:,} branches, {found.snapshots:,} snapshots, {found.refs:,} tags and savepoints, "
        f"{found.manifests:,} manifests, {found.files:,} data files of {found.bytes:,} bytes"
    )
    how = "read in full" if found.deep else "there, in their sizes"
    if found.ok:
        yield f"{found.table}: nothing is wrong ({looked}; files are {how})"
        return
    yield f"{found.table}: {len(found.problems):,} problems ({looked})"
    for problem in found.problems:
        yield f"  {problem.severity} {problem.kind}: {problem.message}"
        if problem.repair is not None:
            yield f"    repair: {problem.repair}"
        elif problem.hint is not None:
            yield f"    hint: {problem.hint}"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """A step that a repair does, or would do."""

    kind: Kind
    what: str
    """A sentence."""
    path: str = ""


Act = Callable[[], bool]
"""Executes a step; False if there was nothing left to do."""

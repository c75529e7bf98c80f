"""What was read of a table so far while it is checked, and the ways to replace damaged files or move them aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

from anabranch.errors import (
    AnabranchError,
    CorruptTableError,
    NotFoundError,
    UnreadableFileError,
    UnsupportedFeatureError,
)
from anabranch.format.records.layout import BRANCH_FOLDER, HISTORY_FOLDER, ORPHANS_FOLDER
from anabranch.format.records.main_pointer import MAIN_PREFIX
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.packed import unpack
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import check_answered
from anabranch.kernel.log.seals import dropped_until


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


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RefState:
    """A table state named by a ref."""

    name: str
    """For people: ``snapshot 5 of branch 'fix'``."""
    path: str
    context: TableContext
    snapshot: Snapshot
    whole: bool
    """Whether to check all of its files, or only added ones because the state before it is checked too."""


@dataclass
class Found:
    """Everything read so far."""

    states: list[RefState] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    branches: int = 0
    snapshots: int = 0
    refs: int = 0


def of_branch(context: TableContext) -> str:
    """Return the branch for a message; nothing for main."""
    is_main = context.branch is None or context.main_generation is not None
    return "" if is_main else f" of branch '{context.branch}'"


def dropped_if_known(context: TableContext) -> int | None:
    """Return the result of `dropped_until`; None too if that record is damaged, which is reported separately."""
    try:
        return dropped_until(context)
    except (CorruptTableError, UnsupportedFeatureError):
        return None


def tried(
    found: Found,
    kind: Kind,
    context: TableContext,
    read: Callable[[], _T | None],
    path: str = "",
    **about: Any,
) -> _T | None:
    """Return the result of `read`; None, with a problem noted, if it cannot be read."""
    try:
        return read()
    except NotFoundError:
        return None
    except AnabranchError as error:
        check_answered(error)
        path = path or getattr(error, "path", None) or ""
        if not any(p.path == path and p.kind == kind for p in found.problems):
            found.problems.append(Problem(kind, str(error.message), path, context.branch, **about))
        return None


_VERSION: Final = 1
_POINTER_VERSION: Final = 3


def put_again(context: TableContext, path: str, content: bytes) -> Act:
    """Replace a damaged file, unless it has changed since this was planned."""
    before = _content(context, path)

    def act() -> bool:
        now = _content(context, path)
        if now != before:
            return False
        if now is None:
            return context.storage.put_if_absent(path, content)
        context.storage.put(path, content)
        return True

    return act


def put_aside(context: TableContext, path: str) -> Act:
    """Move a damaged file to the quarantine of orphan cleaning, which removes it later."""

    def act() -> bool:
        now = context.runtime.clock.now_millis()
        context.storage.move_many({path: f"{ORPHANS_FOLDER}/{now}/{path}"})
        return True

    return act


def is_of_later_version(context: TableContext, path: str) -> bool:
    """Whether an unreadable file is intact, but of a later format version."""
    data = _content(context, path) or b""
    try:
        if path.startswith(f"{HISTORY_FOLDER}/history-"):
            data = unpack(data, path=path).partition(b"\n")[0]
        found = json.loads(data)
    except (ValueError, RecursionError, CorruptTableError):
        return False
    version = found.get("version") if isinstance(found, dict) else None
    known = _POINTER_VERSION if path.startswith(f"{BRANCH_FOLDER}/{MAIN_PREFIX}") else _VERSION
    return isinstance(version, int) and version > known


def _content(context: TableContext, path: str) -> bytes | None:
    try:
        return context.storage.get(path)
    except NotFoundError:
        return None
    except UnreadableFileError:
        return b""

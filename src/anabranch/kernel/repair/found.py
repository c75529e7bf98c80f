"""What was read of a table so far while it is checked, and the ways to replace damaged files or move them aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import zstandard

from anabranch.errors import (
    AnabranchError,
    CorruptTableError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.format.records.layout import BRANCH_FOLDER, HISTORY_FOLDER, ORPHANS_FOLDER
from anabranch.format.records.main_pointer import MAIN_PREFIX
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.seals import dropped_until
from anabranch.kernel.repair.problem import Act, Kind, Problem

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
    except StorageError:
        raise
    except AnabranchError as error:
        path = path or getattr(error, "path", None) or ""
        if not any(p.path == path and p.kind == kind for p in found.problems):
            found.problems.append(Problem(kind, str(error.message), path, context.branch, **about))
        return None


_VERSION: Final = 1
_POINTER_VERSION: Final = 2
_MOST: Final = 1 << 26
"""Most bytes of an unpacked archive segment."""


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
            if zstandard.frame_content_size(data) > _MOST:
                return False
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=_MOST).partition(b"\n")[0]
        found = json.loads(data)
    except (ValueError, RecursionError, zstandard.ZstdError):
        return False
    version = found.get("version") if isinstance(found, dict) else None
    known = _POINTER_VERSION if path.startswith(f"{BRANCH_FOLDER}/{MAIN_PREFIX}") else _VERSION
    return isinstance(version, int) and version > known


def _content(context: TableContext, path: str) -> bytes | None:
    try:
        return context.storage.get(path)
    except NotFoundError:
        return None

"""An exporter's durable position: for each branch the newest commit up to which everything was sent.

Saved after the events are sent, so that after a crash some are sent again and none is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.text.json_object import check_version
from anabranch.lineage.commit import Commit, CommitRef
from anabranch.storage.protocol import Storage

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Reached:
    """Position up to which a branch was sent."""

    snapshot: int
    stamp: str
    schema_id: int | None
    """Schema of the newest commit that was reported; None before the first."""


@dataclass
class Cursor:
    """Position of one exporter. Load it with `load_cursor`."""

    storage: Storage
    path: str
    _reached: dict[str, Reached] = field(default_factory=dict)
    _others: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the file that this release does not know."""
    _found: dict[str, list[Commit]] = field(default_factory=dict)
    """Commits after that, by branch, that were found and not all sent."""
    _open: set[CommitRef] = field(default_factory=set)
    """Those of them still to be sent."""
    _is_changed: bool = False

    def reached(self, branch_uuid: str) -> Reached | None:
        """Return the position up to which a branch was sent; None if nothing of it was."""
        return self._reached.get(branch_uuid)

    def newest_found(self, branch_uuid: str) -> int:
        """Return the newest commit of a branch that was looked at, sent or waiting; 0 if none was."""
        if self._found.get(branch_uuid):
            return self._found[branch_uuid][-1].snapshot
        reached = self._reached.get(branch_uuid)
        return 0 if reached is None else reached.snapshot

    def schema_id(self, branch_uuid: str) -> int | None:
        """Return the schema of the newest commit to be reported that was found on a branch."""
        for commit in reversed(self._found.get(branch_uuid, [])):
            if commit.entry is not None:
                return commit.schema_id
        reached = self._reached.get(branch_uuid)
        return None if reached is None else reached.schema_id

    def forget(self, branch_uuid: str | None = None) -> None:
        """Reset the position of a branch, or of all."""
        for branch in [*self._reached] if branch_uuid is None else [branch_uuid]:
            self._is_changed |= self._reached.pop(branch, None) is not None

    def found(self, commit: Commit, *, is_told: bool) -> None:
        """Record the next commit of its branch; `is_told` if an event will report it."""
        self._found.setdefault(commit.branch_uuid, []).append(commit)
        if is_told:
            self._open.add(commit.ref)
        self._advance(commit.branch_uuid)

    def sent(self, commits: tuple[Commit, ...]) -> None:
        """Record that commits were reported."""
        self._open.difference_update(commit.ref for commit in commits)
        for branch in dict.fromkeys(commit.branch_uuid for commit in commits):
            self._advance(branch)

    def save(self) -> None:
        """Save the position durably, if it moved."""
        if self._is_changed:
            branches = {
                branch: {"snapshot": at.snapshot, "stamp": at.stamp, "schema": at.schema_id}
                for branch, at in sorted(self._reached.items())
            }
            text = json.dumps({**self._others, "version": _VERSION, "branches": branches}, indent=1)
            self.storage.put(self.path, text.encode())
            self._is_changed = False

    def _advance(self, branch: str) -> None:
        found = self._found.get(branch, [])
        done = 0
        while done < len(found) and found[done].ref not in self._open:
            done += 1
        if not done:
            return
        last = found[done - 1]
        told = [commit.schema_id for commit in found[:done] if commit.entry is not None]
        before = self._reached.get(branch)
        schema_id = told[-1] if told else None if before is None else before.schema_id
        self._reached[branch] = Reached(last.snapshot, last.stamp, schema_id)
        self._found[branch] = found[done:]
        self._is_changed = True


def load_cursor(storage: Storage, path: str) -> Cursor:
    """Load a saved cursor, or make one at the beginning. Raises `CorruptTableError` if the file is not a cursor."""
    try:
        data = storage.get(path)
    except NotFoundError:
        return Cursor(storage, path)
    try:
        value = json.loads(data)
        check_version(value["version"], _VERSION, path=f"{storage.url.rstrip('/')}/{path}")
        if value["version"] != _VERSION:
            raise ValueError(value["version"])
        reached = {
            str(branch): Reached(int(at["snapshot"]), str(at["stamp"]), at["schema"])
            for branch, at in value["branches"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptTableError(
            "is no cursor of an export that this release reads",
            path=f"{storage.url.rstrip('/')}/{path}",
            hint="name another one; what was sent before is then sent again.",
        ) from error
    others = {key: value for key, value in value.items() if key not in {"version", "branches"}}
    return Cursor(storage, path, reached, others)

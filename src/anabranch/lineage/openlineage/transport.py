"""Destinations of events, using the official client's transports: a file with an event per line, or a server by HTTP.

The client's `OpenLineageClient` is not used: it would add facts about this process, such as the
git repository it runs in, to events of jobs that ran elsewhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import requests
from openlineage.client.event_v2 import RunEvent
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport

from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError, StorageError
from anabranch.format.text.json_object import check_version
from anabranch.lineage.commit import Commit, CommitRef
from anabranch.storage.protocol import Storage

API_KEY_VARIABLE = "OPENLINEAGE_API_KEY"
"""Environment variable with the key of the server, as the official client calls it."""

_REFUSALS = frozenset({400, 413, 422})
"""HTTP statuses that reject this event for good; all others may change."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure to deliver an event."""

    why: str
    is_final: bool
    """Whether this very event is rejected, so that resending is useless."""


class Destination(Protocol):
    """A destination of events."""

    def send(self, event: RunEvent) -> Failure | None:
        """Send one event; None if it arrived."""
        ...

    def settle(self) -> None:
        """Return when what was sent will survive a crash of this machine."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class EventFile:
    """A file to which events are appended, one JSON line each."""

    def __init__(self, path: str) -> None:
        """Raises `InvalidInputError` if the folder does not exist."""
        self._path = Path(path).absolute()
        # Of os, because Path raises what a folder above forbids.
        is_folder = os.path.isdir(self._path)  # noqa: PTH112
        if is_folder or not os.path.isdir(self._path.parent):  # noqa: PTH112
            raise InvalidInputError(
                f"events cannot be written to '{path}': {'it is a folder' if is_folder else 'there is no such folder'}",
                hint="name a file in a folder that exists, such as file:/var/log/lineage.jsonl.",
            )
        self._transport = FileTransport(FileConfig(str(self._path), append=True))

    def send(self, event: RunEvent) -> Failure | None:
        try:
            self._transport.emit(event)
        except RuntimeError as error:  # the client's word for every problem with the file
            return Failure(str(error), is_final=False)
        return None

    def settle(self) -> None:
        try:
            with self._path.open("rb") as file:
                os.fsync(file.fileno())
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"events in {self._path} cannot be made durable: {error.strerror}") from error

    def close(self) -> None:
        self._transport.close()


class EventServer:
    """A server that receives events by HTTP, such as Marquez."""

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = 5.0) -> None:
        """Configure the client. A path in the URL is the endpoint; the default is OpenLineage's ``/api/v1/lineage``.

        Raises `InvalidInputError` if the URL has no host.
        """
        parts = urlsplit(url)
        if not parts.hostname:
            raise InvalidInputError(f"'{url}' names no server", hint="write http://host:port.")
        config: dict[str, Any] = {"endpoint": parts.path} if parts.path.strip("/") else {}
        if api_key is not None:
            config["auth"] = ApiKeyTokenProvider({"api_key": api_key})
        # Retries are the exporter's, which knows how long it may take.
        root = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
        self._transport = HttpTransport(HttpConfig(root, timeout=timeout, retry={"total": 0}, **config))

    def send(self, event: RunEvent) -> Failure | None:
        try:
            self._transport.emit(event)
        except requests.HTTPError as error:
            answer = error.response
            assert answer is not None, "it came with an answer"
            told = f"{answer.status_code} {answer.reason}".strip()
            return Failure(f"the server answered {told}", answer.status_code in _REFUSALS)
        except (requests.RequestException, OSError) as error:
            return Failure(f"the server cannot be reached: {_innermost(error)}", is_final=False)
        return None

    def settle(self) -> None:
        """Do nothing: what the server has accepted is its responsibility."""

    def close(self) -> None:
        self._transport.close()


def open_destination(target: str, environment: Mapping[str, str] = os.environ) -> Destination:
    """Open ``file:PATH``, ``http://...`` or ``https://...``. Raises `InvalidInputError`."""
    scheme, colon, rest = target.partition(":")
    if colon and scheme == "file" and rest:
        return EventFile(rest.removeprefix("//"))
    if scheme in ("http", "https"):
        return EventServer(target, api_key=environment.get(API_KEY_VARIABLE))
    raise InvalidInputError(
        f"lineage cannot be exported to '{target}'",
        hint="write file:PATH, or the address of a server such as http://127.0.0.1:5000.",
    )


def _innermost(error: BaseException) -> BaseException:
    """Return the root cause of an error; the client's own messages about it are long."""
    while error.__context__ is not None:
        error = error.__context__
    return error


# An exporter's durable position: for each branch the newest commit up to which everything was sent.
#
# Saved after the events are sent, so that after a crash some are sent again and none is lost.

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

"""Destinations of events, using the official client's transports: a file with an event per line, or a server by HTTP.

The client's `OpenLineageClient` is not used: it would add facts about this process, such as the
git repository it runs in, to events of jobs that ran elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import requests
from openlineage.client.event_v2 import RunEvent
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport

from anabranch.errors import InvalidInputError, StorageError

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

"""The web application: the page's own files, the data it asks for, and word of what changed."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import anyio
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from anabranch.errors import (
    AlreadyExistsError,
    AnabranchError,
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    NotFoundError,
    PredicateError,
    StorageError,
)
from anabranch.ui import correction
from anabranch.ui.answers import ANSWERS
from anabranch.ui.asked import Asked
from anabranch.ui.assets import read_asset
from anabranch.ui.cells import to_json
from anabranch.ui.site import Site, stamp
from anabranch.verbs.memory import give_back

_LOG = logging.getLogger(__name__)

_ASSETS: Final = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_LONGEST_BODY: Final = 100_000
_LOOK_EVERY_SECONDS: Final = 2.0
_NAPS: Final = 10
"""Between two looks it is asked so often whether the server ends."""
_MOST_WATCHED: Final = 60
MOST_STREAMS: Final = 40
"""Pages that may wait for changes at once; each looks at its tables again and again."""
_NOBODY_WAITS: Final = 499
_NEXT: Final[Mapping[type[AnabranchError], str]] = {
    CorruptTableError: "`anabranch verify` of the table tells what depends on it, `anabranch repair` makes it again where it can.",
    PredicateError: "A filter is a condition of SQL on the table's columns, such as price > 10 AND name = 'x'.",
    InvalidInputError: "Correct it in the address, or choose it in the page.",
    NotFoundError: "The page's first view lists the tables that there are, a table's overview its branches, tags and savepoints.",
    StorageError: "`anabranch doctor` tries the store, and tells what it answers.",
    AnabranchError: "Load the page again; if it stays so, `anabranch verify` tells whether the table is whole.",
}
"""What to do about an error that does not say it: the first that fits."""
_UNKNOWN: Final = (
    "This is no error we know. The terminal in which `anabranch ui` runs tells where it came from."
)
_AT_ONCE: Final = 4
"""Answers that are made at once. Each thread has memory of its own."""


def make_app(site: Site) -> Starlette:
    """Return the application for a warehouse; `anabranch.ui.guard.Guard` must stand in front of it."""
    workers, turns = anyio.CapacityLimiter(_AT_ONCE), anyio.Semaphore(_AT_ONCE)
    streams = anyio.Semaphore(MOST_STREAMS, max_value=MOST_STREAMS)

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        asked = ANSWERS.get(name)
        if asked is None:
            there = f"There are: {', '.join(ANSWERS)}."
            return _failure(404, "NotFoundError", f"there is nothing called '{name}' here", there)
        async with turns:
            if await request.is_disconnected():  # as after many clicks
                return Response(status_code=_NOBODY_WAITS)
            return await _answered(lambda: asked(site, Asked(request.query_params.multi_items())), workers)

    async def act(request: Request) -> Response:
        body = await _body(request)
        return await _answered(lambda: correction.act(site, Asked((), body)), workers)

    async def events(request: Request) -> Response:
        names = request.query_params.getlist("table")[:_MOST_WATCHED]
        kind = "text/event-stream"
        if request.method == "HEAD":  # which nobody would end
            return Response(media_type=kind)
        try:
            streams.acquire_nowait()  # whoever gets a stream has a place: nobody waits mute for one
        except anyio.WouldBlock:
            return _failure(
                503,
                "Busy",
                f"{MOST_STREAMS} pages are waiting for changes already, so this one is not told of any",
                "Close some of them; this one asks again by itself.",
            )
        return _Stream(_changes(site, names, request, workers), streams.release, media_type=kind)

    async def asset(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        kind = _ASSETS.get(name)
        if kind is None:
            return Response("There is no such page.", 404, media_type="text/plain")
        return Response(read_asset(name), media_type=kind, headers={"cache-control": "no-cache"})

    app = Starlette(
        routes=[
            Route("/api/events", events),
            Route("/api/act", act, methods=["POST"]),
            Route("/api/{name}", answer),
            Route("/", asset),
            Route("/{name}", asset),
        ]
    )
    app.router.redirect_slashes = False
    return app


class _Stream(StreamingResponse):
    """Events, and what is done when they end, however they do: of who goes before the first, nothing else is ever closed."""

    def __init__(self, events: AsyncIterator[bytes], ended: Callable[[], None], *, media_type: str) -> None:
        super().__init__(events, media_type=media_type)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _body(request: Request) -> Mapping[str, Any]:
    """Return the object of JSON that a request sends; an empty one if it is none, or too long."""
    text = b""
    try:
        async for part in request.stream():
            text += part
            if len(text) > _LONGEST_BODY:
                return {}
        found = json.loads(text)
    except (ClientDisconnect, ValueError, RecursionError):  # it broke off, or is no JSON
        return {}
    return found if isinstance(found, dict) else {}


async def _answered(make: Callable[[], Any], workers: anyio.CapacityLimiter) -> Response:
    """Return what a function makes as JSON, or why it cannot."""
    try:
        body = await run_sync(lambda: to_json(make()), limiter=workers)
        give_back()
        return Response(body, media_type="application/json")
    except AnabranchError as error:
        hint = error.hint or next(text for kind, text in _NEXT.items() if isinstance(error, kind))
        return _failure(_status(error), type(error).__name__, error.message, hint)
    except Exception as error:  # the page says so, and goes on
        _LOG.exception("an answer of the page failed")
        return _failure(500, type(error).__name__, str(error), _UNKNOWN)


def _status(error: AnabranchError) -> int:
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, AlreadyExistsError | CommitConflictError):
        return 409
    return 400 if isinstance(error, InvalidInputError) else 500


def _failure(status: int, kind: str, message: str, hint: str) -> Response:
    body = to_json({"error": kind, "message": message, "hint": hint})
    return Response(body, status, media_type="application/json")


async def _changes(
    site: Site, names: list[str], request: Request, workers: anyio.CapacityLimiter
) -> AsyncIterator[bytes]:
    """Yield an event when a watched table changes; the first one says how they are now."""
    last: dict[str, str] = {}
    pauses = 0
    while not site.is_ending and not await request.is_disconnected():
        now = await run_sync(
            lambda: {name: _state(site, name, alone=len(names) == 1) for name in names}, limiter=workers
        )
        changed = [name for name in names if now[name] != last.get(name)]
        if changed:
            yield b"data: " + to_json({"changed": changed, "now": site.now}) + b"\n\n"
            last = now
        elif pauses % 8 == 0:
            yield b": still here\n\n"
        pauses += 1
        for _ in range(_NAPS):
            if not site.is_ending:
                await site.runtime.sleeper.pause(_LOOK_EVERY_SECONDS / _NAPS)


def _state(site: Site, name: str, *, alone: bool) -> str:
    """Return what changes when a table does; of one that is looked at alone its branches and tags too."""
    try:
        table = site.open(name)
        refs = f"{table.branches()}{table.tags()}" if alone else ""
        return f"{stamp(table)}{refs}"
    except AnabranchError as error:
        return error.message

"""Who may ask: only this machine's browser, with the secret from the printed address, and no other site in it.

Other sites can make a browser send requests to this machine, and by changing the answer of their name server even read what
comes back. So each request must be for our own address (``Host``), data needs a cookie that only the printed
address sets, and what another origin asks for, also another port of this machine, is refused whatever cookies it has.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.runtime import Runtime
from anabranch.ui.assets import policy

Headers = list[tuple[bytes, bytes]]

API: Final = "/api/"
_SAME_SITE: Final = ("same-origin", "none")
_ONCE: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"content-type"})
"""Headers that decide who may ask: of two, nothing tells which one counts."""


class Guard:
    """Refuses what it must before anything of the page runs, and adds to every answer what browsers are to enforce."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], token: str, secret: str, port: int) -> None:
        """Wrap an application.

        Args:
            hosts: the values of ``Host`` that are ours.
            token: what the printed address holds.
            secret: what the cookie holds in its place.
            port: cookies are for all ports of a machine, so ours is named after it.
        """
        self._app = app
        self._hosts = frozenset(hosts)
        self._token = token
        self._secret = secret
        self._cookie = f"anabranch_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # nothing of ours speaks over web sockets
        decisive = [name for name, _ in scope["headers"] if name.lower() in _ONCE]
        if len(decisive) != len(set(decisive)):
            await _answer(send, 400, "A header that may stand once stands twice.")
            return
        headers = _by_name(scope)
        path, is_data = scope["path"], scope["path"].startswith(API)
        problem = self._problem(scope, headers, is_data=is_data)
        if problem is not None:
            await _answer(send, problem[0], problem[1])
            return
        given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("token")
        if path == "/" and given is not None:
            if not _is_equal(given[-1], self._token):
                await _answer(
                    send, 403, "This address has a wrong token. Open the one that `anabranch ui` printed."
                )
                return
            cookie = f"{self._cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(send, 303, "", [(b"location", b"/"), (b"set-cookie", cookie.encode())])
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
                if is_data:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        await self._app(scope, receive, sent)

    def _problem(
        self, scope: Scope, headers: MutableMapping[str, str], *, is_data: bool
    ) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if host.lower() not in self._hosts:
            return 421, "This page is only for the address that `anabranch ui` printed."
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{known}" for known in self._hosts}:
            return 403, "Another site may not ask."
        if is_data and headers.get("sec-fetch-site", "none") not in _SAME_SITE:
            return 403, "Another site may not ask."
        if is_data and not self._has_cookie(headers.get("cookie", "")):
            return 401, "Open the address that `anabranch ui` printed: it holds the token."
        if scope["method"] not in ("GET", "HEAD"):
            if origin is None:
                return 403, "An action must say where it comes from."
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return 415, "An action is JSON."
        return None

    def _has_cookie(self, header: str) -> bool:
        pairs = (part.strip().partition("=") for part in header.split(";"))
        return any(name == self._cookie and _is_equal(value, self._secret) for name, _, value in pairs)


def new_secret(runtime: Runtime) -> str:
    """Return 244 random bits as text."""
    return "".join(runtime.ids.uuid().replace("-", "") for _ in range(2))


_HEADERS: Final[Headers] = [
    (b"content-security-policy", (policy("'self'", "'self'") + "; frame-ancestors 'none'").encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


def _by_name(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _is_equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


async def _answer(send: Send, status: int, text: str, headers: Headers | None = None) -> None:
    body = text.encode()
    start: dict[str, Any] = {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            *_HEADERS,
            *(headers or []),
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})

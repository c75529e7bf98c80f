"""Connections to the page's server: few at once, and none kept open by who never finishes asking.

A process may hold about a thousand open files. Whoever opens that many connections and sends nothing, which needs no token, would
shut out everybody else.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_WAITING: Final = 100
"""Connections without a whole request, at once; of more, the one that has waited longest is closed."""
_SECONDS_TO_ASK: Final = 15.0


def make_protocol(seconds: float = _SECONDS_TO_ASK) -> type[H11Protocol]:
    """Return what speaks HTTP on each connection of one server.

    Args:
        seconds: for which a connection may have no whole request.
    """
    waiting: dict[asyncio.Protocol, asyncio.TimerHandle] = {}  # who came first is first

    class Connection(H11Protocol):
        """One connection."""

        # asyncio says BaseTransport, uvicorn Transport, which is what it is.
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._note()
            if len(waiting) > MOST_WAITING:
                oldest = next(iter(waiting))
                assert isinstance(oldest, Connection), "nobody else is put there"
                oldest.let_go()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._note()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _note(self) -> None:
            """Count the time until there is a whole request, whatever arrives of it meanwhile."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._forget()
            elif self not in waiting and not self.transport.is_closing():
                waiting[self] = self.loop.call_later(seconds, self.let_go)

        def _forget(self) -> None:
            timer = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

        def let_go(self) -> None:
            """Close the connection: whatever may still come of a request is not waited for."""
            self._forget()
            self.transport.close()

    return Connection

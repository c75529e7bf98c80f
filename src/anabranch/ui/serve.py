"""Serves the page on this machine, and nowhere else."""

from __future__ import annotations

import html
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import uvicorn

from anabranch.errors import InvalidInputError
from anabranch.ui.app import make_app
from anabranch.ui.connections import make_protocol
from anabranch.ui.guard import Guard, new_secret
from anabranch.ui.site import Site
from anabranch.verbs.memory import keep_pandas_out, limit_metadata_cache, settle_imports

ADDRESS: Final = "127.0.0.1"
USUAL_PORT: Final = 8765
_TURN_SECONDS: Final = 0.001
"""For which a thread runs on while another waits. An answer asks for many small files, and after each of them waits that long for whoever
looks for new lineage beside it: a fifth of Python's own value."""
_BACKLOG: Final = 64
"""Connections that are taken at once, before those that have waited too long are closed."""
_PORTS_TRIED: Final = 20
_CACHED_METADATA: Final = 16 << 20
"""Bytes of metadata kept: the page runs beside what people really do on their machine."""


class Server:
    """The page of a warehouse, bound to a port but not yet serving."""

    def __init__(self, site: Site, port: int | None = None) -> None:
        """Bind to a port of this machine.

        Args:
            site: the warehouse.
            port: 0 for any that is free; if None the usual one, or one after it that is free.

        Raises `InvalidInputError`: the port is taken.
        """
        self.site = site
        self._socket = _bound(port)
        self.port: int = self._socket.getsockname()[1]
        token = new_secret(site.runtime)
        hosts = [f"{name}:{self.port}" for name in (ADDRESS, "localhost")]
        guarded = Guard(
            make_app(site), hosts=hosts, token=token, secret=new_secret(site.runtime), port=self.port
        )
        self.url = f"http://{ADDRESS}:{self.port}/?token={token}"
        config = uvicorn.Config(
            guarded,
            log_level="warning",
            access_log=False,  # addresses hold the token
            server_header=False,
            proxy_headers=False,
            ws="none",
            http=make_protocol(),
            backlog=_BACKLOG,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config, site)

    def run(self) -> None:
        """Serve until interrupted, or until `stop` is called from another thread."""
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """End `run`."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Tells those who wait for changes that it ends, in place of breaking them off."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.is_ending = True
        await super().shutdown(sockets)


def serve(site: Site, *, port: int | None, browser: bool, say: Callable[[str], None]) -> None:
    """Serve the page until interrupted.

    Args:
        site: the warehouse.
        port: as `Server` takes it.
    """
    limit_metadata_cache(_CACHED_METADATA)
    keep_pandas_out()
    settle_imports()
    sys.setswitchinterval(_TURN_SECONDS)
    server = Server(site, port)
    say(server.url)
    threading.Thread(target=_load_what_comes_next, daemon=True).start()
    leading = open_in_browser(server.url) if browser else None
    try:
        with suppress(KeyboardInterrupt):  # that is how it ends
            server.run()
    finally:
        if leading is not None:
            leading.unlink(missing_ok=True)
        site.actions.close()


def _load_what_comes_next() -> None:
    """Import what the first answers need, while the browser starts."""
    import anabranch.lineage.index
    import anabranch.system_tables

    _ = anabranch


def open_in_browser(url: str) -> Path:
    """Open an address by way of a file that only its owner reads: everybody on a machine sees how programs are started."""
    handle, name = tempfile.mkstemp(prefix="anabranch-", suffix=".html")
    with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123 - it is open already
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url)}">')
    path = Path(name)
    webbrowser.open(path.as_uri())
    return path


def _bound(port: int | None) -> socket.socket:
    wanted = range(USUAL_PORT, USUAL_PORT + _PORTS_TRIED) if port is None else [port]
    for number in wanted:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((ADDRESS, number))
            found.listen(_BACKLOG)  # who asks before it serves waits
        except (OSError, OverflowError):
            found.close()
            continue
        return found
    asked = f"port {port}" if port is not None else f"ports {wanted[0]} to {wanted[-1]}"
    raise InvalidInputError(
        f"{asked} of this machine cannot be used", hint="name another one with --port, or 0 for any."
    )

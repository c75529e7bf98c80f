"""A proxy in a process of its own that lets each request wait, and tells how many there were and how many after each other.

`python -m benchmarks.workers.slow_proxy HOST PORT MILLIS` prints the port where it listens. For each line that it reads it prints
``REQUESTS DEPTH`` of the time since the last one. Bytes are passed on as they are, so signatures stay valid. A connection has one
request at a time, as those of HTTP/1.1 do that send the next one after the answer.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.support.depth import Cost, depth_of

_BYTES = 1 << 18


class SlowProxy(NamedTuple):
    """The proxy as seen by the process that started it."""

    endpoint: str
    process: subprocess.Popen[str]

    def cost(self) -> Cost:
        """Requests since the last time that this was asked."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        calls, depth = self.process.stdout.readline().split()
        return Cost(int(calls), int(depth))


@contextmanager
def slow_proxy(endpoint: str, millis: int) -> Iterator[SlowProxy]:
    """Start a proxy before a server, and end it with the block."""
    server = urlsplit(endpoint)
    command = [sys.executable, "-m", __name__, str(server.hostname), str(server.port), str(millis)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield SlowProxy(f"http://127.0.0.1:{int(process.stdout.readline())}", process)
        finally:
            process.kill()


class _Connection:
    """The requests of one connection: when each was begun, and when the last of its answer came."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.intervals: list[list[float]] = []
        self._is_answered = True

    async def ask(self, source: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        """Pass requests on, each after its wait."""
        while data := await source.read(_BYTES):
            now = time.monotonic()
            if self._is_answered:
                self.intervals.append([now, now])
                self._is_answered = False
            await asyncio.sleep(self.intervals[-1][0] + self.seconds - now)
            server.write(data)
            await server.drain()
        server.write_eof()

    async def answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Pass answers on at once."""
        while data := await server.read(_BYTES):
            client.write(data)
            await client.drain()
            self._is_answered = True
            if self.intervals:
                self.intervals[-1][1] = time.monotonic()
        client.write_eof()


async def _serve(host: str, port: int, seconds: float) -> None:
    connections: list[_Connection] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(seconds)
        connections.append(connection)
        with suppress(OSError):
            from_server, to_server = await asyncio.open_connection(host, port)
            await asyncio.gather(
                connection.ask(reader, to_server),
                connection.answer(from_server, writer),
                return_exceptions=True,
            )
            to_server.close()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        taken = [(begun, ended) for connection in connections for begun, ended in connection.intervals]
        for connection in connections:
            connection.intervals.clear()
        print(len(taken), depth_of(taken), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) / 1000))

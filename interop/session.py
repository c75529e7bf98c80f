"""A peer as an object: its driver process, spoken to in JSON lines."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from interop.peers import PEERS_BY_NAME, REPOSITORY


class PeerError(Exception):
    """What the peer raised: `kind` is the name of its exception."""

    def __init__(self, peer: str, kind: str, message: str) -> None:
        super().__init__(f"{peer}: {kind}: {message}")
        self.kind = kind
        self.message = message


class PeerSession:
    """One driver process of a peer, started at once and ended by `close`."""

    def __init__(self, name: str) -> None:
        peer = PEERS_BY_NAME[name]
        if not peer.ready or peer.driver is None:
            raise PeerError(name, "NotReady", f"run `python interop/peers.py setup {name}` first")
        self.name = name
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - see close
        self._process = subprocess.Popen(  # noqa: S603 - the interpreters are ours
            [str(peer.python), "-m", peer.driver],
            cwd=REPOSITORY,
            env=peer.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def __enter__(self) -> PeerSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._log.close()

    def call(self, op: str, **arguments: Any) -> Any:
        """Run one operation of the driver; raises PeerError with what the peer raised."""
        try:
            self._requests.write(json.dumps({"op": op, **arguments}) + "\n")
            self._requests.flush()
        except BrokenPipeError:
            raise PeerError(self.name, "Ended", self._last_words()) from None
        line = self._answers.readline()
        if not line:
            raise PeerError(self.name, "Ended", self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(self.name, answer["error"]["type"], answer["error"]["message"])
        return answer["ok"]

    def read(self, warehouse: Path, table: str, **arguments: Any) -> list[list[Any]]:
        """Canonical rows of a table as the peer reads it."""
        rows: list[list[Any]] = self.call("read", warehouse=str(warehouse), table=table, **arguments)["rows"]
        return rows

    def append(self, warehouse: Path, table: str, rows: list[list[Any]]) -> None:
        """Let the peer commit canonical rows."""
        self.call("append", warehouse=str(warehouse), table=table, rows=rows)

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2000:]

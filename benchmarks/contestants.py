"""Who takes part, with which interpreter, and one measurement of one of them."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.peers import PEERS_BY_NAME, REPOSITORY


@dataclass(frozen=True)
class Contestant:
    """A client or format; `peer` names its environment, None is the project's own."""

    name: str
    module: str
    packages: tuple[str, ...]
    peer: str | None = None

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(PEERS_BY_NAME[self.peer].python) if self.peer else sys.executable

    def versions(self) -> dict[str, str]:
        """Versions of the packages that do its work."""
        code = "import json, sys; from importlib.metadata import version as v; "
        code += "print(json.dumps({name: v(name) for name in sys.argv[1:]}))"
        command = [self.python, "-c", code, *self.packages]
        found: dict[str, str] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return found


ANABRANCH = Contestant("Anabranch", "benchmarks.workers.anabranch", ("anabranch", "pyarrow", "polars"))
PYPAIMON = Contestant("pypaimon", "benchmarks.workers.pypaimon", ("pypaimon", "pyarrow"), "pypaimon-2.1")
RUST = Contestant(
    "pypaimon-rust", "benchmarks.workers.pypaimon_rust", ("pypaimon-rust", "pyarrow"), "pypaimon-rust-0.4"
)
DELTA = Contestant("delta-rs", "benchmarks.workers.delta", ("deltalake", "pyarrow"), "deltalake")
ICEBERG = Contestant("pyiceberg", "benchmarks.workers.iceberg", ("pyiceberg", "pyarrow"), "pyiceberg")
PARQUET = Contestant("plain Parquet", "benchmarks.workers.parquet", ("pyarrow",))


@dataclass(frozen=True)
class Lap:
    """One run of a worker: seconds of each lap, memory above the start, and what it found."""

    seconds: list[float]
    peak_bytes: int
    facts: dict[str, Any]


class WorkerError(Exception):
    """A worker failed; the message carries the end of what it said."""


def compile_ours() -> None:
    """Compile our modules to byte code, as pip does with those of the peers when it installs them."""
    compileall.compile_dir(REPOSITORY / "src", quiet=1)


def run_worker(contestant: Contestant, operation: str, arguments: dict[str, Any], *, scratch: Path) -> Lap:
    """Do one operation in a fresh process of the contestant."""
    environment = dict(os.environ, PYTHONPATH="", PYTHONDONTWRITEBYTECODE="1", TMPDIR=str(scratch))
    process = subprocess.run(
        [contestant.python, "-m", contestant.module],
        input=json.dumps({"operation": operation, "arguments": arguments}),
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode or not process.stdout:
        raise WorkerError(f"{contestant.name}, {operation}: {process.stderr[-2000:]}")
    return Lap(**json.loads(process.stdout))

"""Clock and protocol of the worker processes. Standard library and pyarrow only."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")
WARM_UP_ROWS = 150_000
"""As many as make a file of more than a megabyte: a smaller one may be read in another way."""
WARM_UP_IDS = [100, 200]


class Clock:
    """Collects laps, and how far memory rose above its level before the first one."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._before: int | None = None

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Time the block."""
        if self._before is None:
            gc.collect()
            self._before = reset_peak()
        start = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - start)

    def rise(self) -> int:
        """Bytes of resident memory above those before the first lap, at the peak."""
        return max(0, peak() - (self._before or 0))


def reset_peak() -> int:
    """Resident memory now, in bytes; from here on `peak` counts anew (where the system allows it)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except OSError:
        return 0


def peak() -> int:
    """Highest resident memory, in bytes."""
    if STATUS.exists():
        return _status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status(key: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024


def shares_of(shares: list[list[float]]) -> list[dict[str, float]]:
    """Of what each query of some kinds read, the mean and the most, kind by kind."""
    return [{"mean": sum(kind) / len(kind), "most": max(kind)} for kind in zip(*shares, strict=True)]


def grouped(rows: list[tuple[Any, ...]]) -> dict[str, int]:
    """What a query by category found: its groups, rows and the sum."""
    return {
        "groups": len(rows),
        "rows": sum(row[1] for row in rows),
        "total": sum(int(row[2]) for row in rows),
    }


def load(path: str) -> Any:
    """A table of an Arrow IPC file, in memory of this process."""
    import pyarrow as pa

    with pa.OSFile(path) as source:
        return pa.ipc.open_file(source).read_all()


def stream(path: str) -> Any:
    """The batches of an Arrow IPC file one by one, each in memory only as long as somebody holds it."""
    import pyarrow as pa

    def batches() -> Iterator[Any]:
        with pa.OSFile(path) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    with pa.OSFile(path) as source:
        schema = pa.ipc.open_file(source).schema
    return pa.RecordBatchReader.from_batches(schema, batches())


def main(operations: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Do the operation that stdin asks for and answer on stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is not the answer
    request = json.loads(sys.stdin.read())
    clock = Clock()
    facts = operations[request["operation"]](clock, **request["arguments"])
    rise = clock.rise()
    answers.write(json.dumps({"seconds": clock.seconds, "peak_bytes": rise, "facts": facts}))
    answers.close()
    # Some peers keep threads that are slow to end; the answer is out.
    os._exit(0)

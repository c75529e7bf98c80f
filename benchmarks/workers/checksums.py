"""Anabranch, with checksums of pages and without, in turns of one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anabranch
from benchmarks.workers.harness import WARM_UP_ROWS, Clock, load, main

FLAGS = ("true", "false")


def turns(clock: Clock, home: str, part: str, count: int) -> dict[str, Any]:
    """Append the same rows and read them back, with each of the two settings in turns; the least seconds of each work."""
    rows = load(part)
    lake = anabranch.connect(home)
    for flag in FLAGS:  # what is loaded at the first use does not count
        table = _create(lake, f"db.warm_up_{flag}", rows, flag)
        table.append(rows.slice(0, WARM_UP_ROWS))
        table.scan().to_arrow()
    least: dict[str, dict[str, list[float]]] = {"append": {}, "scan": {}}
    with clock.lap():
        for turn in range(count):
            for flag in FLAGS if turn % 2 else reversed(FLAGS):
                table = _create(lake, f"db.t_{flag}_{turn}", rows, flag)
                for work, do in (
                    ("append", lambda t=table: t.append(rows)),
                    ("scan", lambda t=table: _scan(t, rows)),
                ):
                    took = _timed(do)
                    least[work][flag] = [
                        min(pair) for pair in zip(took, least[work].get(flag, took), strict=True)
                    ]
    return {"rows": rows.num_rows, **least}


def _timed(do: Callable[[], object]) -> list[float]:
    """Seconds of processor time, and elapsed ones."""
    processor, elapsed = time.process_time(), time.perf_counter()
    do()
    return [time.process_time() - processor, time.perf_counter() - elapsed]


def _scan(table: Any, rows: Any) -> None:
    if table.scan().to_arrow().num_rows != rows.num_rows:
        raise AssertionError("a scan has not all rows")


def _create(lake: Any, name: str, rows: Any, flag: str) -> Any:
    return lake.create_table(name, rows.schema, options={"file.checksum": flag})


if __name__ == "__main__":
    main({"turns": turns})

"""Anabranch compacting small files, and sorting a table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch
from benchmarks.workers.harness import Clock, load, main, shares_of

NAME = "db.t"


def small_files(clock: Clock, home: str, part: str, files: int) -> dict[str, Any]:
    """One commit for each file; nobody measures this."""
    data = load(part)
    table = _create(home, data.schema)
    size = len(data) // files
    with clock.lap():
        for start in range(0, len(data), size):
            table.append(data.slice(start, size))
    return {"files": table.scan().plan().files.height, "folder": table.context.storage.url}


def compact(clock: Clock, home: str, source: str) -> dict[str, Any]:
    """All files of a copy of that warehouse into one."""
    shutil.copytree(source, home)
    _create(home + "/warm-up", pa.schema({"id": pa.int64()})).append(pa.table({"id": [1]}))
    table = anabranch.connect(home).table(NAME)
    with clock.lap():
        done = table.compact(full=True)
    assert done.files_after == 1, done
    return {"rows": table.snapshot.total_record_count}


def sort(
    clock: Clock,
    home: str,
    parts: list[str],
    by: list[str],
    strategy: str,
    target: str,
    queries: list[list[int]],
) -> dict[str, Any]:
    """Sort what was appended in any order, then plan queries: one condition on each column, and both at once."""
    table = _create(home, load(parts[0]).schema)
    for part in parts:
        table.append(load(part))
    table.alter().set_option("target-file-size", target).apply()
    with clock.lap():
        done = table.sort_compact(by, strategy)
    assert done.rows == table.snapshot.total_record_count
    conditions = [[f"{name} >= {low} AND {name} < {low + width}" for name in by] for low, width in queries]
    plans = [[table.scan(c).plan() for c in (*each, " AND ".join(each))] for each in conditions]
    files = table.scan().plan().files.height
    report = table.scan(" AND ".join(conditions[0])).explain()
    return {
        "files": files,
        "shares": shares_of([[plan.files.height / files for plan in each] for each in plans]),
        "report": report,
    }


def _create(home: str, schema: Any, **how: Any) -> Any:
    Path(home).mkdir(parents=True, exist_ok=True)
    return anabranch.connect(home).create_table(NAME, schema, **how)


if __name__ == "__main__":
    main({"small_files": small_files, "compact": compact, "sort": sort})

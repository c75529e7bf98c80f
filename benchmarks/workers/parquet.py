"""Plain Parquet files through pyarrow, without any table format: what the bytes alone cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.workers.harness import WARM_UP_IDS, WARM_UP_ROWS, Clock, load, main


def append(clock: Clock, home: str, parts: list[str]) -> dict[str, Any]:
    """One file per part."""
    tables = [load(part) for part in parts]
    _write(home + "/warm-up", 0, tables[0].slice(0, WARM_UP_ROWS))
    with clock.lap():
        for number, data in enumerate(tables):
            _write(home, number, data)
    return {"rows": ds.dataset(home + "/t").count_rows()}


def scan(
    clock: Clock, home: str, columns: list[str] | None = None, ids: list[int] | None = None
) -> dict[str, Any]:
    """Read to an Arrow table."""
    _read(home + "/warm-up", columns, ids and WARM_UP_IDS)
    with clock.lap():
        data = _read(home, columns, ids)
    return {"rows": data.num_rows, "columns": data.num_columns}


def compact(clock: Clock, home: str, source: str) -> dict[str, Any]:
    """Read all files of a folder, and write their rows to one."""
    paths = sorted(Path(source).glob("db.db/t/**/*.parquet"))
    _write(home + "/warm-up", 0, _file(paths[0]))
    with clock.lap():
        data = pa.concat_tables([_file(path) for path in paths])
        _write(home, 0, data)
    return {"rows": data.num_rows}


def _file(path: Path) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read()


def _write(home: str, number: int, data: pa.Table) -> None:
    folder = Path(home) / "t"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, folder / f"{number}.parquet", compression="zstd", compression_level=1)


def _read(home: str, columns: list[str] | None, ids: list[int] | None) -> pa.Table:
    condition = (ds.field("id") >= ids[0]) & (ds.field("id") < ids[1]) if ids else None
    return ds.dataset(home + "/t").to_table(columns=columns, filter=condition)


if __name__ == "__main__":
    main({"append": append, "scan": scan, "compact": compact})

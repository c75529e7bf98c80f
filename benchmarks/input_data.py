"""The rows that the benchmarks write, made once and read by every contestant from Arrow files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

ROWS_SEED = 20_240_229
START_MICROS = 1_700_000_000_000_000


def rows(start: int, count: int) -> pa.Table:
    """Rows of 8 columns with ascending ids; the same for the same `start`."""
    random = np.random.default_rng([ROWS_SEED, start])
    ids = np.arange(start, start + count, dtype=np.int64)
    words = pa.array([f"category-{n:02}" for n in range(40)])
    picked = pa.array(random.integers(0, 40, count).astype(np.int32))
    return pa.table(
        {
            "id": ids,
            "ts": pa.array(START_MICROS + ids * 1_000 + random.integers(0, 1_000, count), pa.timestamp("us")),
            "code": random.integers(0, 100_000, count).astype(np.int32),
            "price": np.round(random.lognormal(3, 1, count), 2),
            "score": random.random(count),
            "category": words.take(picked),
            "label": pa.array([f"item-{n:08x}" for n in random.integers(0, 2**32, count)]),
            "valid": pa.array(random.random(count) < 0.9),
        }
    )


def write_parts(folder: Path, parts: int, count: int) -> list[str]:
    """Write that many Arrow files of `count` rows each and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{number}.arrow" for number in range(parts)]
    for number, path in enumerate(paths):
        table = rows(number * count, count)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return [str(path) for path in paths]

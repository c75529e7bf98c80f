"""Writing rows from Arrow and reading them back."""

from __future__ import annotations

from typing import Any

from benchmarks.contestants import ANABRANCH, DELTA, ICEBERG, PARQUET, PYPAIMON, RUST
from benchmarks.input_data import write_parts
from benchmarks.registry import Row, Run, benchmark, ratio_to

CONTESTANTS = (ANABRANCH, PYPAIMON, RUST, DELTA, ICEBERG, PARQUET)
PEERS = tuple(c.name for c in CONTESTANTS if c not in (ANABRANCH, PARQUET))
PARTS = 6


@benchmark("append-scan", "Append from Arrow, scan to Arrow", *CONTESTANTS)
def append_scan(run: Run) -> list[Row]:
    """Each part is one commit into an unpartitioned table with default options. Then the table is read back
    into one Arrow table: whole, one column, and the rows between two ids, which lie in one file. Plain Parquet
    files, without commits and without a table's statistics, stand beside for reference; the target is the best
    of the others.

    Anabranch collects statistics of every column as it writes, and syncs every file before a commit is
    acknowledged. Which client scans fastest changes from run to run."""
    count = run.size(1_000_000, 100_000)
    parts = write_parts(run.scratch / "input", PARTS, count)
    homes = {c: str(run.scratch / "append" / c.module.rpartition(".")[2]) for c in CONTESTANTS}
    work = f"append {PARTS} x {count:,} rows x 8 columns"
    arguments = {c: {"home": home, "parts": parts} for c, home in homes.items()}
    results = [(work, run.measure(work, "append", arguments, fresh=True))]
    ids = [count * 2 + count // 4, count * 2 + count * 3 // 4]
    scans: dict[str, dict[str, Any]] = {
        f"scan {PARTS * count:,} rows": {},
        "scan one column": {"columns": ["price"]},
        f"scan {count // 2:,} rows by a filter": {"ids": ids},
    }
    for work, what in scans.items():
        results.append((work, run.measure(work, "scan", {c: {"home": h, **what} for c, h in homes.items()})))
    return [Row(work, found, [ratio_to(found, ANABRANCH.name, PEERS, 1.0)]) for work, found in results]

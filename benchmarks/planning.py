"""Planning scans of a table of many files, without reading any."""

from __future__ import annotations

from typing import Any

from benchmarks.contestants import ANABRANCH, PYPAIMON, RUST
from benchmarks.large_table import FILES_PER_PARTITION, ROWS_PER_FILE, write_large_table
from benchmarks.registry import Row, Run, Verdict, benchmark, ratio_to, within

CONTESTANTS = (ANABRANCH, PYPAIMON, RUST)


@benchmark("planning", "Plan a scan of many files", *CONTESTANTS)
def planning(run: Run) -> list[Row]:
    """One table in the Paimon format, all statistics present, planned by every client from cold caches of its
    own (the operating system's are warm): manifests of 10,000 entries, 200 files a partition, 1,000 rows a
    file. The tables have manifests only; nothing is read."""
    files = run.size(200_000, 20_000)
    home = run.scratch / "planning"
    run.log(f"  writing manifests of {files:,} files")
    write_large_table(home, "warm_up", 2 * FILES_PER_PARTITION)
    write_large_table(home, "large", files)
    p, id_ = files // FILES_PER_PARTITION // 2, files * ROWS_PER_FILE // 3
    everything = _measure(run, home, f"plan a full scan of {files:,} files", {})
    one_partition = _measure(run, home, f"plan one partition of {FILES_PER_PARTITION} files", {"p": p})
    one_id = _measure(run, home, f"plan one id in {files * ROWS_PER_FILE:,} rows", {"id": id_})
    rows = [
        Row(*everything, [ratio_to(everything[1], ANABRANCH.name, [RUST.name], 1.0)]),
        Row(*one_partition, [within(one_partition[1], ANABRANCH.name, 0.05)]),
        Row(*one_id, [within(one_id[1], ANABRANCH.name, 0.35)]),
    ]
    return rows if run.quick else [*rows, _million(run)]


def _measure(run: Run, home: Any, work: str, what: dict[str, int]) -> tuple[str, Any]:
    arguments = {c: {"home": str(home), "table": "db.large", **what} for c in CONTESTANTS}
    return work, run.measure(work, "plan", arguments)


def _million(run: Run) -> Row:
    home, files = run.scratch / "planning-million", 1_000_000
    run.log(f"  writing manifests of {files:,} files")
    write_large_table(home, "warm_up", 2 * FILES_PER_PARTITION)
    write_large_table(home, "large", files)
    work = f"plan a full scan of {files:,} files"
    arguments = {c: {"home": str(home), "table": "db.large"} for c in (ANABRANCH, RUST)}
    found = run.measure(work, "plan", arguments)
    ours = found[ANABRANCH.name]
    memory = Verdict("at most 1.5 GB", (ours.peak_bytes or 0) / 1e9, 1.5, "GB")
    return Row(work, found, [within(found, ANABRANCH.name, 2.0), memory])

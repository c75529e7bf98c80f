"""What single works of Anabranch cost: processor time, memory and requests, each in a process of its own."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

import anabranch
from anabranch.kernel.log.cache import DEFAULT_CAPACITY, SHARED
from benchmarks.workers.harness import Clock, main, peak

KINDS = {pa.int64(): 5, pa.string(): "hello", pa.float64(): 1.5, pa.timestamp("us"): 1_000}
TIMES = 9
"""How often what is short is done; the least counts."""


def plan(clock: Clock, home: str) -> dict[str, Any]:
    """Plan all files of a table, and go through them."""
    table = anabranch.connect(home).table("db.large")
    with clock.lap():
        files = sum(len(split.files) for split in table.scan().plan().splits)
    return {"files": files, "peak": peak()}


def files(clock: Clock, home: str) -> dict[str, Any]:
    """Go through the system table of all files."""
    table = anabranch.connect(home).table("db.large")
    with clock.lap():
        found = sum(batch.num_rows for batch in table.system_batches("files"))
    return {"files": found, "peak": peak()}


def limit(clock: Clock, home: str) -> dict[str, Any]:
    """Plan ten rows of a table of many files."""
    table = anabranch.connect(home).table("db.large")
    with clock.lap():
        planned = table.scan(limit=10).plan().files.height
    return {"files": planned, "peak": peak()}


def wide(clock: Clock, home: str, columns: int) -> dict[str, Any]:
    """Append a row of many columns."""
    kinds = list(KINDS)
    schema = pa.schema([(f"c{number}", kinds[number % len(kinds)]) for number in range(columns)])
    row = pa.table([pa.array([KINDS[field.type]], field.type) for field in schema], schema=schema)
    table = anabranch.connect(home).create_table("db.wide", schema)
    table.append(row)
    with clock.lap():
        return {"processor": min(_processor(lambda: table.append(row)) for _ in range(TIMES))}


def _row() -> pa.Table:
    """A row to append; pyarrow imports Pandas to make it, which is no part of what planning takes."""
    return pa.table({"id": [1], "v": ["a"]})


def merges(clock: Clock, home: str, commits: int) -> dict[str, Any]:
    """Merge a branch after that many commits of both sides, and again after one more of the branch."""
    row, table = _branched(home)
    for _ in range(commits):
        table.append(row)
        table.branch("fix").append(row)
    with clock.lap():
        first = _merge(home)
    again = []
    for _ in range(TIMES):
        table.branch("fix").append(row)
        again.append(_merge(home))
    return {
        "requests": [first[1], min(requests for _, requests in again)],
        "processor": [first[0], min(processor for processor, _ in again)],
    }


def merged_often(clock: Clock, home: str, count: int) -> dict[str, Any]:
    """Merge a branch so often, one commit each time; processor time and requests of each merge."""
    row, table = _branched(home)
    made = []
    with clock.lap():
        for _ in range(count):
            table.branch("fix").append(row)
            made.append(_merge(home))
    assert anabranch.connect(home).table("db.t").scan().count() == 1 + count, "each merge has brought its row"
    return {"processor": [seconds for seconds, _ in made], "requests": [requests for _, requests in made]}


def replacements(clock: Clock, home: str, count: int) -> dict[str, Any]:
    """Replace main by one branch after the other, none of them let go; the requests and times of each replacement."""
    row = _row()
    table = anabranch.connect(home).create_table("db.t", row.schema, options={"write-only": "true"})
    table.append(row)
    requests, seconds = [], []
    for number in range(count):
        table.create_branch(f"b{number}", f"t{number}", snapshot=table.snapshot.id)
        table.branch(f"b{number}").append(row)
        begun = time.perf_counter()
        with anabranch.requests() as asked:
            table.replace_main_branch(f"b{number}")
        seconds.append(time.perf_counter() - begun)
        requests.append(sum(asked.counts.values()))
    with clock.lap():
        assert len(table.tags()) == count, "every main has the tags of those before it"
    return {"requests": requests, "seconds": seconds}


def writers(clock: Clock, home: str, writers: int, commits: int) -> dict[str, Any]:
    """Writers, each with a view of its own, append rows at once."""
    row = _row()
    anabranch.connect(home).create_table("db.t", row.schema).append(row)

    def write(_number: int) -> None:
        table = anabranch.connect(home).table("db.t")
        for _ in range(commits):
            table.append(row)

    with clock.lap(), anabranch.requests() as asked, ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    rows = anabranch.connect(home).table("db.t").scan().count()
    assert rows == 1 + writers * commits, "no row is lost"
    return {"requests": sum(asked.counts.values()) / (writers * commits)}


def _branched(home: str) -> tuple[pa.Table, anabranch.Table]:
    """A row, and a table of it with a branch."""
    row = _row()
    table = anabranch.connect(home).create_table("db.t", row.schema, options={"write-only": "true"})
    table.append(row)
    table.create_tag("base")
    table.create_branch("fix", "base")
    return row, table


def _merge(home: str) -> tuple[float, int]:
    """Merge with cold caches; return processor time and requests."""
    SHARED.limit_to(0)
    SHARED.limit_to(DEFAULT_CAPACITY)
    table = anabranch.connect(home).table("db.t")
    with anabranch.requests() as asked:
        seconds = _processor(lambda: table.merge_branch("fix"))
    return seconds, sum(asked.counts.values())


def _processor(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    operations = (plan, files, limit, wide, merges, merged_often, replacements, writers)
    main({operation.__name__: operation for operation in operations})

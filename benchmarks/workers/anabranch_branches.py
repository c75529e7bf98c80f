"""Anabranch making branches of a large table and merging them, and the calls its store gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch
from anabranch.kernel.log.cache import MetadataCache
from benchmarks.large_table import write_large_table
from benchmarks.workers.counting import CountingStorage
from benchmarks.workers.harness import Clock, main

NAME = "large"
COMMITS = 5
"""Of a branch before it is merged."""


def prepare(clock: Clock, home: str, files: int) -> dict[str, Any]:
    """Write the table, and tag it."""
    with clock.lap():
        write_large_table(Path(home), NAME, files)
        anabranch.connect(home).table(f"db.{NAME}").create_tag("good")
    return {}


def create(clock: Clock, home: str) -> dict[str, Any]:
    """Make one more branch of it."""
    table = anabranch.connect(home).table(f"db.{NAME}")
    store = CountingStorage(table.context.storage)
    cold = anabranch.Table(replace(table.context, storage=store, cache=MetadataCache()))
    name = f"b{len(table.branches())}"
    store.calls.clear()
    with clock.lap():
        cold.create_branch(name, "good")
    assert table.branch(name).snapshot == table.snapshot, "it begins as the tag is"
    return {"calls": store.calls.total()}


def merge(clock: Clock, home: str, files: int) -> dict[str, Any]:
    """Merge a branch with that many new files into main, which has taken in some meanwhile. No data file may be read."""
    table = anabranch.connect(home).table(f"db.{NAME}")
    name = f"b{len(table.branches())}"
    table.create_branch(name, "good")
    branch = table.branch(name).with_options({"write-only": "true"})
    partitions = files // COMMITS
    for commit in range(COMMITS):
        branch.append(_rows(commit, partitions))
    table.with_options({"write-only": "true"}).append(_rows(COMMITS, partitions))
    store = CountingStorage(table.context.storage)
    with clock.lap():
        cold = anabranch.Table(replace(table.context, storage=store, cache=MetadataCache()))
        done = cold.merge_branch(name)
    assert done.files_added == files, "every new file came"
    assert not [path for path in store.paths if path.endswith(".parquet")], "data was read"
    return {"calls": store.calls.total()}


def _rows(number: int, partitions: int) -> pa.Table:
    """One row for each partition."""
    ids = range(number * partitions, (number + 1) * partitions)
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array(range(partitions), pa.int32())})


if __name__ == "__main__":
    main({"prepare": prepare, "create": create, "merge": merge})

"""Anabranch making branches of a large table, and the calls its store gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anabranch
from anabranch.kernel.cache import MetadataCache
from benchmarks.large_table import write_large_table
from benchmarks.workers.anabranch_expiry import CountingStorage
from benchmarks.workers.harness import Clock, main

NAME = "large"


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


if __name__ == "__main__":
    main({"prepare": prepare, "create": create})

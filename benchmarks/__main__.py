"""Run the benchmarks: `python -m benchmarks [--quick] [--only NAME ...]`.

Writes `benchmarks/results/latest.json` and `docs/benchmarks.md`; with `--quick` it makes everything small, runs it
once and prints the tables only, because such numbers mean nothing. With `--page` it runs nothing and writes the page
from the results that are there, after a text was changed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interop.peers import REPOSITORY, SetupError, chosen, setup

from benchmarks import report
from benchmarks.contestants import compile_ours
from benchmarks.registry import BENCHMARKS, Run

TOPICS = (
    "append_scan",
    "data_out",
    "command_line",
    "checksums",
    "planning",
    "commits",
    "costs",
    "far_store",
    "many_partitions",
    "stream_compaction",
    "streams",
    "state",
    "kafka",
    "sorting",
    "expiry",
    "branches",
    "lineage",
    "spark_read",
    "spark_write",
    "tpcds",
)
RESULTS = REPOSITORY / "benchmarks/results/latest.json"
PAGE = REPOSITORY / "docs/benchmarks.md"


def log(message: str) -> None:
    """Say how far it is."""
    print(message, file=sys.stderr, flush=True)


def main() -> int:
    """The command line; 1 when an environment could not be made."""
    register()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Benchmarks beside peers.")
    parser.add_argument("--quick", action="store_true", help="small sizes, once, print only")
    parser.add_argument("--only", action="append", choices=sorted(BENCHMARKS), help="this one (repeatable)")
    parser.add_argument("--page", action="store_true", help="only write the page, from the results there are")
    options = parser.parse_args()
    if options.page:
        return write_page({})
    topics = [BENCHMARKS[name] for name in BENCHMARKS if not options.only or name in options.only]
    needed = {c.peer for topic in topics for c in topic.contestants if c.peer}
    try:
        for peer in chosen(needed) if needed else []:
            setup(peer)
    except SetupError as error:
        log(f"error: {error}")
        return 1
    compile_ours()
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    if busy > cores / 4:
        log(
            f"warning: a load of {busy:.1f} on {cores} cores: somebody else is working, the times will be noisy"
        )
    date = datetime.now(UTC).date().isoformat()
    results = {}
    for topic in topics:
        log(f"{topic.name}: {topic.title}")
        with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
            rows = topic.run(Run(Path(scratch), options.quick, log))
            results[topic.name] = report.result_of(topic, rows, date)
        print(report.section(topic, results[topic.name]), flush=True)
    return 0 if options.quick else write_page(results)


def register() -> None:
    """Import all topics: that puts them into `BENCHMARKS`."""
    for module in TOPICS:
        importlib.import_module(f"benchmarks.{module}")


def write_page(results: Mapping[str, Any]) -> int:
    """Put new results beside those there are, and write the page from all of them."""
    PAGE.write_text(report.page(report.merge(RESULTS, results)))
    log(f"wrote {PAGE.relative_to(REPOSITORY)} and {RESULTS.relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

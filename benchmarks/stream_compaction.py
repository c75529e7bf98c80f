"""A stream that is compacted while it writes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from interop.peers import REPOSITORY

from benchmarks.contestants import Contestant, Lap
from benchmarks.plot import Panel, write_plot
from benchmarks.registry import Measure, Row, Run, Verdict, benchmark

PACKAGES = ("anabranch", "pyspark", "pyarrow")
COMPACTING = Contestant("compacting", "benchmarks.workers.anabranch_stream", PACKAGES)
WRITE_ONLY = Contestant("write-only", "benchmarks.workers.anabranch_stream", PACKAGES)
FILES = 20
WARM_UP = 10
"""First batches, which load code, do not count."""
LIVE_COMMITS = 10
"""What may be live in the second half of the stream, in files of so many commits."""
PLOT = REPOSITORY / "docs/assets/stream-compaction.svg"


@benchmark("stream-compaction", "Compaction beside a stream", COMPACTING, WRITE_ONLY)
def stream_compaction(run: Run) -> list[Row]:
    """A Spark stream commits 20 files every second into one table, on two cores that it shares with Spark itself.
    With `write-only` nothing else happens, and the files pile up; otherwise the same process compacts them beside
    the stream. The times are those of micro-batches, at the 95th percentile. Every row is there once.

    ![Live files and micro-batches over time](assets/stream-compaction.svg)"""
    commits = {COMPACTING: run.size(300, 30), WRITE_ONLY: run.size(90, 30)}
    laps: dict[str, Lap] = {}
    for contestant, count in reversed(commits.items()):
        run.log(f"  {count} commits of {FILES} files: {contestant.name}")
        home = str(run.scratch / "stream" / contestant.name)
        is_write_only = contestant is WRITE_ONLY
        lap = run.laps(contestant, "stream", home=home, commits=count, files=FILES, write_only=is_write_only)
        if not lap.facts["every_row_once"]:
            raise AssertionError(f"{contestant.name}: rows are missing or there twice")
        laps[contestant.name] = lap
    if not run.quick:
        write_plot(PLOT, _panels(laps))
    batches = {name: _slowest(lap.seconds[WARM_UP:]) for name, lap in laps.items()}
    slower = batches[COMPACTING.name].seconds / batches[WRITE_ONLY.name].seconds
    files = [count for _, count in laps[COMPACTING.name].facts["live_files"]]
    tail = files[len(files) // 2 :]
    return [
        Row(
            f"micro-batch of {FILES} files, 95th percentile of {commits[COMPACTING]} (write-only: of {commits[WRITE_ONLY]})",
            batches,
            [Verdict("at most 1.5 x write-only", slower, 1.5)],
        ),
        Row(
            f"live files after {commits[COMPACTING] * FILES:,} were written",
            {},
            [Verdict(f"at most those of {LIVE_COMMITS} commits", max(tail), LIVE_COMMITS * FILES, "files")],
            f"at the end {files[-1]}",
        ),
    ]


def _slowest(seconds: Sequence[float]) -> Measure:
    """The 95th percentile."""
    return Measure(statistics.quantiles(seconds, n=20)[-1], tuple(seconds))


def _panels(laps: dict[str, Lap]) -> list[Panel]:
    live = {name: [(t, float(n)) for t, n in lap.facts["live_files"]] for name, lap in laps.items()}
    batches = {
        name: [(float(i), s) for i, s in enumerate(lap.seconds) if i >= WARM_UP] for name, lap in laps.items()
    }
    return [
        Panel("Live files", "seconds", live),
        Panel("Seconds of a micro-batch", "commits", batches),
    ]

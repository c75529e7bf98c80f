"""Many small commits."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from benchmarks.contestants import ANABRANCH, DELTA, ICEBERG, PYPAIMON, RUST, Contestant, Lap
from benchmarks.input_data import write_parts
from benchmarks.registry import Measure, Row, Run, Verdict, benchmark, ratio_to

CONTESTANTS = (ANABRANCH, PYPAIMON, RUST, DELTA, ICEBERG)
ROWS = 1_000
WINDOW = 50


@benchmark("commits", "Small commits", *CONTESTANTS)
def commits(run: Run) -> list[Row]:
    """Appends of 1,000 rows, one after the other, through one table handle; the median commit of the first
    and of the last fifty, and the mean of all, in which the occasional merging of manifests counts. The peers slow
    down with the length of the history and therefore make fewer commits; the rows say how many each made.

    Anabranch syncs every file and folder of a commit to disk before it acknowledges it; pypaimon never syncs, which
    is what it is faster by at first."""
    ours, theirs = run.size(10_000, 300), run.size(200, 100)
    part = write_parts(run.scratch / "commits-input", 1, ROWS)[0]
    laps: dict[str, Lap] = {}
    for contestant in CONTESTANTS:
        count = ours if contestant is ANABRANCH else theirs
        run.log(f"  {count:,} commits: {contestant.name}")
        laps[contestant.name] = _commit(run, contestant, part, count)
    first = {name: _median(lap, slice(0, WINDOW)) for name, lap in laps.items()}
    last = {name: _median(lap, slice(-WINDOW, None)) for name, lap in laps.items()}
    mean = {name: _mean(lap) for name, lap in laps.items()}
    slower = last[ANABRANCH.name].seconds / first[ANABRANCH.name].seconds
    return [
        Row(
            f"commit {ROWS:,} rows, the first {WINDOW}",
            first,
            [ratio_to(first, ANABRANCH.name, [PYPAIMON.name], 1.0)],
        ),
        Row(
            f"commit {ROWS:,} rows, the last {WINDOW} of {ours:,} (peers: of {theirs:,})",
            last,
            [Verdict(f"at most 1.3 x the first {WINDOW}", slower, 1.3)],
        ),
        Row(f"commit {ROWS:,} rows, the mean of {ours:,} (peers: of {theirs:,})", mean),
    ]


def _commit(run: Run, contestant: Contestant, part: str, count: int) -> Lap:
    home = str(run.scratch / "commits" / contestant.module.rpartition(".")[2])
    lap = run.laps(contestant, "commits", home=home, part=part, count=count, rows=ROWS)
    _check(contestant, lap.facts, count)
    return lap


def _check(contestant: Contestant, facts: Mapping[str, int], count: int) -> None:
    if facts["rows"] != count * ROWS:
        raise AssertionError(f"{contestant.name} holds {facts['rows']} rows after {count} commits of {ROWS}")


def _median(lap: Lap, window: slice) -> Measure:
    runs = tuple(lap.seconds[window])
    return Measure(statistics.median(runs), runs, lap.peak_bytes)


def _mean(lap: Lap) -> Measure:
    return Measure(statistics.fmean(lap.seconds), (), lap.peak_bytes)

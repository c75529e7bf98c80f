"""Works on an object store whose requests take their time."""

from __future__ import annotations

from benchmarks.contestants import Contestant
from benchmarks.registry import Measure, Row, Run, Verdict, benchmark

FAR = Contestant("Anabranch on S3, 30 ms", "benchmarks.workers.far_store", ("anabranch", "obstore"))
MILLIS = 30
TARGETS = {
    "open and first plan": 0.35,
    "append again": 0.2,
    "all snapshots": 0.5,
    "first rows of a backlog": 3.0,
    **dict.fromkeys(("merge", "replace main", "undo the replacement", "expire"), 2.0),
}
"""Seconds, by work."""


@benchmark("far_store", "An object store 30 ms away", FAR)
def far_store(run: Run) -> list[Row]:
    """Single works on an S3 server behind a proxy that lets each request wait 30 ms, with cold caches unless it says "again".
    Beside each are the requests that it makes, and how many of them came one after the other; the other seconds are work of the
    machine, on which the server and the proxy run too. The table has a history of small appends, a branch from the middle of it, and others beside it that lineage looks at."""
    snapshots, tables = run.size(400, 40), run.size(50, 5)
    lap = run.laps(
        FAR, "works", home=str(run.scratch / "far"), millis=MILLIS, snapshots=snapshots, tables=tables
    )
    return [
        Row(
            work,
            {FAR.name: Measure(seconds, (seconds,))},
            [Verdict(f"at most {TARGETS[work]} s", seconds, TARGETS[work], "s")] if work in TARGETS else [],
            f"{lap.facts['requests'][work]:,} requests, {lap.facts['depth'][work]} after each other; {snapshots:,} snapshots",
        )
        for work, seconds in lap.facts["seconds"].items()
    ]

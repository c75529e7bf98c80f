"""Figures of the page of costs: memory of large plans, wide rows, requests of merges and of many writers."""

from __future__ import annotations

from benchmarks.contestants import Contestant
from benchmarks.large_table import write_large_table
from benchmarks.registry import Measure, Row, Run, Verdict, benchmark

COSTS = Contestant("Anabranch", "benchmarks.workers.costs", ("anabranch", "pyarrow", "polars"))
WRITERS = 16
NEIGHBOURS = 32
"""Number of merges in a row of which the least counts."""


@benchmark("costs", "What single works cost", COSTS)
def costs(run: Run) -> list[Row]:
    """Memory of the whole process, the processor time of single works on a local disk, and the requests that they make. The
    least of several turns counts where the work is short, since other work on the machine only adds to it. The many files are
    manifests only; a branch that is merged has as many commits as main since the fork."""
    rows = [*_many_files(run), _wide_row(run), *_merges(run), _merged_often(run)]
    return [*rows, _replacements(run), _writers(run)]


def _many_files(run: Run) -> list[Row]:
    files = run.size(1_000_000, 20_000)
    home = run.scratch / "costs-large"
    run.log(f"  writing manifests of {files:,} files")
    write_large_table(home, "large", files)
    works = {
        "plan": (f"plan {files:,} files, and go through them", 500),
        "files": (f"`$files` of {files:,} files, in batches", 500),
        "limit": (f"plan 10 rows of {files:,} files", None),
    }
    rows = []
    for operation, (work, most) in works.items():
        run.log(f"  {work}")
        lap = run.laps(COSTS, operation, home=str(home))
        peak = lap.facts["peak"] / 1e6
        verdicts = [Verdict(f"at most {most} MB", peak, most, "MB")] if most else []
        rows.append(_row(work, lap.seconds[0], verdicts, f"{peak:,.0f} MB at most, all of the process"))
    return rows


def _wide_row(run: Run) -> Row:
    columns = run.size(2_000, 200)
    lap = run.laps(COSTS, "wide", home=str(run.scratch / "costs-wide"), columns=columns)
    seconds = lap.facts["processor"]
    return _row(
        f"append a row of {columns:,} columns", seconds, [Verdict("at most 0.15 s", seconds, 0.15, "s")]
    )


def _merges(run: Run) -> list[Row]:
    many, few = run.size(1_000, 30), 10
    found = {}
    for commits in (many, few):
        run.log(f"  merge after {commits:,} commits of both sides")
        home = str(run.scratch / f"costs-merge-{commits}")
        found[commits] = run.laps(COSTS, "merges", home=home, commits=commits).facts
    rows = []
    for commits, facts in found.items():
        for at, work in enumerate(("merge after", "merge one commit more after")):
            note = f"{facts['requests'][at]:,} requests"
            rows.append(_row(f"{work} {commits:,} commits of both sides", facts["processor"][at], (), note))
    again = Verdict(
        f"processor time, 1.5 x that after {few}",
        found[many]["processor"][1] / found[few]["processor"][1],
        1.5,
    )
    rows[1] = _row(rows[1].work, rows[1].measures[COSTS.name].seconds, [again], rows[1].note)
    return rows


def _merged_often(run: Run) -> Row:
    count = run.size(1_000, 80)
    run.log(f"  {count:,} merges of a branch")
    facts = run.laps(COSTS, "merged_often", home=str(run.scratch / "costs-merged"), count=count).facts
    # What merges leave for later ones is written now and then: so each is compared with its neighbours.
    first, last = slice(10, 10 + NEIGHBOURS), slice(count - NEIGHBOURS, count)
    begun, ended = (min(facts["processor"][some]) for some in (first, last))
    asked = [max(facts["requests"][some]) for some in (first, last)]
    verdicts = [Verdict("processor time, 1.5 x that of number 10", ended / begun, 1.5)]
    note = f"{asked[1]} requests at most; number 10 took {begun:.3f} s and {asked[0]} requests at most"
    return _row(f"merge of a branch number {count:,}, one commit each", ended, verdicts, note)


def _replacements(run: Run) -> Row:
    count = run.size(100, 10)
    run.log(f"  {count} replacements of main")
    facts = run.laps(COSTS, "replacements", home=str(run.scratch / "costs-replacements"), count=count).facts
    requests, seconds = facts["requests"], facts["seconds"]
    most = Verdict("requests, 1.2 x those of the first", max(requests) / requests[0], 1.2)
    note = f"{requests[0]} requests for the first, {max(requests)} at most; the first took {seconds[0]:.3f} s"
    return _row(f"replacement of main number {count}, none let go", seconds[-1], [most], note)


def _writers(run: Run) -> Row:
    commits = run.size(20, 3)
    home = str(run.scratch / "costs-writers")
    lap = run.laps(COSTS, "writers", home=home, writers=WRITERS, commits=commits)
    note = f"{lap.facts['requests']:.0f} requests a commit"
    return _row(f"{WRITERS} writers at once, {commits} commits each", lap.seconds[0], (), note)


def _row(work: str, seconds: float, verdicts: list[Verdict] | tuple[()] = (), note: str = "") -> Row:
    return Row(work, {COSTS.name: Measure(seconds, (seconds,))}, verdicts, note)

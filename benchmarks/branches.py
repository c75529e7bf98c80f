"""Making a branch of a large table, and merging it."""

from __future__ import annotations

import shutil
from dataclasses import replace

from benchmarks.contestants import Contestant
from benchmarks.registry import Row, Run, Verdict, benchmark, within

BRANCHES = Contestant("Anabranch", "benchmarks.workers.anabranch_branches", ("anabranch",))


@benchmark("branches", "Create a branch, and merge it", BRANCHES)
def branches(run: Run) -> list[Row]:
    """A branch is created from a tag, with cold caches. Every file of it is synced to disk. It takes as many calls of
    the store for a table of a hundredth of the files. Then a branch with new files in 200 partitions is merged into
    main, to which rows were appended meanwhile; no data file is read."""
    large, small = run.size(200_000, 2_000), run.size(2_000, 200)
    home = run.scratch / "branches-large"
    created, calls = _create(run, str(home), large)
    merged = _merge(run, str(home), large)
    shutil.rmtree(home)
    beside, calls_of_small = _create(run, str(run.scratch / "branches-small"), small)
    verdicts = [
        within(created.measures, BRANCHES.name, 0.02),
        Verdict("as many calls as for the small table", calls / calls_of_small, 1.0),
    ]
    return [replace(created, verdicts=verdicts), beside, merged]


def _create(run: Run, home: str, files: int) -> tuple[Row, int]:
    """The row, and how many calls of the store it takes."""
    run.laps(BRANCHES, "prepare", home=home, files=files)
    work = f"create a branch of a table of {files:,} files"
    found = run.measure(work, "create", {BRANCHES: {"home": home}})
    calls = run.laps(BRANCHES, "create", home=home).facts["calls"]
    return Row(work, found, note=f"{calls} calls of the store"), calls


def _merge(run: Run, home: str, files: int) -> Row:
    new = run.size(1_000, 50)
    work = f"merge {new:,} new files into a main of {files:,}"
    found = run.measure(work, "merge", {BRANCHES: {"home": home, "files": new}})
    return Row(work, found, [within(found, BRANCHES.name, 1)])

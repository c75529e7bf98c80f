"""Making a branch of a large table, and merging it."""

from __future__ import annotations

import shutil

from benchmarks.contestants import Contestant
from benchmarks.registry import Row, Run, Verdict, benchmark, within

BRANCHES = Contestant("Anabranch", "benchmarks.workers.anabranch_branches", ("anabranch",))


@benchmark("branches", "Create a branch, and merge it", BRANCHES)
def branches(run: Run) -> list[Row]:
    """A branch is created from a tag, in a process that has not opened the table before. Every file of it is synced to
    disk. It is the same work for a table of a hundredth of the files. Then a branch with new files in 200 partitions is
    merged into main, to which rows were appended meanwhile; no data file is read."""
    rows: list[Row] = []
    merges: list[Row] = []
    for files in (run.size(200_000, 2_000), run.size(2_000, 200)):
        home = run.scratch / f"branches-{files}"
        run.laps(BRANCHES, "prepare", home=str(home), files=files)
        work = f"create a branch of a table of {files:,} files"
        found = run.measure(work, "create", {BRANCHES: {"home": str(home)}})
        facts = run.laps(BRANCHES, "create", home=str(home)).facts
        rows.append(Row(work, found, note=f"{facts['calls']} calls of the store"))
        if not merges:
            merges.append(_merge(run, str(home), files))
        shutil.rmtree(home)
    large, small = (row.measures for row in rows)
    same = large[BRANCHES.name].seconds / small[BRANCHES.name].seconds
    verdicts = [within(large, BRANCHES.name, 0.02), Verdict("1.2 x that of the small table", same, 1.2)]
    rows[0] = Row(rows[0].work, large, verdicts, rows[0].note)
    return [*rows, *merges]


def _merge(run: Run, home: str, files: int) -> Row:
    new = run.size(1_000, 50)
    work = f"merge {new:,} new files into a main of {files:,}"
    found = run.measure(work, "merge", {BRANCHES: {"home": home, "files": new}})
    return Row(work, found, [within(found, BRANCHES.name, 1)])

"""Making a branch of a large table."""

from __future__ import annotations

import shutil

from benchmarks.contestants import Contestant
from benchmarks.registry import Row, Run, Verdict, benchmark, within

BRANCHES = Contestant("Anabranch", "benchmarks.workers.anabranch_branches", ("anabranch",))


@benchmark("branches", "Create a branch", BRANCHES)
def branches(run: Run) -> list[Row]:
    """A branch is created from a tag, in a process that has not opened the table before. Every file of it is synced to
    disk. It is the same work for a table of a hundredth of the files."""
    rows = []
    for files in (run.size(200_000, 2_000), run.size(2_000, 200)):
        home = run.scratch / f"branches-{files}"
        run.laps(BRANCHES, "prepare", home=str(home), files=files)
        work = f"create a branch of a table of {files:,} files"
        found = run.measure(work, "create", {BRANCHES: {"home": str(home)}})
        facts = run.laps(BRANCHES, "create", home=str(home)).facts
        rows.append(Row(work, found, note=f"{facts['calls']} calls of the store"))
        shutil.rmtree(home)
    large, small = (row.measures for row in rows)
    same = large[BRANCHES.name].seconds / small[BRANCHES.name].seconds
    verdicts = [within(large, BRANCHES.name, 0.02), Verdict("1.2 x that of the small table", same, 1.2)]
    rows[0] = Row(rows[0].work, large, verdicts, rows[0].note)
    return rows

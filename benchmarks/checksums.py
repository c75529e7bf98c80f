"""What checksums of pages cost."""

from __future__ import annotations

from benchmarks.contestants import Contestant
from benchmarks.input_data import write_parts
from benchmarks.registry import Measure, Row, Run, benchmark, ratio_to

CHECKED, BARE = (
    Contestant(name, "benchmarks.workers.checksums", ("anabranch", "pyarrow"))
    for name in ("with checksums", "without")
)


@benchmark("checksums", "Checksums of pages", CHECKED, BARE)
def checksums(run: Run) -> list[Row]:
    """The same rows written in one commit and read back into an Arrow table, with checksums of pages, as is the default, and with
    `file.checksum=false`. The footer's checksum is there in both. One process does both in turns, since what differs is less than
    what two processes, or two minutes, differ by; the least of all turns counts, in processor time and elapsed."""
    count = run.size(1_000_000, 100_000)
    (part,) = write_parts(run.scratch / "input", 1, count)
    turns = run.size(24, 2)
    run.log(f"  {turns} turns of each")
    facts = run.laps(CHECKED, "turns", home=str(run.scratch / "checksums"), part=part, count=turns).facts
    rows = []
    for work in ("append", "scan"):
        for at, kind in enumerate(("processor time", "elapsed")):
            seconds = {CHECKED.name: facts[work]["true"][at], BARE.name: facts[work]["false"][at]}
            found = {name: Measure(took, (took,)) for name, took in seconds.items()}
            verdicts = [ratio_to(found, CHECKED.name, (BARE.name,), 1.05)]
            rows.append(Row(f"{work} {count:,} rows x 8 columns, {kind}", found, verdicts))
    return rows

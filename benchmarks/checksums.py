"""What checksums of pages cost."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.contestants import ANABRANCH
from benchmarks.input_data import write_parts
from benchmarks.registry import Row, Run, benchmark, ratio_to

CHECKED = replace(ANABRANCH, name="with checksums")
BARE = replace(ANABRANCH, name="without")
PARTS = 2


@benchmark("checksums", "Checksums of pages", CHECKED, BARE)
def checksums(run: Run) -> list[Row]:
    """The same rows written and read with checksums of pages, as is the default, and with `file.checksum=false`. Each
    part is one commit; then the table is read back into one Arrow table. The footer's checksum is there in both.

    The machine was busy with other work when this was measured, more than the difference is: the times of the table say
    little. In processor time, the least of six turns, a million such rows took 0.22 s to write with checksums and
    0.21 s without, and 0.11 s to read with them and 0.10 s without."""
    count = run.size(1_000_000, 100_000)
    parts = write_parts(run.scratch / "input", PARTS, count)
    given = {
        c: {"home": str(run.scratch / "checksums" / flag), "parts": parts, "options": {"file.checksum": flag}}
        for c, flag in ((CHECKED, "true"), (BARE, "false"))
    }
    work = f"append {PARTS} x {count:,} rows x 8 columns"
    results = [(work, run.measure(work, "append", given, fresh=True))]
    work = f"scan {PARTS * count:,} rows"
    results.append(
        (work, run.measure(work, "scan", {c: {"home": what["home"]} for c, what in given.items()}))
    )
    return [Row(work, found, [ratio_to(found, CHECKED.name, (BARE.name,), 1.05)]) for work, found in results]

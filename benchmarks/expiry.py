"""Expiring a long history."""

from __future__ import annotations

import shutil

from benchmarks.contestants import Contestant, Lap
from benchmarks.registry import Row, Run, Verdict, benchmark, median

EXPIRY = Contestant("Anabranch", "benchmarks.workers.anabranch_expiry", ("anabranch", "polars"))


@benchmark("expiry", "Expire snapshots", EXPIRY)
def expiry(run: Run) -> list[Row]:
    """Snapshots that each replaced two files of the one before expire at once, ten stay, with cold caches. What it
    costs is linear in what is removed: four times as many snapshots take four times as many calls of the store, and ten
    times as many live files next to no more. No peer keeps what branches, tags and savepoints reach as well, so
    none is beside it."""
    most, few = run.size(1_000, 120), run.size(250, 30)
    files = run.size(100_000, 10_000)
    long, short = _laps(run, files, most), _laps(run, files, few)
    small = _laps(run, files // 10, most)
    rows = []
    for laps, snapshots, live in ((long, most, files), (short, few, files), (small, most, files // 10)):
        facts = laps[-1].facts
        note = f"{facts['removed']:,} files removed with {facts['calls']:,} calls of the store"
        rows.append(
            Row(f"expire {snapshots:,} snapshots over {live:,} files", {EXPIRY.name: median(laps)}, note=note)
        )
    verdicts = [
        Verdict(
            "calls for each snapshot, 1.1 x those of a history a quarter as long", _each(long, short), 1.1
        ),
        Verdict("calls, 1.1 x those of a table with a tenth of the files", _calls(long) / _calls(small), 1.1),
        Verdict(
            "time for each snapshot, 1.2 x that of a history a quarter as long",
            (_seconds(long) / most) / (_seconds(short) / few),
            1.2,
        ),
    ]
    rows[0] = Row(rows[0].work, rows[0].measures, verdicts, rows[0].note)
    return rows


def _laps(run: Run, files: int, snapshots: int) -> list[Lap]:
    laps = []
    for number in range(min(run.repetitions, 3)):
        home = run.scratch / f"expiry-{files}-{snapshots}"
        run.log(f"  {snapshots:,} snapshots over {files:,} files ({number + 1})")
        laps.append(run.laps(EXPIRY, "expire", home=str(home), files=files, snapshots=snapshots))
        shutil.rmtree(home)
    return laps


def _calls(laps: list[Lap]) -> float:
    return float(laps[-1].facts["calls"])


def _each(longer: list[Lap], shorter: list[Lap]) -> float:
    """How much more one snapshot costs in the longer history."""
    return (_calls(longer) / longer[-1].facts["snapshots"]) / (
        _calls(shorter) / shorter[-1].facts["snapshots"]
    )


def _seconds(laps: list[Lap]) -> float:
    return median(laps).seconds

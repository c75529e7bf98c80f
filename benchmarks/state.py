"""What it costs to keep the state of a job for a tag, and to begin a corrected job with it."""

from __future__ import annotations

from benchmarks.contestants import Contestant, Lap
from benchmarks.registry import Row, Run, Verdict, benchmark, median

PACKAGES = ("anabranch", "pyspark", "pyarrow")
WORKER = "benchmarks.workers.anabranch_state"
CARRIED = Contestant("carried", WORKER, PACKAGES)
REBUILT = Contestant("rebuilt", WORKER, PACKAGES)
ROUNDS = 3


@benchmark("state", "State of jobs at a tag", CARRIED, REBUILT)
def state(run: Run) -> list[Row]:
    """A job that removes duplicates has ten million keys of 96 bytes, which do not compress, in its state (RocksDB, two
    partitions, on a local disk). Its table is tagged; the job's next start puts the state of the tag aside. Then the
    corrected job begins at the tag on a branch, takes in the 20 rows that came since, and ends: with the state copied
    (`carried`), and with the sources read again (`rebuilt`)."""
    keys = run.size(10_000_000, 100_000)
    home = str(run.scratch / "state")
    run.log(f"  {keys:,} keys are taken in")
    prepared = run.laps(CARRIED, "prepare", home=home, keys=keys)
    laps: dict[str, list[Lap]] = {CARRIED.name: [], REBUILT.name: []}
    for number in range(1 if run.quick else ROUNDS):
        for contestant in (CARRIED, REBUILT):
            run.log(f"  begin at the tag: {contestant.name} ({number + 1})")
            lap = run.laps(
                contestant, "begin", home=home, way=contestant.name, branch=f"{contestant.name}{number}"
            )
            if lap.facts["rows"] != keys + 10:
                raise AssertionError(f"{contestant.name}: {lap.facts['rows']} rows, not {keys + 10}")
            laps[contestant.name].append(lap)
    found = {name: median(every) for name, every in laps.items()}
    size = prepared.facts["kept_bytes"]
    kept = f"{size / 2**30:.2f} GiB in {prepared.facts['kept_files']} files, linked"
    share = found[CARRIED.name].seconds / found[REBUILT.name].seconds
    return [
        Row(
            "run of the job that puts the state of a tag aside", {CARRIED.name: median([prepared])}, (), kept
        ),
        Row(
            "corrected job, begun at the tag",
            found,
            [Verdict("carried at most as long as rebuilt", share, 1.0)],
        ),
    ]

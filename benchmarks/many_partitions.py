"""Many partitions in one write: memory and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.contestants import ANABRANCH, DELTA, PYPAIMON, Contestant, Lap
from benchmarks.input_data import ROWS_SEED, rows
from benchmarks.registry import Measure, Row, Run, Verdict, benchmark, median

CONTESTANTS = (ANABRANCH, PYPAIMON, DELTA)
BATCH = 20_000
BUFFER_MB = 256
ALLOWED_MB = BUFFER_MB + 256


@benchmark("many-partitions", "Write many partitions at once", *CONTESTANTS)
def many_partitions(run: Run) -> list[Row]:
    """One commit of rows that come in batches, in which all partitions are mixed, as one task of a stream would
    write them. Memory is what the process takes above its level before the write; Anabranch may hold 256 MB of rows
    (`write-buffer-size`) and puts the others aside on disk, compressed. The note says how many files were made.

    pypaimon and delta-rs write with their defaults, from the same stream of batches; pyiceberg takes whole tables in
    memory only and does not take part."""
    count, partitions = run.size(5_000_000, 200_000), run.size(2_000, 100)
    part = _write_input(run.scratch / "partitions", count, partitions)
    work = f"write {count:,} rows into {partitions:,} partitions"
    laps: dict[Contestant, list[Lap]] = {contestant: [] for contestant in CONTESTANTS}
    for number in range(1 if run.quick else 3):
        for contestant, found in laps.items():
            run.log(f"  {work}: {contestant.name} ({number + 1})")
            home = str(run.scratch / "many" / f"{contestant.module.rpartition('.')[2]}-{number}")
            lap = run.laps(contestant, "partitions", home=home, part=part, buffer=f"{BUFFER_MB} MB")
            if lap.facts["rows"] != count:
                raise AssertionError(f"{contestant.name} holds {lap.facts['rows']} rows of {count}")
            found.append(lap)
    measures: dict[str, Measure] = {contestant.name: median(found) for contestant, found in laps.items()}
    files = {contestant.name: found[-1].facts["files"] for contestant, found in laps.items()}
    worst = max(lap.peak_bytes for lap in laps[ANABRANCH]) / (1 << 20)
    verdicts = [
        Verdict(f"at most {ALLOWED_MB} MiB", worst, ALLOWED_MB, "MiB"),
        Verdict("one file for each partition", files[ANABRANCH.name] / partitions, 1, "files"),
    ]
    note = "files: " + ", ".join(f"{name} {number:,}" for name, number in files.items())
    return [Row(work, measures, verdicts, note)]


def _write_input(folder: Path, count: int, partitions: int) -> str:
    """An Arrow file of small batches; every batch has rows of very many partitions."""
    folder.mkdir(parents=True)
    path = folder / "rows.arrow"
    random = np.random.default_rng([ROWS_SEED, partitions])
    schema = _with_partition(rows(0, 1), random, partitions).schema
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for start in range(0, count, BATCH):
            writer.write_table(
                _with_partition(rows(start, min(BATCH, count - start)), random, partitions),
                max_chunksize=BATCH,
            )
    return str(path)


def _with_partition(table: pa.Table, random: np.random.Generator, partitions: int) -> pa.Table:
    return table.append_column("p", pa.array(random.integers(0, partitions, len(table)).astype(np.int32)))

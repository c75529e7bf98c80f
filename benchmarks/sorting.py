"""Compaction: of small files, and with rows sorted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.contestants import DELTA, PARQUET, Contestant, Lap
from benchmarks.input_data import ROWS_SEED, write_parts
from benchmarks.registry import Row, Run, Verdict, benchmark, median

ANABRANCH = Contestant("Anabranch", "benchmarks.workers.anabranch_sort", ("anabranch", "pyarrow", "polars"))
RANGE = 2**62
SHARE = 0.01
QUERIES = 50


@benchmark("compaction", "Compaction of small files", ANABRANCH, PARQUET)
def compaction(run: Run) -> list[Row]:
    """All small files of a table become one, once with `compact` and its commit, once as a plain rewrite of the same
    files with pyarrow: read them, put them together, write one file with the same compression."""
    files, count = run.size(400, 40), run.size(5_000, 2_000)
    part = write_parts(run.scratch / "compaction-input", 1, files * count)[0]
    source = str(run.scratch / "small")
    run.laps(ANABRANCH, "small_files", home=source, part=part, files=files)
    work = f"compact {files} files of {count:,} rows x 8 columns"
    homes = {c: str(run.scratch / "compact" / c.module.rpartition(".")[2]) for c in (ANABRANCH, PARQUET)}
    arguments = {c: {"home": home, "source": source} for c, home in homes.items()}
    found = run.measure(work, "compact", arguments, fresh=True)
    speed = found[PARQUET.name].seconds / found[ANABRANCH.name].seconds
    verdict = Verdict("at least 0.9 x the speed of a plain rewrite", 1 / speed, 1 / 0.9, "x its time")
    return [Row(work, found, [verdict])]


@benchmark("sort-compaction", "Sort compaction", ANABRANCH, DELTA)
def sort_compaction(run: Run) -> list[Row]:
    """Rows with two columns of random numbers, appended in any order, are sorted by both. Then queries are planned,
    each for a hundredth of the values: of one column, of the other, and of both at once, at fifty random places. The
    notes say which share of the files they have to read on average. Of a single column no curve can do better than
    one over the root of the number of files, so with few files the target is for both columns at once, at the worst
    place; with thousands it is for either column alone, on average.

    delta-rs is beside it with its Z-order of the same rows and the same target size; which files it would have to
    read is what its own statistics say."""
    parts = _write_parts(run)
    places = np.random.default_rng([ROWS_SEED, 2]).integers(0, int(RANGE * (1 - SHARE)), QUERIES)
    queries = [[int(place), int(RANGE * SHARE)] for place in places]
    megabyte, little = run.size(1 << 20, 1 << 17), run.size(48 << 10, 16 << 10)
    rows = []
    for strategy, target, contestants in (
        ("zorder", megabyte, (ANABRANCH, DELTA)),
        ("hilbert", megabyte, (ANABRANCH,)),
        ("zorder", little, (ANABRANCH,)),
    ):
        laps = {}
        for contestant in contestants:
            run.log(f"  {strategy}, files of {target >> 10} KiB: {contestant.name}")
            name = f"{strategy}-{target}-{contestant.module.rpartition('.')[2]}"
            laps[contestant.name] = run.laps(
                contestant,
                "sort",
                home=str(run.scratch / name),
                parts=parts,
                by=["a", "b"],
                strategy=strategy,
                target=str(target),
                queries=queries,
            )
        run.log(laps[ANABRANCH.name].facts["report"])
        work = f"sort {len(parts) * _rows_of_part(run):,} rows by 2 columns, {strategy}, files of {target >> 10} KiB"
        measures = {name: median([lap]) for name, lap in laps.items()}
        note = "; ".join(f"{name}: {_note(lap)}" for name, lap in laps.items())
        rows.append(Row(work, measures, [_verdict(laps[ANABRANCH.name], little=target == little)], note))
    return rows


def _verdict(lap: Lap, *, little: bool) -> Verdict:
    a, b, both = lap.facts["shares"]
    if little:
        found = max(a["mean"], b["mean"])
        return Verdict("queries on 1% of one column read at most 5% of the files", 100 * found, 5, "%")
    return Verdict("queries on 1% of both columns read at most 5% of the files", 100 * both["most"], 5, "%")


def _note(lap: Lap) -> str:
    a, b, both = (100 * kind["mean"] for kind in lap.facts["shares"])
    files = lap.facts["files"]
    return f"{files} files; reads {a:.1f}% for one column, {b:.1f}% for the other, {both:.2f}% for both"


def _rows_of_part(run: Run) -> int:
    return run.size(1_000_000, 100_000)


def _write_parts(run: Run) -> list[str]:
    """Arrow files of rows whose two numbers have nothing to do with where they are."""
    folder = run.scratch / "sort-input"
    folder.mkdir()
    return [_write_part(folder / f"{number}.arrow", number, _rows_of_part(run)) for number in range(10)]


def _write_part(path: Path, number: int, count: int) -> str:
    random = np.random.default_rng([ROWS_SEED, 3, number])
    table = pa.table(
        {
            "id": np.arange(number * count, (number + 1) * count),
            "a": random.integers(0, RANGE, count),
            "b": random.integers(0, RANGE, count),
            "payload": pa.array([f"payload-{n:08x}" for n in random.integers(0, 2**32, count)]),
        }
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return str(path)

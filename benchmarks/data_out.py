"""Rows to Polars, DuckDB and pandas, and questions that need few files or none."""

from __future__ import annotations

from benchmarks.contestants import ANABRANCH, DELTA, ICEBERG, PYPAIMON
from benchmarks.input_data import write_parts
from benchmarks.large_table import FILES_PER_PARTITION, write_large_table
from benchmarks.registry import Row, Run, benchmark, ratio_to, within

CONTESTANTS = (ANABRANCH, PYPAIMON, DELTA, ICEBERG)
PEERS = tuple(c.name for c in CONTESTANTS if c is not ANABRANCH)
PARTS = 6


@benchmark("data-out", "Rows to Polars, DuckDB and pandas", *CONTESTANTS)
def data_out(run: Run) -> list[Row]:
    """Each client gives the table to a library by the shortest call that it documents. For DuckDB the work is a query with a
    group by, so that it reads what it needs in its own way. All have the same versions of the three
    libraries, but pypaimon, which needs an older Polars. Anabranch checks the checksum of every page before Polars decodes it,
    which takes about 40 ms of the first row; no other does.

    In the last rows a table of very many files has one partition whose files exist; all others are named by its manifests only,
    so a query that opened one of them would fail. The queries are lazy: a filter on the frame, or in SQL."""
    count = run.size(1_000_000, 100_000)
    parts = write_parts(run.scratch / "input", PARTS, count)
    homes = {c: str(run.scratch / "data-out" / c.module.rpartition(".")[2]) for c in CONTESTANTS}
    for contestant, home in homes.items():
        run.laps(contestant, "append", home=home, parts=parts)
    rows = []
    for form in ("polars", "pandas", "duckdb"):
        given = {c: {"home": home, "form": form} for c, home in homes.items()}
        work = f"{PARTS * count:,} rows {'grouped by DuckDB' if form == 'duckdb' else f'to {form}'}"
        found = run.measure(work, "form", given)
        rows.append(Row(work, found, [ratio_to(found, ANABRANCH.name, PEERS, 1.0)]))
    ours = {ANABRANCH: {"home": homes[ANABRANCH]}}
    counted = run.measure("count these rows", "count", ours)
    rows.append(Row("count these rows", counted, [within(counted, ANABRANCH.name, 0.5)]))
    return [*rows, *_many_files(run, parts[0])]


def _many_files(run: Run, part: str) -> list[Row]:
    files = run.size(200_000, 20_000)
    home = run.scratch / "data-out-many"
    run.log(f"  writing manifests of {files:,} files")
    write_large_table(home, "t", files)
    last = files // FILES_PER_PARTITION
    run.laps(ANABRANCH, "append_partition", home=str(home), part=part, p=last)
    rows = []
    for form in ("polars", "duckdb"):
        work = f"one partition of {files:,} files, lazily by {form}"
        found = run.measure(work, "lazily", {ANABRANCH: {"home": str(home), "form": form, "p": last}})
        rows.append(Row(work, found, [within(found, ANABRANCH.name, 0.5)]))
    work = f"count the rows of {files:,} files"
    found = run.measure(work, "count", {ANABRANCH: {"home": str(home)}})
    return [*rows, Row(work, found, [within(found, ANABRANCH.name, 0.5)])]

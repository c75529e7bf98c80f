"""The tables of TPC-DS as DuckDB makes them, as tables of a lake and as folders of plain Parquet files."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from anabranch.lake import Lake

DATABASE = "tpcds"


@dataclass(frozen=True)
class Layout:
    """How a table came to be."""

    commits: int = 1
    compacted: int = 0
    """Commits after which its files are put together; 0 for never."""
    partition_by: tuple[str, ...] = ()


LAYOUTS: Mapping[str, Layout] = {
    # By the date as these data have it: week by week, so that queries of a month leave most of it out.
    "inventory": Layout(commits=2, partition_by=("inv_date_sk",)),
    # By columns that may be null.
    "store_sales": Layout(commits=4, compacted=3, partition_by=("ss_store_sk",)),
    "catalog_returns": Layout(commits=2, partition_by=("cr_reason_sk",)),
    "web_sales": Layout(commits=4, compacted=4, partition_by=("ws_web_site_sk",)),
    "catalog_sales": Layout(commits=5, compacted=4),
    "store_returns": Layout(commits=3),
    "web_returns": Layout(commits=3, compacted=3),
    "customer": Layout(commits=4),
    "customer_address": Layout(commits=2),
    "item": Layout(commits=3, compacted=2),
}
"""Tables that are more than one commit."""

_AS_SPARK: Mapping[str, Any] = {"compression": "zstd", "store_decimal_as_integer": True}
_GROUP_ROWS = 1 << 20


def connection() -> duckdb.DuckDBPyConnection:
    """DuckDB with what makes data and queries, and nothing loaded from elsewhere."""
    made = duckdb.connect()
    extension = files("duckdb_extension_tpcds") / f"extensions/v{duckdb.__version__}/tpcds.duckdb_extension"
    made.execute(f"LOAD '{extension}'")
    return made


def generated(scale: float) -> dict[str, pa.Table]:
    """All tables by name; at scale 1 they have 20 million rows."""
    with connection() as database:
        database.execute(f"CALL dsdgen(sf={scale})")
        names = [name for (name,) in database.execute("SHOW TABLES").fetchall()]
        return {name: database.execute(f"FROM {name}").to_arrow_table() for name in names}


def load(lake: Lake, tables: Mapping[str, pa.Table]) -> None:
    """Append the tables to a lake, each in its commits and with its compaction."""
    for name, rows in tables.items():
        layout = LAYOUTS.get(name, Layout())
        table = lake.create_table(f"{DATABASE}.{name}", rows.schema, partition_by=layout.partition_by)
        for number, part in enumerate(_parts(rows, layout.commits), start=1):
            table.append(part)
            if number == layout.compacted:
                table.compact(full=True)


def write_parquet(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    """The same rows as Parquet files with the same compression, in as many files: those that compaction made are one.

    They are as Spark would have written them: decimals as integers where these are wide enough, no small row groups.
    """
    for name, rows in tables.items():
        layout = LAYOUTS.get(name, Layout())
        parts = _parts(rows, layout.commits)
        done = layout.compacted
        for number, part in enumerate([pa.concat_tables(parts[:done]), *parts[done:]] if done else parts):
            if layout.partition_by:
                _write_partitions(folder / name, part, layout.partition_by, number)
            else:
                (folder / name).mkdir(parents=True, exist_ok=True)
                pq.write_table(part, folder / name / f"part-{number}.parquet", **_AS_SPARK)


def _write_partitions(folder: Path, rows: pa.Table, columns: tuple[str, ...], number: int) -> None:
    ds.write_dataset(
        rows,
        folder,
        format="parquet",
        basename_template=f"part-{number}-{{i}}.parquet",
        partitioning=ds.partitioning(pa.schema([rows.schema.field(name) for name in columns]), flavor="hive"),
        file_options=ds.ParquetFileFormat().make_write_options(**_AS_SPARK),
        # Without this each batch that comes in would be a row group in each of the partitions.
        min_rows_per_group=_GROUP_ROWS,
        max_rows_per_group=_GROUP_ROWS,
        existing_data_behavior="overwrite_or_ignore",
    )


def _parts(rows: pa.Table, count: int) -> list[pa.Table]:
    size = -(-rows.num_rows // count) or 1
    return [rows.slice(start, size) for start in range(0, rows.num_rows, size)] or [rows]

"""A table that is away, dropped or renamed is not an empty one to whoever reads it."""

import pytest

import anabranch
from anabranch.errors import NotFoundError, WarehouseMissingError

READS = {
    "rows": lambda table: table.scan().to_arrow(),
    "count": lambda table: table.scan().count(),
    "lazy": lambda table: table.scan().to_polars(lazy=True).collect(),
    "sql": lambda table: table.scan().to_duckdb().fetchall(),
    "snapshot": lambda table: table.snapshot,
    "snapshots": lambda table: list(table.snapshots()),
    "changes": lambda table: table.changes(0).to_arrow(),
    "tail": lambda table: list(table.tail(idle=0)),
    "tags": lambda table: table.tags(),
    "savepoints": lambda table: table.savepoints(),
    "consumers": lambda table: table.consumers(),
    "branches": lambda table: table.branches(),
    "files": lambda table: table.system("files"),
    "verify": lambda table: table.verify(),
}


@pytest.fixture
def lake(tmp_path):
    lake = anabranch.connect(str(tmp_path / "lake"))
    lake.create_table("db.t", "id INT").append([{"id": n} for n in range(5)])
    return lake


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_warehouse_that_is_away_is_told(lake, tmp_path, read):
    table = lake.table("db.t")
    table.create_tag("begin")
    table.create_branch("fix", "begin")
    fix = table.branch("fix")
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    for one in (table, fix):
        with pytest.raises(WarehouseMissingError, match="was there and is gone") as told:
            read(one)
        assert "mount it again" in told.value.hint
    (tmp_path / "elsewhere").rename(tmp_path / "lake")
    assert table.scan().count() == 5


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_table_that_was_dropped_or_renamed_is_told(lake, read):
    table = lake.table("db.t")
    lake.rename_table("db.t", "db.other")
    with pytest.raises(NotFoundError, match="table 'db.t' is not there any more"):
        read(table)


def test_an_overwrite_by_what_was_read_while_the_disk_was_away_replaces_nothing(lake, tmp_path):
    table = lake.table("db.t")
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    with pytest.raises(WarehouseMissingError):
        table.overwrite(table.scan().to_arrow(), if_unchanged_since=table.snapshot)
    (tmp_path / "elsewhere").rename(tmp_path / "lake")
    assert table.scan().count() == 5


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_table_without_rows_is_none_of_these(lake, read):
    read(lake.create_table("db.new", "id INT"))

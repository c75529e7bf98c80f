"""Partitions of odd values, and tables with a twin: branches are compared and merged as those of others."""

import itertools
import shutil

import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch.format.rows.partition_path import partition_label
from anabranch.format.types.data_types import Field
from anabranch.format.types.grammar import parse_sql_type
from tests.branches.merging import branched, conflicts_of

_names = itertools.count()
FAR = [2_932_897, -719_163 - 400, 2_932_897 * 3, 0]
"""Days: of the years 10000, -1 and about 26000, and of 1970."""


def dated(days, ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "d": pa.array(days, pa.int32()).cast(pa.date32())})


def texts(values, ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array(values, pa.string())})


def new_table(schema, *, by):
    return anabranch.connect(f"memory://odd{next(_names)}").create_table("db.t", schema, partition_by=[by])


def test_years_of_more_than_four_digits_or_before_christ():
    table = new_table("id BIGINT, d DATE", by="d")
    table.append(dated(FAR, [1, 2, 3, 4]))
    fix = branched(table)
    fix.overwrite(dated(FAR[:1], [11]))
    fix.append(dated(FAR[1:], [12, 13, 14]))
    table.append(dated(FAR[:2], [21, 22]))
    assert conflicts_of(table) == [("OVERWRITE_VS_CHANGE", "d=10000-01-01")]
    assert "d=10000-01-01" in str(table.diff("fix"))
    labels = ["d=-0001-11-27", "d=10000-01-01", "d=1970-01-01"]
    for name in ("partitions", "files", "buckets", "manifests"):
        found = table.system(name)
        if "partition" in found.column_names:
            assert set(labels) < set(found["partition"].to_pylist())
    assert table.health().partitions == 4
    for _ in range(2):
        table.append(dated(FAR[:1], [23]))
    assert "d=10000-01-01: 4 of 4 files are small" in str(table.health())
    table.merge_branch("fix", resolve={"d=10000-01-01": "theirs"})
    assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [2, 3, 4, 11, 12, 13, 14, 22]
    table.compact(full=True)
    assert table.system("partitions").num_rows == 4


def test_timestamps_and_bytes_as_partitions():
    fields = [Field(0, "t", parse_sql_type("TIMESTAMP(3)")), Field(1, "b", parse_sql_type("BYTES"))]
    year = 86_400_000_000_000 * 2_932_897
    assert (
        partition_label(fields, [year + 1_500_000_000, b"\xff\x00"])
        == "t=10000-01-01 00%3A00%3A01.500/b=0xff00"
    )


@pytest.mark.parametrize("chosen", [None, "", " ", "__DEFAULT_PARTITION__", "%5F_DEFAULT_PARTITION__"])
def test_null_and_blank_texts_and_the_default_name_are_told_apart(chosen):
    values = [None, "", " ", "__DEFAULT_PARTITION__", "%5F_DEFAULT_PARTITION__"]
    names = [
        *("p=__DEFAULT_PARTITION__", "p=", "p= ", "p=%5F_DEFAULT_PARTITION__"),
        "p=%255F_DEFAULT_PARTITION__",
    ]
    table = new_table("id BIGINT, p STRING", by="p")
    table.append(texts(values, range(5)))
    fix = branched(table)
    fix.overwrite(texts(values, range(10, 15)))
    table.overwrite(texts(values, range(20, 25)))
    assert sorted(conflicts_of(table)) == sorted(("OVERWRITE_VS_CHANGE", name) for name in names)
    number = values.index(chosen)
    table.merge_branch("fix", resolve={names[number]: "theirs", "*": "ours"})
    found = pl.from_arrow(table.scan().to_arrow())
    expected = {value: (10 if i == number else 20) + i for i, value in enumerate(values)}
    assert dict(found.select("p", "id").iter_rows()) == expected


def test_two_copies_of_a_warehouse_in_one_process(tmp_path):
    """They have the same identities, and each goes on for itself."""
    first = anabranch.connect(str(tmp_path / "a")).create_table(
        "db.t", "id BIGINT, p STRING", partition_by=["p"]
    )
    first.append(texts(["x"], [1]))
    branched(first).append(texts(["x"], [2]))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    second = anabranch.connect(str(tmp_path / "b")).table("db.t")
    first.branch("fix").append(texts(["x"], [3]))
    first.merge_branch("fix")
    second.merge_branch("fix")
    second.branch("fix").append(texts(["x"], [4]))
    second.merge_branch("fix")
    first.branch("fix").append(texts(["x"], [5]))
    first.merge_branch("fix")
    ids = [sorted(table.scan().to_arrow()["id"].to_pylist()) for table in (first, second)]
    assert ids == [[1, 2, 3, 5], [1, 2, 4]]

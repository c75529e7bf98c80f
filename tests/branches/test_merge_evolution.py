"""Merging where the schema changed on either side: columns by id, files under main's schema, statistics that still prune."""

import pyarrow as pa
import pytest

from anabranch.errors import CommitConflictError
from tests.branches.merging import branched, conflicts_of, lake, parted, rows


def plain(**options):
    table = lake().create_table("db.t", "id BIGINT NOT NULL, n INT", options=options)
    table.append(numbered([1], n=[1]))
    return table, branched(table)


def numbered(ids, **columns):
    return pa.table({"id": pa.array(ids, pa.int64()), **columns})


def read(table):
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def names(table):
    return [f.name for f in table.schema.fields]


def test_columns_that_the_branch_added_come_with_their_values():
    table, fix = plain()
    fix.alter().add_column("x", "STRING").apply()
    fix.append(numbered([10], n=[5], x=["new"]))
    table.append(numbered([50], n=[6]))
    done = table.merge_branch("fix")
    assert len(done.schema_changes) == 1
    assert read(table) == [
        {"id": 1, "n": 1, "x": None},
        {"id": 10, "n": 5, "x": "new"},
        {"id": 50, "n": 6, "x": None},
    ]
    assert len(table.scan(filter="x = 'new'").to_arrow()) == 1
    assert len(table.scan(filter="n > 5").to_arrow()) == 1
    assert table.snapshot.schema_id == table.schema.id


def test_columns_added_on_both_sides_are_two():
    table, fix = plain()
    fix.alter().add_column("x", "STRING").apply()
    table.alter().add_column("y", "STRING").apply()
    fix.append(numbered([10], n=[5], x=["b"]))
    table.append(numbered([50], n=[6], y=["m"]))
    table.merge_branch("fix")
    assert [(r["id"], r["x"], r["y"]) for r in read(table)] == [
        (1, None, None),
        (10, "b", None),
        (50, None, "m"),
    ]
    table.alter().add_column("z", "INT").apply()
    fix.alter().add_column("w", "INT").apply()
    ids = [f.id for f in (*table.schema.fields, fix.schema.field("w"))]
    assert len(ids) == len(set(ids)), "each side goes on in a block of its own"


def test_each_side_of_a_merge_may_change_the_schema_again():
    table, fix = plain()
    for i, name in enumerate("xyz"):
        fix.alter().add_column(name, "INT").apply()
        fix.append(numbered([10 + i], n=[0], **{name: [i]}))
        table.alter().add_column(f"m{name}", "INT").apply()
        table.merge_branch("fix")
    table.alter().drop_column("x").apply()
    fix.append(numbered([20], n=[0], z=[7]))
    table.merge_branch("fix")
    assert "x" not in names(table), "what main dropped stays dropped"
    assert [(r["id"], r["z"]) for r in read(table)][-2:] == [(12, 2), (20, 7)]


def test_wider_columns_and_new_names():
    table, fix = plain()
    fix.alter().widen_column("n", "BIGINT").apply()
    fix.append(numbered([10], n=[2**40]))
    table.merge_branch("fix")
    assert [r["n"] for r in read(table)] == [1, 2**40]
    fix.alter().rename_column("n", "number").apply()
    fix.append(numbered([11], number=[3]))
    table.merge_branch("fix")
    assert [r["number"] for r in read(table)] == [1, 2**40, 3]
    assert len(table.scan(filter="number > 3").to_arrow()) == 1


def test_files_that_no_schema_of_main_describes_need_rewriting():
    table, fix = plain()
    fix.alter().widen_column("n", "BIGINT").apply()
    fix.append(numbered([10], n=[2**40]))
    table.alter().rename_column("n", "number").apply()
    (conflict,) = table.merge_branch("fix", dry_run=True).conflicts
    assert (conflict.kind, len(conflict.files)) == ("SCHEMA_REWRITE_NEEDED", 1)
    before = names(table)
    assert conflicts_of(table) == [("SCHEMA_REWRITE_NEEDED", "(the whole table)")]
    assert names(table) == before
    hint = "compact the branch fully, which rewrites its files with its newest schema, and merge again."
    assert (
        conflict.hint
        == f"on main, 'n' is called 'number': make it so on the branch with `alter`, then {hint}"
    )
    fix.alter().rename_column("n", "number").apply()
    (conflict,) = table.merge_branch("fix", dry_run=True).conflicts
    assert conflict.hint == hint
    fix.compact(full=True)
    table.merge_branch("fix")
    assert [(r["id"], r["number"]) for r in read(table)] == [(1, 1), (10, 2**40)]


def test_types_that_both_sides_widened_are_made_alike_as_the_hint_says():
    table, fix = plain()
    table.alter().widen_column("n", "BIGINT").rename_column("n", "number").apply()
    fix.alter().add_column("x", "STRING").apply()
    fix.append(numbered([10], n=[4], x=["b"]))
    (conflict,) = table.merge_branch("fix", dry_run=True).conflicts
    assert conflict.hint.startswith("on main, 'n' is called 'number' and 'number' is BIGINT: make it so")
    fix.alter().widen_column("n", "BIGINT").rename_column("n", "number").apply()
    fix.compact(full=True)
    table.merge_branch("fix")
    assert [(r["id"], r["number"], r["x"]) for r in read(table)] == [(1, 1, None), (10, 4, "b")]


def test_fields_that_both_sides_added_inside_a_column_come_by_a_new_branch_as_the_hint_says():
    table = lake().create_table("db.t", "id BIGINT NOT NULL, st ROW<x INT>")
    table.append([{"id": 1, "st": {"x": 1}}])
    fix = branched(table)
    table.alter().add_column("st.y", "INT").apply()
    fix.alter().add_column("st.z", "INT").apply()
    fix.append([{"id": 2, "st": {"x": 2, "z": 3}}])
    (conflict,) = table.merge_branch("fix", dry_run=True).conflicts
    assert (
        "write its rows to main, or to a branch that begins with a snapshot of main that has them"
        in conflict.hint
    )
    table.append([{"id": 3, "st": {"x": 3, "y": 4}}])
    table.create_branch("again", snapshot=table.snapshot.id)
    again = table.branch("again")
    again.alter().add_column("st.z", "INT").apply()
    again.append([{"id": 2, "st": {"x": 2, "y": None, "z": 3}}])
    table.merge_branch("again")
    inside = [[1, None, None], [2, None, 3], [3, 4, None]]
    assert [[r["st"][name] for name in "xyz"] for r in read(table)] == inside


def test_conflicts_of_the_schema_are_all_told_and_nothing_is_written():
    table, fix = plain()
    fix.alter().add_column("x", "STRING").rename_column("n", "theirs").apply()
    fix.append(numbered([10], theirs=[5], x=["b"]))
    table.alter().add_column("x", "INT").rename_column("n", "ours").apply()
    stored = table.schema.id
    with pytest.raises(CommitConflictError) as caught:
        table.merge_branch("fix", resolve="theirs")
    assert {c.kind for c in caught.value.conflicts} == {"RENAME_CLASH", "NAME_CLASH"}
    assert (table.schema.id, table.snapshot.id) == (stored, 1)


def test_a_change_of_the_schema_alone_is_merged():
    table, fix = plain()
    fix.alter().add_column("x", "STRING").apply()
    done = table.merge_branch("fix")
    assert (done.partitions, len(done.schema_changes), names(table)) == ((), 1, ["id", "n", "x"])
    assert table.merge_branch("fix").snapshot is None


def test_options_of_the_branch_come_with_it():
    table, fix = plain()
    fix.alter().set_option("target-file-size", "7 mb").apply()
    fix.append(numbered([10], n=[5]))
    table.merge_branch("fix")
    assert table.options["target-file-size"] == "7 mb"


def test_old_snapshots_of_main_are_read_as_they_were():
    table, fix = parted()
    fix.alter().add_column("x", "STRING").apply()
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    assert [f.name for f in table.at(2).schema.fields] == ["id", "dt"]
    assert len(table.at(2).scan().to_arrow()) == 3


def test_other_branches_take_the_columns_from_main_later():
    table, fix = plain()
    other = branched(table, "other")
    fix.alter().add_column("x", "STRING").apply()
    fix.append(numbered([10], n=[5], x=["b"]))
    other.append(numbered([20], n=[6]))
    table.merge_branch("fix")
    table.merge_branch("other")
    assert [(r["id"], r["x"]) for r in read(table)] == [(1, None), (10, "b"), (20, None)]


def test_numbers_of_buckets_must_agree():
    table = lake().create_table(
        "db.q", "id BIGINT NOT NULL, n INT", options={"bucket": "2", "bucket-key": "id"}
    )
    table.append(numbered([1, 2, 3], n=[1, 2, 3]))
    fix = branched(table)
    for one in (table, fix):
        one.alter().set_option("bucket", "3").apply()
    fix.replace(numbered([4, 5], n=[4, 5]))
    table.merge_branch("fix")
    assert [r["id"] for r in read(table)] == [4, 5]
    fix.append(numbered([6], n=[6]))
    table.alter().set_option("bucket", "4").apply()
    assert conflicts_of(table) == [("BUCKET_CLASH", None)]
    fix.alter().set_option("bucket", "4").apply()
    assert conflicts_of(table) == [], "the files lie in three buckets on both sides"

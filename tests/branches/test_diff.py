"""What differs between two moments of a table, by metadata and row by row."""

import itertools
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InvalidInputError, NotFoundError, PredicateError, SchemaError
from anabranch.format.types.data_types import BooleanType
from tests.support.tables import make_table, rows

_PLACES = itertools.count()
BY_DAY = "id BIGINT NOT NULL, dt STRING, v DOUBLE"


def place():
    return f"memory://diff{next(_PLACES)}"


def forked(schema="id BIGINT NOT NULL, v STRING", first=None, **how):
    """A table with a snapshot, and the branch ``fix`` of it."""
    table = make_table(place(), schema=schema, **how)
    table.append(rows(0, 10) if first is None else first)
    table.create_tag("good")
    table.create_branch("fix", "good")
    return table, table.branch("fix")


def day(dt, ids, v=0.0):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": [dt] * len(ids), "v": [float(v)] * len(ids)})


def changes(found):
    """Each row with its change, and how often it comes."""
    names = [n for n in found.schema.names if n != "_change"]
    return Counter((row["_change"], *(repr(row[n]) for n in names)) for row in found.to_arrow().to_pylist())


def test_nothing_differs_at_first():
    table, _ = forked()
    found = table.diff("main", "fix")
    assert not found.rows().count()
    assert found.rows().to_arrow().num_rows == 0
    assert found.rows().to_arrow().schema.names == ["id", "v", "_change"]
    assert (found.files.added.height, found.files.removed.height, found.files.shared.height) == (0, 0, 1)
    assert not found.schema
    assert not found


def test_files_rows_and_partitions():
    table, branch = forked(BY_DAY, day("a", [1, 2, 3]), partition_by=["dt"])
    table.append(day("b", [4]))
    branch.append(day("a", [5, 6]))
    branch.append(day("c", [7]))
    found = table.diff("main", "fix")
    assert found
    assert (found.files.added.height, found.files.removed.height, found.files.shared.height) == (2, 1, 1)
    told = {p.partition: (p.rows_left, p.rows_right, p.rows_removed, p.rows_added) for p in found.partitions}
    assert told == {"dt=a": (3, 5, 0, 2), "dt=b": (1, 0, 1, 0), "dt=c": (0, 1, 0, 1)}
    assert {p.partition: (p.files_left, p.files_right) for p in found.partitions}["dt=a"] == (1, 2)
    counts = found.rows().count()
    assert (counts.inserted, counts.deleted) == (3, 1)
    assert changes(found.rows(columns=["id"])) == Counter(
        [("delete", "4"), ("insert", "5"), ("insert", "6"), ("insert", "7")]
    )


def test_rewritten_rows_do_not_differ():
    table, branch = forked()
    branch.append(rows(10, 5))
    branch.compact(full=True)
    table.append(rows(10, 4))
    found = table.diff("main", "fix")
    assert found.files.removed.height
    assert changes(found.rows()) == Counter([("insert", "14", "'v14'")])


def test_rows_count_as_often_as_they_occur():
    table, branch = forked(first=rows(0, 1))
    for _ in range(3):
        table.append(rows(0, 1))
    branch.overwrite(pa.concat_tables([rows(0, 1), rows(0, 1), rows(7, 1)]))
    assert changes(table.diff("main", "fix").rows()) == Counter(
        {("delete", "0", "'v0'"): 2, ("insert", "7", "'v7'"): 1}
    )


def test_files_of_both_sides_are_not_read():
    table, branch = forked()
    branch.append(rows(20, 2))
    shared = table.diff("main", "fix").files.shared
    for info in [*table.context.storage.list(recursive=True)]:
        if info.path.rpartition("/")[2] in shared["file_name"].to_list():
            table.context.storage.delete(info.path)
    assert table.diff("main", "fix").rows().to_arrow()["id"].to_pylist() == [20, 21]


def test_counting_rows_that_one_side_has_reads_no_file():
    table, branch = forked(BY_DAY, day("a", [1]), partition_by=["dt"])
    branch.append(day("b", range(100)))
    for info in [*table.context.storage.list(recursive=True)]:
        if info.path.endswith(".parquet"):
            table.context.storage.delete(info.path)
    assert table.diff("main", "fix").rows().count().inserted == 100


def test_sides_at_moments():
    table, branch = forked()
    branch.append(rows(10, 1))
    branch.create_tag("half")
    branch.append(rows(11, 1))
    assert table.diff("fix@half", "fix").rows().to_arrow()["id"].to_pylist() == [11]
    assert table.diff("fix@half", "fix@snapshot.3").rows().count().inserted == 1
    assert table.diff("fix", "main@good").rows().count().deleted == 2
    # The right side is the view's own unless it is named.
    assert branch.diff("main").rows().count().inserted == 2
    assert branch.at("half").diff("main").rows().count().inserted == 1
    with pytest.raises(NotFoundError, match="branch 'fox' does not exist"):
        table.diff("main", "fox")
    with pytest.raises(NotFoundError, match="nowhere"):
        table.diff("main@nowhere", "fix")


def test_columns_go_by_id_and_in_a_type_that_holds_both():
    table, branch = forked("id BIGINT NOT NULL, n INT, s VARCHAR(3)", first=numbers([(1, 5, "x")]))
    branch.alter().rename_column("n", "m").widen_column("m", "BIGINT").apply()
    branch.overwrite(pa.table({"id": [1, 2], "m": [5, 1 << 40], "s": ["x", "y"]}))
    found = table.diff("main", "fix")
    assert [f.name for f, _ in found.schema.changed] == ["n"]
    assert found.schema.phrases == ("renamed 'n' to 'm'", "changed 'm' from INT to BIGINT")
    assert changes(found.rows()) == Counter([("insert", "2", str(1 << 40), "'y'")])
    assert changes(table.diff("fix", "main").rows()) == Counter([("delete", "2", str(1 << 40), "'y'")])
    assert table.diff("fix", "main").rows().schema.names == ["id", "n", "s", "_change"]


def numbers(values):
    ids, ns, texts = zip(*values, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(ns, pa.int32()), "s": texts})


def test_a_column_of_one_side_is_compared_if_it_is_named():
    table, branch = forked("id BIGINT NOT NULL, n INT, s STRING", first=numbers([(1, 5, "x"), (2, 6, "y")]))
    branch.alter().add_column("extra", "INT").drop_column("n").apply()
    branch.append(pa.table({"id": [3], "s": ["z"], "extra": pa.array([9], pa.int32())}))
    found = table.diff("main", "fix")
    assert [f.name for f in found.schema.added] == ["extra"]
    assert [f.name for f in found.schema.removed] == ["n"]
    assert changes(found.rows()) == Counter([("insert", "3", "'z'")])
    assert changes(found.rows(columns=["id", "extra"])) == Counter([("insert", "3", "9")])
    # The branch reads null where main reads n, so even rows of a shared file differ.
    assert changes(found.rows(columns=["n"])) == Counter(
        {("delete", "5"): 1, ("delete", "6"): 1, ("insert", "None"): 3}
    )
    assert changes(found.rows(columns=["id"], filter="n = 6")) == Counter([("delete", "2")])


def test_a_dropped_column_added_again_is_another():
    table, branch = forked("id BIGINT NOT NULL, n INT, s STRING", first=numbers([(1, 5, "x")]))
    branch.alter().drop_column("n").add_column("n", "STRING").apply()
    found = table.diff("main", "fix")
    assert not found.rows().count()
    assert found.rows().schema.names == ["id", "s", "_change"]


def test_what_cannot_be_compared_is_refused():
    table, _ = forked()
    found = table.diff("main", "fix")
    with pytest.raises(SchemaError, match="neither 'main' nor 'fix' has a column 'w'") as raised:
        found.rows(columns=["w"])
    assert "v" in raised.value.hint
    with pytest.raises(SchemaError, match="cannot be compared by the columns"):
        found.rows(columns=[])
    with pytest.raises(PredicateError):
        found.rows(filter="w > 1")
    other, branch = forked("id BIGINT NOT NULL, a INT", pa.table({"id": [1]}))
    schema = branch.schema
    fields = (schema.fields[0], replace(schema.fields[1], type=BooleanType()))
    branch.context.schemas.add(replace(schema, id=schema.id + 1, fields=fields))
    with pytest.raises(SchemaError, match="column 'a' is INT in 'main' and BOOLEAN in 'fix'"):
        other.diff("main", "fix").rows()
    assert not other.diff("main", "fix").rows(columns=["id"]).count()


def test_filter_columns_and_limit():
    table, branch = forked(BY_DAY, day("a", range(5)), partition_by=["dt"])
    branch.overwrite(day("a", range(3, 9)))
    branch.append(day("b", [100]))
    found = table.diff("main", "fix")
    assert changes(found.rows(filter="id < 5 AND dt = 'a'", columns=["id"])) == Counter(
        [("delete", "0"), ("delete", "1"), ("delete", "2")]
    )
    assert found.rows(filter="dt = 'b'").count().inserted == 1
    assert found.rows(limit=2).to_arrow().num_rows == 2
    assert found.rows(limit=0).to_arrow().num_rows == 0
    assert found.rows(limit=100).to_polars().height == 8
    # Without the partition column rows of different partitions may be equal.
    branch.overwrite(day("b", range(5)))
    branch.overwrite(day("a", [0]), partition={"dt": "a"})
    assert changes(table.diff("main", "fix").rows(columns=["id"])) == Counter([("insert", "0")])


def test_odd_values():
    schema = "id BIGINT NOT NULL, d DECIMAL(20, 4), f DOUBLE, a ARRAY<DOUBLE>, m MAP<STRING, INT>, r ROW<x INT, y STRING>"
    arrow = pa.schema(
        [
            ("id", pa.int64()),
            ("d", pa.decimal128(20, 4)),
            ("f", pa.float64()),
            ("a", pa.list_(pa.float64())),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("r", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ]
    )

    def table_of(*values):
        columns = zip(*values, strict=True)
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)], schema=arrow)

    nan = float("nan")
    one = (1, None, nan, [nan, None], [("a", 1), ("b", 2)], {"x": None, "y": "q"})
    same = (1, None, -nan, [nan, None], [("b", 2), ("a", 1)], {"x": None, "y": "q"})
    zero, minus = (2, None, 0.0, [0.0], None, None), (2, None, -0.0, [-0.0], None, None)
    table, branch = forked(schema, table_of(one, zero))
    branch.overwrite(table_of(minus, same))
    assert not table.diff("main", "fix").rows().count()
    branch.overwrite(table_of(zero, (*one[:5], {"x": None, "y": None})))
    counts = table.diff("main", "fix").rows().count()
    assert (counts.inserted, counts.deleted) == (1, 1)
    branch.overwrite(table_of(zero, one, (1, None, nan, [nan], one[4], one[5])))
    assert table.diff("main", "fix").rows().to_arrow().num_rows == 1


ROW = st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None]), st.sampled_from([0.5, None]))


@settings(max_examples=15)
@given(
    st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=3),
    st.lists(st.lists(ROW, max_size=6), max_size=3),
)
def test_rows_are_the_difference_of_the_bags(ours, theirs):
    """Whatever was written: the left bag with what was inserted and without what was deleted is the right bag."""
    table = make_table(place(), schema="id BIGINT, dt STRING, v DOUBLE", partition_by=["dt"])
    for step in ours[:1]:
        table.append(some(step))
    if table.snapshot is None:
        return
    table.create_tag("good")
    table.create_branch("fix", "good")
    branch = table.branch("fix")
    for step in ours[1:]:
        table.append(some(step))
    for number, step in enumerate(theirs):
        (branch.append if number % 2 else branch.overwrite)(some(step))
    left, right = (bag(t.scan().to_arrow()) for t in (table, branch))
    expected = Counter({("delete", *k): n for k, n in (left - right).items()})
    expected += Counter({("insert", *k): n for k, n in (right - left).items()})
    assert changes(table.diff("main", "fix").rows()) == expected


def some(values):
    ids, days, vs = zip(*values, strict=True) if values else ((), (), ())
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "dt": pa.array(days, pa.string()), "v": pa.array(vs, pa.float64())}
    )


def bag(table):
    return Counter(tuple(repr(v) for v in row.values()) for row in table.to_pylist())


def test_shown_to_people():
    table, branch = forked(BY_DAY, day("<b>a", [1, 2]), partition_by=["dt"])
    branch.append(day("<b>a", [3]))
    branch.alter().add_column("w", "INT").apply()
    text = repr(table.diff("main", "fix"))
    assert "main..fix of db.t" in text
    assert "files: 1 added, 0 removed, 1 shared" in text
    assert "added 'w'" in text
    markup = table.diff("main", "fix")._repr_html_()
    assert "<b>a" not in markup.replace("<b>main", "")
    assert "rows added" in markup


def test_a_branch_that_was_never_written_is_empty():
    table = make_table(place())
    assert not table.diff("main", "main")
    assert table.diff("main", "main").rows().to_arrow().num_rows == 0
    assert "no snapshot" in repr(table.diff("main", "main"))


def test_a_main_that_was_replaced_is_a_side():
    table, branch = forked()
    branch.append(rows(10, 1))
    table.append(rows(20, 2))
    with pytest.raises(NotFoundError) as raised:
        table.diff("main@2", "fix")
    assert "main@snapshot.2" in raised.value.hint
    assert table.diff("main@snapshot.2", "fix").rows().count().deleted == 2
    table.replace_main_branch("fix", force=True)
    found = table.diff("main@1", "main")
    assert changes(found.rows(columns=["id"])) == Counter(
        [("delete", "20"), ("delete", "21"), ("insert", "10")]
    )
    for moment in ("main@1.good", "main@1@good"):
        assert table.diff(moment, "main@1").rows().count().inserted == 2
    assert table.branch("main@1").diff("main").rows().count().inserted == 2
    with pytest.raises(InvalidInputError, match="AMBIGUOUS_SNAPSHOT"):
        table.diff("main@snapshot.2", "main")


@pytest.mark.parametrize("sides", [(1, 2), ("main", 5), (None, "fix")])
def test_numbers_name_no_side(sides):
    table, _ = forked()
    with pytest.raises(InvalidInputError, match="names no branch or moment") as raised:
        table.diff(*sides)
    assert "main@snapshot.5" in raised.value.hint

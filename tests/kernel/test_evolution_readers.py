"""Readers that were opened before a schema change: what they planned, and streams that go on reading."""

import itertools
import pickle

import pyarrow as pa
import pytest

import anabranch
from anabranch.arrow.table_read import Reader
from anabranch.errors import AnabranchError, SchemaError, UnsupportedFeatureError
from anabranch.expr.bind import bind
from anabranch.expr.parse import parse
from anabranch.kernel.actions.append import Append
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import BEGINNING
from tests.support.tables import make_table

COLUMNS = "k INT NOT NULL, v STRING NOT NULL, n INT, r ROW<x INT, y STRING NOT NULL>, a ARRAY<INT NOT NULL>"
ROW = {"k": 1, "v": "one", "n": 7, "r": {"x": 1, "y": "y"}, "a": [1]}
LATER = {"k": 2, "v": "two", "n": 8, "r": {"x": 2, "y": "z"}, "a": [2]}
_numbers = itertools.count()


@pytest.fixture
def table(tmp_path):
    table = make_table(tmp_path, schema=COLUMNS)
    _append(table, ROW)
    return table


def _append(table, *rows):
    table.append(pa.Table.from_pylist([*rows], table.writer().schema))


def _renamed(row, **names):
    return {names.get(key, key): value for key, value in row.items()}


CHANGES = {
    "add": (lambda a: a.add_column("z", "INT"), LATER | {"z": 5}, LATER),
    "add inside": (lambda a: a.add_column("r.z", "INT"), LATER | {"r": {**LATER["r"], "z": 5}}, LATER),
    "rename": (lambda a: a.rename_column("n", "m"), _renamed(LATER, n="m"), LATER),
    "rename inside": (lambda a: a.rename_column("r.x", "z"), LATER | {"r": {"z": 2, "y": "z"}}, LATER),
    "move": (lambda a: a.move_column("n", first=True).move_column("r.y", first=True), LATER, LATER),
    "drop": (lambda a: a.drop_column("n"), {k: v for k, v in LATER.items() if k != "n"}, LATER | {"n": None}),
    "drop inside": (lambda a: a.drop_column("r.x"), LATER | {"r": {"y": "z"}}, LATER | {"r": {"x": None, "y": "z"}}),
    "drop and add again": (lambda a: a.drop_column("n").add_column("n", "INT"), LATER, LATER | {"n": None}),
    "allow nulls that do not come": (lambda a: a.drop_not_null("v").drop_not_null("r.y"), LATER, LATER),
    "drop NOT NULL": (lambda a: a.drop_column("v"), {k: v for k, v in LATER.items() if k != "v"}, SchemaError),
    "drop NOT NULL inside": (lambda a: a.drop_column("r.y"), LATER | {"r": {"x": 2}}, SchemaError),
    "allow nulls": (lambda a: a.drop_not_null("v"), LATER | {"v": None}, SchemaError),
    "allow nulls inside": (lambda a: a.drop_not_null("r.y"), LATER | {"r": {"x": 2, "y": None}}, SchemaError),
    "allow nulls in arrays": (lambda a: a.drop_not_null("a.element"), LATER | {"a": [None]}, SchemaError),
    "widen": (lambda a: a.widen_column("n", "BIGINT"), LATER | {"n": 2**40}, UnsupportedFeatureError),
    "widen inside": (
        lambda a: a.widen_column("r.x", "DOUBLE"),
        LATER | {"r": {"x": 0.5, "y": "z"}},
        UnsupportedFeatureError,
    ),
}  # fmt: skip


class _Stream:
    """What a stream does that began with the columns of now."""

    def __init__(self, table, filter=None):
        self.schema = table.schema
        self.context = table.context
        predicate = None if filter is None else bind(parse(filter), self.schema.fields)
        self.feed = Feed(table.context, self.schema, predicate=predicate)
        self.reader = Reader(table.context, self.schema.fields, predicate=predicate)
        self.position = BEGINNING

    def next_rows(self):
        end = self.feed.advance(self.position)
        splits = [found.split for found in self.feed.splits(self.position, end)]
        rows = [row for split in splits for batch in self.reader.read(split) for row in batch.to_pylist()]
        self.position = end
        return rows


@pytest.mark.parametrize("name", CHANGES)
def test_a_stream_under_way_goes_on_with_its_columns_or_says_that_it_cannot(table, name):
    change, row, seen = CHANGES[name]
    stream = _Stream(table)
    assert stream.next_rows() == [ROW]
    change(table.alter()).apply()
    _append(table, row)
    if isinstance(seen, dict):
        assert stream.next_rows() == [seen]
        return
    with pytest.raises(seen) as caught:
        stream.next_rows()
    assert "schema was changed after this read began" in caught.value.hint
    again = _Stream(table)
    again.position = stream.position
    assert again.next_rows() == [{f.name: row.get(f.name) for f in table.schema.fields}]


@pytest.mark.parametrize("name", CHANGES)
def test_a_filter_of_a_stream_under_way_means_its_own_columns(table, name):
    change, row, seen = CHANGES[name]
    stream = _Stream(table, "n = 8 OR n IS NULL")
    change(table.alter()).apply()
    _append(table, row)
    try:
        found = stream.next_rows()
    except AnabranchError:
        assert not isinstance(seen, dict)
        return
    assert found == [row for row in [seen] if isinstance(row, dict) and row["n"] in (8, None)]


@pytest.mark.parametrize("name", CHANGES)
def test_a_read_stays_what_it_was_when_it_was_planned(table, name):
    change, row, _ = CHANGES[name]
    planned, unplanned, pinned = table.scan("k >= 1"), table.scan("v = 'one'"), table.at(1)
    splits = pickle.dumps(planned.plan().splits)
    change(table.alter()).apply()
    _append(table, row)
    assert planned.to_arrow().to_pylist() == [ROW]
    assert unplanned.to_arrow().to_pylist() == [ROW]
    assert pinned.scan("n = 7").to_arrow().to_pylist() == [ROW]
    reader = pickle.loads(pickle.dumps(planned.reader))
    assert [r for split in pickle.loads(splits) for b in reader.read(split) for r in b.to_pylist()] == [ROW]


def test_a_read_takes_its_columns_from_after_its_snapshot():
    """Else it could meet files of a schema that it does not know."""
    table = make_table(f"memory://readers{next(_numbers)}", schema=COLUMNS)
    _append(table, ROW)

    class Overtaken(anabranch.Table):
        @property
        def schema(self):
            found = super().schema
            if found.id == 0:
                table.alter().drop_not_null("v").apply()
                _append(table, LATER | {"v": None})
            return found

    assert Overtaken(table.context).scan().to_arrow().to_pylist() == [ROW]


def test_rows_of_late_writers_reach_a_stream_in_either_columns(table):
    writer = table.writer()
    late = writer.write(pa.Table.from_pylist([LATER], writer.schema).to_batches())
    before = _Stream(table)
    table.alter().rename_column("n", "m").widen_column("m", "BIGINT").drop_column("r.x").apply()
    after = _Stream(table)
    table.commit(Append(late))
    assert before.next_rows() == [ROW, LATER]
    wanted = [_renamed(row | {"r": {"y": row["r"]["y"]}}, n="m") for row in (ROW, LATER)]
    assert after.next_rows() == wanted

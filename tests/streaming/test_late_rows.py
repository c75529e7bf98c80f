"""Late rows: the same ones for every reader, found without reading more than needed."""

import itertools
import random
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import InvalidInputError, OptionError
from anabranch.format.schema.ddl import parse_columns
from anabranch.streaming.late_rows import late, on_time
from tests.support.faults import FaultyStorage
from tests.support.lengths import first_short
from tests.support.tables import make_table

WATERMARK = "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
SCHEMA = f"id BIGINT, ts TIMESTAMP(3), {WATERMARK}"
_names = itertools.count()


def make(schema=SCHEMA, **how):
    return make_table(f"memory://late-rows{next(_names)}", schema=schema, **how)


def rows(ids, seconds, data_type=None):
    times = pa.array([None if s is None else s * 1000 for s in seconds], pa.int64())
    return pa.table({"id": pa.array(ids, pa.int64()), "ts": times.cast(data_type or pa.timestamp("ms"))})


def ids(changes):
    return changes.to_arrow()["id"].to_pylist()


def test_late_rows_are_those_behind_the_watermark_before_their_snapshot():
    table = make()
    table.append(rows([1, 2], [100, 200]))
    assert table.watermark == 195_000
    table.append(rows([3, 4, 5, 6], [194, 195, None, 300]))
    table.append(rows([7], [290]))
    assert table.watermark == 295_000
    assert ids(table.changes(0, late_rows="only")) == [3, 7]
    assert ids(table.changes(0, late_rows="drop")) == [1, 2, 4, 5, 6]
    assert ids(table.changes(0)) == ids(table.changes(0, late_rows="keep")) == [1, 2, 3, 4, 5, 6, 7]
    assert table.late_rows() == 2
    assert (table.late_rows(1, 2), table.late_rows(2), table.late_rows(3)) == (1, 1, 0)
    assert table.at(2).late_rows() == 1
    with pytest.raises(InvalidInputError, match="snapshots go up to 3"):
        table.late_rows(5)


def test_the_option_of_the_table_decides_where_the_reader_does_not():
    table = make(options={"scan.late-rows": "drop"})
    table.append(rows([1], [100]))
    table.append(rows([2, 3], [90, 100]))
    assert ids(table.changes(0)) == [1, 3]
    assert ids(table.changes(0, late_rows="keep")) == [1, 2, 3]
    assert [b["id"].to_pylist() for b in table.tail(start=1, idle=0)] == [[1], [3]]
    assert [b["id"].to_pylist() for b in table.tail(start=1, idle=0, late_rows="only")] == [[2]]


@pytest.mark.parametrize("seed", first_short(range(4), 2))
def test_the_same_as_by_hand(seed):
    """In whatever type, with nulls, compactions and filters, for columns with the event time and without."""
    chance = random.Random(seed)
    kind = chance.choice(["TIMESTAMP(3)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"])
    table = make(f"id BIGINT, v STRING, ts {kind}, {WATERMARK}", options={"bucket": "1"})
    data_type = table.scan().reader.schema.field("ts").type
    expected, watermark, number = set(), None, itertools.count()
    for _ in range(chance.randint(4, 8)):
        seconds = [chance.choice([None, *range(0, 60, 2)]) for _ in range(chance.randint(1, 12))]
        batch = rows([next(number) for _ in seconds], seconds, data_type)
        for i, second in zip(batch["id"].to_pylist(), seconds, strict=True):
            if watermark is not None and second is not None and second * 1000 < watermark:
                expected.add(i)
        watermark = table.append(batch.append_column("v", pa.array(["x"] * len(seconds)))).watermark
        if chance.random() < 0.2:
            table.compact(full=True)
    everything = set(range(next(number)))
    for columns in (["id"], ["ts", "id"]):
        assert set(ids(table.changes(0, columns=columns, late_rows="only"))) == expected
        assert set(ids(table.changes(0, columns=columns, late_rows="drop"))) == everything - expected
        few = table.changes(0, columns=columns, late_rows="only", filter="id > 10")
        assert set(ids(few)) == {i for i in expected if i > 10}
    assert table.late_rows() == len(expected)


def test_only_files_that_may_have_late_rows_are_read():
    table = make()
    for number, seconds in enumerate(([100, 200], [196, 300], [290, 295], [310, 400])):
        table.append(rows([number, number], seconds))
    storage = FaultyStorage(table.context.storage)
    seen = anabranch.Table(replace(table.context, storage=storage))
    assert seen.late_rows() == 1
    assert len({call.path for call in storage.calls if "/data-" in call.path}) == 1
    storage.forget_calls()
    assert list(seen.tail(idle=0, late_rows="only")) == []  # what was there is not late
    assert not [call for call in storage.calls if "/data-" in call.path]


def test_the_event_time_may_be_renamed_and_schemas_change():
    table = make()
    table.append(rows([1], [100]))
    table.append(rows([2], [50]))
    table.alter().rename_column("ts", "happened").add_column("v", "STRING").apply()
    assert table.late_rows() == 1
    assert ids(table.changes(0, late_rows="drop", columns=["id", "v"])) == [1]


def test_a_table_without_a_watermark_has_no_late_rows_to_ask_for():
    table = make("id BIGINT, ts TIMESTAMP(3)")
    table.append(rows([1], [100]))
    for ask in (
        table.late_rows,
        lambda: table.changes(0, late_rows="drop"),
        lambda: table.tail(late_rows="only"),
    ):
        with pytest.raises(OptionError, match="no watermark definition"):
            ask()
    assert table.watermark is None


def test_watermarks_beyond_all_times_make_everything_late():
    """Some engines end a stream with the watermark of for ever."""
    (event_time,) = parse_columns("ts TIMESTAMP(3)")
    assert str(late(event_time, 2**63 - 1)) == "ts IS NOT NULL"
    assert str(on_time(event_time, 2**63 - 1)) == "ts IS NULL"
    assert str(late(event_time, -(2**62))) == "FALSE"
    assert str(on_time(event_time, -(2**62))) == "ts >= TIMESTAMP_NTZ '0001-01-01 00:00:00' OR ts IS NULL"

"""A row from a wrong clock does not ruin the watermark, and what ruined one is mended."""

import itertools
import json
import logging

import pyarrow as pa
import pytest

import anabranch
from tests.branches.replacing import BEGIN, Time, timed
from tests.support.tables import make_table

_names = itertools.count()

FAR = 253_370_764_800_000
"""The year 9999."""
DAY, SECOND = 86_400_000, 1_000
DEFINED = (
    "id BIGINT NOT NULL, ts TIMESTAMP(3) WITH LOCAL TIME ZONE, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
)


def _table(**options):
    named = {key.replace("_", "."): value for key, value in options.items()}
    return timed(make_table(f"memory://clocks{next(_names)}", schema=DEFINED, options=named), Time())


def _events(*millis, source=None):
    columns = {
        "id": pa.array(range(len(millis)), pa.int64()),
        "ts": pa.array(millis, pa.timestamp("ms", "UTC")),
    }
    return pa.table(columns if source is None else {**columns, "_source": [source] * len(millis)})


def _ruined():
    """A table that was written when there was no bound."""
    table = _table()
    unbounded = table.with_options({"watermark.max-ahead": "9999999 d"})
    table.append(_events(BEGIN))
    unbounded.append(_events(BEGIN + SECOND, FAR))
    assert table.watermark == FAR - 5 * SECOND
    return table


def test_a_row_from_the_year_9999_is_kept_and_does_not_move_the_watermark(caplog):
    table = _table()
    table.append(_events(BEGIN))
    with caplog.at_level(logging.WARNING):
        table.append(_events(BEGIN + SECOND, FAR, FAR, None))
    assert table.watermark == BEGIN + SECOND - 5 * SECOND
    assert table.scan().to_arrow().num_rows == 5, "such rows are stored"
    assert table.snapshot.properties["anabranch.rows-ahead"] == "2"
    assert "2 rows of 'db.t' have event times too far ahead" in caplog.text
    table.append(_events(BEGIN + 2 * SECOND))
    assert table.watermark == BEGIN + 2 * SECOND - 5 * SECOND
    assert "anabranch.rows-ahead" not in table.snapshot.properties, "it is about one commit"
    assert table.late_rows(2) == 0


def test_the_bound_is_an_option():
    table = _table()
    table.append(_events(BEGIN + 20 * 3_600_000))
    assert table.watermark == BEGIN + 20 * 3_600_000 - 5 * SECOND, "less than a day ahead"
    strict = _table(**{"watermark_max-ahead": "1 h"})
    strict.append(_events(BEGIN, BEGIN + 20 * 3_600_000))
    assert strict.watermark == BEGIN - 5 * SECOND


def test_only_rows_that_are_ahead_say_nothing():
    table = _table()
    table.append(_events(FAR))
    assert table.watermark is None
    table.append(_events(BEGIN))
    assert table.watermark == BEGIN - 5 * SECOND


def test_a_source_with_a_wrong_clock_holds_nothing_up_and_moves_nothing():
    table = _table(**{"sink_watermark_source-column": "_source"})
    table.append(_events(BEGIN, source="a"))
    table.append(_events(FAR, source="b"))
    assert table.watermark == BEGIN - 5 * SECOND
    assert set(json.loads(table.snapshot.properties["anabranch.watermark"])["producers"]["batch"]) == {"a"}
    table.append(_events(BEGIN + SECOND, source="b"))
    assert table.watermark == BEGIN - 5 * SECOND, "the lowest over the sources"


def test_timestamps_of_every_precision_are_bounded():
    for precision, unit in ((0, "s"), (3, "ms"), (6, "us")):
        schema = f"id BIGINT, ts TIMESTAMP({precision}), WATERMARK FOR ts AS ts"
        table = timed(make_table(f"memory://clocks{next(_names)}", schema=schema), Time())
        times = (
            pa.array([BEGIN // 1000, FAR // 1000], pa.int64())
            .cast(pa.timestamp("s"))
            .cast(pa.timestamp(unit))
        )
        table.append(pa.table({"id": [1, 2], "ts": times}))
        assert table.watermark == BEGIN, unit


def test_a_rollback_gives_back_the_watermark_of_its_rows():
    table = _ruined()
    table.rollback(1)
    assert table.watermark == BEGIN - 5 * SECOND
    table.append(_events(BEGIN + SECOND))
    assert table.watermark == BEGIN - 4 * SECOND
    assert table.late_rows(3) == 0


def test_a_replacement_by_commit_gives_back_the_watermark_of_its_rows():
    table = _table()
    table.append(_events(BEGIN))
    table.create_tag("good")
    table.with_options({"watermark.max-ahead": "9999999 d"}).append(_events(FAR))
    table.create_branch("fix", "good")
    table.branch("fix").append(_events(BEGIN + SECOND))
    table.replace_main_branch("fix", mode="commit")
    assert table.watermark == BEGIN - 4 * SECOND


def test_a_ruined_watermark_is_mended():
    table = _ruined()
    made = table.reset_watermark()
    assert (made.id, made.watermark, made.commit_kind.value) == (3, BEGIN - 5 * SECOND, "COMPACT")
    assert table.reset_watermark().id == 3, "done again it changes nothing"
    table.append(_events(BEGIN + SECOND))
    assert table.watermark == BEGIN - 4 * SECOND
    assert table.scan().to_arrow().num_rows == 4
    assert table.reset_watermark(to=BEGIN - DAY).watermark == BEGIN - DAY
    with pytest.raises(anabranch.InvalidInputError, match="further ahead of the clock"):
        table.reset_watermark(to=FAR)


def test_a_table_that_was_ruined_from_the_start_begins_without_a_watermark():
    table = _table()
    table.with_options({"watermark.max-ahead": "9999999 d"}).append(_events(FAR))
    assert table.reset_watermark().watermark is None
    table.append(_events(BEGIN))
    assert table.watermark == BEGIN - 5 * SECOND


def test_sources_that_were_said_to_be_too_far_are_forgotten():
    table = _table(**{"sink_watermark_source-column": "_source"})
    table.append(_events(BEGIN, source="a"))
    table.with_options({"watermark.max-ahead": "9999999 d"}).append(_events(FAR, source="a"))
    table.reset_watermark()
    table.append(_events(BEGIN + SECOND, source="a"))
    assert table.watermark == BEGIN - 4 * SECOND


def test_reading_by_watermark_after_it_was_set_back():
    table = _table()
    for i in range(6):
        table.append(_events(BEGIN + i * SECOND))
    table.rollback(2)  # snapshot 7
    for i in range(2, 5):
        table.append(_events(BEGIN + i * SECOND + 500))  # snapshots 8 to 10
    zero = BEGIN - 5 * SECOND
    assert [s.watermark - zero for s in reversed(list(table.snapshots()))] == [
        *(0, 1000, 2000, 3000, 4000, 5000),
        *(1000, 2500, 3500, 4500),
    ]
    for asked, expected in ((0, 1), (1000, 2), (1001, 8), (2500, 8), (3000, 9), (4500, 10)):
        assert table.at(watermark=zero + asked).snapshot.id == expected, asked
    with pytest.raises(anabranch.NotFoundError):
        table.at(watermark=zero + 5000)

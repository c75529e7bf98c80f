"""What a micro-batch may record as its watermark, from the offsets of the tables it read; no Spark runs."""

from datetime import datetime, timedelta

import pytest

import anabranch
from anabranch.errors import StorageError
from anabranch.kernel.commit.commit_message import CommitMessage, EventTimes
from anabranch.kernel.commit.watermark import SourceProgress, UnknownLimit
from anabranch.lineage.spark_offsets import BatchOffsets
from anabranch.spark.streams import stream_watermark
from anabranch.spark.streams.stream_watermark import batch_watermark
from anabranch.streaming.offsets import BEGINNING, Offset, Position

COLUMNS = "id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
ROWS_OF_500_SECONDS = [CommitMessage(b"", 0, -1, (), EventTimes(500_000)), CommitMessage(b"", 0, -1, ())]


def of(*seconds):
    return [{"id": n, "ts": datetime(1970, 1, 1) + timedelta(seconds=s)} for n, s in enumerate(seconds)]


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path / "warehouse"))


@pytest.fixture
def source(lake):
    """Its snapshots have the watermarks 95, 195 and 295 seconds."""
    table = lake.create_table("db.src", COLUMNS)
    for seconds in (100, 200, 300):
        table.append(of(seconds))
    return table


@pytest.fixture
def target(lake):
    return lake.create_table("db.dst", COLUMNS)


def end_of(table, position):
    return Offset(table.table_uuid, table.branch_uuid, table.name, position).to_dict()


def at(table, number, **how):
    return Position(number, table.context.snapshots.get(number).stamp, **how)


def said(target, *ends, files=ROWS_OF_500_SECONDS, metadata=None, **options):
    offsets = BatchOffsets(metadata or {}, {str(place): end for place, end in enumerate(ends)})
    options = {**target.options, "path": target.context.storage.url.removeprefix("file://"), **options}
    return batch_watermark(target.schema, options, files, offsets, producer="job", is_first=False, now=10**15)


def test_it_is_not_ahead_of_what_the_table_recorded(source, target):
    assert said(target) == 495_000
    assert said(target, end_of(source, at(source, 3))) == 295_000
    assert said(target, end_of(source, at(source, 2))) == 195_000
    assert said(target, end_of(source, at(source, 3)), files=[]) is None, (
        "rows that are not there say nothing"
    )


@pytest.mark.parametrize(
    ("number", "how", "expected"),
    [
        (3, {"files": 1}, 195_000),
        (2, {"files": 0}, 95_000),
        (1, {"files": 1}, None),
        (3, {"files": 1, "full": True}, None),
    ],
    ids=str,
)
def test_in_the_middle_of_a_snapshot_it_has_not_come_so_far(source, target, number, how, expected):
    assert said(target, end_of(source, at(source, number, **how))) == expected


def test_of_several_tables_the_slowest_decides_also_if_it_had_no_rows(source, target, lake):
    other = lake.create_table("db.other", COLUMNS)
    other.append(of(50))
    ends = [end_of(source, at(source, 3)), end_of(other, at(other, 1))]
    assert said(target, *ends) == 45_000
    assert said(target, *ends, None, {"orders": {"0": 17}}) == 45_000, "what else is read does not matter"


def test_where_the_table_has_no_watermark_yet_there_is_none(source, target, lake):
    empty = lake.create_table("db.empty", COLUMNS)
    assert said(target, end_of(source, at(source, 3)), end_of(empty, BEGINNING)) is None
    without = lake.create_table("db.plain", "id BIGINT, ts TIMESTAMP(3)")
    assert said(target, end_of(without, BEGINNING)) == 495_000
    without.append(of(1))
    assert said(target, end_of(without, at(without, 1))) == 495_000, "a table that has none bounds nothing"


def test_an_expired_snapshot_says_nothing_unless_the_offset_does(source, target):
    position, known = at(source, 1), at(source, 1, watermark=95_000)
    source.context.storage.delete(source.context.layout.snapshot_path(1))
    assert said(target, end_of(source, position)) is None
    assert said(target, end_of(source, known)) == 95_000


def test_a_table_of_another_warehouse_bounds_nothing(source, target, tmp_path):
    elsewhere = anabranch.connect(str(tmp_path / "elsewhere")).create_table("db.far", COLUMNS)
    elsewhere.append(of(1))
    assert said(target, end_of(elsewhere, at(elsewhere, 1))) == 495_000
    namesake = anabranch.connect(str(tmp_path / "elsewhere")).create_table("db.src", COLUMNS)
    namesake.append(of(1))
    assert said(target, end_of(namesake, at(namesake, 1))) == 495_000
    lost = said(target, end_of(source, at(source, 3)), path="db.dst", warehouse=str(tmp_path / "warehouse"))
    assert lost == 295_000, "the sink may be named in its warehouse too"


def test_a_branch_is_bounded_by_itself(source, target, lake):
    source.create_tag("good")
    end = Offset(source.table_uuid, "another-branch", "db.src$branch_gone", at(source, 3)).to_dict()
    assert said(target, end) == 495_000


def test_what_cannot_be_found_out_holds_it_but_fails_nothing(source, target, monkeypatch, caplog):
    def broken(_options, _name):
        raise StorageError("the store is away", retryable=True)

    monkeypatch.setattr(stream_watermark, "neighbour", broken)
    assert said(target, end_of(source, at(source, 3))) is None
    assert "the store is away" in caplog.text
    assert said(target, {"source": "anabranch", "version": 99}) is None
    assert (
        batch_watermark(
            target.schema, {}, ROWS_OF_500_SECONDS, None, producer="job", is_first=True, now=10**15
        )
        is None
    )


def test_with_sources_of_its_own_the_tables_bound_it_too(source, target):
    by_source = {"sink.watermark.source-column": "_source"}
    files = [CommitMessage(b"", 0, -1, (), EventTimes(500_000, {"a": 500_000}))]
    progress = said(target, end_of(source, at(source, 3)), files=files, **by_source)
    assert progress == SourceProgress("job", {"a": 500_000}, 5_000, 295_000)
    progress = said(target, {"orders": {"0": 17, "1": 0}, "re-turns": {"0": 1}}, files=files, **by_source)
    assert progress.expected == {"orders-0", "orders-1", "re-turns-0"}
    progress = said(target, {"source": "anabranch", "version": 99}, files=files, **by_source)
    assert isinstance(progress.limit, UnknownLimit)


def test_without_a_definition_it_is_what_spark_has(source, lake):
    plain = lake.create_table("db.plain", "id BIGINT, ts TIMESTAMP(3)")
    ends = [end_of(source, at(source, 3))]
    assert said(plain, *ends, metadata={"batchWatermarkMs": 7}) == 7
    assert said(plain, *ends) is None
    defined = lake.create_table("db.defined", COLUMNS)
    assert said(defined, *ends, metadata={"batchWatermarkMs": 7}) == 295_000, "Spark's is a batch behind"

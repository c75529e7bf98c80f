"""What a supervised job has not read does not expire, however long it is stopped."""

import json
import os

import pytest

import anabranch
from anabranch.errors import InvalidInputError, StorageError
from anabranch.jobs.checkpoint import opened
from anabranch.jobs.pins import SourcePins, positions_of
from anabranch.jobs.prepare import Run
from anabranch.jobs.runner import Runner
from anabranch.jobs.trigger import Schedule
from anabranch.kernel.log.consumers import find_consumer
from anabranch.runtime import Runtime
from anabranch.streaming.offsets import Offset, Position
from tests.jobs.supervising import Time
from tests.support.tables import make_table, rows


@pytest.fixture
def table(tmp_path):
    made = make_table(tmp_path)
    for number in range(5):
        made.append(rows(number, 1))
    return made


def job(source="db.t"):
    return anabranch.job("clean", sources={"raw": source}, sink="db.orders")(lambda raw: raw)


def at(table, number, files=None):
    position = Position(number, table.context.snapshots.get(number).stamp, files)
    return Offset(table.table_uuid, table.branch_uuid, "db.t", position)


def pins(table, source="db.t"):
    time = Time()
    lake = anabranch.connect(table.context.storage.url.removesuffix("/db.db/t"))
    return SourcePins(job(source), lake, Runtime(clock=time, ids=time, sleeper=time)), time


def next_of(table, name="job-clean"):
    found = find_consumer(table.context, name)
    return None if found is None else found.next_snapshot


def test_what_comes_next_is_kept_from_expiring(table):
    holding, _ = pins(table)
    holding.reached([at(table, 2)])
    assert next_of(table) == 3
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    assert table.context.snapshots.earliest_id() == 3
    table.system("consumers")


def test_all_that_is_there_is_kept_until_the_first_batch_is_done(table):
    """A first batch that took longer than the retention lost what came meanwhile, and the job could not go on."""
    table.expire_snapshots(retain_max=3, retain_min=1, older_than=2**60)
    first = table.context.snapshots.earliest_id()
    holding, _ = pins(table)
    holding.begin()
    assert next_of(table) == first
    for number in range(5, 9):
        table.append(rows(number, 1))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    assert table.context.snapshots.earliest_id() == first
    holding.reached([at(table, 6)])
    assert next_of(table) == 7
    other, _ = pins(table)
    other.begin()
    assert next_of(table) == 7, "the next start finds it"


def test_a_job_that_is_refused_when_it_begins_anew_leaves_no_consumer(table):
    refused, _ = pins(table)
    refused.begin(anew=True)
    assert next_of(table) == 1
    refused.withdraw()
    assert next_of(table) is None
    pins(table)[0].reached([at(table, 4)])
    refused.begin(anew=True)
    refused.withdraw()
    assert next_of(table) == 5, "what an earlier run had read is held on"
    restarted, _ = pins(table)
    restarted.begin()
    restarted.withdraw()
    assert next_of(table) == 5, "one that goes on had not begun anew"


@pytest.mark.parametrize(
    ("error", "is_begun", "left"),
    [
        (InvalidInputError("no way"), False, None),
        (StorageError("it is away", retryable=True), False, 1),  # it is tried again
        (InvalidInputError("no way"), True, 1),  # what its state is made of may be read once more
    ],
)
def test_a_refused_start_leaves_a_consumer_only_if_it_is_needed(table, tmp_path, error, is_begun, left):
    holding, _ = pins(table)
    runner = Runner(holding._lake, Run(), Schedule(), holding._runtime, pins_sources=True)
    checkpoint = opened(str(tmp_path / "checkpoint"), {})

    def start():
        with runner._holding(job(), checkpoint):
            assert next_of(table) == 1
            if is_begun:
                checkpoint.storage.put("metadata", b"{}")
            raise error

    with pytest.raises(type(error)):
        start()
    assert next_of(table) == left


def test_a_job_that_begins_anew_holds_all_that_is_left_once_more(table):
    """Its state is made again of all of it; an expiry in between made the job fail for good."""
    pins(table)[0].reached([at(table, 4)])
    restarted, _ = pins(table)
    restarted.begin()
    assert next_of(table) == 5
    restarted.begin(anew=True)
    assert next_of(table) == 1
    restarted.reached([at(table, 4)])
    assert next_of(table) == 5


def test_a_table_without_a_snapshot_is_held_from_its_first_one(tmp_path):
    table = make_table(tmp_path)
    holding, _ = pins(table)
    holding.begin()
    for number in range(4):
        table.append(rows(number, 1))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    assert table.context.snapshots.earliest_id() == 1


def test_it_follows_at_most_every_ten_seconds_and_when_the_job_ends(table):
    holding, time = pins(table)
    holding.reached([at(table, 1)])
    holding.reached([at(table, 2)])
    assert next_of(table) == 2
    time.sleep(10)
    holding.reached([at(table, 3, files=0)])
    assert next_of(table) == 3, "snapshot 3 is not read to its end"
    holding.reached([at(table, 4)], now=True)
    assert next_of(table) == 5


def test_a_source_with_a_consumer_of_its_own_keeps_that(table):
    holding, _ = pins(table, anabranch.stream("db.t", {"consumer-id": "mine"}))
    holding.begin()
    holding.reached([at(table, 2)])
    assert next_of(table) is None


def test_another_table_of_that_name_is_left_alone(table):
    holding, _ = pins(table)
    other = Offset("other", "other", "db.t", Position(2, None))
    holding.reached([other])
    assert next_of(table) is None


def test_the_store_may_be_away(table, tmp_path):
    holding, time = pins(table)
    (tmp_path / "db.db").rename(tmp_path / "away")
    holding.reached(
        [at_(table, 2) for at_ in ()] + [Offset(table.table_uuid, "b", "db.t", Position(2, None))]
    )
    (tmp_path / "away").rename(tmp_path / "db.db")
    time.sleep(10)
    holding.reached([at(table, 2)])
    assert next_of(table) == 3


def test_positions_are_taken_from_what_spark_says_of_its_sources(table):
    early, late = at(table, 2), at(table, 4, files=1)
    sources = [
        {"endOffset": json.dumps(late.to_dict())},
        {"endOffset": early.to_dict()},
        {"endOffset": '{"clicks": {"0": 5}}'},
        {"endOffset": None},
        {"endOffset": "{"},
        {"endOffset": json.dumps({**late.to_dict(), "version": 99})},
    ]
    assert positions_of(sources) == (early,), "the earlier of two sources of one table"
    assert positions_of([]) == ()


def test_health_tells_of_a_consumer_that_has_not_moved_for_long(table, tmp_path):
    holding, _ = pins(table)
    holding.reached([at(table, 2)])
    assert not [one for one in table.health().findings if "consumer" in one.why]
    path = tmp_path / "db.db/t/consumer/consumer-job-clean"
    days = 8 * 86_400
    os.utime(path, (path.stat().st_atime - days, path.stat().st_mtime - days))
    (found,) = [one for one in table.health().findings if "consumer" in one.why]
    assert "'job-clean' has not moved for 8 days and keeps 3 snapshots" in found.why
    assert found.command == "anabranch consumers db.t --delete job-clean"

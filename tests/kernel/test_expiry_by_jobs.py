"""Jobs that write expire snapshots now and then."""

import pytest

from anabranch.format.records.refs import Consumer
from anabranch.maintenance.expire import expire_after_commit
from tests.kernel.expiring import fill, ids, new_table, through
from tests.support.clock import DAY, HOUR, Clock
from tests.support.faults import run
from tests.support.reached import reached_paths, stored_paths
from tests.support.tables import ids_of


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    return new_table(clock)


def test_a_job_expires_what_is_due_and_not_more_than_it_may(clock):
    table = new_table(clock, **{"snapshot.expire.limit": "7"})
    context, options = table.context, table.options
    assert expire_after_commit(context, options) is None
    fill(table, 12)
    assert expire_after_commit(context, options) is None, "they are young"
    clock.now += 2 * HOUR
    assert expire_after_commit(context, options).snapshots == (1, 2)
    fill(table, 20)
    assert expire_after_commit(context, options).snapshots == tuple(range(3, 10))
    assert expire_after_commit(context, options).snapshots == (10, 11)
    assert expire_after_commit(context, options) is None
    assert expire_after_commit(context, {**options, "write-only": "true"}) is None
    assert ids_of(table) == [*range(1, 33)]


def test_a_job_asks_little_while_nothing_is_due(table, clock):
    fill(table, 60)
    for expected in (None, None):
        watched = through(table)
        assert expire_after_commit(watched.context, watched.options) is expected
        assert len(watched.context.storage.calls) <= 11
    clock.now += 2 * HOUR
    table.context.storage.put(table.context.layout.consumer_path("c"), Consumer(1).to_json())
    watched = through(table)
    assert expire_after_commit(watched.context, watched.options) is None, "a consumer holds all of it"
    assert len(watched.context.storage.calls) <= 15


def test_where_many_are_kept_a_job_waits_until_it_is_worth_it(clock):
    table = new_table(clock, **{"snapshot.num-retained.max": "60"})
    fill(table, 58)
    expired = []
    for _ in range(10):
        fill(table, 1)
        done = expire_after_commit(table.context, table.options)
        expired.append(0 if done is None else len(done.snapshots))
        assert len(ids(table)) <= 63
    assert expired == [0, 0, 0, 0, 3, 0, 0, 3, 0, 0]


EXPIRING = {"snapshot.num-retained.min": "5", "snapshot.time-retained": "30 min"}


def test_appending_expires_now_and_then_and_write_only_never(clock):
    table = new_table(clock, **EXPIRING)
    fill(table, 100, clock=clock, expires=True)
    kept = [snapshot.id for snapshot in table.snapshots()]
    assert kept[0] == 100
    assert 30 <= len(kept) <= 52
    writing = new_table(clock, **EXPIRING, write_only="true")
    fill(writing, 100, clock=clock, expires=True)
    assert len([*writing.snapshots()]) == 100
    assert ids_of(table) == ids_of(writing) == list(range(1, 101))


@pytest.mark.long
def test_jobs_let_go_of_pins_as_expiry_by_hand_does(clock):
    table = new_table(clock, **EXPIRING)
    fill(table, 3, clock=clock, overwrite=True)
    table.rollback(1)  # pins what comes back
    make_savepoint_that_dies(table)
    assert len(table.tags(include_internal=True)) == 3
    clock.now += 2 * DAY
    fill(table, 100, clock=clock, expires=True)
    assert table.tags(include_internal=True) == []
    table.remove_orphan_files("0 s")
    assert stored_paths(table) == reached_paths(table)


def make_savepoint_that_dies(table):
    """It leaves the pin that held its snapshot."""

    class Died(BaseException):
        pass

    def die(_):
        raise Died

    with pytest.raises(Died):
        through(table, run("before", "put_if_absent", die)).create_savepoint()


def test_an_append_is_acknowledged_although_expiring_fails(clock, caplog):
    table = new_table(clock, **EXPIRING)
    fill(table, 79, clock=clock, expires=True)
    table.context.storage.put(table.context.layout.tag_path("bad"), b"{")
    fill(table, 1, clock=clock, expires=True)
    assert ids_of(table) == list(range(1, 81))
    assert "not expired" in caplog.text

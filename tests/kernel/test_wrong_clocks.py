"""One commit from a clock that is a year ahead, or behind: everything that goes by time goes on."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.kernel.log.cache import MetadataCache
from anabranch.lake import Lake
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.support.clock import DAY, HOUR, Clock
from tests.support.moments import rewrite
from tests.support.tables import SCHEMA, ids_of, rows


@pytest.fixture
def clock():
    return Clock()


def new_table(clock, **options):
    runtime = Runtime(clock=clock)
    named = {key.replace("_", "."): value for key, value in options.items()}
    return Lake(MemoryStorage(runtime=runtime), runtime=runtime).create_table("db.t", SCHEMA, options=named)


def append(table, clock, *, off=0):
    """A commit of a machine whose clock is off, three hours after the last one."""
    clock.now += 3 * HOUR
    runtime = Runtime(clock=Clock(clock.now + off))
    anabranch.Table(replace(table.context, runtime=runtime, cache=MetadataCache())).append(
        rows(table.snapshot.id if table.snapshot else 0, 1)
    )
    return clock.now


@pytest.mark.parametrize("off", [365 * DAY, -365 * DAY])
def test_times_go_on_from_the_clocks_that_are_right(clock, off):
    table = new_table(clock)
    append(table, clock)
    append(table, clock, off=off)
    wrong = table.snapshot.time_millis
    assert wrong == (clock.now + off if off > 0 else table.at(1).snapshot.time_millis)
    times = [append(table, clock) for _ in range(3)]
    assert [table.at(number).snapshot.time_millis for number in (3, 4, 5)] == times


@pytest.mark.parametrize("off", [365 * DAY, -365 * DAY])
def test_time_travel(clock, off):
    table = new_table(clock)
    times = [append(table, clock, off=off if number == 3 else 0) for number in range(1, 8)]
    for number, time in enumerate(times, 1):
        if (
            number not in (2, 3) or off > 0
        ):  # of one that is behind it is known only that it came after the one before
            found = table.at(timestamp=time)
            assert (found.snapshot.id, found.moment.is_exact) == (number, True)


def test_time_travel_among_many_of_a_time_still_to_come(clock):
    table = new_table(clock, **{"write-only": "true"})
    early = [append(table, clock) for _ in range(3)]
    late = []
    for _ in range(40):  # stored one after the other, all of one time next year
        late.append(append(table, clock))
        rewrite(table, table.snapshot.id, time_millis=early[0] + 400 * DAY)
    for number in (4, 17, 43):
        assert table.at(timestamp=(early + late)[number - 1] + 1).snapshot.id == number


@pytest.mark.parametrize("off", [365 * DAY, -365 * DAY])
def test_expiry_by_age(clock, off):
    table = new_table(clock)
    for number in range(1, 9):
        append(table, clock, off=off if number == 4 else 0)
    clock.now += HOUR // 2
    gone = table.expire_snapshots(older_than="5 h", retain_min=1)
    assert gone.snapshots == (1, 2, 3, 4, 5)
    assert ids_of(table) == list(range(8))


def test_nothing_is_taken_for_old_because_a_clock_was_behind(clock):
    """What another engine writes goes back in time."""
    table = new_table(clock)
    for _ in range(5):
        append(table, clock)
    rewrite(table, 3, time_millis=1000)
    rewrite(table, 4, properties={})
    assert table.expire_snapshots(older_than="8 h", retain_min=1).snapshots == (1,)


@pytest.mark.parametrize("off", [-2 * DAY, 2 * DAY])
@pytest.mark.parametrize("renamed", [False, True])
def test_tags_are_kept_as_long_as_was_asked_for_whatever_clock_their_creator_has(clock, off, renamed):
    """The tag has the last copy of its rows."""
    table = new_table(clock, **{"snapshot.num-retained.min": "1"})
    append(table, clock)
    runtime = Runtime(clock=Clock(clock.now + off))
    wrong = anabranch.Table(replace(table.context, runtime=runtime, cache=MetadataCache()))
    wrong.create_tag("good", retained="1 d")
    for _ in range(3):
        append(table, clock)
    if renamed:
        table.rename_tag("good", "better")
    clock.now += 12 * HOUR
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    name = "better" if renamed else "good"
    assert ids_of(table.at(name)) == [0]
    clock.now += 4 * HOUR
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert table.tags() == []


@pytest.mark.parametrize("off", [-365 * DAY, 365 * DAY])
def test_branches_are_kept_as_long_as_was_asked_for_whatever_clock_their_creator_has(clock, off):
    table = new_table(clock)
    append(table, clock)
    table.create_tag("good")
    runtime = Runtime(clock=Clock(clock.now + off))
    wrong = anabranch.Table(replace(table.context, runtime=runtime, cache=MetadataCache()))
    wrong.create_branch("fix", "good", retained="1 d")
    clock.now += 23 * HOUR
    table.maintain()
    assert list(table.branches()) == ["fix"]
    clock.now += 2 * HOUR
    table.maintain()
    assert list(table.branches()) == []


def test_jobs_expire(clock):
    table = new_table(clock, **{"snapshot.num-retained.min": "2"})
    append(table, clock, off=365 * DAY)
    for _ in range(45):
        append(table, clock)
    assert len(list(table.snapshots())) < 25


@pytest.mark.parametrize("made_ahead", [True, False])
def test_automatic_tags(clock, made_ahead):
    table = new_table(clock, **{"tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"})
    append(table, clock)
    ahead = table if made_ahead else table.with_options({"tag.automatic-creation": "none"})
    append(ahead, clock, off=365 * DAY)
    for _ in range(16):
        append(table, clock)
    days = [name for name in table.tags() if name < "2024-01"]
    assert days == ["2023-11-14", "2023-11-15", "2023-11-16"]


def test_automatic_savepoints(clock):
    table = new_table(clock, **{"savepoint.create-interval": "1 d"})
    append(table, clock)
    append(table, clock, off=365 * DAY)
    before = len(table.savepoints())
    for _ in range(16):
        append(table, clock)
    assert len(table.savepoints()) >= before + 2


def test_health_tells_it(clock):
    table = new_table(clock)
    append(table, clock)
    assert "still to come" not in str(table.health())
    append(table, clock, off=365 * DAY)
    assert "snapshot 2 of commit user" in str(table.health())
    assert "2024-11-14" in str(table.health())
    append(table, clock)
    assert "still to come" in str(table.health()), "also when it is not the newest"

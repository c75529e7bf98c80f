"""How far a branch is behind main, per source."""

import json

import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.errors import NotFoundError
from tests.jobs.world import World, kafka
from tests.support.foreign_expiry import expire_as_others
from tests.support.tables import make_table, rows

ALL = 10**15
"""A moment after everything, in epoch milliseconds."""


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.arrive(9)
    world.commit(world.read(0, 2), kafka(None, [10, 20]))
    world.commit(world.read(2, 3))
    world.orders.create_branch("fix", snapshot=2)
    return world


def lags(world, branch="fix"):
    return {s.name: (s.kind, s.behind, s.main, s.branch) for s in world.orders.branch_lag(branch).sources}


def test_both_begin_where_main_had_come_to(world):
    assert lags(world) == {"db.raw": ("table", 0, 3, 3)}
    world.commit(world.read(3, 7), kafka([10, 20], [15, 21]))
    assert lags(world) == {"db.raw": ("table", 4, 7, 3), "clicks": ("kafka", 6, 36, 30)}


def test_a_branch_catches_up(world):
    world.commit(world.read(3, 7), kafka([10, 20], [15, 21]))
    world.commit(world.read(3, 5), branch="fix")
    assert lags(world)["db.raw"] == ("table", 2, 7, 5)
    lag = world.orders.branch_lag("fix")
    assert (lag.behind, lag.has_caught_up) == (8, False)
    world.commit(world.read(5, 9), kafka([10, 20], [15, 21]), branch="fix")
    lag = world.orders.branch_lag("fix")
    assert (lag.behind, lag.has_caught_up) == (0, True)
    assert lags(world)["db.raw"] == ("table", 0, 7, 9)


def test_a_partition_that_the_topic_got_since_counts_from_where_main_began_with_it(world):
    world.commit(kafka([10, 20], [10, 20, 5]))
    world.commit(kafka([10, 20, 5], [11, 20, 9]))
    clicks = next(source for source in world.orders.branch_lag("fix").sources if source.kind == "kafka")
    assert (clicks.parts, clicks.behind) == (3, 5)


def test_a_source_that_the_branch_never_read_is_not_known(world):
    more = make_table(world.folder, "db.more")
    more.append(rows(0, 1))
    world.commit(world.read(3, 4), world.read(0, 1, more))
    assert lags(world)["db.more"] == ("table", None, 1, None)
    assert world.orders.branch_lag("fix").behind is None


def test_lookups_are_no_sources(world):
    world.commit(world.read(3, 4), world.looked_up(world.raw, 2))
    assert lags(world) == {"db.raw": ("table", 1, 4, 3)}


def test_the_middle_of_a_snapshot_is_behind(world):
    from dataclasses import replace

    from anabranch.streaming.offsets import Position

    read = world.read(3, 4)
    half = replace(read, end=Position(4, read.end.stamp, files=1))
    world.commit(replace(read, end=Position(4, read.end.stamp, files=2)))
    world.commit(half, branch="fix")
    assert lags(world)["db.raw"][1] == 1


def test_what_is_not_said_is_a_problem(world):
    world.orders.append(rows(500, 1))
    world.commit(world.read(3, 4), problems=("the offset log is gone",), branch="fix")
    world.orders.compact(full=True)
    lag = world.orders.branch_lag("fix")
    assert lag.problems == (
        "main: snapshot 3 does not say what it read",
        "fix: snapshot 3: the offset log is gone",
    )
    assert not lag.has_caught_up


def test_what_expired_counts_as_before(world):
    world.commit(kafka([10, 20], [15, 21]))
    for at in range(3, 8):
        world.commit(world.read(at, at + 1))
    world.commit(world.read(3, 8), branch="fix")
    before = world.orders.branch_lag("fix")
    assert {s.name: s.behind for s in before.sources} == {"clicks": 6, "db.raw": 0}
    world.orders.expire_snapshots(retain_max=2, retain_min=1, older_than=ALL)
    assert world.orders.context.snapshots.earliest_id() > 3
    after = world.orders.branch_lag("fix")
    assert after == before
    assert not after.has_caught_up


def test_what_expired_on_the_branch_counts_as_before(world):
    world.commit(world.read(3, 9), kafka([10, 20], [15, 21]))
    world.commit(kafka([10, 20], [15, 21]), branch="fix")
    for at in range(3, 9):
        world.commit(world.read(at, at + 1), branch="fix")
    before = world.orders.branch_lag("fix")
    assert before.has_caught_up
    world.orders.branch("fix").expire_snapshots(retain_max=2, retain_min=1, older_than=ALL)
    assert world.orders.branch_lag("fix") == before


def test_what_another_engine_removed_is_a_problem(world):
    for at in range(3, 8):
        world.commit(world.read(at, at + 1))
    world.commit(world.read(3, 8), branch="fix")
    expire_as_others(world.orders, 2)
    lag = world.orders.branch_lag("fix")
    assert lag.behind == 0
    assert lag.problems == (
        "main: 3 snapshots had expired, and are not in the archive: what they read is not known",
    )
    assert not lag.has_caught_up


def test_what_was_rolled_back_was_not_read(world):
    world.commit(world.read(3, 7))
    world.commit(world.read(7, 9))
    assert lags(world)["db.raw"] == ("table", 6, 9, 3)
    world.orders.rollback(3)
    assert lags(world)["db.raw"] == ("table", 4, 7, 3)
    world.commit(world.read(7, 8))
    world.commit(world.read(3, 9), branch="fix")
    assert lags(world)["db.raw"] == ("table", 0, 8, 9)
    world.orders.branch("fix").rollback(2)
    assert lags(world)["db.raw"] == ("table", 5, 8, 3)
    lag = world.orders.branch_lag("fix")
    assert lag.problems == ()
    world.orders.rollback(1)
    assert lags(world)["db.raw"] == ("table", 0, 2, 3)


def test_a_branch_of_a_main_that_was_replaced_by_an_older_branch_is_not_known_to_have_caught_up(world):
    world.orders.create_branch("old", snapshot=1)
    for at in range(2, 5):
        world.commit(world.read(at, at + 1), branch="old")
    world.orders.replace_main_branch("old", force=True)
    lag = anabranch.connect(str(world.folder)).table("db.orders").branch_lag("fix")
    assert lag.problems == ("fix: it began with a snapshot 2 that is no part of main any more",)
    assert not lag.has_caught_up


def test_there_is_no_such_branch(world):
    with pytest.raises(NotFoundError, match="branch 'no' does not exist"):
        world.orders.branch_lag("no")


def test_they_can_be_watched(world, capsys):
    world.orders.create_branch("other", snapshot=1)
    world.commit(world.read(3, 7))
    words = ["-w", str(world.folder), "branches", "db.orders", "--watch", "--interval", "0", "--times", "2"]
    assert run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert lines[1].split() == ["fix", "table", "db.raw", "7", "3", "4", "snapshots"]
    assert run([*words, "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(t["branch"], t["behind"], t["caught_up"]) for t in told] == [
        ("fix", 4, False),
        ("other", 5, False),
    ] * 2

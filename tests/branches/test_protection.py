"""What branches share is kept for all of them: expiry, cleaning and rollback on any, by us and by other engines."""

import random
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import pytest

import anabranch
from anabranch.errors import AnabranchError, CommitConflictError, NotFoundError
from anabranch.kernel.log.fork_pins import fork_pin
from tests.branches.creating import FORK_PIN, again, later, pins, tagged
from tests.branches.replacing import timed
from tests.support.deaths import through
from tests.support.faults import run
from tests.support.foreign_expiry import delete_tag_as_others, expire_as_others
from tests.support.lengths import first_short
from tests.support.reached import reached_paths, stored_paths
from tests.support.tables import ids_of, make_table, rows

ALL = {"compaction.min.file-num": "2"}


def small(url, **how):
    """A table in which few files are compacted already."""
    return make_table(url, options=ALL, **how)


# What another engine expires


def test_another_engine_expires_main_and_the_branch_keeps_its_rows():
    table = small("memory://protect-main")
    for n in range(4):
        table.append(rows(n, 1))
    table.create_branch("fix", snapshot=4)
    table.delete_tag("fix")
    table.compact(full=True)
    for n in range(4, 7):
        table.append(rows(n, 1))
    expire_as_others(table, keep=1)
    assert ids_of(table.branch("fix")) == [0, 1, 2, 3]
    assert ids_of(table) == list(range(7))


def test_another_engine_expires_the_branch_and_main_keeps_its_rows():
    table = small("memory://protect-branch")
    for n in range(4):
        table.append(rows(n, 1))
    table.create_tag("good")
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    fix.delete_tag("good")
    fix.compact(full=True)
    fix.append(rows(100, 1))
    expire_as_others(fix, keep=1)
    assert ids_of(table) == ids_of(table.at("good")) == [0, 1, 2, 3]
    assert ids_of(fix) == [0, 1, 2, 3, 100]


@pytest.mark.parametrize("side", ["main", "fix"])
def test_maintenance_restores_a_pin_and_says_so(side):
    table = tagged()
    table.create_branch("fix", "good")
    assert table.maintain().branches.pins.restored == ()
    place = table if side == "main" else table.branch("fix")
    pin = fork_pin(table.branch("fix").branch_uuid)
    place.context.storage.delete(place.context.layout.tag_path(pin))
    assert "restored the pins of branches fix" in str(table.maintain(dry_run=True))
    assert pin not in place.tags(include_internal=True)
    assert table.maintain().branches.pins.restored == ("fix",)
    assert place.tag(pin).snapshot == table.tag("good").snapshot
    assert table.maintain().branches.pins.restored == ()


def test_maintenance_says_when_nothing_is_left_of_a_beginning():
    table = tagged()
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    for n in range(3):
        fix.append(rows(100 + n, 1))
    for view in (table, fix):
        for name in view.tags(include_internal=True):
            view.context.storage.delete(view.context.layout.tag_path(name))
    for view in (table, fix):
        expire_as_others(view, keep=1)
    assert table.maintain().branches.pins.lost == ("fix",)
    assert ids_of(fix) == [0, 1, 2, 100, 101, 102]


# Rollback


def test_rolling_main_back_for_good_takes_branches_that_began_later():
    table = tagged()
    table.create_branch("early", "good")
    table.create_branch("late", snapshot=5)
    with pytest.raises(CommitConflictError, match=r"branch 'late' \(snapshot 5\)") as error:
        table.rollback(4, destructive=True)
    assert "early" not in error.value.message
    assert FORK_PIN not in error.value.message
    table.rollback(4, destructive=True, force=True)
    assert table.branches() == ["early"]
    assert pins(table) == [f"{FORK_PIN}{table.branch('early').branch_uuid}"]
    assert (ids_of(table), ids_of(table.branch("early"))) == ([0, 1, 2, 3], [0, 1, 2])


def test_where_a_branch_began_is_read_and_not_guessed():
    """Its oldest snapshot may be younger than what main is rolled back to, though it began before."""
    table = tagged()
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    for n in range(6):
        fix.append(rows(100 + n, 1))
    for name in fix.tags(include_internal=True):
        fix.context.storage.delete(fix.context.layout.tag_path(name))
    fix.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    assert min(s.id for s in fix.snapshots()) == 8
    table.rollback(4, destructive=True)
    assert table.branches() == ["fix"]
    assert ids_of(fix) == [0, 1, 2, 100, 101, 102, 103, 104, 105]


def test_rolling_a_branch_back_leaves_main_alone():
    table = tagged()
    table.create_branch("fix", "good")
    table.create_branch("other", snapshot=6)
    fix = table.branch("fix")
    fix.append(rows(100, 1))
    fix.append(rows(101, 1))
    fix.rollback(4)
    assert ids_of(fix) == [0, 1, 2, 100]
    fix.rollback(3, destructive=True)
    assert (ids_of(fix), ids_of(table), table.branches()) == ([0, 1, 2], [0, 1, 2, 3, 4, 5], ["fix", "other"])
    fix.append(rows(102, 1))
    assert ids_of(table.branch("fix")) == [0, 1, 2, 102]


# Random histories


@dataclass
class World:
    """A table with branches, and what every ref of it must show."""

    rng: random.Random
    table: anabranch.Table
    next_row: int = 0
    made: int = 0
    shown: dict = field(default_factory=dict)
    """By branch and version what was there when the ref was made."""
    snapshots: dict = field(default_factory=dict)
    """By branch and id the rows of every snapshot there ever was."""

    @property
    def views(self):
        return {"main": self.table, **{name: self.table.branch(name) for name in self.table.branches()}}

    def seen(self):
        """Note the rows of the snapshots that are new; one step may make several."""
        for name, view in self.views.items():
            for snapshot in view.snapshots():
                if (name, snapshot.id) in self.snapshots:
                    break
                self.snapshots[name, snapshot.id] = ids_of(view.at(snapshot.id))

    def name(self):
        self.made += 1
        return f"n{self.made}"

    def step(self):
        name, view = self.rng.choice([*self.views.items()])
        act = self.rng.choice(ACTIONS)
        with suppress(NotFoundError, CommitConflictError):
            act(self, name, view)
        self.seen()
        self.check()

    def check(self):
        assert reached_paths(self.table) <= stored_paths(self.table)
        for name, view in self.views.items():
            for snapshot in view.snapshots():
                assert ids_of(view.at(snapshot.id)) == self.snapshots[name, snapshot.id]
            for (branch, version), ids in [*self.shown.items()]:
                if branch == name:
                    assert ids_of(view.at(version)) == ids, (branch, version)

    def forget(self, branch, version=None):
        gone = [key for key in self.shown if key[0] == branch and version in (None, key[1])]
        for key in gone:
            del self.shown[key]


def append(world, _name, view):
    count = world.rng.randrange(1, 4)
    view.append(rows(world.next_row, count))
    world.next_row += count


def overwrite(world, _name, view):
    view.overwrite(rows(world.next_row, 1))
    world.next_row += 1


def compact(_world, _name, view):
    view.compact(full=True)


def create_tag(world, name, view):
    tag = world.name()
    snapshot = world.rng.choice([*view.snapshots()])
    view.create_tag(tag, snapshot.id)
    world.shown[name, tag] = world.snapshots[name, snapshot.id]


def delete_tag(world, name, view):
    tag = world.rng.choice(view.tags() or [""])
    delete = world.rng.choice([lambda: view.delete_tag(tag), lambda: delete_tag_as_others(view, tag)])
    if tag:
        delete()
        world.forget(name, tag)


def create_savepoint(world, name, view):
    saved = view.create_savepoint()
    world.shown[name, f"savepoint.{saved.id}"] = ids_of(view)


def delete_savepoint(world, name, view):
    saved = world.rng.choice(view.savepoints() or [None])
    if saved is not None:
        view.delete_savepoint(saved.id)
        world.forget(name, f"savepoint.{saved.id}")


def create_branch(world, _name, _view):
    if len(world.table.branches()) > 2:
        return
    branch = world.name()
    snapshot = world.rng.choice([*world.table.snapshots()]).id
    world.table.create_branch(branch, snapshot=snapshot)
    world.snapshots[branch, snapshot] = world.snapshots["main", snapshot]
    world.shown["main", branch] = world.shown[branch, branch] = world.snapshots["main", snapshot]


def delete_branch(world, name, _view):
    if name != "main":
        world.table.delete_branch(name)
        world.forget(name)


def expire(world, _name, view):
    keep = world.rng.randrange(2, 4)
    view.expire_snapshots(retain_max=keep, retain_min=1, older_than="0 s")


def expire_elsewhere(world, _name, view):
    expire_as_others(view, keep=world.rng.randrange(1, 4))


def clean(_world, _name, view):
    view.remove_orphan_files(older_than="0 s")


def roll_back(world, _name, view):
    view.rollback(world.rng.choice([*view.snapshots()]).id)


def maintain(world, _name, _view):
    found = later(world.table, 25 * 3_600_000)
    found.maintain()


ACTIONS = [append] * 4 + [overwrite, compact, create_tag, delete_tag, create_savepoint, delete_savepoint] * 2 + [
    *(create_branch, create_branch, delete_branch, expire, expire, expire_elsewhere, clean, roll_back, maintain),
]  # fmt: skip


def live(seed, steps):
    world = World(random.Random(seed), small(f"memory://protected{seed}"))
    append(world, "main", world.table)
    world.seen()
    for _ in range(steps):
        world.step()
    for name in world.table.branches():
        world.table.delete_branch(name)
        world.forget(name)
    world.check()
    clean(world, "main", world.table)
    assert stored_paths(world.table) == reached_paths(world.table)


@pytest.mark.parametrize("seed", first_short(range(2)))
def test_nothing_that_a_ref_reaches_is_removed(seed):
    live(seed, steps=25)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_nothing_that_a_ref_reaches_is_removed_for_long(seed):
    live(seed, steps=120)


def test_everything_goes_with_the_last_that_held_it():
    table = tagged()
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    fix.overwrite(rows(100, 2))
    fix.create_savepoint()
    table.delete_branch("fix")
    table.delete_tag("good")
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    table.remove_orphan_files(older_than="0 s")
    assert stored_paths(table) == reached_paths(table)
    assert ids_of(table) == [0, 1, 2, 3, 4, 5]


def test_a_consumer_of_a_branch_keeps_its_snapshots_and_not_mains():
    table = tagged()
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    for _ in fix.tail(consumer="etl", idle=0):
        pass
    for n in range(4):
        fix.append(rows(100 + n, 1))
        table.append(rows(6 + n, 1))
    fix.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    assert len([*fix.snapshots()]) == 4
    assert len([*table.snapshots()]) == 2
    assert sorted(i for batch in fix.tail(consumer="etl", idle=0) for i in batch["id"].to_pylist()) == [
        *(100, 101, 102, 103)
    ]


def test_what_is_half_made_of_another_engine_keeps_what_it_names():
    table = tagged()
    storage = table.context.storage
    storage.put("branch/branch-half/tag/tag-good", storage.get("tag/tag-good"))
    table.delete_tag("good")
    for clean in (
        lambda: table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s"),
        table.maintain,
    ):
        clean()
        table.remove_orphan_files(older_than="0 s")
    storage.put("tag/tag-good", storage.get("branch/branch-half/tag/tag-good"))
    assert ids_of(again(table).at("good")) == [0, 1, 2]
    storage.put("branch/branch-half/snapshot/snapshot-3", storage.get("tag/tag-good"))
    with pytest.raises(AnabranchError, match="holds no schema"):
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    table.delete_branch("half")
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")


@pytest.mark.parametrize("nth", range(1, 13))
def test_a_replacement_that_is_overtaken_by_a_deletion_stops_no_maintenance(nth):
    """The branch is deleted in between the calls of its replacement, which puts tags in its folder and goes on."""
    table = timed(tagged())
    table.create_branch("fix", "good")
    table.branch("fix").append(rows(100, 1))
    table.create_savepoint(2)
    seen = count(1)

    def delete(_path):
        if next(seen) == nth:
            again(table).delete_branch("fix")

    late = through(table, *(run("before", call, delete, times=10**9) for call in ("put", "put_if_absent")))
    with suppress(AnabranchError):
        late.replace_main_branch("fix", force=True)
    table = again(table)
    assert ids_of(table) in ([*range(6)], [0, 1, 2, 100])
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    table.maintain()
    table.remove_orphan_files()
    assert ids_of(table.at("good")) == [0, 1, 2]


def test_rolling_main_back_for_good_past_a_merge_lets_go_of_what_it_made():
    table = tagged()
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    fix.append(rows(100, 1))
    table.merge_branch("fix")
    assert ids_of(table) == [0, 1, 2, 3, 4, 5, 100]
    table.rollback(6, destructive=True)
    assert (ids_of(table), ids_of(fix)) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 100])
    assert not [name for name in table.tags(include_internal=True) if "merge" in name]
    table.merge_branch("fix")
    assert ids_of(table) == [0, 1, 2, 3, 4, 5, 100]

"""Both sides read the same events: merging would double them."""

from dataclasses import dataclass, field
from random import Random

import pytest

import anabranch
from anabranch.format.records.history_segment import HistorySegment
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.archive import segment_names
from anabranch.kernel.merge.plan import Commits
from anabranch.kernel.provenance.past import after
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, SourceInput
from anabranch.lineage.overlap import duplicate_sources, first_overlap
from tests.branches.merging import branched, conflicts_of, contents, parted, rows, written
from tests.support.foreign_expiry import expire_as_others


def read(table, ids, topic, start, end, partition="0"):
    """A commit of a job that read these offsets."""
    source = SourceInput("kafka", topic, {topic: {partition: start}}, {topic: {partition: end}})
    entry = LineageEntry("job", None, None, Engine("test"), (source,))
    action = Append(written(table, ids, "a"))
    return table.commit(action, properties={LINEAGE_PROPERTY: entry.to_json()}).snapshot


def test_events_that_main_has_from_the_same_source_are_a_conflict():
    table, fix = parted()
    read(table, [50], "orders", 100, 200)
    last = read(table, [51], "orders", 200, 300)
    read(fix, [10], "orders", 250, 400)
    (conflict,) = table.merge_branch("fix", dry_run=True).conflicts
    assert (conflict.kind, conflict.partition) == ("DUPLICATE_SOURCE_RANGE", None)
    assert conflict.snapshots == (last.id,)
    assert conflicts_of(table, resolve="theirs") == [("DUPLICATE_SOURCE_RANGE", None)]
    table.merge_branch("fix", allow_source_overlap=True)
    assert contents(table, "a") == [1, 2, 50, 51, 10]


@pytest.mark.parametrize(
    ("topic", "start", "end", "partition"),
    [("orders", 200, 300, "0"), ("orders", 0, 100, "0"), ("orders", 100, 200, "1"), ("other", 100, 200, "0")],
)
def test_other_events_are_none(topic, start, end, partition):
    table, fix = parted()
    read(table, [50], "orders", 100, 200)
    read(fix, [10], topic, start, end, partition)
    assert conflicts_of(table) == []


def test_what_was_merged_before_is_not_asked_about_again():
    table, fix = parted()
    read(table, [50], "orders", 100, 200)
    read(fix, [10], "orders", 100, 200)
    table.merge_branch("fix", allow_source_overlap=True)
    read(fix, [11], "orders", 200, 300)
    assert conflicts_of(table) == []


def test_many_ranges_are_compared_each_with_each():
    table, fix = parted()
    ours = [read(table, [50 + i], "orders", 20 * i, 20 * i + 10) for i in range(5)]
    theirs = [read(fix, [10 + i], "orders", 20 * i + 10, 20 * i + 20) for i in range(5)]
    main, begun = Commits(table.context, ours[0].id - 1, ours), theirs[0].id - 1
    assert duplicate_sources(main, Commits(fix.context, begun, theirs)) == []
    across = read(fix, [20], "orders", 49, 61)
    (conflict,) = duplicate_sources(main, Commits(fix.context, begun, [*theirs, across]))
    assert conflict.snapshots == (ours[2].id, ours[3].id)


def expire(*branches):
    """Expire all but the newest two snapshots of each, so that only the archive knows what the others read."""
    for branch in branches:
        for number in range(3):
            branch.append(rows([90 + number], "z"))
        branch.expire_snapshots(retain_max=2, retain_min=2)
        assert len([*branch.snapshots()]) == 2


WHO = pytest.mark.parametrize("who", [("main",), ("fix",), ("main", "fix")], ids="-".join)


@WHO
@pytest.mark.parametrize("merged", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("noted", [False, True], ids=["without notes", "with notes"])
def test_what_has_expired_is_not_forgotten(who, merged, noted, monkeypatch):
    monkeypatch.setattr("anabranch.kernel.provenance.notes.WORTH", 1 if noted else 1 << 20)
    table, fix = parted()
    if merged:
        read(table, [49], "orders", 0, 100)
        read(fix, [9], "others", 0, 100)
        table.merge_branch("fix")
    there = read(table, [50], "orders", 100, 200)
    read(fix, [10], "orders", 150, 250)
    expire(*({"main": table, "fix": fix}[one] for one in who))
    (conflict,) = table.merge_branch("fix", dry_run=True).conflicts
    assert (conflict.kind, conflict.snapshots) == ("DUPLICATE_SOURCE_RANGE", (there.id,))
    assert "topic orders 0" in conflict.message
    table.merge_branch("fix", allow_source_overlap=True)
    read(fix, [11], "orders", 250, 300)
    expire(fix)
    assert conflicts_of(table) == []


@WHO
def test_what_has_expired_and_was_rolled_back_before_is_no_conflict(who):
    table, fix = parted()
    good = table.snapshot.id
    read(table, [50], "orders", 100, 200)
    table.rollback(good)
    read(fix, [10], "orders", 150, 250)
    table.append(rows([60], "z"))
    expire(*({"main": table, "fix": fix}[one] for one in who))
    assert "DUPLICATE_SOURCE_RANGE" not in {kind for kind, _ in conflicts_of(table)}


def test_what_main_rolled_back_to_before_the_branch_is_no_conflict():
    table, _ = parted()
    begun = table.snapshot.id
    table.append(rows([4], "z"))
    fix = branched(table, "late")
    read(table, [50], "orders", 0, 100)
    table.rollback(begun)
    read(fix, [10], "orders", 0, 100)
    assert conflicts_of(table, "late") == [("APPEND_VS_OVERWRITE", "dt=a")], (
        "what the rollback removed was in there"
    )
    table.merge_branch("late", resolve="theirs")
    assert contents(table, "a") == [1, 2, 10]


def test_what_a_branch_rolled_back_to_before_the_last_merge_is_no_conflict():
    table, fix = parted()
    begun = fix.snapshot.id
    read(fix, [10], "orders", 0, 100)
    table.merge_branch("fix")
    read(fix, [11], "orders", 100, 200)
    fix.rollback(begun)
    read(fix, [12], "orders", 200, 300)
    read(table, [50], "orders", 100, 200)
    kept = table.merge_branch("fix", resolve="theirs")
    assert contents(table, "a") == [1, 2, 12]
    table.rollback(kept.snapshot.id - 1)
    read(table, [51], "orders", 200, 300)
    assert ("DUPLICATE_SOURCE_RANGE", None) in conflicts_of(table, resolve="theirs")


@dataclass
class Modelled:
    """What a main of which every commit reads one event has, by a model that keeps the events of every moment."""

    table: anabranch.Table
    moments: dict[int, frozenset[int]] = field(default_factory=dict)
    """Events that are in the table at a snapshot."""
    merged: set[int] = field(default_factory=set)
    """Those that the branch that is merged has read."""

    def note(self, events):
        self.moments[self.table.snapshot.id] = frozenset(events)

    @property
    def now(self):
        return self.moments[self.table.snapshot.id]

    def step(self, random, event):
        match random.choice(["read", "read", "back", "back", "merge"]):
            case "read":
                before = self.now
                read(self.table, [100 + event], "orders", event, event + 1)
                self.note(before | {event})
            case "back":
                moment = random.choice([*self.moments])  # also one that was undone, or before the branch
                self.table.rollback(moment)
                self.note(self.moments[moment])
            case "merge":
                before = self.now
                read(self.table.branch("other"), [100 + event], "orders", event, event + 1)
                self.merged.add(event)
                if not conflicts_of(self.table, "other"):
                    self.note(before | self.merged)


@pytest.mark.parametrize("seed", range(8))
def test_after_rollbacks_exactly_what_is_in_main_is_a_conflict(seed):
    random, (table, _) = Random(seed), parted()
    model = Modelled(table)
    table.create_tag("first")
    table.create_branch("other", "first")
    model.note(())
    for event in range(2):  # before the branch
        read(table, [100 + event], "orders", event, event + 1)
        model.note(range(event + 1))
    fix, begun, events = branched(table, "late"), table.snapshot.id, 10
    shared = model.now
    reads = [read(fix, [500 + event], "orders", event, event + 1) for event in range(events)]
    for event in range(2, events):
        model.step(random, event)
        done = after([*table.snapshots()][::-1], begun)
        for number, one in enumerate(reads):
            found = duplicate_sources(
                Commits(table.context, begun, done), Commits(fix.context, one.id - 1, [one])
            )
            assert bool(found) == (number in model.now - shared), (number, model.moments)


def test_what_has_expired_of_a_main_that_was_replaced_is_not_forgotten():
    table, fix = parted()
    read(fix, [10], "orders", 150, 250)
    table.create_tag("now")
    table.create_branch("next", tag="now")
    read(table.branch("next"), [50], "orders", 100, 200)
    table.replace_main_branch("next")
    expire(table)
    assert [kind for kind, _ in conflicts_of(table)] == ["DUPLICATE_SOURCE_RANGE"]


def lose(table, first, last):
    """Expire these snapshots of a branch, and damage what the archive has of them."""
    for number in range(3):
        table.append(rows([90 + number], "z"))
    table.expire_snapshots(retain_max=2, retain_min=2)
    storage, layout = table.context.storage, table.context.layout
    for name in segment_names(table.context, table.branch_uuid):
        path = layout.history_path(str(name))
        segment = HistorySegment.from_bytes(storage.get(path), path=path)
        storage.delete(path)
        for one in segment.snapshots:
            alone = HistorySegment(segment.branch, [one], segment.others)
            content = alone.to_bytes()
            storage.put(
                layout.history_path(str(alone.name)), content[:-9] if first <= one.id <= last else content
            )


LOST = [  # what main's job read, which of it is lost, what the branch's job read, whether main has some of that
    ([(0, 100), (100, 200), (200, 300)], [1], (150, 160), True),
    ([(0, 100), (100, 200), (200, 300)], [1], (50, 60), "known"),
    ([(0, 100), (100, 200), (200, 300)], [1], (300, 400), False),
    ([(0, 100), (100, 200), (100, 200)], [1], (200, 300), False),
    ([(0, 100), (100, 200), (200, 300)], [0, 1], (150, 160), True),
    ([(0, 100), (100, 200), (200, 300)], [0, 1], (300, 400), False),
    ([(0, 100), (100, 200), (200, 300)], [1, 2], (250, 400), True),
    ([(0, 100), (100, 200), (200, 300)], [1, 2], (50, 60), "known"),
    ([(0, 100), (100, 100), (100, 100)], [1], (100, 160), False),
    ([(900, 999), (0, 100), (100, 200), (200, 300)], [2], (150, 160), True),
]


@pytest.mark.parametrize(("ours", "lost", "theirs", "there"), LOST)
@pytest.mark.parametrize("sides", ["main", "branch"])
def test_what_lost_commits_read_goes_by_what_their_job_read_around_them(ours, lost, theirs, there, sides):
    table, fix = parted()
    one, other = (table, fix) if sides == "main" else (fix, table)
    ids = [read(one, [50 + i], "orders", *span).id for i, span in enumerate(ours)]
    read(one, [80], "others", 0, 400)
    read(other, [10], "orders", *theirs)
    lose(one, ids[lost[0]], ids[lost[-1]])
    found = table.merge_branch("fix", dry_run=True).conflicts
    assert [conflict.kind for conflict in found] == ["DUPLICATE_SOURCE_RANGE"] * bool(there)
    for conflict in found if sides == "main" else ():
        assert (there == "known") == bool(conflict.snapshots)
        assert "no record is left" in conflict.message or there == "known"


@pytest.mark.parametrize(("start", "there"), [(150, True), (300, False)])
def test_what_another_engine_has_expired_was_read_before_the_first_commit_that_is_left(start, there):
    table, fix = parted()
    for number in range(3):
        read(table, [50 + number], "orders", 100 * number, 100 * (number + 1))
    read(fix, [10], "orders", start, start + 50)
    expire_as_others(table, 1)
    found = table.merge_branch("fix", dry_run=True).conflicts
    assert [c.message for c in found if "no record is left" in c.message] == [c.message for c in found]
    assert bool(found) == there


def test_a_job_that_follows_is_told_of_commits_without_a_record():
    table, _ = parted()
    for number in range(3):
        read(table, [50 + number], "orders", 100 * number, 100 * (number + 1))
    first, _, last = [*table.snapshots()][2::-1]
    source = SourceInput("kafka", "orders", {"orders": {"0": 150}}, {"orders": {"0": 160}})
    entry = LineageEntry("other", None, None, Engine("test"), (source,))
    found = first_overlap(entry, [first, last], after=first.id - 1, besides="nobody")
    assert str(found) == f"snapshot {first.id + 1}, of which no record is left"


def test_lost_commits_that_were_rolled_back_count_for_nothing():
    table, fix = parted()
    good = read(table, [50], "orders", 0, 100).id
    read(table, [51], "orders", 100, 200)
    bad = read(table, [52], "orders", 200, 300).id
    table.rollback(good)
    read(table, [53], "orders", 100, 150)
    read(fix, [10], "orders", 250, 260)
    lose(table, good + 1, bad)
    assert "DUPLICATE_SOURCE_RANGE" not in {kind for kind, _ in conflicts_of(table)}

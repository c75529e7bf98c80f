"""Rolling back for good: what goes, what forbids it, and that every moment of it is a whole table."""

import itertools
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import CommitConflictError, CommitOutcomeUnknownError, CorruptTableError, NotFoundError
from anabranch.format.records.refs import Consumer
from anabranch.format.records.snapshot import CommitIdentity, SnapshotRef
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.consumers import record_consumer
from anabranch.kernel.log.ledger import hand_over
from anabranch.kernel.log.tag_log import tag_names
from anabranch.kernel.refs.moments import resolve
from anabranch.kernel.rollback.history_removal import plan_removal, remove_after
from anabranch.runtime import Runtime, SystemClock
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import Position
from tests.support.dying import deaths, through
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table, rows, written

_names = itertools.count()


@pytest.fixture
def table():
    """Five snapshots, one row each."""
    made = make_table(f"memory://removal{next(_names)}", options={"write-only": "true"})
    for start in range(5):
        made.append(rows(start, 1))
    return made


def _ids(table):
    return [s.id for s in through(table, table.context.storage).snapshots()]


def _batch(table, batch, row, user="job", floor=None):
    return table.commit(Append(written(table, row, 1)), identity=CommitIdentity(user, batch), floor=floor)


def test_newer_snapshots_go(table):
    result = table.rollback(2, destructive=True)
    assert ids_of(table) == [0, 1]
    assert _ids(table) == [2, 1]
    assert [s.id for s in result.removal.snapshots] == [5, 4, 3]
    assert (result.snapshot.id, result.changed.rows_removed) == (2, 3)
    table.append(rows(10, 1))
    assert (ids_of(table), _ids(table)) == ([0, 1, 10], [3, 2, 1])
    with pytest.raises(NotFoundError, match="the latest is 3"):
        table.at(5)


def test_a_dry_run_lists_and_changes_nothing(table):
    table.create_tag("late", snapshot=4)
    calls = FaultyStorage(table.context.storage)
    result = through(table, calls).rollback(2, destructive=True, dry_run=True)
    assert [s.id for s in result.removal.snapshots] == [5, 4, 3]
    assert [str(holder) for holder in result.removal.holders] == ["tag 'late' (snapshot 4)"]
    assert not {"put", "put_if_absent", "put_many", "delete"} & set(calls.counts())


def test_nothing_to_remove(table):
    assert table.rollback(5, destructive=True).removal.snapshots == ()
    assert _ids(table) == [5, 4, 3, 2, 1]


def _hold(table):
    """Something of every kind that refers to newer snapshots, and as much that does not."""
    table.create_tag("early", snapshot=2)
    table.create_tag("late", snapshot=4)
    record_consumer(table.context, "behind", Consumer(3))
    record_consumer(table.context, "ahead", Consumer(5))
    storage = table.context.storage
    for branch, snapshot in (("old", 2), ("new", 4)):
        storage.put(f"branch/branch-{branch}/schema/schema-0", storage.get("schema/schema-0"))
        storage.put(
            f"branch/branch-{branch}/snapshot/snapshot-{snapshot}",
            storage.get(f"snapshot/snapshot-{snapshot}"),
        )
    _batch(table, 7, 100)
    table.create_savepoint()


def test_what_refers_to_newer_snapshots_forbids_it(table):
    _hold(table)
    with pytest.raises(CommitConflictError, match="STILL_REFERRED_TO") as caught:
        table.rollback(2, destructive=True)
    assert [(str(h.kind), h.name, h.snapshot_id) for h in caught.value.conflicts] == [
        ("stream", "job", 6),
        ("consumer", "ahead", 4),
        ("savepoint", "1", 6),
        ("branch", "new", 4),
        ("tag", "late", 4),
    ]
    assert all(str(h) in caught.value.message for h in caught.value.conflicts)
    assert "force" in caught.value.hint
    assert _ids(table) == [6, 5, 4, 3, 2, 1]


def test_force_removes_exactly_these(table):
    _hold(table)
    table.rollback(2, destructive=True, force=True)
    assert _ids(table) == [2, 1]
    assert table.tags(include_internal=True) == ["early"]
    assert table.savepoints() == []
    assert table.branches() == ["old"]
    assert table.system("consumers")["consumer_id"].to_pylist() == ["behind"]
    assert table.create_savepoint().id == 2, "numbers are not given out again"


def test_a_stream_of_long_ago_does_not_forbid_it(table):
    class Later(SystemClock):
        def now_millis(self):
            return super().now_millis() + 31 * 86_400_000

    _batch(table, 0, 100)
    later = anabranch.Table(replace(table.context, runtime=Runtime(clock=Later())))
    later.rollback(2, destructive=True)
    assert ids_of(table) == [0, 1]


def test_a_stream_whose_snapshot_is_gone_gets_a_clear_error(table):
    read = Position(4, table.at(4).snapshot.stamp)
    kept = Position(2, table.at(2).snapshot.stamp)
    table.rollback(2, destructive=True)
    feed = Feed(table.context, table.schema)
    with pytest.raises(NotFoundError, match=r"HISTORY_REWRITTEN.*the newest snapshot is 2"):
        feed.advance(read)
    for start in (10, 11, 12):
        table.append(rows(start, 1))
    with pytest.raises(NotFoundError, match=r"HISTORY_REWRITTEN.*snapshot 4 is another one now"):
        feed.advance(read)
    assert feed.rows_between(kept, feed.advance(kept)) == 3


def test_a_streaming_writer_that_restarts_is_refused(table):
    done = _batch(table, 0, 100).snapshot
    floor = SnapshotRef(table.branch_uuid, done.id, done.stamp)
    table.rollback(2, destructive=True, force=True)
    with pytest.raises(CommitOutcomeUnknownError, match="HISTORY_REWRITTEN"):
        _batch(table, 1, 101, floor=floor)
    for start in range(10, 20):
        table.append(rows(start, 1))
    with pytest.raises(CommitOutcomeUnknownError, match="HISTORY_REWRITTEN"):
        _batch(table, 1, 101, floor=floor)


def test_the_ledger_forgets_what_is_taken_back(table):
    table.create_tag("good", snapshot=2)
    early = _batch(table, 3, 100).snapshot
    table.create_tag("better")
    _batch(table, 4, 101)
    for start in (10, 11):
        table.append(rows(start, 1))
    gone = [s for s in table.snapshots() if s.id <= 7]
    hand_over(table.context, gone)
    for snapshot in gone:
        table.context.storage.delete(table.context.layout.snapshot_path(snapshot.id))
    with pytest.raises(CommitConflictError, match=r"stream 'job' \(snapshot 7\)"):
        table.rollback("better", destructive=True)
    table.rollback("better", destructive=True, force=True)
    assert _ids(table) == [early.id]
    assert not _batch(table, 4, 101).repeated, "it was taken back, so it is not there"
    assert ids_of(table) == [0, 1, 2, 3, 4, 100, 101]


def test_to_a_tag_whose_snapshot_has_expired(table):
    table.create_tag("good", snapshot=2)
    table.expire_snapshots(retain_max=2)
    assert _ids(table) == [5, 4]
    table.rollback("good", destructive=True)
    assert (_ids(table), ids_of(table)) == ([2], [0, 1])
    assert table.tags() == ["good"]
    assert table.context.storage.get("snapshot/EARLIEST") == b"2"
    table.append(rows(10, 1))
    assert (_ids(table), ids_of(table)) == ([3, 2], [0, 1, 10])


def test_to_a_savepoint(table):
    table.create_savepoint()
    table.append(rows(10, 1))
    table.rollback("savepoint.1", destructive=True)
    assert (ids_of(table), [s.id for s in table.savepoints()]) == ([0, 1, 2, 3, 4], [1])


def test_a_moment_of_another_history_is_refused(table):
    table.create_tag("stale", snapshot=4)
    foreign = table.context.storage.get("tag/tag-stale")
    table.rollback(2, destructive=True, force=True)
    table.context.storage.put("tag/tag-stale", foreign)
    with pytest.raises(CommitConflictError, match="NOT_IN_HISTORY"):
        table.rollback("stale", destructive=True)
    for start in (10, 11, 12):
        table.append(rows(start, 1))
    with pytest.raises(CommitConflictError, match="NOT_IN_HISTORY") as caught:
        table.rollback("stale", destructive=True)
    assert "without 'destructive'" in caught.value.hint
    table.rollback("stale")
    assert ids_of(table) == [0, 1, 2, 3]


def test_what_came_after_the_plan_stops_it(table):
    plan = plan_removal(table.context, resolve(table.context, 2))
    table.append(rows(10, 1))
    with pytest.raises(CommitConflictError, match="HISTORY_MOVED"):
        remove_after(table.context, plan)
    plan = plan_removal(table.context, resolve(table.context, 2))
    table.create_tag("late", snapshot=4)
    with pytest.raises(CommitConflictError, match="HISTORY_MOVED"):
        remove_after(table.context, plan, force=True)
    assert _ids(table) == [6, 5, 4, 3, 2, 1]


def test_pins_of_rollbacks_go_with_them(table):
    table.overwrite(rows(10, 1))
    table.rollback(5)
    assert len(tag_names(table.context)) == 2
    table.rollback(3, destructive=True)
    assert tag_names(table.context) == []
    assert ids_of(table) == [0, 1, 2]


@pytest.mark.parametrize("number", [5, 4, 3])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_lands_meanwhile(table, when, number):
    """It builds on what goes and goes too, or on the target and stays; in any case the table is whole."""
    landed = []

    def land(path):
        other = anabranch.Table(replace(table.context, cache=MetadataCache()))
        landed.append(other.append(rows(50, 1)))

    fault = run(when, "delete", land, where=f"snapshot/snapshot-{number}")
    through(table, FaultyStorage(table.context.storage, [fault])).rollback(2, destructive=True)
    assert len(landed) == 1
    stays = when == "after" and number == 3
    assert ids_of(through(table, table.context.storage)) == ([0, 1, 50] if stays else [0, 1])
    assert _ids(table) == ([3, 2, 1] if stays else [2, 1])
    table.append(rows(60, 1))
    assert ids_of(table)[-1] == 60


@pytest.mark.long
@pytest.mark.parametrize(
    "expired", [pytest.param(False, marks=pytest.mark.long), True], ids=["retained", "expired"]
)
def test_killed_at_every_storage_call(table, expired):
    table.create_tag("good", snapshot=2)
    if expired:
        table.expire_snapshots(retain_max=2)
    table.create_tag("late", snapshot=4)
    table.create_savepoint()
    record_consumer(table.context, "ahead", Consumer(6))
    heads = []
    for left in deaths(table, lambda t: t.rollback("good", destructive=True, force=True)):
        _check_whole(left)
        heads.append(left.snapshot.id)
        left.rollback("good", destructive=True, force=True)
        assert _ids(left) == ([2] if expired else [2, 1])
        assert left.tags(include_internal=True) == ["good"]
        assert (left.savepoints(), left.context.storage.exists("consumer/consumer-ahead")) == ([], False)
        left.append(rows(10, 1))
        assert ids_of(left) == [0, 1, 10]
    assert set(heads) == ({2, 4, 5} if expired else {2, 3, 4, 5})


def _check_whole(table):
    head = table.snapshot
    assert ids_of(table) == list(range(head.id))
    assert head.total_record_count == head.id
    assert ids_of(table.at("good")) == [0, 1]
    assert next(s.id for s in table.snapshots()) == head.id


@pytest.mark.parametrize("gone", ["list", "manifest", "data file"])
def test_what_is_whole_is_not_removed_for_what_is_not(table, gone):
    """Another engine's expiry was killed; this process has read the target before."""
    table.overwrite(rows(10, 1))
    target = table.context.snapshots.find(3)
    assert ids_of(table.at(3)) == [0, 1, 2]
    entries = table.context.manifests.entries(table.context.manifests.of_snapshot(target)).live().to_entries()
    path = {
        "list": table.context.layout.manifest_path(target.delta_manifest_list),
        "manifest": table.context.layout.manifest_path(
            table.context.manifests.of_snapshot(target)[0].file_name
        ),
        "data file": f"bucket-0/{entries[0].file.file_name}",
    }[gone]
    table.context.storage.delete(path)
    for how in ({}, {"force": True}):
        with pytest.raises(CommitConflictError, match="TARGET_NOT_WHOLE.*1 of") as error:
            table.rollback(3, destructive=True, **how)
        assert path in error.value.message
    assert _ids(table) == [6, 5, 4, 3, 2, 1]
    assert ids_of(table) == [10]


@pytest.mark.parametrize("left", [0, 2])
def test_numbers_that_were_used_again_and_deleted_by_hand_are_missed(table, left):
    """The rollback that took them the first time does not explain it: what it went to is gone as well."""
    table.rollback(3, destructive=True)
    for number in (20, 21):
        table.append(rows(number, 1))
    for number in range(left + 1, 6):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    table = anabranch.Table(replace(table.context, cache=MetadataCache()))
    with pytest.raises(CorruptTableError, match="the newest snapshot is 5 by the hint"):
        table.append(rows(30, 1))
    table.repair()
    assert ids_of(table) == [0, 1, 2, 20, 21]

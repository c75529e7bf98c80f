"""While main is being replaced: who waits, for how long, and what nobody can do."""

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import CommitConflictError, CommitOutcomeUnknownError, NotFoundError, StorageError
from anabranch.format.records.main_pointer import BranchRef, MainPointer, Replaced, Seal
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.main_pointer import find_pointer, put_pointer, put_seal, replacements
from anabranch.kernel.log.seals import check_open
from tests.branches.replacing import BEFORE, Time, again, files, parted, timed
from tests.support.faults import FaultyStorage, lose_answer, lose_request, run
from tests.support.tables import ids_of, rows


class Killed(BaseException):
    pass


def kill(path):
    raise Killed


def through(table, *faults, time=None):
    context = timed(table, time).context if time is not None else table.context
    return anabranch.Table(replace(context, storage=FaultyStorage(table.context.storage, faults)))


def sealed(*, before="branch/MAIN-1", time=None):
    """A table whose replacement died right before that file was put."""
    table = parted()
    with pytest.raises(Killed):
        through(table, run("before", "put_if_absent", kill, where=before), time=time).replace_main_branch(
            "fix"
        )
    return table


def test_a_writer_waits_for_the_decision():
    table = sealed()
    time = Time()
    writer = timed(table, time)
    begun = time.millis

    class Decides(Time):
        def sleep(self, seconds):
            super().sleep(seconds)
            if self.millis > begun + 3_000:
                _decide(table)

    writer = timed(table, Decides())
    writer.append(rows(500, 1))
    assert ids_of(writer) == [*BEFORE, 100, 500]
    assert writer.context.runtime.clock.millis < begun + 10_000


def _decide(table):
    """As the replacement would have, had it lived."""
    context = table.context
    fix = context.on_branch("fix")
    head, new = context.snapshots.get(3), fix.snapshots.head()
    fork = fix.fork.snapshot
    to = SnapshotRef(fix.branch_uuid, new.id, new.stamp)
    old = SnapshotRef(context.branch_uuid, head.id, head.stamp)
    made = Replaced(BranchRef(None, context.branch_uuid), old, fork, to, to)
    put_pointer(context, MainPointer(1, BranchRef("fix", fix.branch_uuid), made, 0, None, "t"))


def test_after_the_deadline_main_stays():
    table = sealed()
    writer = timed(table)
    begun = writer.context.runtime.clock.millis
    writer.append(rows(500, 1))
    assert 29_000 < writer.context.runtime.clock.millis - begun < 32_000
    assert ids_of(again(table)) == [*BEFORE, 500, 1000]
    stayed = find_pointer(table.context, 1)
    assert (stayed.replaced, stayed.main.name) == (None, None)
    assert not replacements(table.context)
    table.branch("fix").append(rows(101, 1))
    assert table.replace_main_branch("fix").number == 2


@pytest.mark.parametrize("ahead", [-3_600_000, 0, 3_600_000])
def test_clocks_that_differ_only_make_the_wait_shorter(ahead):
    table = sealed()
    time = Time()
    time.millis += ahead
    begun = time.millis
    timed(table, time).append(rows(500, 1))
    assert time.millis - begun < 32_000
    assert ids_of(again(table)) == [*BEFORE, 500, 1000]


def test_waiting_is_no_retry():
    table = sealed()
    table.with_options({})
    strict = timed(table)
    strict.alter().set_option("commit.max-retries", "0").set_option("commit.timeout", "1 s").apply()
    strict.append(rows(500, 1))
    assert ids_of(strict) == [*BEFORE, 500, 1000]


def test_an_announcement_without_a_seal_holds_up_no_commit():
    table = sealed(before="snapshot/snapshot-4")
    time = Time()
    begun = time.millis
    timed(table, time).append(rows(500, 1))
    assert time.millis - begun < 1_000
    assert table.replace_main_branch("fix").number == 2


def test_readers_wait_for_nothing():
    table = sealed()
    reader = timed(table)
    begun = reader.context.runtime.clock.millis
    assert ids_of(reader) == [*BEFORE, 1000]
    assert reader.context.runtime.clock.millis - begun < 1_000


def test_a_replacement_that_comes_too_late_starts_over():
    """Writers have decided that main stays, and written, while the replacement was held up."""
    table = parted()

    def held_up(path):
        timed(table).append(rows(500, 1))

    late = through(table, run("before", "put_if_absent", held_up, where="branch/MAIN-1"))
    result = late.replace_main_branch("fix")
    assert result.number == 2
    assert ids_of(table) == [*BEFORE, 100]
    assert ids_of(table.branch("main@2")) == [*BEFORE, 500, 1000]


def test_a_seal_that_comes_after_the_decision_is_void():
    """Another replacement is made while this one is held up before its seal."""
    table = parted()
    table.create_branch("other", "good")

    def held_up(path):
        timed(table).replace_main_branch("other")

    late = through(table, run("before", "put_if_absent", held_up, where="snapshot/snapshot-4"))
    with pytest.raises(CommitConflictError, match="CORRECTION_DROPPED"):
        late.replace_main_branch("fix")
    assert [p.main.name for p in replacements(table.context)] == ["other"]
    table.append(rows(7, 1))
    assert ids_of(again(table)) == [*BEFORE, 7]
    result = again(table).replace_main_branch("fix", force=True)
    assert (result.number, ids_of(again(table))) == (3, [*BEFORE, 100])


def test_of_two_replacements_that_hold_each_others_main_one_gives_way():
    table = parted()
    table.create_branch("other", "good")
    nested = run(
        "before",
        "put_if_absent",
        lambda path: timed(table).replace_main_branch("other"),
        where="branch/SEAL-1",
    )
    with pytest.raises(CommitConflictError, match="MAIN_MOVED"):
        through(table, nested).replace_main_branch("fix", expect_main=3)
    assert table.branch("main").context.branch == "other"


@pytest.mark.parametrize("fault", [lose_answer, lose_request])
@pytest.mark.parametrize("where", ["branch/SEAL-1", "snapshot/snapshot-4", "branch/MAIN-1"])
def test_a_store_that_does_not_answer(fault, where):
    table = parted()
    unsure = through(table, fault("put_if_absent", where=where))
    with suppress(CommitOutcomeUnknownError, StorageError):
        unsure.replace_main_branch("fix")
    late = timed(table)
    late.append(rows(500, 1))
    is_made = bool(replacements(late.context))
    late.replace_main_branch("fix")
    assert ids_of(late) == [*BEFORE, 100, *([500] if is_made else [])]


def test_a_decision_that_the_store_does_not_confirm_for_good():
    table = parted()
    unsure = through(table, lose_request("put_if_absent", where="branch/MAIN-1", times=9))
    with pytest.raises(CommitOutcomeUnknownError, match="not known whether main of 'db.t' was replaced"):
        unsure.replace_main_branch("fix")
    assert timed(table).replace_main_branch("fix").number == 2


def test_what_another_engine_puts_on_the_seal_does_not_open_main():
    table = sealed()
    context = table.context
    seal = context.snapshots.get(4)
    foreign = replace(seal, id=5, properties={}, commit_user="flink", time_millis=1)
    context.storage.put(context.layout.snapshot_path(5), foreign.to_json())
    _decide(table)
    late = TableContext(context.storage, context.name, None, timed(table).context.runtime, 0)
    with pytest.raises(anabranch.SealedBranchError):
        check_open(late, late.snapshots.head())
    writer = again(table)
    writer.append(rows(500, 1))
    assert ids_of(writer) == [*BEFORE, 100, 500]


def test_a_replacement_gives_way_to_another_engine():
    table = parted()

    def foreign(path):
        context = table.context
        made = replace(context.snapshots.get(4), id=5, properties={}, commit_user="flink", time_millis=1)
        context.storage.put(context.layout.snapshot_path(5), made.to_json())

    faults = run("after", "put_if_absent", foreign, where="snapshot/snapshot-4")
    with pytest.raises(CommitConflictError, match="another engine committed snapshot 5"):
        through(table, faults).replace_main_branch("fix")
    assert find_pointer(table.context, 1).replaced is None
    table.append(rows(500, 1))


# What is no commit and so does not collide


@pytest.mark.parametrize("where", ["branch/SEAL-1", "snapshot/snapshot-4", "branch/MAIN-1"])
@pytest.mark.parametrize(
    "operation",
    [
        lambda t: t.create_tag("new"),
        lambda t: t.create_tag("new", 2),
        lambda t: t.delete_tag("old"),
        lambda t: t.rename_tag("old", "new"),
        lambda t: t.replace_tag("old", 2),
        lambda t: t.create_savepoint(),
        lambda t: t.delete_savepoint(1),
        lambda t: t.alter().add_column("w", "INT").apply(),
    ],
    ids=[
        "tag",
        "tag-past",
        "delete-tag",
        "rename-tag",
        "replace-tag",
        "savepoint",
        "delete-savepoint",
        "alter",
    ],
)
def test_refs_and_schemas_of_main_reach_the_new_one(operation, where):
    """An operation whose put comes last before that moment of the replacement, and whose second look comes after it."""
    table = parted()
    held = again(table)
    crossed = through(
        table, run("before", "put_if_absent", lambda path: _interrupted(held, operation), where=where)
    )
    _Paused.by = crossed
    crossed.replace_main_branch("fix")
    operation_done = _Paused.finish()
    assert operation_done
    _check_reached(table, operation)


class _Paused:
    """An operation in a thread of its own, which waits at its look for a seal until the replacement is made."""

    by = None
    thread = None
    error = None

    @classmethod
    def finish(cls):
        cls.go.set()
        cls.thread.join(20)
        assert not cls.thread.is_alive()
        if cls.error is not None:
            raise cls.error
        return True


def _interrupted(held, operation):
    _Paused.error = None
    _Paused.go = threading.Event()
    arrived = threading.Event()

    def wait(path):
        arrived.set()
        _Paused.go.wait(20)

    storage = FaultyStorage(held.context.storage, [run("before", "get", wait, where="branch/MAIN-1", nth=2)])

    def work():
        try:
            operation(anabranch.Table(replace(held.context, storage=storage)))
        except BaseException as error:
            _Paused.error = error
        finally:
            arrived.set()

    _Paused.thread = threading.Thread(target=work, daemon=True)
    _Paused.thread.start()
    arrived.wait(20)


def _check_reached(table, operation):
    probe = parted()
    operation(probe)
    new = again(table)
    assert set(new.tags()) == set(probe.tags())
    assert len(new.savepoints()) == len(probe.savepoints())
    assert [f.name for f in new.schema.fields] == [f.name for f in probe.schema.fields]
    for name in new.tags():
        assert ids_of(new.at(name)) in ([0, 1, 2], BEFORE, [*BEFORE, 100])


def test_a_branch_that_is_being_deleted_does_not_become_main():
    table = parted()

    def deletes(path):
        again(table).delete_branch("fix")

    with pytest.raises(NotFoundError, match="branch 'fix' does not exist"):
        through(table, run("before", "put_if_absent", deletes, where="branch/SEAL-1")).replace_main_branch(
            "fix"
        )
    assert ids_of(again(table)) == [*BEFORE, 1000]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_branch_that_was_deleted_does_not_become_main(is_made_again):
    """The deletion came to its end while main's past was copied, so that no mark of it is left."""
    table = parted()

    def deletes(path):
        again(table).delete_branch("fix")
        if is_made_again:
            again(table).create_branch("fix", "good")

    copying = run("before", "put", deletes, where="branch/branch-fix/snapshot/EARLIEST")
    with pytest.raises(NotFoundError, match="branch 'fix' .*(since it was opened|does not exist)"):
        through(table, copying).replace_main_branch("fix")
    main = again(table)
    assert (main_of(main.context).branch, ids_of(main)) == (None, [*BEFORE, 1000])
    main.append(rows(7, 1))
    assert ids_of(again(table)) == [*BEFORE, 7, 1000]


@pytest.mark.parametrize("has_own", [True, False])
def test_a_deletion_that_died_before_it_saw_that_the_branch_is_main(has_own):
    """Its mark stays on what is main: no work is held up, and the next look takes it away."""
    table = parted(fix=1 if has_own else 0)
    table.replace_main_branch("fix")
    table.context.storage.put("branch/branch-fix/DELETING", b"")
    main = again(table)
    assert ids_of(main) == [*BEFORE, *([100] if has_own else [])]
    main.append(rows(7, 1))
    assert "branch/branch-fix/DELETING" in files(main, "branch/branch-fix")
    assert main.verify().problems == ()
    main.maintain()
    assert "branch/branch-fix/DELETING" not in files(main, "branch/branch-fix")
    assert ids_of(again(table).branch("fix")) == [*BEFORE, 7, *([100] if has_own else [])]


def test_a_branch_that_becomes_main_is_not_deleted():
    table = parted()
    act = run(
        "after",
        "put",
        lambda path: timed(table).replace_main_branch("fix"),
        where="branch/branch-fix/DELETING",
    )
    with suppress(anabranch.AnabranchError):
        through(table, act).delete_branch("fix")
    main = again(table)
    assert (main_of(main.context).branch, ids_of(main)) in [("fix", [*BEFORE, 100]), (None, [*BEFORE, 1000])]
    main.append(rows(7, 1))
    assert 7 in ids_of(again(table))


def test_seals_are_put_once():
    table = parted()
    ref = BranchRef("fix", "u")
    assert put_seal(table.context, 1, Seal(ref, 1, 1, None, "a"))
    assert not put_seal(table.context, 1, Seal(ref, 1, 1, None, "b"))
    assert files(table, "branch", recursive=False)

"""A commit whose files were cleaned away while its writer was paused publishes nothing, or has them back."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.cache import MetadataCache
from anabranch.lake import Lake
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.support.clock import DAY, HOUR, Clock
from tests.support.faults import FaultyStorage, run
from tests.support.tables import SCHEMA, ids_of, rows, written


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    runtime = Runtime(clock=clock)
    made = Lake(MemoryStorage(runtime=runtime), runtime=runtime).create_table("db.t", SCHEMA)
    made.append(rows(0, 1))
    return made


def through(table, *faults):
    storage = FaultyStorage(table.context.storage, faults)
    return anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache()))


def delete_as_others(table, messages):
    """What the orphan cleaning of another engine does with old files that no snapshot names."""
    for message in messages:
        for file in message.new_files:
            table.context.storage.delete(f"bucket-0/{file.file_name}")


def test_files_that_our_cleaning_moved_away_are_brought_back(table, clock):
    """A laptop that sleeps for days between its write and its commit."""
    messages = written(table, 1, 3)
    clock.now += 2 * DAY
    assert table.remove_orphan_files().files.height == 1
    table.commit(Append(messages))
    assert ids_of(table) == [0, 1, 2, 3]


@pytest.mark.parametrize("pause", [DAY + HOUR, 400 * DAY, -DAY])
def test_a_commit_whose_files_are_gone_publishes_nothing(table, clock, pause):
    messages = written(table, 1, 3)
    clock.now += pause
    delete_as_others(table, messages)
    with pytest.raises(anabranch.CommitConflictError, match="FILES_CLEANED_AWAY: 1 of 1 files") as caught:
        table.commit(Append(messages))
    assert "write the rows again" in caught.value.hint
    assert (ids_of(table), table.snapshot.id) == ([0], 1)
    table.append(rows(1, 1))
    assert ids_of(table) == [0, 1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pause_in_the_very_moment_of_the_commit(table, clock, when):
    """All that was checked before is too old by then: data files, manifests and lists."""

    def sleep(path):
        clock.now += 2 * DAY
        table.remove_orphan_files()

    messages = written(table, 1, 3)
    through(table, run(when, "put_if_absent", sleep, where="snapshot/*")).commit(Append(messages))
    assert ids_of(table) == [0, 1, 2, 3]


@pytest.mark.parametrize("what", ["bucket-0/", "manifest/"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_pause_in_which_another_engine_cleans(table, clock, when, what):
    """It deletes, and has read the refs before the snapshot was put."""
    needed = {info.path for info in table.context.storage.list(recursive=True)}

    def sleep(path):
        clock.now += 2 * DAY
        for info in list(table.context.storage.list(recursive=True)):
            if info.path.startswith(what) and info.path not in needed:
                table.context.storage.delete(info.path)

    messages = written(table, 1, 3)
    slow = through(table, run(when, "put_if_absent", sleep, where="snapshot/*"))
    with pytest.raises(anabranch.CommitConflictError, match="FILES_CLEANED_AWAY"):
        slow.commit(Append(messages))
    assert (ids_of(table), table.snapshot.id) == ([0], 1)
    table.append(rows(9, 1))
    assert ids_of(table) == [0, 9]


def test_what_is_taken_back_is_not_what_took_its_number(table, clock):
    """While the writer looks whether others built on what it put, that is rolled back, and somebody commits."""
    messages = written(table, 1, 3)
    done = []

    def sleep(path):
        clock.now += 2 * DAY
        delete_as_others(table, messages)
        done.append("cleaned")

    def overtake(path):
        if done == ["cleaned"]:
            done.append("overtaken")
            through(table).rollback(1, destructive=True, force=True)
            through(table).append(rows(9, 1))

    slow = through(
        table,
        run("after", "put_if_absent", sleep, where="snapshot/*"),
        *(run("before", "get", overtake, where="snapshot/snapshot-3", nth=n) for n in range(1, 9)),
    )
    with pytest.raises(anabranch.CommitConflictError, match="FILES_CLEANED_AWAY"):
        slow.commit(Append(messages))
    assert done == ["cleaned", "overtaken"]
    assert ids_of(through(table)) == [0, 9]


def test_a_cleaning_moves_back_what_another_engine_commits_meanwhile(table, clock):
    messages = written(table, 1, 3)
    clock.now += 2 * DAY

    def commit_unchecked(path):
        """Another engine looks for nothing."""
        unaware = [
            replace(m, new_files=tuple(replace(f, written_millis=None) for f in m.new_files))
            for m in messages
        ]
        table.commit(Append(unaware))

    cleaning = through(table, run("before", "move_many", commit_unchecked))
    done = cleaning.remove_orphan_files()
    assert done.files.is_empty()
    assert ids_of(table) == [0, 1, 2, 3]


def _about_to_be_put(table):
    """A snapshot as a writer has it who is paused right before the put: all it names is stored."""
    table.append(rows(1, 3))
    path = table.context.layout.snapshot_path(2)
    content = table.context.storage.get(path)
    table.context.storage.delete(path)
    table.context.storage.put(table.context.layout.latest_hint_path, b"1")
    return lambda: table.context.storage.put_if_absent(path, content)


def test_a_cleaning_moves_back_the_manifests_of_what_is_committed_meanwhile(table, clock):
    put = _about_to_be_put(table)
    clock.now += 2 * DAY
    cleaning = through(table, run("before", "move_many", lambda _: put()))
    assert "data" not in cleaning.remove_orphan_files().moved
    assert ids_of(through(table)) == [0, 1, 2, 3]
    clock.now += 2 * DAY
    through(table).remove_orphan_files()
    assert ids_of(through(table)) == [0, 1, 2, 3]


def test_a_later_cleaning_brings_back_the_manifests_that_a_killed_one_took_from_a_commit(table, clock):
    put = _about_to_be_put(table)
    clock.now += 2 * DAY

    class Killed(BaseException):
        pass

    def die(path):
        raise Killed

    with pytest.raises(Killed):
        through(
            table, run("before", "move_many", lambda _: put()), run("after", "move_many", die)
        ).remove_orphan_files()
    clock.now += 2 * DAY
    through(table).remove_orphan_files()
    assert ids_of(through(table)) == [0, 1, 2, 3]


def test_a_later_cleaning_brings_back_what_a_killed_one_took_from_a_commit(table, clock):
    """It was killed after it moved the files of a commit that it had not seen, and before it looked again."""
    messages = written(table, 1, 3)
    clock.now += 2 * DAY

    class Killed(BaseException):
        pass

    def die(path):
        raise Killed

    committing = run("before", "move_many", lambda path: table.commit(Append(messages)))
    with pytest.raises(Killed):
        through(table, committing, run("after", "move_many", die)).remove_orphan_files()
    clock.now += 2 * DAY
    through(table).remove_orphan_files()
    assert ids_of(through(table)) == [0, 1, 2, 3]


def test_a_streaming_batch_and_a_compaction_are_refused_alike(table, clock):
    messages = written(table, 1, 3)
    clock.now += 2 * DAY
    delete_as_others(table, messages)
    identity = CommitIdentity("job@1", 7)
    with pytest.raises(anabranch.CommitConflictError, match="FILES_CLEANED_AWAY"):
        table.commit(Append(messages), identity=identity)
    table.commit(Append(written(table, 1, 3)), identity=identity)
    assert ids_of(table) == [0, 1, 2, 3]


def test_a_commit_that_does_not_take_long_asks_for_no_file(table, clock):
    def calls_after(pause):
        watched = through(table)
        messages = written(watched, 1, 1)
        clock.now += pause
        watched.context.storage.forget_calls()
        watched.commit(Append(messages))
        return sum(
            call.name == "exists" and "bucket-0" in call.path for call in watched.context.storage.calls
        )

    assert calls_after(HOUR) == 0
    assert calls_after(HOUR + 1) == 2


class Sleep:
    """Days pass once, and what may go meanwhile goes."""

    def __init__(self, table, clock):
        self.table, self.clock, self.begun = table, clock, False

    def __call__(self, path):
        if not self.begun:
            self.begun = True
            self.clock.now += 3 * DAY
            self.table.expire_snapshots(retain_max=2)
            self.table.expire_snapshots(retain_max=2)


def test_a_rollback_that_pauses_for_days_brings_no_removed_files_back(table, clock):
    """Its pin was let go of as that of a killed one, and expiry removed what it was to bring back."""
    table.append(rows(1, 1))
    table.overwrite(rows(10, 1))
    table.append(rows(11, 1))
    sleep = Sleep(table, clock)
    with pytest.raises(anabranch.CommitConflictError):
        through(table, run("before", "put_if_absent", sleep, where="snapshot/*")).rollback(2)
    assert sleep.begun
    assert ids_of(table) == [10, 11]


def test_a_rollback_that_pauses_between_its_attempts_brings_no_removed_files_back(table, clock):
    """It has looked at the newer base, and sleeps while it takes away what the first attempt had written."""
    table.append(rows(1, 1))
    table.overwrite(rows(10, 1))
    sleep = Sleep(table, clock)
    with pytest.raises(anabranch.CommitConflictError):
        through(
            table,
            run("before", "put_if_absent", lambda _: table.append(rows(11, 1)), where="snapshot/*"),
            run("before", "delete", sleep, where="manifest/*"),
        ).rollback(2)
    assert sleep.begun
    assert ids_of(table) == [10, 11]


def test_what_a_commit_meanwhile_needs_is_read_where_it_was_set_aside(table, clock):
    """It comes after the cleaning has looked, which takes its manifests as well and then looks again."""
    storage, path, content = late_commit(table)
    clock.now += 2 * DAY
    through(
        table, run("before", "move_many", lambda _: storage.put_if_absent(path, content))
    ).remove_orphan_files()
    assert ids_of(through(table)) == [0, 1, 2, 3]
    assert [p for p in through(table).verify().problems if p.severity == "error"] == []


def test_the_next_cleaning_finds_what_a_killed_one_had_set_aside_with_its_manifests(table, clock):
    storage, path, content = late_commit(table)
    clock.now += 2 * DAY
    faults = [
        run("before", "move_many", lambda _: storage.put_if_absent(path, content)),
        run("after", "move_many", die),
    ]
    with pytest.raises(Died):
        through(table, *faults).remove_orphan_files()
    clock.now += HOUR
    through(table).remove_orphan_files()
    assert ids_of(through(table)) == [0, 1, 2, 3]


def test_a_batch_that_is_asked_for_again_is_not_taken_for_made_if_its_files_are_gone(table, clock):
    """Its writer had no answer when it looked for its files, and is started again."""
    identity, before = CommitIdentity("job@1", 7), files_of(table)
    table.commit(Append(written(table, 1, 3)), identity=identity)
    for path in files_of(table) - before:
        table.context.storage.delete(path)
    again = through(table)
    made = again.commit(Append(written(again, 1, 3)), identity=identity)
    assert not made.repeated
    assert ids_of(through(table)) == [0, 1, 2, 3]
    repeated = through(table).commit(Append(written(table, 1, 3)), identity=identity)
    assert repeated.repeated


def test_what_others_have_built_on_is_not_taken_back(table, clock):
    identity, before = CommitIdentity("job@1", 7), files_of(table)
    table.commit(Append(written(table, 1, 3)), identity=identity)
    lost = files_of(table) - before
    table.append(rows(9, 1))
    for path in lost:
        table.context.storage.delete(path)
    with pytest.raises(anabranch.CommitConflictError, match="FILES_CLEANED_AWAY"):
        through(table).commit(Append(written(table, 1, 3)), identity=identity)


def let_go(table, clock):
    """A writer sleeps for so long that what holds the files of its rollback is removed."""

    def sleeps(_):
        clock.now += 2 * DAY
        for tag in [t for t in table.context.storage.list("tag") if "rollback" in t.path]:
            table.context.storage.delete(tag.path)

    return sleeps


def test_a_rollback_whose_hold_was_let_go_is_not_acknowledged(table, clock):
    """An expiry that looked at the refs before the snapshot was put may be about to delete what it brings back."""
    table.append(rows(1, 2))
    table.overwrite(rows(3, 1))

    slow = through(table, run("before", "put_if_absent", let_go(table, clock), where="*snapshot-4"))
    with pytest.raises(anabranch.CommitConflictError, match="FILES_LET_GO") as caught:
        slow.rollback(2)
    assert "do it again" in caught.value.hint
    assert ids_of(through(table)) == [3]
    through(table).rollback(2)
    assert ids_of(through(table)) == [0, 1, 2]


def test_a_rollback_that_slept_between_its_hold_and_its_commit_is_not_acknowledged(table, clock):
    """By its own clock its commit takes no time at all."""
    table.append(rows(1, 2))
    table.overwrite(rows(3, 1))
    slow = through(table, run("after", "put_if_absent", let_go(table, clock), where="tag/*rollback*"))
    with pytest.raises(anabranch.CommitConflictError, match="FILES_LET_GO"):
        slow.rollback(2)
    assert ids_of(through(table)) == [3]


def _late_and_dead(table, clock):
    """Roll back to 2, so late that what it brings back has expired, and die right after the put of 6."""
    table.append(rows(1, 2))
    for row in (3, 4, 5):
        table.overwrite(rows(row, 1))

    def sleeps(path):
        let_go(table, clock)(path)
        table.expire_snapshots(retain_max=2, older_than=clock.now)

    late = run("before", "put_if_absent", sleeps, where="*snapshot-6")
    with pytest.raises(Died):
        through(table, late, run("after", "put_if_absent", die, where="*snapshot-6")).rollback(2)


def test_a_rollback_that_died_before_it_looked_is_taken_back_by_the_next_commit(table, clock):
    _late_and_dead(table, clock)
    found = through(table)
    assert found.append(rows(9, 1)).id == 6
    assert ids_of(found) == [5, 9]


@pytest.mark.parametrize("when", ["before", "after"])
def test_of_two_commits_that_take_such_a_rollback_back_one_does(table, clock, when):
    """It goes by its number, which is the other one's as soon as it has gone."""
    table.alter().set_option("commit.max-retry-wait", "10 ms").apply()
    _late_and_dead(table, clock)
    told = []

    def other(path):
        try:
            told.append(through(table).append(rows(9, 1)).id)
        except anabranch.CommitRetriesExhaustedError as error:
            told.append(error.message)

    slow = through(table, run(when, "delete", other, where="*snapshot-6"))
    assert slow.append(rows(8, 1)).id == (6 if when == "before" else 7)
    if when == "before":
        assert "snapshot 6, a rollback that died" in told[0]
        assert ids_of(through(table)) == [5, 8]
    else:
        assert told == [6]
        assert ids_of(through(table)) == [5, 8, 9]


def test_where_who_takes_such_a_rollback_back_dies_too_it_is_said_what_to_do(table, clock):
    table.alter().set_option("commit.max-retry-wait", "10 ms").apply()
    _late_and_dead(table, clock)
    with pytest.raises(Died):
        through(table, run("before", "delete", die, where="*snapshot-6")).append(rows(8, 1))
    with pytest.raises(anabranch.CommitRetriesExhaustedError, match="roll back to 5 with 'destructive'"):
        through(table).append(rows(9, 1))
    through(table).rollback(5, destructive=True)
    through(table).append(rows(9, 1))
    assert ids_of(through(table)) == [5, 9]


def test_a_rollback_with_its_pin_is_not_looked_at(table, clock):
    """Nor is one whose pin went with all that was older, as another engine's expiry leaves it."""
    table.append(rows(1, 2))
    table.overwrite(rows(3, 1))
    table.rollback(2)
    storage = FaultyStorage(table.context.storage)
    anabranch.Table(replace(table.context, storage=storage)).append(rows(9, 1))
    asked = [call for call in storage.calls if call.name == "exists" and "rollback" in call.path]
    assert len(asked) == 1
    storage.forget_calls()
    anabranch.Table(replace(table.context, storage=storage)).append(rows(10, 1))
    assert not [call for call in storage.calls if "rollback" in call.path]


@pytest.mark.parametrize("which", ["base_manifest_list", "delta_manifest_list"])
def test_a_damaged_rollback_that_brings_nothing_back_is_not_taken_for_a_late_one(table, which):
    """It was acknowledged, and needs no pin: the next append took it back without a word, and what it had undone was there again."""
    for number in range(3):
        table.append(rows(number, 1))
    table.rollback(1)
    made = table.snapshot
    table.context.storage.delete(f"manifest/{getattr(made, which)}")
    later = anabranch.Table(replace(table.context, cache=MetadataCache()))
    with pytest.raises(anabranch.CorruptTableError, match="does not exist"):
        later.append(rows(10, 1))
    assert later.context.snapshots.find(made.id).stamp == made.stamp


def test_a_rollback_that_is_all_there_is_left_stays(table, clock):
    """Its pins went with all that was older, as after another engine's expiry; a file was deleted by hand."""
    table.append(rows(1, 2))
    table.overwrite(rows(3, 1))
    table.rollback(2)
    let_go(table, clock)("")
    for number in (1, 2, 3):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    table.context.storage.delete(min(files_of(table)))
    assert through(table).append(rows(9, 1)).id == 5


def test_what_others_build_on_in_the_moment_it_is_taken_back_stays(table, clock):
    """The newest when it was looked at, and no longer when it is removed: history has no hole."""
    table.append(rows(1, 2))
    table.overwrite(rows(3, 1))

    slow = through(
        table,
        run("before", "put_if_absent", let_go(table, clock), where="*snapshot-4"),
        run("before", "delete", lambda _: through(table).append(rows(9, 1)), where="*snapshot-4"),
    )
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="FILES_LET_GO"):
        slow.rollback(2)
    found = through(table)
    assert [snapshot.id for snapshot in found.snapshots()] == [5, 4, 3, 2, 1]
    assert ids_of(found) == [0, 1, 2, 9]


def test_a_batch_that_others_build_on_in_the_moment_it_is_taken_back_stays(table, clock):
    identity, before = CommitIdentity("job@1", 7), files_of(table)
    table.commit(Append(written(table, 1, 3)), identity=identity)
    for path in files_of(table) - before:
        table.context.storage.delete(path)
    again = through(
        table, run("before", "delete", lambda _: through(table).append(rows(9, 1)), where="*snapshot-2")
    )
    with pytest.raises(anabranch.CommitConflictError, match="FILES_CLEANED_AWAY"):
        again.commit(Append(written(again, 1, 3)), identity=identity)
    assert [snapshot.id for snapshot in through(table).snapshots()] == [3, 2, 1]


def files_of(table):
    """Paths of the data files in the store."""
    return {info.path for info in table.context.storage.list("bucket-0")}


class Died(BaseException):
    """A process that was killed."""


def die(path):
    raise Died


def late_commit(table):
    """All of a commit but its snapshot: the store, where that is to be put, and what it is."""
    with pytest.raises(Died):
        through(table, run("after", "put_if_absent", die, where="snapshot/*")).append(rows(1, 3))
    storage, path = table.context.storage, table.context.layout.snapshot_path(2)
    content = storage.get(path)
    storage.delete(path)
    return storage, path, content


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("by_others", [False, True])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_savepoint_whose_list_was_cleaned_away_while_it_was_made_can_be_read(
    table, clock, when, by_others, is_stopped
):
    """Its process sleeps for days between the list and the savepoint, which is acknowledged; or its clock sleeps too."""
    table.append(rows(1, 1))
    needed = {info.path for info in table.context.storage.list(recursive=True)}

    def sleep(path):
        clock.now += 2 * DAY
        if not by_others:
            table.remove_orphan_files()
            clock.now += 2 * DAY
            table.remove_orphan_files()  # removes for good what the first one has set aside
            return
        for info in list(table.context.storage.list("manifest")):
            if info.path not in needed:
                table.context.storage.delete(info.path)

    slow = through(table, run(when, "put_if_absent", sleep, where="savepoint/*"))
    if is_stopped:
        its = Clock()
        its.now = clock.now
        slow = anabranch.Table(replace(slow.context, runtime=Runtime(clock=its)))
    made = slow.create_savepoint()
    assert ids_of(through(table).at(f"savepoint.{made.id}")) == [0, 1]
    assert table.context.storage.exists(f"manifest/{made.full_manifest_list}")
    table.append(rows(2, 1))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 ms")
    assert ids_of(through(table).at(f"savepoint.{made.id}")) == [0, 1]
    assert table.verify().ok

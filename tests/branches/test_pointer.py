"""The pointer to main: its records, how main is found, what is opened by which name, and what becomes of an old main."""

import pickle
import shutil
from dataclasses import replace

import pytest

import anabranch
from anabranch.catalog import Identifier
from anabranch.errors import CorruptTableError, InvalidInputError, InvalidNameError, NotFoundError
from anabranch.format.records.main_pointer import (
    MAIN_PREFIX,
    BranchRef,
    MainPointer,
    Release,
    Replaced,
    Seal,
    former_main_of,
)
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.kernel.expiry.ref_files import RefReader
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.main_branch import is_in_past, main_by_uuid, main_of
from anabranch.kernel.log.main_pointer import (
    find_pointer,
    newest_pointer,
    numbers,
    put_pointer,
    put_release,
)
from anabranch.kernel.log.seals import check_open
from anabranch.kernel.replacement.release import release_due, take_back
from anabranch.storage.local import LocalStorage
from tests.branches.replacing import BEFORE, again, files, parted, timed, twice_replaced
from tests.support.faults import FaultyStorage
from tests.support.tables import SCHEMA, ids_of, make_table, rows

REF = SnapshotRef("u", 3, "s")
REPLACED = Replaced(BranchRef(None, "old"), REF, REF, REF, REF, "nightly", "why", 2)


@pytest.mark.parametrize(
    "record",
    [
        MainPointer(3, BranchRef("fix", "new"), REPLACED, 12, "me", "t"),
        MainPointer(3, BranchRef("fix", "new"), REPLACED, 12, "me", "t", 7),
        MainPointer(1, BranchRef(None, "old"), None, 12, None, "t"),
    ],
    ids=["replaced", "of a group", "stay"],
)
def test_a_pointer_is_read_as_it_was_written(record):
    assert MainPointer.from_json(record.to_json(), generation=record.generation, path="p") == record


def test_seals_and_releases_are_read_as_they_were_written():
    seal = Seal(BranchRef("fix", "u"), 5, 30_000, None, "t")
    assert Seal.from_json(seal.to_json(), path="p") == seal
    for what in ("drop", "back"):
        assert Release.from_json(Release(what, 1, "t").to_json(), path="p") == Release(what, 1, "t")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (b"{}", "'version' is missing"),
        (b"nothing", "no readable JSON"),
        (b'{"version": 0}', "out of range"),
        (b'{"version": 1, "outcome": "perhaps"}', "expected 'stay' or 'replaced'"),
        (b'{"version": 1, "outcome": "stay", "main": 3}', "no reference to a branch"),
    ],
)
def test_a_pointer_that_is_damaged_is_an_error_and_no_other_main(change, message):
    table = parted()
    table.context.storage.put("branch/MAIN-1", change)
    with pytest.raises(CorruptTableError, match=message):
        again(table).append(rows(1, 1))


@pytest.mark.parametrize(
    ("name", "number"),
    [("main@1", 1), ("main@12", 12), ("main@0", None), ("main@01", None), ("main@", None), ("fix@1", None)],
)
def test_names_of_replaced_mains(name, number):
    assert former_main_of(name) == number
    if number is None:
        with pytest.raises(InvalidNameError):
            Identifier.parse(f"db.t$branch_{name}")
    else:
        assert Identifier.parse(f"db.t$branch_{name}").branch == name


def _stays(context, generation):
    pointer = MainPointer(generation, BranchRef(None, context.table_uuid), None, 0, None, f"t{generation}")
    assert put_pointer(context, pointer)


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_the_highest_number_counts_however_many_there_are(count):
    table = parted()
    for generation in range(1, count + 1):
        _stays(table.context, generation)
    storage = FaultyStorage(table.context.storage)
    fresh = replace(table.context, storage=storage, main_generation=None, cache=MetadataCache())
    main = main_of(fresh)
    assert (main.main_generation, main.branch) == (count, None)
    assert len([c for c in storage.calls if "MAIN-" in c.path or c.name == "list"]) <= 4
    storage.forget_calls()
    assert main_of(main) is main
    assert [tuple(call) for call in storage.calls] == [("get", f"branch/MAIN-{count + 1}")]
    assert numbers(table.context, MAIN_PREFIX) == list(range(1, count + 1))


def test_of_two_decisions_the_first_counts():
    context = parted().context
    _stays(context, 1)
    assert not put_pointer(context, MainPointer(1, BranchRef("fix", "u"), None, 0, None, "other"))
    assert find_pointer(context, 1).main.name is None
    assert newest_pointer(context, above=1) is None


def test_a_context_goes_to_other_processes_as_what_it_is(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 1))
    table.create_tag("good")
    table.create_branch("fix", "good")
    table.replace_main_branch("fix")
    _ = table.snapshot
    for context in (table.context, table.branch("main@1").context, table.branch("fix").context):
        there = pickle.loads(pickle.dumps(context))
        assert (there.title, there.branch, there.main_generation) == (
            *(context.title, context.branch, context.main_generation),
        )
        assert there.branch_uuid == context.branch_uuid
    assert isinstance(table.context.storage, LocalStorage)


def test_mains_by_their_identity():
    table = parted()
    old, fix = table.branch_uuid, table.branch("fix").branch_uuid
    table.create_branch("other", "good")
    table.replace_main_branch("fix")
    context = table.context
    assert (main_by_uuid(context, fix).branch, main_by_uuid(context, fix).main_generation) == ("fix", 1)
    assert (main_by_uuid(context, old).branch, main_by_uuid(context, old).main_generation) == (None, 0)
    assert main_by_uuid(context, table.branch("other").branch_uuid) is None


def test_what_is_in_the_past_of_main():
    table = parted(main=2)
    old = {s.id: SnapshotRef(table.branch_uuid, s.id, s.stamp) for s in table.snapshots()}
    table.replace_main_branch("fix")
    for i in range(4):
        table.append(rows(200 + i, 1))
    main = table.context
    assert [is_in_past(main, old[i]) for i in (1, 2, 3, 4)] == [True, True, False, False]
    table.expire_snapshots(retain_max=2, retain_min=1, older_than=main.runtime.clock.now_millis() + 10**6)
    assert min(s.id for s in table.snapshots()) > 4
    assert [is_in_past(main, old[i]) for i in (1, 2, 3, 4)] == [True, True, False, False]


def test_what_two_mains_have_in_common_is_in_the_past_of_both_whoever_was_main_when_it_was_named():
    """Also once the snapshot has expired, and the replacements alone tell."""
    table = parted()
    table.replace_main_branch("fix")
    shared, own = (
        SnapshotRef(table.branch_uuid, s.id, s.stamp)
        for s in reversed([*table.snapshots()])
        if s.id in (2, 3)
    )
    table.undo_replace()
    for i in range(4):
        table.append(rows(200 + i, 1))
    assert [is_in_past(table.context, ref) for ref in (shared, own)] == [True, False]
    table.expire_snapshots(
        retain_max=2, retain_min=1, older_than=table.context.runtime.clock.now_millis() + 10**6
    )
    assert min(s.id for s in table.snapshots()) > 4
    assert [is_in_past(table.context, ref) for ref in (shared, own)] == [True, False]


# What becomes of an old main


def kept_for(table, millis):
    return table.with_options({"branch.replaced-main.time-retained": f"{millis} ms"})


def test_an_old_main_is_dropped_when_its_time_is_over():
    table = parted()
    table.replace_main_branch("fix")
    assert table.maintain().mains.dropped == ()
    assert ids_of(table.branch("main@1")) == [*BEFORE, 1000]
    table.context.runtime.clock.millis += 25 * 3_600_000
    assert table.maintain(dry_run=True).mains.dropped == ("main@1",)
    assert ids_of(table.branch("main@1")) == [*BEFORE, 1000]
    assert "dropped main@1" in str(table.maintain())
    assert table.maintain().mains.dropped == ()
    with pytest.raises(NotFoundError, match="'main@1' of 'db.t' was dropped"):
        table.branch("main@1")
    with pytest.raises(NotFoundError, match="was dropped"):
        table.undo_replace()
    assert ids_of(again(table)) == [*BEFORE, 100]


def test_an_old_main_is_dropped_at_once_if_nothing_is_to_be_kept():
    table = parted(options={"branch.replaced-main.time-retained": "0 ms"})
    table.replace_main_branch("fix")
    with pytest.raises(NotFoundError, match="was dropped"):
        table.branch("main@1")
    assert files(table, "snapshot") == ["snapshot/snapshot-1", "snapshot/snapshot-4"], (
        "main's past, and the seal"
    )


def test_what_is_left_of_it_reaches_nothing_and_stops_who_was_paused():
    table = parted(main=1)
    bad = {f.file_name for s in table.branch("main").snapshots() for f in _added(table, s) if s.id == 3}
    paused = again(table)
    table.replace_main_branch("fix")
    kept_for(table, 1).maintain()
    table.append(rows(7, 1))
    reached = {ref.path for ref in RefReader(table.context).read()}
    assert "snapshot/snapshot-4" not in reached
    moved = table.remove_orphan_files(older_than=4_000_000_000_000)  # a store in memory has times of its own
    assert bad
    assert bad <= set(moved.files["path"].str.split("/").list.last().to_list())
    sealed = paused.context.snapshots.head()
    with pytest.raises(anabranch.SealedBranchError):
        check_open(paused.context, sealed)
    paused.append(rows(8, 1))
    assert ids_of(table) == [*BEFORE, 7, 8, 100]


def _added(table, snapshot):
    manifests = table.context.manifests
    return [e.file for e in manifests.entries(manifests.read_list(snapshot.delta_manifest_list)).to_entries()]


@pytest.mark.parametrize(
    ("need", "says"),
    [
        (lambda t: t.create_tag("bad"), "tag 'bad'"),
        (lambda t: t.create_savepoint(), "savepoint 2"),
        (lambda t: list(t.tail("c", idle=0)), "consumer 'c'"),
        (lambda t: (t.create_tag("x"), t.create_branch("late", "x"), t.delete_tag("x")), "branch 'late'"),
    ],
    ids=["tag", "savepoint", "consumer", "branch"],
)
def test_an_old_main_stays_while_somebody_needs_it(need, says):
    table = parted()
    need(table)
    table.replace_main_branch("fix")
    assert kept_for(table, 1).maintain().mains.kept == (("main@1", says),)
    assert 1000 in ids_of(table.branch("main@1"))


def test_dropping_and_taking_back_exclude_each_other():
    table = parted()
    table.replace_main_branch("fix")
    context = table.context
    assert put_release(context, 1, Release("drop", 0, "t"))
    with pytest.raises(NotFoundError, match="was dropped"):
        table.undo_replace()
    assert release_due(context, 0).dropped == ("main@1",)

    table = parted()
    table.replace_main_branch("fix")
    take_back(table.context, table.table_uuid)
    assert release_due(table.context, 0).dropped == ()
    table.undo_replace()
    assert ids_of(table) == [*BEFORE, 1000]


def test_a_branch_that_is_to_be_main_again_is_not_deleted():
    table = twice_replaced()
    take_back(table.context, table.branch("main@2").branch_uuid)  # an undo that died right then
    with pytest.raises(InvalidInputError, match="kept as 'main@2'") as refused:
        table.delete_branch("fix")
    assert "undo-replace" in refused.value.hint
    assert table.branches() == ["fix", "next"]
    table.undo_replace()
    assert ids_of(table) == [*BEFORE, 100]
    table.delete_branch("next")
    kept_for(table, 1).maintain()
    assert ids_of(again(table)) == [*BEFORE, 100]


@pytest.mark.parametrize("left", [0, 1])
def test_a_main_that_somebody_removed_is_not_taken_back_for_ever(left):
    table = twice_replaced()
    storage = table.context.storage
    for info in [*storage.list("branch/branch-fix", recursive=True)][left:]:
        storage.delete(info.path)
    with pytest.raises(NotFoundError, match="'main@2' of 'db.t' was deleted"):
        table.undo_replace()
    assert table.snapshot.id == again(table).snapshot.id, "main was not sealed in vain"
    assert len(numbers(table.context, "SEAL-")) == 2


def test_a_branch_that_was_main_is_dropped_as_a_branch():
    table = twice_replaced()
    done = kept_for(table, 1).maintain().mains
    assert done.dropped == ("main@1",)
    assert done.kept == (("main@2", "snapshot 2 of main's past, which has not expired"),)
    assert table.branches() == ["fix", "next"]
    for number in range(2):
        table.append(rows(200 + number, 1))
    table.expire_snapshots(retain_max=2, retain_min=2, older_than=10**14)
    assert {*kept_for(table, 1).maintain().mains.dropped} == {"main@1", "main@2"}, "with tags that were left"
    assert table.branches() == ["next"]
    assert ids_of(again(table)) == [*BEFORE, 100, 200, 201]
    assert ids_of(table.at("good")) == BEFORE
    assert ids_of(table.at("savepoint.1")) == BEFORE


def test_what_was_main_until_it_was_taken_back_is_a_branch_like_any_other():
    table = parted()
    table.replace_main_branch("fix")
    table.append(rows(101, 1))
    table.undo_replace()
    assert kept_for(table, 1).maintain().mains.dropped == ()
    assert ids_of(table.branch("fix")) == [*BEFORE, 100, 101]
    table.delete_branch("fix")
    assert table.branches() == []
    assert ids_of(table.at("savepoint.1")) == BEFORE, "it took none with it that main has too"
    assert ids_of(timed(table)) == [*BEFORE, 1000]


def test_a_backup_that_is_put_back_under_a_running_process(tmp_path):
    """It was made before a replacement was undone, which this process has seen."""

    def opened():
        return anabranch.connect(str(tmp_path / "lake")).table("db.t")

    anabranch.connect(str(tmp_path / "lake")).create_table("db.t", SCHEMA).append(rows(1, 1))
    opened().create_branch("fix", "good", snapshot=1)
    opened().branch("fix").append(rows(2, 1))
    opened().replace_main_branch("fix")
    opened().append(rows(3, 1))
    shutil.copytree(tmp_path / "lake", tmp_path / "backup")
    opened().undo_replace()
    assert ids_of(opened()) == [1]
    shutil.rmtree(tmp_path / "lake")
    shutil.copytree(tmp_path / "backup", tmp_path / "lake")
    assert ids_of(opened()) == [1, 2, 3]
    opened().append(rows(4, 1))
    shutil.move(tmp_path / "lake", tmp_path / "seen by nobody")
    assert ids_of(anabranch.connect(str(tmp_path / "seen by nobody")).table("db.t")) == [1, 2, 3, 4]

"""Main's past after replacements lies in the folders of what was main before: read, expired, rolled back and kept there."""

import itertools
import json
import pickle
from dataclasses import replace
from types import SimpleNamespace

import pytest

import anabranch
from anabranch.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    NotFoundError,
)
from anabranch.format.records.layout import Layout, Part
from anabranch.format.records.main_pointer import MainPointer
from anabranch.format.records.refs import Consumer
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.format.text.json_object import JsonObject
from anabranch.kernel.actions.append import Append
from anabranch.kernel.expiry.expire import expire
from anabranch.kernel.expiry.retention import Retention
from anabranch.kernel.log.archive import archived
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.consumers import record_consumer
from anabranch.kernel.log.ledger import find_commit
from anabranch.kernel.replacement.release import release_due
from anabranch.spark.context.as_json import context_from, context_values
from tests.branches.replacing import again, files, kinds, parted
from tests.support.faults import FaultyStorage, run
from tests.support.foreign_expiry import expire_as_others
from tests.support.tables import ids_of, make_table, rows, written

_names = itertools.count()
JOB = CommitIdentity("job@1", 1)


def chain(*, own=3, url=None):
    """Main in the table's own folder, then branch `b`, then branch `c`, each with so many snapshots after it began.

    Returns the table and, by number, what each snapshot of main's history holds.
    """
    table = make_table(f"memory://shared{next(_names)}" if url is None else url)
    held = {}

    def grow(view):
        for _ in range(own):
            number = 1 if view.snapshot is None else view.snapshot.id + 1
            view.append(rows(number * 10, 2))
            held[number] = ids_of(view)

    grow(table)
    for name in ("b", "c"):
        table.create_tag(f"before-{name}")
        table.create_branch(name, f"before-{name}")
        table.append(rows(1000, 1))  # of what is replaced alone
        grow(table.branch(name))
        table.replace_main_branch(name)
    return table, held


def holds(table, numbers):
    """What the snapshots of main's history hold, by number."""
    opened = again(table)
    return {number: ids_of(opened.at(f"main.snapshot.{number}")) for number in numbers}


def of(held, numbers):
    return {number: held[number] for number in numbers}


def expire_to(table, at_most):
    return expire(table.context, Retention(at_least=1, at_most=at_most, replaced_before=0))


def test_nothing_of_the_past_is_copied_and_all_of_it_is_read():
    table, held = chain()
    assert sorted(files(table, "branch/branch-c/snapshot")) == [
        "branch/branch-c/snapshot/EARLIEST",
        "branch/branch-c/snapshot/LATEST",
        *(f"branch/branch-c/snapshot/snapshot-{n}" for n in (6, 7, 8, 9)),
    ]
    assert table.context.past == (Part(6, "b", tags=2), Part(3, None))
    said = json.loads(table.context.storage.get("branch/MAIN-2"))
    assert said["version"] == 4, "releases that do not know of it refuse the table"
    opened = again(table)
    assert [s.id for s in opened.snapshots()] == [*range(9, 0, -1)]
    assert holds(table, held) == held
    assert ids_of(opened.at("before-b")) == held[3]
    assert opened.verify().problems == ()


def test_it_goes_with_the_table_to_other_processes(tmp_path):
    table, held = chain(url=tmp_path)
    sent = pickle.loads(pickle.dumps(again(table)))
    read = context_from(JsonObject(context_values(again(table).context), "x"), {})
    for view in (sent, anabranch.Table(read)):
        assert {number: ids_of(view.at(f"main.snapshot.{number}")) for number in held} == held


def test_former_mains_have_their_past_too():
    table, held = chain()
    for name, last in (("main@2", 6), ("main@1", 3)):
        former = again(table).branch(name)
        assert {n: ids_of(former.at(n)) for n in range(1, last + 1)} == {
            n: held[n] for n in range(1, last + 1)
        }
    with pytest.raises(NotFoundError):
        again(table).branch("b").at(1)  # by its name it begins where it began


def test_expiry_removes_what_is_mains_wherever_it_lies():
    table, held = chain()
    done = expire_to(again(table), 5)
    assert done.snapshots == (1, 2, 3, 4)
    assert [s.id for s in again(table).snapshots()] == [9, 8, 7, 6, 5]
    assert holds(table, range(5, 10)) == of(held, range(5, 10))
    assert ids_of(again(table).branch("main@1")) == [*held[3], 1000]
    assert ids_of(again(table).at("before-b")) == held[3]
    assert [s.id for s in again(table).branch("main@2").snapshots()] == [8, 7, 6, 5]  # with the seal
    assert again(table).verify(deep=True).problems == ()
    table.append(rows(100, 1))
    assert ids_of(again(table)) == sorted([*held[9], 100])


def test_what_expired_is_archived_as_what_it_was():
    """What a branch began with is in its own folder, and archived by the one that made it, when that goes."""
    table, _ = chain()
    expire_to(again(table), 1)
    uuids = [table.table_uuid, *(table.branch(name).branch_uuid for name in ("b", "c"))]
    kept = [[found.id for found in archived(table.context, uuid)] for uuid in uuids]
    assert kept == [[2, 1], [5, 4], [7]]


def test_a_branch_that_was_main_expires_nothing_of_main():
    table, held = chain()
    former = again(table).branch("b")
    assert expire_to(former, 1).snapshots == ()
    assert holds(table, held) == held


def test_a_consumer_below_the_fork_keeps_what_it_has_to_read():
    table, _ = chain()
    record_consumer(table.context, "slow", Consumer(4))
    assert expire_to(again(table), 1).snapshots == (1, 2, 3)


def test_the_table_s_own_folder_is_dropped_around_mains_past():
    table, held = chain()
    table.delete_tag("before-b")
    dropped = release_due(again(table).context, 0)
    assert dropped.dropped == ("main@1",)
    assert dropped.kept == (("main@2", "snapshots 3 to 5 of main's past, which have not expired"),)
    assert holds(table, held) == held
    assert [p.text for p in again(table).verify().problems] == []
    assert release_due(again(table).context, 0).dropped == ()
    expire_to(again(table), 4)
    assert "main@2" in release_due(again(table).context, 0).dropped
    assert "b" not in again(table).branches()
    assert holds(table, (6, 7, 8, 9)) == of(held, (6, 7, 8, 9))
    assert again(table).verify(deep=True).problems == ()


def test_a_branch_in_whose_folder_mains_past_lies_is_not_deleted():
    table, held = chain()
    with pytest.raises(InvalidInputError):
        again(table).delete_branch("b")
    assert holds(table, held) == held


def test_main_is_not_rolled_back_for_good_behind_its_beginning():
    table, held = chain()
    with pytest.raises(CommitConflictError) as refused:
        again(table).rollback("main.snapshot.4", destructive=True, force=True)
    assert kinds(refused) == ["BEFORE_REPLACEMENT"]
    again(table).rollback("main.snapshot.4")
    assert ids_of(again(table)) == held[4]
    again(table).rollback("main.snapshot.7", destructive=True, force=True)
    assert ids_of(again(table)) == held[7]


def test_a_branch_that_was_main_is_not_rolled_back_for_good_into_mains_past():
    table, held = chain()
    with pytest.raises(CommitConflictError):
        again(table).branch("b").rollback(4, destructive=True, force=True)
    assert holds(table, held) == held


def test_undo_brings_back_what_was_main_with_its_past():
    table, held = chain()
    table.append(rows(100, 1))
    table.undo_replace()
    assert table.context.past == (Part(3, None),)
    assert holds(table, range(1, 7)) == of(held, range(1, 7))
    table.undo_replace(1)
    assert table.context.past == ()
    assert holds(table, range(1, 4)) == of(held, range(1, 4))
    table.replace_main_branch("b")
    assert holds(table, range(1, 7)) == of(held, range(1, 7))


def test_what_expired_after_a_replacement_is_known_after_its_undo():
    """A stream whose commits expired while another branch was main asks what was main, once that is main again."""
    table = make_table(f"memory://shared{next(_names)}")
    table.commit(Append(written(table, 0, 1)), identity=JOB)
    for number in range(5):
        table.append(rows(10 + number, 1))
    table.create_tag("base")
    table.create_branch("fix", "base")
    table.replace_main_branch("fix")
    for number in range(5):
        table.append(rows(100 + number, 1))
    expire_to(again(table), 2)
    assert 1 not in [s.id for s in again(table).snapshots()]
    table.undo_replace()
    table = again(table)
    assert find_commit(table.context, JOB, table.context.snapshots.head(), None) is not None
    table.commit(Append(written(table, 0, 1)), identity=JOB)
    assert ids_of(table).count(0) == 1


def standing_still(table, call, where, meanwhile):
    """The table as a process has it that stands still right before that call, until all else is done."""
    held = again(table)
    faults = [run("before", call, lambda _: meanwhile(), where=where)]
    storage = FaultyStorage(held.context.storage, faults)
    return anabranch.Table(replace(held.context, storage=storage, cache=MetadataCache()))


@pytest.mark.parametrize(
    ("call", "where", "is_refused"),
    [("put", "*ledger/expired-*", True), ("delete_many", "*snapshot*", False)],
)
def test_an_expiry_that_stood_still_while_main_was_replaced(call, where, is_refused):
    """It removes nothing, or the ledger of what is main then knows the commits that it removes."""
    table = make_table(f"memory://shared{next(_names)}")
    table.commit(Append(written(table, 0, 1)), identity=JOB)
    for number in range(6):
        table.append(rows(10 + number, 1))
    table.create_tag("base")
    table.create_branch("fix", "base")
    paused = standing_still(table, call, where, lambda: table.replace_main_branch("fix"))
    if is_refused:
        with pytest.raises(CommitConflictError, match="was replaced while"):
            expire_to(paused, 2)
    else:
        expire_to(paused, 2)
    assert [s.id for s in again(table).snapshots()][-1] == (1 if is_refused else 6)
    table = again(table)
    table.append(rows(500, 1))
    table.commit(Append(written(table, 0, 1)), identity=JOB)
    assert ids_of(table).count(0) == 1
    assert again(table).verify().problems == ()


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("*anabranch-rollback*", CommitConflictError),  # it looks whether main is main still
        ("lineage/removed-*", InvalidInputError),  # the branch that is main began in what it removes
    ],
    ids=["before its pin", "after its pin"],
)
def test_a_rollback_for_good_that_stood_still_while_main_was_replaced(where, error):
    table = parted(main=3)
    paused = standing_still(table, "put_if_absent", where, lambda: table.replace_main_branch("fix"))
    with pytest.raises(error):
        paused.rollback(1, destructive=True, force=True)
    is_copied = error is InvalidInputError  # what the rollback removes belongs to it alone
    assert again(table).context.past == (() if is_copied else (Part(2, None, tags=1),))
    assert [s.id for s in again(table).snapshots()] == [3, 2, 1]
    assert [len(found) for found in holds(table, (1, 2, 3)).values()] == [3, 6, 7]


@pytest.mark.parametrize(
    "past",
    [
        [{"below": 2**62, "branch": None}],
        [{"below": 3, "branch": "../../x"}],
        [{"below": 3, "branch": "main"}],
        [{"below": 3, "branch": "c"}],
        [{"below": 6, "branch": "b"}, {"below": 3, "branch": "b"}],
        [{"below": 3, "branch": None}, {"below": 6, "branch": "b"}],
        [{"below": 0, "branch": None}],
        [{"below": 3}],
        7,
    ],
)
def test_a_decision_that_says_nonsense_of_the_past_is_damaged(past):
    table, _ = chain()
    path = "branch/MAIN-2"
    content = json.loads(table.context.storage.get(path))
    with pytest.raises(CorruptTableError):
        MainPointer.from_json(json.dumps({**content, "past": past}).encode(), path=path, generation=2)


def test_a_lost_decision_is_made_again_with_the_past():
    table, held = chain()
    storage = table.context.storage
    for path in ("branch/MAIN-2", "lineage/main-2"):
        storage.delete(path)
    fresh = anabranch.Table(
        replace(
            table.context,
            branch="b",
            main_generation=1,
            past=(Part(3, None),),
            cache=MetadataCache(),
        )
    )
    assert fresh.repair().steps
    assert holds(table, held) == held
    assert again(table).context.past == (Part(6, "b", tags=2), Part(3, None))


def test_parts_of_a_past():
    layout = Layout("c", (Part(20, "b"), Part(10, None)))
    assert [layout.home_of(number) for number in (25, 20, 19, 10, 9, 1)] == ["c", "c", "b", "b", None, None]
    assert layout.past_below(30) == (Part(30, "c"), Part(20, "b"), Part(10, None))
    assert layout.past_below(15) == (Part(15, "b"), Part(10, None))
    assert layout.past_below(5) == (Part(5, None),)


def test_a_consumer_of_what_was_main_keeps_what_it_has_to_read_of_the_past():
    table, held = chain()
    former = again(table).branch("main@1")
    record_consumer(former.context, "slow", Consumer(2))
    record_consumer(former.context, "ahead", Consumer(4))  # of what is not main's
    assert expire_to(again(table), 1).snapshots == (1,)
    assert holds(table, range(2, 10)) == of(held, range(2, 10))


def test_no_branch_is_made_under_a_name_in_which_mains_past_is_looked_for():
    table, _ = chain()
    expire_to(again(table), 2)
    table.delete_tag("before-b")
    table.delete_tag("before-c")
    assert "main@2" in release_due(again(table).context, 0).dropped
    assert again(table).branches() == ["c"]
    table.create_tag("here")
    with pytest.raises(AlreadyExistsError, match="was main of"):
        again(table).create_branch("b", "here")
    again(table).create_branch("d", "here")


def test_what_another_engine_puts_under_such_a_name_is_none_of_main():
    table, held = chain()
    expire_to(again(table), 2)
    release_due(again(table).context, 0)
    storage, kept = table.context.storage, again(table).at("main.snapshot.8").snapshot
    foreign = replace(kept, id=5, commit_user="other", properties={})
    storage.put("branch/branch-b/schema/schema-0", storage.get("schema/schema-0"))
    storage.put("branch/branch-b/snapshot/snapshot-5", foreign.to_json())
    assert [s.id for s in again(table).snapshots()] == [9, 8]
    with pytest.raises(NotFoundError):
        again(table).at("main.snapshot.5")
    table.append(rows(300, 1))
    expire_to(again(table), 2)
    assert storage.exists("branch/branch-b/snapshot/snapshot-5")
    assert ids_of(again(table)) == [*held[9], 300]


def test_main_by_the_name_of_its_branch_has_the_same_past():
    table, held = chain()
    named = again(table).branch("c")
    assert {number: ids_of(named.at(number)) for number in held} == held
    assert expire_to(named, 5).snapshots == (1, 2, 3, 4)
    assert [s.id for s in again(table).snapshots()] == [9, 8, 7, 6, 5]


def test_a_main_that_was_taken_back_expires_nothing_of_what_is_main_again():
    table, held = chain()
    table.undo_replace()
    table.undo_replace(1)
    for former in ("main@2", "b", "main@4"):
        assert min(expire_to(again(table).branch(former), 1).snapshots, default=3) >= 3
    assert holds(table, (1, 2, 3)) == of(held, (1, 2, 3))


def test_an_expiry_of_a_branch_by_its_name_that_stood_still_until_that_was_main_and_was_replaced():
    table = parted(fix=4)
    held = again(table).branch("fix")

    def replaces():
        table.replace_main_branch("fix")
        table.create_tag("base")
        table.create_branch("next", "base")
        table.replace_main_branch("next")

    paused = standing_still(held, "put", "*ledger/expired-*", replaces)
    with pytest.raises(CommitConflictError):
        expire_to(paused, 2)
    assert [s.id for s in again(table).snapshots()] == [6, 5, 4, 3, 2, 1]


def test_a_former_main_that_is_main_again_by_its_name_knows_what_expired_since():
    table = make_table(f"memory://shared{next(_names)}")
    table.append(rows(10, 1))
    table.create_tag("one")
    table.create_branch("b", "one")
    table.replace_main_branch("b")
    table.commit(Append(written(table, 0, 1)), identity=JOB)  # a commit of `b` itself
    for number in range(4):
        table.append(rows(100 + number, 1))
    table.create_tag("six")
    table.create_branch("c", "six")
    table.replace_main_branch("c")
    for number in range(3):
        table.append(rows(200 + number, 1))
    assert 2 in expire_to(again(table), 2).snapshots
    table.replace_main_branch("b", force=True)
    table = again(table)
    table.commit(Append(written(table, 0, 1)), identity=JOB)
    assert ids_of(table).count(0) == 1


@pytest.mark.parametrize("was_main", [True, False])
@pytest.mark.parametrize("expires", [True, False])
def test_a_branch_of_a_former_main_by_force_has_all_of_its_past(was_main, expires):
    """It began above the newest snapshot that main and it have in common."""
    table = make_table(f"memory://shared{next(_names)}")
    for number in range(3):
        table.append(rows(10 + number, 1))
    table.create_tag("three")
    table.commit(Append(written(table, 0, 1)), identity=JOB)
    table.append(rows(20, 1))
    table.create_tag("five")
    table.create_branch("b", "five")
    table.create_branch("d", "three")
    table.branch("b").append(rows(50, 1))
    table.branch("d").append(rows(60, 1))
    if was_main:
        table.replace_main_branch("b")
        table.undo_replace()
    if expires:
        table.append(rows(70, 1))
        expire_to(again(table), 2)
    table.replace_main_branch("d", force=True)
    table.replace_main_branch("b", force=True)
    table = again(table)
    if not expires:
        assert [s.id for s in table.snapshots()] == [*range(table.snapshot.id, 0, -1)]
    table.commit(Append(written(table, 0, 1)), identity=JOB)
    assert ids_of(table) == [0, 10, 11, 12, 20, 50]
    assert table.verify(deep=True).problems == ()


def test_what_is_left_in_the_tables_folder_is_expired_by_another_engine_without_harm_to_tags():
    table = make_table(f"memory://shared{next(_names)}")
    table.append(rows(0, 2))
    table.append(rows(2, 2))
    table.create_tag("old", 2)
    table.overwrite(rows(30, 1))
    table.append(rows(40, 1))
    table.append(rows(50, 1))
    table.create_tag("base")
    table.create_branch("fix", "base")
    table.replace_main_branch("fix")
    assert release_due(again(table).context, 0).dropped == ("main@1",)
    assert release_due(again(table).context, 0).dropped == ()
    folder = anabranch.Table(again(table).context.on_branch(None))
    left = [folder.context.snapshots.get(number) for number in (4, 3, 2, 1)]
    seen = SimpleNamespace(context=folder.context, schema=folder.schema, snapshots=lambda: left)
    expire_as_others(seen, 1)
    assert ids_of(again(table).at("old")) == [0, 1, 2, 3]
    assert ids_of(again(table)) == [30, 40, 50]
    table.delete_tag("old")
    assert release_due(again(table).context, 0).dropped == ("main@1",)
    assert "tag/tag-old" not in files(table, "tag")


def test_another_engine_expires_the_branch_that_is_main():
    """It knows no parts: it says where its history begins now, and what lies below is none of ours either."""
    table, held = chain()
    storage = table.context.storage
    for number in (6, 7):
        storage.delete(f"branch/branch-c/snapshot/snapshot-{number}")
    storage.put("branch/branch-c/snapshot/EARLIEST", b"8")
    assert [s.id for s in again(table).snapshots()] == [9, 8]
    assert again(table).verify().problems == ()
    assert again(table).repair().steps == ()
    table.append(rows(300, 1))
    expire_to(again(table), 2)
    assert ids_of(again(table)) == [*held[9], 300]
    assert again(table).verify().problems == ()


def test_where_the_folder_of_main_is_gone_its_past_is_not_taken_for_it():
    table, held = chain()
    held_open = again(table)
    assert ids_of(held_open) == held[9]
    table.context.storage.delete_folder("branch/branch-c")
    for view in (again(table), held_open):
        with pytest.raises(NotFoundError):
            ids_of(view)
        with pytest.raises(NotFoundError):
            view.append(rows(1, 1))
    again(table).repair()
    assert ids_of(again(table)) == held[9]
    assert holds(table, held) == held


def test_no_gap_is_told_of_where_the_history_of_two_mains_lies_in_one_folder():
    """The newest main has the middle of it, the first one what is above and, since the second expired, below."""
    table = make_table(f"memory://shared{next(_names)}")
    for row in range(6):
        table.append(rows(row, 1))
    table.create_branch("b", snapshot=3)
    table.create_branch("c", snapshot=6)
    table.append(rows(6, 1))
    for row in (10, 11):
        table.branch("b").append(rows(row, 1))
    table.replace_main_branch("b", force=True)
    table.append(rows(12, 1))
    assert table.expire_snapshots(retain_max=3).snapshots == (1, 2, 3)
    table.append(rows(13, 1))
    table.replace_main_branch("c", force=True)
    assert again(table).verify(deep=True).problems == ()

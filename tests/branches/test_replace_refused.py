"""When main is not replaced: leases, what would be lost, other engines, and names that are not understood."""

import uuid
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import (
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
)
from anabranch.kernel.log.main_pointer import find_pointer
from tests.branches.replacing import BEFORE, again, as_foreign, files, kinds, parted, timed
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table, rows

# What is refused


def test_the_lease():
    table = parted()
    with pytest.raises(CommitConflictError, match="expected at snapshot 2 and is at 3") as refused:
        table.replace_main_branch("fix", expect_main=2)
    assert kinds(refused) == ["MAIN_MOVED"]
    before = files(table)
    with pytest.raises(CommitConflictError):
        table.replace_main_branch("fix", expect_main=2)
    assert files(table) == before
    table.replace_main_branch("fix", expect_main=3)


def test_the_lease_holds_until_the_seal():
    table = parted()
    act = run(
        "before", "put_if_absent", lambda path: again(table).append(rows(500, 1)), where="branch/SEAL-*"
    )
    storage = FaultyStorage(table.context.storage, [act])
    with pytest.raises(CommitConflictError, match="MAIN_MOVED"):
        anabranch.Table(replace(table.context, storage=storage)).replace_main_branch("fix", expect_main=3)
    assert ids_of(table) == [*BEFORE, 500, 1000]
    table.append(rows(501, 1))  # nobody waits for a replacement that was given up
    assert find_pointer(table.context, 1).replaced is None


def test_a_seal_that_came_to_nothing_is_no_commit_for_the_lease():
    table = parted()
    act = run("before", "put_if_absent", _die, where="branch/MAIN-1")
    storage = FaultyStorage(table.context.storage, [act])
    with pytest.raises(KeyboardInterrupt):
        anabranch.Table(replace(table.context, storage=storage)).replace_main_branch("fix", expect_main=3)
    assert table.snapshot.id == 4
    assert table.replace_main_branch("fix", expect_main=3).number == 2
    assert ids_of(table) == [*BEFORE, 100]


def _die(path):
    raise KeyboardInterrupt


def test_a_tag_that_would_be_lost():
    table = parted()
    table.branch("fix").create_tag("old")
    with pytest.raises(CommitConflictError, match="the tag 'old' names snapshot 1") as refused:
        table.replace_main_branch("fix")
    assert kinds(refused) == ["TAG_CLASH"]
    table.replace_main_branch("fix", force=True)
    assert ids_of(table.at("old")) == [*BEFORE, 100]


def test_a_tag_of_what_is_replaced_does_not_stand_in_the_way():
    table = parted()
    table.create_tag("today")
    table.branch("fix").create_tag("today")
    table.replace_main_branch("fix")
    assert ids_of(table.at("today")) == [*BEFORE, 100]
    assert ids_of(table.branch("main@1").at("today")) == [*BEFORE, 1000]


def test_other_engines_that_write_to_main():
    table = parted()
    as_foreign(table, 3)
    with pytest.raises(CommitConflictError, match="another engine committed snapshot 3") as refused:
        table.replace_main_branch("fix")
    assert kinds(refused) == ["FOREIGN_WRITER"]
    assert "commit" in refused.value.hint
    table.replace_main_branch("fix", force=True)
    assert ids_of(table) == [*BEFORE, 100]


def test_the_new_main_holds_what_other_branches_began_with():
    table = parted(main=2)
    table.create_tag("later", 4)
    table.create_branch("other", "later")
    assert not table.verify().problems
    table.replace_main_branch("fix")
    assert not table.verify().problems
    table.undo_replace()
    assert not table.verify().problems


def test_a_branch_that_left_a_main_which_is_not_main_any_more():
    table = parted(main=2)
    table.create_tag("later", 4)
    table.create_branch("other", "later")
    table.replace_main_branch("fix")
    with pytest.raises(
        CommitConflictError, match="began at snapshot 4, which is not in the history"
    ) as refused:
        table.replace_main_branch("other")
    assert kinds(refused) == ["NOT_DESCENDED"]
    table.append(rows(7, 1))
    table.append(rows(8, 1))
    table.expire_snapshots(
        retain_max=1, retain_min=1, older_than=timed(table).context.runtime.clock.now_millis()
    )
    table.maintain()  # restores the pin of `other`, which says nothing about descent
    with pytest.raises(CommitConflictError, match="NOT_DESCENDED"):
        table.replace_main_branch("other")
    table.replace_main_branch("other", force=True)
    assert ids_of(table) == [*BEFORE, 1000, 1001]


def test_by_force_a_branch_of_another_line_takes_over_only_what_both_have():
    table = make_table(f"memory://{uuid.uuid4()}")
    for number in range(1, 11):
        table.append(rows(number, 1))
        if number == 1:
            table.create_tag("shared")
            table.create_savepoint()
    table.create_branch("long", snapshot=10)
    table.create_branch("short", "shared")
    table.replace_main_branch("short", force=True)
    table.append(rows(100, 1))
    table.create_tag("of-short")
    table.create_savepoint()
    table.append(rows(101, 1))
    result = table.replace_main_branch("long", force=True)
    assert (result.fork, result.old_snapshot) == (1, 3)
    assert "with 2 snapshots after snapshot 1, is kept as main@2" in str(result)
    assert set(table.tags()) == {"long", "shared"}
    assert [s.id for s in table.savepoints()] == [1]
    assert ids_of(table.at("shared")) == [1]
    assert ids_of(table.at("main@2.of-short")) == [1, 100]
    with pytest.raises(NotFoundError):
        table.rollback("of-short", destructive=True, force=True)
    table.append(rows(11, 1))
    assert ids_of(table) == [*range(1, 12)]
    assert not table.verify().problems


def test_a_beginning_that_expired_on_main_is_still_in_its_past():
    table = parted(main=4)
    table.expire_snapshots(retain_max=2, retain_min=1, older_than=0)
    assert [s.id for s in table.snapshots()] == [6, 5]
    table.replace_main_branch("fix")
    assert ([s.id for s in table.snapshots()], ids_of(table)) == ([3, 2], [*BEFORE, 100])


def test_all_that_is_found_is_said_at_once():
    table = parted()
    as_foreign(table, 3)
    table.branch("fix").create_tag("old")
    with pytest.raises(CommitConflictError) as refused:
        table.replace_main_branch("fix")
    assert kinds(refused) == ["FOREIGN_WRITER", "TAG_CLASH"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"mode": "swap"}, "'pointer' or 'commit', not 'swap'"),
        ({"wait": "soon"}, "'soon' is no duration"),
    ],
)
def test_arguments_that_are_not_understood(how, message):
    with pytest.raises(InvalidInputError, match=message):
        parted().replace_main_branch("fix", **how)


def test_a_branch_that_is_not_there():
    with pytest.raises(NotFoundError, match="branch 'fox' does not exist"):
        parted().replace_main_branch("fox")


def test_the_audit_that_is_asked_for():
    table = parted()
    with pytest.raises(CommitConflictError, match="has passed no audit"):
        table.replace_main_branch("fix", require_audit=True)
    assert ids_of(table) == [*BEFORE, 1000]


# Numbers


def test_a_number_that_two_mains_had_is_ambiguous():
    table = parted(main=2, fix=3)
    table.replace_main_branch("fix")
    for version in (3, 4, "snapshot.3", "4"):
        with pytest.raises(InvalidInputError, match="AMBIGUOUS_SNAPSHOT") as refused:
            table.at(version)
        assert "main@1.snapshot." in refused.value.hint
    with pytest.raises(InvalidInputError, match="AMBIGUOUS_SNAPSHOT"):
        table.with_options({"scan.snapshot-id": "3"})
    with pytest.raises(InvalidInputError, match="AMBIGUOUS_SNAPSHOT"):
        list(table.tail(start=3, idle=0))
    assert ids_of(table.at("main@1.snapshot.3")) == [*BEFORE, 1000]
    assert ids_of(table.at("main.snapshot.3")) == [*BEFORE, 100]
    assert ids_of(table.with_options({"scan.version": "main@1.4"})) == [*BEFORE, 1000, 1001]
    assert ids_of(table.at("main@1.savepoint.1")) == ids_of(table.at(2)) == BEFORE
    assert ids_of(table.at(5)) == [*BEFORE, 100, 101, 102]
    assert ids_of(table.branch("fix").at(3)) == [*BEFORE, 100]


def test_a_tag_takes_the_name_that_the_hint_gives_an_ambiguous_number():
    table = parted(main=2, fix=3)
    table.replace_main_branch("fix")
    table.create_tag("third", "main.snapshot.3")
    assert ids_of(table.at("third")) == [*BEFORE, 100]
    with pytest.raises(InvalidInputError, match="of a main that was replaced"):
        table.create_tag("former", "main@1.snapshot.3")
    assert "former" not in table.tags()


def test_a_branch_and_a_savepoint_begin_where_the_hint_says_for_an_ambiguous_number():
    table = parted(main=2, fix=3)
    table.replace_main_branch("fix")
    with pytest.raises(InvalidInputError, match="AMBIGUOUS_SNAPSHOT") as refused:
        table.create_branch("next", snapshot=3)
    assert "'main.snapshot.3'" in refused.value.hint
    table.create_branch("next", snapshot="main.snapshot.3")
    assert ids_of(table.branch("next")) == [*BEFORE, 100]
    saved = table.savepoint_manager.create("main.snapshot.3")
    assert ids_of(table.at(f"savepoint.{saved.id}")) == [*BEFORE, 100]
    for make in (
        table.savepoint_manager.create,
        lambda version: table.create_branch("former", snapshot=version),
    ):
        with pytest.raises(InvalidInputError, match="of a main that was replaced"):
            make("main@1.snapshot.3")
    assert table.branches() == ["fix", "next"]

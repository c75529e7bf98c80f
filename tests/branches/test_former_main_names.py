"""What `main@1`, `main.snapshot.4` and the like mean, wherever a moment or a branch is named."""

import time
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.kernel.replacement.release import release_due
from anabranch.runtime import SYSTEM
from tests.branches.creating import again
from tests.branches.replacing import BEFORE, parted
from tests.support.tables import ids_of, make_table, rows


def undone(*, made_anew):
    """`fix` was main and is not any more; the branch was deleted, and another one of its name may have been made."""
    table = parted(main=2, fix=3)
    table.replace_main_branch("fix")
    table.undo_replace()
    table.delete_branch("fix")
    if made_anew:
        table.create_branch("fix", "good")
        for number in range(3):
            table.branch("fix").append(rows(700 + number, 1))
    return again(table)


@pytest.mark.parametrize("made_anew", [True, False])
@pytest.mark.parametrize(
    "ask",
    [
        lambda table: ids_of(table.branch("main@2")),
        lambda table: ids_of(table.at("main@2.snapshot.4")),
        lambda table: table.diff("main@2", "main"),
        lambda table: table.merge_branch("main@2"),
        lambda table: table.lineage.producer("main@2.snapshot.4"),
    ],
)
def test_a_former_main_that_was_deleted_is_not_another_branch_of_its_name(ask, made_anew):
    table = undone(made_anew=made_anew)
    with pytest.raises(NotFoundError, match="'main@2' of 'db.t' was deleted"):
        ask(table)
    assert ids_of(table) == [*BEFORE, 1000, 1001]
    table.maintain()
    assert table.branches() == (["fix"] if made_anew else [])


class _Ahead:
    """A machine's clock, a year ahead of the store's."""

    def __getattr__(self, name):
        return getattr(SYSTEM.clock, name)

    def now_millis(self):
        return SYSTEM.clock.now_millis() + 365 * 86_400_000


@pytest.mark.parametrize("retained", [0, 1])
def test_a_former_main_of_a_machine_whose_clock_was_ahead_is_dropped_in_time(retained):
    table = make_table(f"memory://ahead{retained}")
    table.append(rows(1, 1))
    table.create_branch("fix", snapshot=1)
    ahead = replace(table.context.runtime, clock=_Ahead())
    anabranch.Table(replace(again(table).context, runtime=ahead)).replace_main_branch("fix")
    time.sleep(0.01)
    assert release_due(again(table).context, 86_400_000).dropped == ()
    assert release_due(again(table).context, retained).dropped == ("main@1",)


def test_a_former_main_is_kept_for_what_was_made_on_it_since():
    table = parted(main=2, fix=3)
    table.replace_main_branch("fix")
    time.sleep(0.01)
    old = again(table).branch("main@1")
    old.create_tag("since", "snapshot.2")
    assert release_due(again(table).context, 0).kept == (("main@1", "tag 'since'"),)
    old.delete_tag("since")
    old.replace_tag("good", "snapshot.1")  # main's is another now
    assert release_due(again(table).context, 0).kept == (("main@1", "tag 'good'"),)
    old.replace_tag("good", "snapshot.2")
    saved = old.create_savepoint("snapshot.2")
    assert release_due(again(table).context, 0).kept == (("main@1", f"savepoint {saved.id}"),)
    assert ids_of(again(table).at(f"main@1.savepoint.{saved.id}")) == BEFORE
    old.delete_savepoint(saved.id)
    table.delete_tag("old")  # of what both have: main had its own
    assert release_due(again(table).context, 0).dropped == ("main@1",)
    assert table.verify().ok


def test_a_tag_whose_time_is_over_keeps_no_former_main():
    table = make_table("memory://former-tags")
    table.append(rows(0, 1))
    table.create_branch("fix", snapshot=1)
    table.append(rows(1, 1))
    table.branch("fix").append(rows(1, 1))
    table.create_tag("short", retained="1 ms")
    table.create_tag("long", retained="1 d")
    table.replace_main_branch("fix", force=True)
    time.sleep(0.05)
    assert release_due(again(table).context, 0).kept == (("main@1", "tag 'long'"),)
    again(table).branch("main@1").delete_tag("long")
    assert release_due(again(table).context, 0).dropped == ("main@1",)


def test_a_number_that_means_two_snapshots_is_refused_in_a_range_and_the_names_of_the_hint_work():
    table = parted(main=2, fix=3)
    table.replace_main_branch("fix")
    table = again(table)

    def added(start, end):
        return sorted(table.changes(start, end).to_arrow()["id"].to_pylist())

    def between(text):
        return ids_of(table.with_options({"incremental-between": text}))

    for refused in (
        lambda: added("3", "4"),
        lambda: added("snapshot.3", 5),
        lambda: between("3,4"),
        lambda: [*table.tail(start=4, idle=0)],
    ):
        with pytest.raises(InvalidInputError, match="AMBIGUOUS_SNAPSHOT") as error:
            refused()
        assert "'main.snapshot." in error.value.hint
    assert added("main.snapshot.3", "main.snapshot.4") == between("main.snapshot.3,main.snapshot.4") == [101]
    assert added(3, 4) == [101], "the number of a snapshot of this history"
    assert added(2, 5) == between("2,5") == [100, 101, 102]
    assert added("main.good", "main.snapshot.3") == [100]
    tailed = [row for batch in table.tail(start="main.snapshot.4", idle=0) for row in batch["id"].to_pylist()]
    assert tailed == [101, 102]
    short, long = (table.diff(name, "main") for name in ("main.snapshot.4", "main@main.snapshot.4"))
    assert short.files.added["file_name"].to_list() == long.files.added["file_name"].to_list() != []
    for refused in (
        lambda: added("main@1.snapshot.3", "main.snapshot.4"),
        lambda: [*table.tail(start="main@1.snapshot.4", idle=0)],
    ):
        with pytest.raises(InvalidInputError, match="is of a main that was replaced"):
            refused()


def test_what_was_main_in_the_tables_own_folder_is_no_branch_that_is_merged():
    table = parted()
    table.replace_main_branch("fix", force=True)
    with pytest.raises(InvalidInputError, match="was before main was replaced"):
        again(table).merge_branch("main@1")

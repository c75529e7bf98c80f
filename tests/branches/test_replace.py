"""Replacing main: what the new main is, who follows, what is refused, and taking it back."""

import logging
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import (
    AnabranchError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    SealedBranchError,
)
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.identity import CommitIdentity
from anabranch.kernel.log.main_pointer import find_pointer, replacements
from anabranch.kernel.log.properties import SEAL_PROPERTY, WRITER_PROPERTY
from tests.branches.replacing import BEFORE, again, files, parted, timed
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table, rows, written


def kinds(error):
    return [conflict.kind for conflict in error.value.conflicts]


# What main is afterwards


def test_the_branch_is_main():
    table = parted()
    held = again(table)
    result = table.replace_main_branch("fix", by="me", reason="wrong prices")
    assert (result.branch, result.number, result.former) == ("fix", 1, "main@1")
    assert (result.fork, result.old_snapshot, result.new_snapshot, result.repeated) == (2, 3, 3, False)
    for view in (table, held, table.branch("main"), table.branch("fix")):
        assert ids_of(view) == [*BEFORE, 100]
    assert (table.name, table.branch("fix").name) == ("db.t", "db.t$branch_fix")
    assert table.branch_uuid == table.branch("fix").branch_uuid != table.table_uuid
    assert table.context.storage.get("branch/MAIN-BRANCH") == b"fix"
    [pointer] = replacements(table.context)
    assert (pointer.made_by, pointer.replaced.reason) == ("me", "wrong prices")


def test_it_has_the_past_of_main_with_tags_and_savepoints():
    table = parted()
    table.replace_main_branch("fix")
    assert [s.id for s in table.snapshots()] == [3, 2, 1]
    assert ids_of(table.at(1)) == [0, 1, 2]
    assert table.tags() == ["good", "old"]
    assert ids_of(table.at("old")) == [0, 1, 2]
    assert [s.id for s in table.savepoints()] == [1]
    assert ids_of(table.at("savepoint.1")) == BEFORE
    assert table.context.storage.get(table.context.layout.earliest_hint_path) == b"1"
    assert table.create_savepoint().id == 2
    table.delete_savepoint(1)
    assert [s.id for s in table.savepoints()] == [2]


def test_tags_and_savepoints_of_what_was_replaced_stay_with_it():
    table = parted(main=2)
    table.create_tag("bad")
    table.create_savepoint()
    table.replace_main_branch("fix")
    former = table.branch("main@1")
    assert (table.tags(), [s.id for s in table.savepoints()]) == (["good", "old"], [1])
    assert former.tags() == ["bad", "good", "old"]
    assert ids_of(former.at("bad")) == ids_of(former.at("savepoint.2")) == [*BEFORE, 1000, 1001]


def test_a_branch_that_lost_its_beginning_gets_tags_and_savepoints_only():
    table = parted(fix=4)
    table.branch("fix").expire_snapshots(retain_max=2, retain_min=1, older_than=0)
    table.replace_main_branch("fix")
    assert [s.id for s in table.snapshots()] == [6, 5]
    assert ids_of(table.at("old")) == [0, 1, 2]
    assert ids_of(table.at("savepoint.1")) == BEFORE


def test_what_is_replaced_can_be_read_and_not_written():
    table = parted(main=2)
    table.replace_main_branch("fix")
    former = table.branch("main@1")
    assert (ids_of(former), former.name) == ([*BEFORE, 1000, 1001], "db.t$branch_main@1")
    seal = former.snapshot
    assert (seal.id, seal.commit_kind, seal.properties[SEAL_PROPERTY]) == (5, CommitKind.COMPACT, "1")
    assert seal.total_record_count == 8
    with pytest.raises(SealedBranchError, match="replaced by branch 'fix'"):
        former.append(rows(9, 1))
    lake = anabranch.connect(table.context.storage.url.removesuffix("/db.db/t"))
    assert ids_of(lake.table("db.t$branch_main@1")) == [*BEFORE, 1000, 1001]
    with pytest.raises(NotFoundError, match="replaced mains there are: main@1"):
        table.branch("main@2")
    with pytest.raises(InvalidInputError, match="replaced main"):
        table.replace_main_branch("main@1")


def test_the_schema_of_the_table_stays_where_it_is():
    table = parted()
    before = files(table, "schema")
    table.replace_main_branch("fix")
    table.alter().add_column("w", "INT").apply()
    assert files(table, "schema") == before
    assert [f.name for f in again(table).schema.fields] == ["id", "v", "w"]


def test_branches_of_the_new_main_can_take_its_place_in_turn():
    table = parted()
    table.replace_main_branch("fix")
    table.create_tag("better")
    table.create_branch("next", "better")
    table.branch("next").append(rows(200, 1))
    table.append(rows(101, 1))
    result = table.replace_main_branch("next")
    assert (result.number, result.fork) == (2, 3)
    assert ids_of(table) == [*BEFORE, 100, 200]
    assert [s.id for s in table.snapshots()] == [4, 3, 2, 1]
    assert table.tags() == ["better", "good", "old"]
    assert [s.id for s in table.savepoints()] == [1]
    assert ids_of(table.branch("main@2")) == [*BEFORE, 100, 101]
    assert ids_of(table.branch("main@1")) == [*BEFORE, 1000]


def test_doing_it_again_changes_nothing():
    table = parted()
    first = table.replace_main_branch("fix")
    before = files(table)
    second = again(table).replace_main_branch("fix")
    assert second == replace(first, repeated=True)
    assert files(table) == before
    assert "already main" in str(second)


# Who follows


def test_whoever_holds_main_open_follows_at_the_next_operation():
    table = parted()
    held = [again(table) for _ in range(9)]
    table.replace_main_branch("fix")
    held[0].append(rows(500, 1))
    held[1].overwrite(rows(600, 1))
    assert ids_of(table) == [600]
    held[2].create_tag("new")
    held[3].create_savepoint()
    held[4].alter().add_column("w", "INT").apply()
    assert [f.name for f in held[5].schema.fields] == ["id", "v", "w"]
    assert (held[6].tags(), [s.id for s in held[7].savepoints()]) == (["good", "new", "old"], [1, 2])
    held[8].compact(full=True)
    fix = table.branch("fix")
    assert (fix.tags(), ids_of(fix)) == (["good", "new", "old"], [600])


def test_what_was_planned_or_pinned_stays_as_it_was():
    table = parted()
    scan, pinned = table.scan(), again(table).at(3)
    batches = again(table).scan().to_batches()
    table.replace_main_branch("fix")
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [*BEFORE, 1000]
    assert ids_of(pinned) == [*BEFORE, 1000]
    assert sorted(i for batch in batches for i in batch["id"].to_pylist()) == [*BEFORE, 1000]


def test_a_batch_that_was_being_written_goes_to_the_new_main():
    table = parted()
    late = again(table)
    messages = written(late, 500, 2)
    table.replace_main_branch("fix")
    late.commit(Append(messages))
    assert ids_of(table) == [*BEFORE, 100, 500, 501]
    assert late.branch_uuid == table.branch_uuid


@pytest.mark.parametrize(
    ("call", "where"), [("put_many", "*"), ("get", "snapshot/*"), ("put_if_absent", "snapshot/*")]
)
def test_a_batch_that_is_committed_while_main_is_replaced(call, where):
    """The replacement comes in between at the first such call of the writer."""
    table = parted()
    act = run("before", call, lambda path: again(table).replace_main_branch("fix"), where=where)
    storage = FaultyStorage(table.context.storage, [act])
    writer = anabranch.Table(replace(table.context, storage=storage))
    writer.append(rows(500, 1))
    assert ids_of(table) == [*BEFORE, 100, 500]


def test_rows_of_another_schema_are_refused_and_removed():
    table = parted()
    late = again(table)
    late.alter().add_column("w", "INT").apply()
    table.branch("fix").alter().add_column("x", "STRING").apply()
    messages = _written_with_w(late)
    table.replace_main_branch("fix")
    with pytest.raises(SealedBranchError, match="has no version with these columns"):
        late.commit(Append(messages))


def _written_with_w(table):
    writer = table.writer()
    data = pa.table({"id": pa.array([1], pa.int64()), "v": ["a"], "w": pa.array([1], pa.int32())})
    return writer.write([batch.cast(writer.schema) for batch in data.to_batches()])


def test_rows_go_under_the_version_that_has_their_columns():
    table = parted()
    table.replace_main_branch("fix")
    late = again(table)
    messages = written(late, 500, 1)  # in version 1, which the branch was begun with and only it has
    assert messages[0].new_files[0].schema_id == 1
    table.undo_replace()
    table.alter().add_column("w", "INT").apply()  # this is version 1 of the old main
    late.commit(Append(messages))
    assert table.scan("id = 500").to_arrow().to_pylist() == [{"id": 500, "v": "v500", "w": None}]


def test_a_streaming_identity_is_fenced():
    table = parted()
    late = again(table)
    late.commit(Append(written(late, 500, 1)), identity=CommitIdentity("job@1", 7))
    messages = written(late, 600, 1)
    table.replace_main_branch("fix")
    with pytest.raises(SealedBranchError, match="main of 'db.t' was replaced by branch 'fix': replacement 1"):
        late.commit(Append(messages), identity=CommitIdentity("job@1", 8))
    assert ids_of(table) == [*BEFORE, 100]
    assert ids_of(table.branch("main@1")) == [*BEFORE, 500, 1000]


def test_whoever_writes_to_the_branch_by_its_name_goes_on():
    table = parted()
    job = table.branch("fix")
    table.replace_main_branch("fix")
    job.append(rows(101, 1))
    job.commit(Append(written(job, 102, 1)), identity=CommitIdentity("fixed@2", 1))
    assert ids_of(table) == [*BEFORE, 100, 101, 102]


def test_a_branch_that_was_main_is_sealed_by_its_name_as_well():
    table = parted()
    job = table.branch("fix")
    table.replace_main_branch("fix")
    table.undo_replace()
    with pytest.raises(
        SealedBranchError,
        match=r"'db.t\$branch_fix', which was main, is not any more: replacement 1 was undone",
    ):
        job.append(rows(101, 1))


def test_what_was_committed_before_an_undo_can_be_merged():
    table = parted()
    table.replace_main_branch("fix")
    table.append(rows(500, 1))
    table.undo_replace()
    timed(table).context.runtime.clock.sleep(3 * 86_400)
    table.maintain()
    result = table.merge_branch("fix")
    assert ids_of(table) == [*BEFORE, 100, 500, 1000]
    assert result.snapshot.id == table.snapshot.id
    table.append(rows(1001, 1))
    table.compact(full=True)
    assert table.merge_branch("fix").snapshot is None
    assert not table.verify().problems
    table.delete_branch("fix")
    assert ids_of(table) == [*BEFORE, 100, 500, 1000, 1001]


def test_a_merged_branch_that_becomes_main_again_is_merged_once():
    table = parted()
    table.replace_main_branch("fix")
    table.append(rows(500, 1))
    table.undo_replace()
    table.merge_branch("fix")
    table.replace_main_branch("fix", force=True)
    table.append(rows(501, 1))
    assert ids_of(table) == [*BEFORE, 100, 500, 501]
    table.undo_replace()
    table.merge_branch("fix")
    assert ids_of(table) == [*BEFORE, 100, 500, 501, 1000]


def test_operations_cost_one_look_for_a_pointer():
    table = parted()
    storage = FaultyStorage(table.context.storage)
    watched = anabranch.Table(replace(table.context, storage=storage))

    def looks(work):
        storage.forget_calls()
        work()
        return sum("branch/MAIN" in call.path for call in storage.calls)

    for generation in range(2):
        assert looks(lambda: watched.append(rows(500, 1))) == 1
        assert looks(lambda: watched.overwrite(rows(500, 1))) == 1
        assert looks(lambda: watched.scan().to_arrow()) == 1
        assert looks(lambda: watched.snapshot) == 1
        assert looks(watched.tags) == 1
        if not generation:
            table.replace_main_branch("fix")
            _ = watched.snapshot


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
    _as_foreign(table, 3)
    with pytest.raises(CommitConflictError, match="another engine committed snapshot 3") as refused:
        table.replace_main_branch("fix")
    assert kinds(refused) == ["FOREIGN_WRITER"]
    assert "commit" in refused.value.hint
    table.replace_main_branch("fix", force=True)
    assert ids_of(table) == [*BEFORE, 100]


def _as_foreign(table, snapshot_id):
    """Take the marks off a snapshot, as if another engine had made it."""
    context = table.context
    snapshot = context.snapshots.get(snapshot_id)
    plain = replace(
        snapshot, properties={k: v for k, v in snapshot.properties.items() if k != WRITER_PROPERTY}
    )
    context.storage.put(context.layout.snapshot_path(snapshot_id), plain.to_json())


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
    _as_foreign(table, 3)
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


# Taking it back


def test_undo():
    table = parted()
    held = again(table)
    table.replace_main_branch("fix")
    table.append(rows(500, 1))
    result = table.undo_replace(reason="was right after all")
    assert (result.branch, result.number, result.repeated) == ("main", 2, False)
    assert ids_of(table) == ids_of(held) == [*BEFORE, 1000]
    assert ids_of(table.branch("fix")) == ids_of(table.branch("main@2")) == [*BEFORE, 100, 500]
    table.append(rows(1001, 1))
    assert ids_of(held) == [*BEFORE, 1000, 1001]
    assert [s.id for s in table.snapshots()] == [5, 4, 3, 2, 1]
    assert table.undo_replace() == replace(result, repeated=True)
    assert table.context.storage.get("branch/MAIN-BRANCH") == b"main"


def test_the_branch_can_be_put_there_again():
    table = parted()
    table.replace_main_branch("fix")
    table.undo_replace()
    assert table.replace_main_branch("fix").number == 3
    table.append(rows(101, 1))
    assert ids_of(table) == [*BEFORE, 100, 101]
    table.undo_replace()
    assert ids_of(table) == [*BEFORE, 1000]


def test_a_job_that_was_fenced_goes_on_after_undo():
    table = parted()
    job = again(table)
    job.commit(Append(written(job, 500, 1)), identity=CommitIdentity("job@1", 1))
    table.replace_main_branch("fix")
    with pytest.raises(SealedBranchError):
        job.commit(
            Append(written(again(table).branch("main@1"), 501, 1)), identity=CommitIdentity("job@1", 2)
        )
    table.undo_replace()
    job = again(table)
    job.commit(Append(written(job, 501, 1)), identity=CommitIdentity("job@1", 2))
    assert ids_of(table) == [*BEFORE, 500, 501, 1000]


def test_undo_goes_back_one_by_one_when_told_how_far():
    table = parted()
    table.replace_main_branch("fix")
    table.create_tag("better")
    table.create_branch("next", "better")
    table.replace_main_branch("next")
    table.undo_replace()
    assert table.context.branch == "fix"
    assert table.undo_replace().repeated
    with pytest.raises(InvalidInputError, match="is not the last one that counts, which is 1"):
        table.undo_replace(7)
    table.undo_replace(1)
    assert ids_of(table) == [*BEFORE, 1000]
    assert table.undo_replace(1).repeated
    with pytest.raises(NotFoundError, match="or all of that was taken back"):
        table.undo_replace(2)


def test_nothing_to_undo():
    with pytest.raises(NotFoundError, match="main of 'db.t' was not replaced"):
        parted().undo_replace()


# As a commit


def test_as_a_commit_main_gets_the_rows_and_nobody_is_fenced():
    table = parted(main=2)
    held = again(table)
    result = table.replace_main_branch("fix", mode="commit", expect_main=4)
    assert (result.branch, result.number, result.former, result.new_snapshot) == ("fix", None, None, 5)
    assert ids_of(table) == [*BEFORE, 100]
    assert table.snapshot.commit_kind is CommitKind.OVERWRITE
    assert not replacements(table.context)
    held.commit(Append(written(held, 500, 1)), identity=CommitIdentity("job@1", 7))
    assert ids_of(table) == [*BEFORE, 100, 500]
    table.branch("fix").append(rows(101, 1))
    table.rollback(4)
    assert ids_of(table) == [*BEFORE, 1000, 1001]
    with pytest.raises(NotFoundError, match="not replaced") as refused:
        table.undo_replace()
    assert "rollback" in refused.value.hint


def test_as_a_commit_it_is_made_once():
    table = parted()
    table.replace_main_branch("fix", mode="commit")
    assert table.replace_main_branch("fix", mode="commit").repeated
    assert table.snapshot.id == 4
    with pytest.raises(CommitConflictError, match="MAIN_MOVED"):
        table.replace_main_branch("fix", mode="commit", expect_main=3)


def test_as_a_commit_main_gets_the_schema_with_all_that_old_files_need():
    table = parted(fix=0)
    fix = table.branch("fix")
    fix.alter().add_column("w", "INT").apply()
    fix.append(pa.table({"id": pa.array([7], pa.int64()), "v": ["a"], "w": pa.array([70], pa.int32())}))
    fix.alter().rename_column("w", "x").drop_column("v").apply()
    fix.append(pa.table({"id": pa.array([8], pa.int64()), "x": pa.array([80], pa.int32())}))
    table.alter().add_column("own", "STRING").apply()
    table.replace_main_branch("fix", mode="commit")
    found = again(table).scan().to_arrow().sort_by("id")
    assert found == fix.scan().to_arrow().sort_by("id")
    assert found["x"].to_pylist() == [*[None] * 6, 70, 80]
    table.alter().add_column("y", "INT").apply()
    fix.alter().add_column("z", "INT").apply()
    ids = {f.name: f.id for t in (table, fix) for f in t.schema.fields}
    assert ids["y"] != ids["z"]


def test_as_a_commit_other_engines_may_write():
    table = parted()
    _as_foreign(table, 3)
    table.replace_main_branch("fix", mode="commit")
    assert ids_of(table) == [*BEFORE, 100]


# Other engines


def test_what_another_engine_commits_to_the_old_main_is_warned_of(caplog):
    table = parted()
    table.replace_main_branch("fix")
    former = table.branch("main@1")
    foreign = replace(former.snapshot, id=5, properties={}, commit_user="flink", time_millis=1)
    former.context.storage.put(former.context.layout.snapshot_path(5), foreign.to_json())
    with caplog.at_level(logging.WARNING):
        late = anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")
    assert "FOREIGN_AFTER_SEAL" in caplog.text
    assert ids_of(late) == [*BEFORE, 100]
    with pytest.raises(SealedBranchError):
        former.append(rows(1, 1))
    assert "another engine" in str(late.maintain().mains) or late.branch("main@1")


def test_a_main_branch_file_in_the_folder_of_the_table_is_refused_as_ever():
    table = parted()
    table.context.storage.put("MAIN-BRANCH", b"fix")
    with pytest.raises(AnabranchError, match="MAIN-BRANCH"):
        anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")


def test_a_main_that_was_a_branch_is_rolled_back_to_the_snapshot_that_the_error_names():
    """The number alone may mean two; what was to be written instead was not known to rollbacks."""
    table = parted()
    table.replace_main_branch("fix")
    table = again(table)
    table.append(rows(70, 1))
    with pytest.raises(InvalidInputError, match="AMBIGUOUS_SNAPSHOT") as error:
        table.rollback(3)
    before = ids_of(table.at("main.snapshot.3"))
    assert "'main.snapshot.3'" in error.value.hint
    with pytest.raises(InvalidInputError, match="a main that was replaced") as error:
        table.rollback("main@1.snapshot.3")
    assert "undo-replace" in error.value.hint
    table.rollback("main.snapshot.3")
    assert ids_of(again(table)) == before

"""Replacing main: what the new main is, who follows, and what is refused."""

import logging
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import (
    AnabranchError,
    InvalidInputError,
    NotFoundError,
    SealedBranchError,
)
from anabranch.format.records.snapshot import CommitIdentity, CommitKind
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.properties import SEAL_PROPERTY
from tests.branches.replacing import BEFORE, again, files, parted, timed
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, rows, written

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

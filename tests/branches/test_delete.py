"""Deleting branches: what goes and what stays, under dying, writers, readers and names used again."""

from dataclasses import replace

import pytest

from anabranch.errors import (
    AlreadyExistsError,
    AnabranchError,
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    NotFoundError,
)
from anabranch.format.records.main_pointer import BranchRef, MainPointer
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.actions.append import Append
from tests.branches.creating import FORK_PIN, again, later, paths, pins, tagged
from tests.support.deaths import Died, calls_of, through
from tests.support.dying import deaths
from tests.support.faults import run
from tests.support.lengths import first_short
from tests.support.reached import reached_paths, stored_paths
from tests.support.tables import ids_of, rows, written


def branched():
    """`tagged` with a branch that has a commit, a tag, a savepoint and a consumer of its own."""
    table = tagged()
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    fix.append(rows(100, 2))
    fix.create_tag("own")
    fix.create_savepoint()
    for _ in fix.tail(consumer="etl", idle=0):
        pass
    return table


def left_of_the_branch(table):
    """Paths that belong to the branch, and those of main that were there for it."""
    found = {path for path in paths(table) if path.startswith("branch/branch-fix/")}
    return found | {path for path in paths(table) if FORK_PIN in path or path == "savepoint/savepoint-1"}


# What goes


def test_it_lets_go_of_what_only_the_branch_held():
    table = branched()
    before = paths(table)
    deleted = table.delete_branch("fix")
    assert (deleted.name, deleted.fork.tag, deleted.savepoints) == ("fix", "good", (1,))
    assert left_of_the_branch(table) == set()
    assert table.branches() == []
    assert ids_of(table) == [0, 1, 2, 3, 4, 5]
    assert {path for path in before if "bucket-" in path} <= paths(table), "data goes with the next cleaning"
    table.remove_orphan_files(older_than="0 s")
    assert stored_paths(table) == reached_paths(table)
    with pytest.raises(NotFoundError, match="branch 'fix' does not exist"):
        table.branch("fix")


def test_what_others_hold_as_well_stays():
    table = branched()
    table.create_branch("more", "good")
    table.create_savepoint(3)
    table.delete_branch("fix")
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    table.remove_orphan_files(older_than="0 s")
    assert (
        ids_of(table.branch("more"))
        == ids_of(table.at("good"))
        == ids_of(table.at("savepoint.2"))
        == [0, 1, 2]
    )
    assert pins(table) == [f"{FORK_PIN}{table.branch('more').branch_uuid}"]


def test_what_is_no_branch_cannot_be_deleted():
    table = branched()
    with pytest.raises(NotFoundError, match="branch 'fi' does not exist") as error:
        table.delete_branch("fi")
    assert "fix" in error.value.hint
    with pytest.raises(InvalidInputError, match="main of 'db.t' cannot be deleted"):
        table.delete_branch("main")
    with pytest.raises(NotFoundError):
        table.delete_branch("fix/snapshot")
    table.branch("fix").delete_branch("fix")
    assert table.branches() == []


def pointlater(table, name, uuid):
    """Main is another branch from now on, as a replacement decides it."""
    pointer = MainPointer(1, BranchRef(name, uuid), None, 0, None, "test")
    table.context.storage.put("branch/MAIN-1", pointer.to_json())


def test_the_branch_that_is_main_is_not_deleted():
    table = branched()
    pointlater(table, "fix", table.branch("fix").branch_uuid)
    with pytest.raises(InvalidInputError, match="is the main branch of 'db.t' and cannot be deleted"):
        again(table).delete_branch("fix")
    # Also when it becomes main after it was looked.
    table = branched()
    uuid = table.branch("fix").branch_uuid
    racing = through(
        table, run("before", "put", lambda _: pointlater(table, "fix", uuid), where="*/DELETING")
    )
    with pytest.raises(InvalidInputError, match="is the main branch"):
        racing.delete_branch("fix")
    assert "branch/branch-fix/DELETING" not in paths(table)
    assert ids_of(table.branch("fix")) == [0, 1, 2, 100, 101]


# Dying


def test_a_removal_that_died_is_finished_by_the_next():
    died = 0
    for left in deaths(branched(), lambda table: table.delete_branch("fix")):
        table = again(left)
        if "branch/branch-fix/DELETING" in paths(table):
            died += 1
            with pytest.raises(NotFoundError, match="is being deleted"):
                table.branch("fix")
        # Nothing that is half deleted stands in the way of who looks at all refs.
        table.expire_snapshots(retain_max=3, retain_min=3)
        if table.branches():
            table.delete_branch("fix")
        else:
            with pytest.raises(NotFoundError):
                table.delete_branch("fix")
        assert left_of_the_branch(table) == set()
        table.create_branch("fix", "good")
        assert ids_of(table.branch("fix")) == [0, 1, 2]
    assert died > 8


@pytest.mark.long
def test_maintenance_finishes_a_removal_that_died():
    for left in deaths(branched(), lambda table: table.delete_branch("fix")):
        table = again(left)
        marked = "branch/branch-fix/DELETING" in paths(table)
        assert table.maintain().branches.deleted == ("fix",) * marked
        assert not marked or left_of_the_branch(table) == set()


# Writers and readers


def test_who_has_it_open_is_told():
    table = branched()
    fix = table.branch("fix")
    message = written(fix, 200, 1)
    ids_of(fix)
    table.delete_branch("fix")
    works = [
        lambda: ids_of(fix),
        lambda: fix.append(rows(200, 1)),
        lambda: fix.commit(Append([*message])),
        lambda: fix.alter().add_column("n", "INT").apply(),
        lambda: fix.create_tag("more"),
        lambda: list(fix.tail(idle=0)),
        lambda: fix.changes(3).to_arrow(),
        lambda: fix.rollback(3),
    ]
    for work in works:
        with pytest.raises(NotFoundError):
            work()
    assert left_of_the_branch(table) == set()


def test_a_read_that_was_planned_ends():
    table = branched()
    scan = table.branch("fix").scan()
    scan.plan()
    table.delete_branch("fix")
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [0, 1, 2, 100, 101]


@pytest.mark.parametrize("make_again", first_short([False, True]), ids=["deleted", "created again"])
def test_a_paused_writer_finds_out(make_again):
    """At every call of a first commit the branch is deleted, and perhaps made again from the same tag."""

    def make():
        table = tagged()
        table.create_branch("fix", "good")
        return table

    def append(table):
        table.append(rows(200, 1))

    outcomes = set()
    for name, nth in calls_of(make().branch("fix"), append):
        table, opened = make(), []

        def come_between(path, table=table, opened=opened):
            if opened:
                again(table).delete_branch("fix")
                if make_again:
                    again(table).create_branch("fix", "good")

        paused = through(table.branch("fix"), run("before", name, come_between, nth=nth))
        opened += [paused.branch_uuid]
        try:
            append(paused)
            outcomes.add("done")
        except (NotFoundError, CommitConflictError) as error:
            outcomes.add(type(error))
        if (name, nth) == ("get", 1):
            continue  # that is how it was opened
        if make_again:
            fix = again(table).branch("fix")
            assert ids_of(fix) == [0, 1, 2], "nothing of the old branch is in the new one"
            fix.append(rows(300, 1))
            assert ids_of(fix) == [0, 1, 2, 300]
        else:
            table.maintain()
            assert left_of_the_branch(table) == set()
        table.expire_snapshots(retain_max=3, retain_min=3)
    # The last calls come after the commit, which was acknowledged and then deleted with the branch.
    assert outcomes == {CommitConflictError if make_again else NotFoundError, "done"}


def test_a_writer_that_comes_too_late_and_dies_leaves_what_can_be_removed():
    table = tagged()
    table.create_branch("fix", "good")
    fix = table.branch("fix")

    def deleted_then_dead(path):
        raise Died

    def delete(path):
        again(table).delete_branch("fix")

    snapshots = "branch/branch-fix/snapshot/*"
    late = through(
        fix,
        run("before", "put_if_absent", delete, where=snapshots),
        run("after", "put_if_absent", deleted_then_dead, where=snapshots),
    )
    with pytest.raises(Died):
        late.append(rows(200, 1))
    assert table.branches() == ["fix"]
    with pytest.raises(AnabranchError, match="in the way"):
        table.create_branch("fix", "good")
    table.delete_branch("fix")
    assert table.branches() == []
    table.expire_snapshots(retain_max=3, retain_min=3)


def test_nothing_is_acknowledged_to_a_branch_that_is_being_deleted():
    """A writer's put comes when the snapshots are gone, and the schema is not yet."""
    table = tagged()
    table.create_branch("fix", "good")

    def die(path):
        raise Died

    def delete(path):
        schemas = run("before", "delete_folder", die, where="branch/branch-fix/schema*")
        with pytest.raises(Died):
            through(again(table), schemas).delete_branch("fix")

    late = through(
        table.branch("fix"), run("before", "put_if_absent", delete, where="branch/branch-fix/snapshot/*")
    )
    with pytest.raises(NotFoundError, match="was deleted since it was opened"):
        late.append(rows(200, 1))
    assert table.context.on_branch("fix").snapshots.ids() == []


def _left_by_a_dead_writer(table):
    """A writer that the deletion overtook puts its snapshot and dies: a snapshot, and nothing that says what it is of."""
    snapshots = "branch/branch-fix/snapshot/*"

    def die(path):
        raise Died

    late = through(
        table.branch("fix"),
        run("before", "put_if_absent", lambda path: again(table).delete_branch("fix"), where=snapshots),
        run("after", "put_if_absent", die, where=snapshots),
    )
    with pytest.raises(Died):
        late.append(rows(200, 1))


def test_maintenance_removes_what_came_after_a_deletion():
    table = tagged()
    table.create_branch("fix", "good")
    _left_by_a_dead_writer(table)
    good = table.context.storage.get("tag/tag-good")
    table.context.storage.put("branch/branch-fix/tag/tag-good", good)
    with pytest.raises(CorruptTableError, match="holds no schema"):
        table.maintain()
    found = later(table, 25 * 3_600_000)
    assert found.maintain().branches.deleted == ("fix",)
    assert left_of_the_branch(table) == set()


def test_maintenance_leaves_what_may_be_all_that_is_left_of_a_branch():
    """Of another engine's branch that lost its schemas; nobody said that it is not wanted."""
    table = tagged()
    table.create_branch("fix", "good")
    _left_by_a_dead_writer(table)
    (path,) = [path for path in paths(table) if path.startswith("branch/branch-fix/snapshot/snapshot-")]
    left = Snapshot.from_json(table.context.storage.get(path), path=path)
    table.context.storage.put(path, replace(left, properties={}).to_json())
    with pytest.raises(CorruptTableError, match="holds no schema"):
        later(table, 25 * 3_600_000).maintain()
    assert path in paths(table)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("begun", [4, 3])
def test_what_comes_too_late_for_a_deleted_branch_is_nothing_of_the_next_of_its_name(begun, when):
    """A writer was paused right before its put, and dies right after: nobody takes its snapshot back."""
    table = branched()
    table.branch("fix").append(rows(200, 1))
    path = "branch/branch-fix/snapshot/snapshot-5"
    late = table.context.storage.get(path)
    table.delete_branch("fix")
    whole = ids_of(table)

    def put(_):
        table.context.storage.put(path, late)

    first = run(when, "put_if_absent", put, where=f"branch/branch-fix/snapshot/snapshot-{begun}")
    through(table, first).create_branch("fix", snapshot=begun)
    fix, rest = again(table).branch("fix"), list(range(begun))
    assert (ids_of(fix), [s.id for s in fix.snapshots()]) == (rest, [begun])
    for i in (300, 301, 302):
        again(fix).append(rows(i, 1))
    assert ids_of(again(fix)) == [*rest, 300, 301, 302]
    assert not [tag for tag in fix.context.storage.list("branch/branch-fix/tag") if "leftover" in tag.path]
    table.merge_branch("fix")
    table.maintain()
    assert ids_of(again(table)) == [*whole, 300, 301, 302]


def test_what_comes_too_late_does_not_pass_for_what_a_branch_begins_with():
    table = branched()
    table.branch("fix").append(rows(200, 1))
    path = "branch/branch-fix/snapshot/snapshot-5"
    late = table.context.storage.get(path)
    table.delete_branch("fix")
    first = run("before", "put_if_absent", lambda _: table.context.storage.put(path, late), where=path)
    with pytest.raises(AlreadyExistsError, match="deleted since, wrote into this one"):
        through(table, first).create_branch("fix", snapshot=5)
    table.delete_branch("fix")
    table.create_branch("fix", snapshot=5)
    assert ids_of(table.branch("fix")) == [0, 1, 2, 3, 4]


def test_a_branch_of_a_name_used_again_is_another():
    table = branched()
    old = table.branch("fix")
    old_uuid, old_reader = old.branch_uuid, again(old)
    assert ids_of(old_reader) == [0, 1, 2, 100, 101]
    table.delete_branch("fix")
    table.create_branch("fix", snapshot=5)
    fix = table.branch("fix")
    assert fix.branch_uuid != old_uuid
    fix.append(rows(300, 1))
    for handle in (old, old_reader):
        with pytest.raises(NotFoundError, match="was dropped and created again since it was opened"):
            ids_of(handle)
        with pytest.raises(CommitConflictError, match="TABLE_REPLACED"):
            handle.append(rows(400, 1))
        with pytest.raises(NotFoundError):
            handle.alter().add_column("n", "INT").apply()
    assert ids_of(fix) == [0, 1, 2, 3, 4, 300]
    assert fix.savepoints() == []


@pytest.mark.parametrize(
    "tend",
    [
        lambda handle: handle.compact(full=True),
        lambda handle: handle.sort_compact(["id"]),
        lambda handle: handle.expire_snapshots(retain_max=2),
        lambda handle: handle.maintain(),
        lambda handle: handle.health(),
    ],
    ids=["compact", "sort", "expire", "maintain", "health"],
)
def test_a_deleted_branch_is_not_tended(tend):
    table = branched()
    held = table.branch("fix")
    table.delete_branch("fix")
    with pytest.raises(NotFoundError, match="branch 'fix' of '.*' was deleted since it was opened"):
        tend(held)
    table.create_branch("fix", snapshot=5)
    before = paths(table)
    with pytest.raises(NotFoundError, match="was deleted since|was dropped and created again"):
        tend(held)
    assert paths(table) == before


def test_a_stream_of_the_old_branch_does_not_go_on_in_the_new_one():
    table = branched()
    fix = table.branch("fix")
    following = iter(fix.tail(idle=0.01))
    next(following)
    table.delete_branch("fix")
    table.create_branch("fix", "good")
    for n in range(3):
        table.branch("fix").append(rows(300 + n, 1))
    with pytest.raises(AnabranchError):
        list(following)


# Time to live


def test_maintenance_deletes_branches_whose_time_is_over():
    table = tagged()
    table.create_branch("short", "good", retained="1 h")
    table.create_branch("long", "good", retained="1 d")
    table.create_branch("good", "good")
    table.branch("short").append(rows(100, 1))
    assert table.maintain().branches.deleted == ()
    found = later(table, 2 * 3_600_000)
    assert "deleted branches short" in str(found.maintain(dry_run=True))
    assert table.branches() == ["good", "long", "short"]
    assert found.branch("long").maintain().branches.deleted == (), "only main does"
    assert found.maintain().branches.deleted == ("short",)
    assert later(table, 48 * 3_600_000).maintain().branches.deleted == ("long",)
    assert table.branches() == ["good"]


def test_a_branch_that_is_main_outlives_its_time():
    table = tagged()
    table.create_branch("fix", "good", retained="1 h")
    pointlater(table, "fix", table.branch("fix").branch_uuid)
    found = later(again(table), 2 * 3_600_000)
    assert found.maintain().branches.deleted == ()
    assert ids_of(found.branch("fix")) == [0, 1, 2]

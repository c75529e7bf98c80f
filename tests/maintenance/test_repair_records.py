"""Files of ours that cannot be read: verify names each and goes on, repair makes them again, or a verb lets go of them."""

import glob
import json
import os

import pytest

import anabranch
from anabranch.errors import CorruptTableError
from anabranch.kernel.log.cache import SHARED
from anabranch.kernel.log.consumers import forget_consumer, move_consumer
from anabranch.kernel.replacement.release import release_due
from tests.support.lengths import first_short
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture
def table(tmp_path):
    """Five rows and more, a tag, a savepoint, a merged branch, a consumer."""
    made = make_table(tmp_path)
    for start in range(5):
        made.append(rows(start, 1))
    made.create_tag("good")
    made.create_savepoint()
    made.create_branch("b1", "good")
    made.branch("b1").append(rows(50, 1))
    made.merge_branch("b1")
    for start in range(10, 15):
        made.append(rows(start, 1))
    for _ in made.tail("c", idle=0):
        pass
    return made


ALL = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 50]


def _fresh(table):
    return anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")


def _tear(table, pattern, keep=40):
    root = table.context.storage.url.removeprefix("file://")
    (found,) = glob.glob(f"{root}/{pattern}")
    with open(found, "r+b") as file:
        file.truncate(keep)
    return os.path.relpath(found, root)


def _paths(table):
    return [problem.path for problem in _fresh(table).verify().problems]


def _check_mended(table, path):
    assert path in _paths(table)
    done = _fresh(table).repair()
    assert path in [step.path for step in done.steps]
    assert done.left == ()
    assert _fresh(table).verify(deep=True).ok
    assert ids_of(_fresh(table)) == ALL
    _check_goes_on(table)


def _check_goes_on(table):
    _fresh(table).append(rows(90, 1))
    _fresh(table).expire_snapshots(retain_max=2)
    _fresh(table).remove_orphan_files()
    _fresh(table).maintain()
    assert ids_of(_fresh(table)) == [*ALL, 90]


# How a branch began


@pytest.mark.parametrize("damage", [0, pytest.param(40, marks=pytest.mark.long), None])
def test_the_record_of_how_a_branch_began(table, damage):
    before = table.branch("b1").context.fork
    path = "branch/branch-b1/FORK"
    if damage is None:
        table.context.storage.delete(path)
    else:
        _tear(table, path, damage)
    _check_mended(table, path)
    after = _fresh(table).branch("b1").context.fork
    wanted = (before.branch_uuid, before.tag, before.snapshot, before.schema_id, before.field_id_block)
    assert (after.branch_uuid, after.tag, after.snapshot, after.schema_id, after.field_id_block) == wanted
    assert after.created_millis == before.created_millis
    _fresh(table).branch("b1").append(rows(60, 1))
    _fresh(table).merge_branch("b1")
    assert ids_of(_fresh(table)) == sorted([*ALL, 60, 90])


def test_a_branch_of_which_nothing_tells_who_it_is_can_be_deleted(table):
    """Its pins are torn, and the snapshot that it began with has expired; all else is mended all the same."""
    table.branch("b1").expire_snapshots(retain_max=1)
    _tear(table, "branch/branch-b1/FORK", 0)
    for pin in ("branch/branch-b1/tag/tag-anabranch-fork-*", "tag/tag-anabranch-fork-*"):
        _tear(table, pin)
    table.context.storage.delete("snapshot/LATEST")
    found = _fresh(table).verify()
    assert {"branch", "ref", "hint"} <= {str(p.kind) for p in found.problems}
    (record,) = [p for p in found.problems if p.path.endswith("FORK")]
    assert "delete-branch" in record.hint
    done = _fresh(table).repair()
    assert "snapshot/LATEST" in [step.path for step in done.steps]
    assert [info.state.value for info in _fresh(table).branch_infos()] == ["ready", "damaged"]
    _fresh(table).delete_branch("b1")
    _fresh(table).repair()
    assert ids_of(_fresh(table)) == ALL
    assert _fresh(table).verify(deep=True).ok
    _check_goes_on(table)


# Refs


@pytest.mark.parametrize(
    "pattern",
    first_short(
        [
            "tag/tag-anabranch-savepoint-1",
            "tag/tag-anabranch-fork-*",
            "branch/branch-b1/tag/tag-anabranch-fork-*",
            "tag/tag-anabranch-merge-*",
            "branch/branch-b1/tag/tag-anabranch-merge-1",
            "savepoint/savepoint-1",
            "snapshot/snapshot-5",
        ],
        2,
    ),
)
def test_what_something_else_holds_too_is_made_again(table, pattern):
    before = {n: ids_of(_fresh(table).at(n)) for n in ("savepoint.1", "good")}
    root = table.context.storage.url.removeprefix("file://")
    (found,) = glob.glob(f"{root}/{pattern}")
    with open(found, "rb") as file:
        whole = file.read()
    path = _tear(table, pattern)
    files = sorted(info.path for info in table.context.storage.list("", recursive=True))
    plan = _fresh(table).repair(dry_run=True)
    assert path in [step.path for step in plan.steps]
    assert sorted(info.path for info in table.context.storage.list("", recursive=True)) == files
    _check_mended(table, path)
    assert {n: ids_of(_fresh(table).at(n)) for n in before} == before
    if "savepoint-1" not in pattern and "snapshot" not in pattern:
        with open(found, "rb") as file:
            assert file.read() == whole


def test_a_snapshot_that_nothing_holds_is_put_aside(table):
    path = _tear(table, "snapshot/snapshot-3")
    assert _paths(table) == [path]
    done = _fresh(table).repair()
    assert [step.path for step in done.steps] == [path]
    assert [str(problem.kind) for problem in done.left] == ["gap"]
    assert ids_of(_fresh(table)) == ALL
    assert ids_of(_fresh(table).at("good")) == [0, 1, 2, 3, 4]
    _check_goes_on(table)


def test_a_pin_that_nothing_needs_is_put_aside(table):
    table.context.storage.put("tag/tag-anabranch-fork-00000000-0000-0000-0000-000000000000", b"{")
    table.context.storage.put("tag/tag-anabranch-savepoint-7", b"{")
    assert len(_paths(table)) == 2
    assert len(_fresh(table).repair().steps) == 2
    assert _fresh(table).verify().ok
    _check_goes_on(table)


def test_a_damaged_tag_can_be_deleted(table):
    path = _tear(table, "tag/tag-good")
    (problem,) = _fresh(table).verify().problems
    assert (problem.path, problem.repair) == (path, None)
    assert "delete-tag good" in problem.hint
    assert _fresh(table).repair().left == (problem,)
    assert _fresh(table).delete_tag("good").name == "good"
    assert _fresh(table).verify().ok
    _check_goes_on(table)


def test_a_savepoint_whose_tag_is_damaged_too_can_be_deleted(table):
    for path in ("savepoint/savepoint-1", "tag/tag-anabranch-savepoint-1"):
        _tear(table, path)
    done = _fresh(table).repair()
    assert done.steps == ()
    assert any("delete-savepoint 1" in (problem.hint or "") for problem in done.left)
    assert _fresh(table).delete_savepoint(1).id == 1
    assert _fresh(table).verify().ok
    assert _fresh(table).create_savepoint().id == 2
    _check_goes_on(table)


@pytest.mark.parametrize("verb", ["reset", "delete"])
def test_a_damaged_consumer(table, verb):
    path = _tear(table, "consumer/consumer-c")
    (problem,) = _fresh(table).verify().problems
    assert (problem.path, str(problem.kind)) == (path, "record")
    assert "--reset c" in problem.hint
    assert _fresh(table).repair().left == (problem,)
    with pytest.raises(anabranch.CorruptTableError, match="consumers --delete c"):
        _fresh(table).expire_snapshots(retain_max=2)
    if verb == "reset":
        move_consumer(_fresh(table).context, "c")
    else:
        forget_consumer(_fresh(table).context, "c")
    assert _fresh(table).verify().ok
    _check_goes_on(table)


# Records


@pytest.mark.parametrize(
    "pattern",
    first_short(
        [
            "branch/branch-b1/MERGE-1",
            "branch/branch-b1/MERGE-1.done",
            "branch/branch-b1/carry-6-*",
            "ledger/expired-*",
            "lineage/history-*",
            "branch/FIELD-IDS-1",
        ],
        2,
    ),
)
def test_records_are_made_again_or_put_aside(table, pattern):
    _fresh(table).expire_snapshots(retain_max=3)
    path = _tear(table, pattern)
    _check_mended(table, path)
    assert table.branch("b1").context.fork is not None
    _fresh(table).branch("b1").append(rows(60, 1))
    _fresh(table).merge_branch("b1")
    assert ids_of(_fresh(table)) == sorted([*ALL, 60, 90])
    assert {row["problem"] for row in _fresh(table).system("branches_log").to_pylist()} <= {None}


def test_the_seal_of_a_replacement_that_is_decided(table):
    _fresh(table).create_branch("b2", "good")
    _fresh(table).branch("b2").append(rows(70, 1))
    _fresh(table).replace_main_branch("b2", force=True)
    path = _tear(table, "branch/SEAL-1")
    assert _paths(table) == [path]
    assert _fresh(table).repair().left == ()
    assert _fresh(table).verify(deep=True).ok
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 4, 70]
    _fresh(table).append(rows(90, 1))
    _fresh(table).undo_replace()
    assert ids_of(_fresh(table)) == ALL


@pytest.mark.long
def test_records_of_a_main_that_was_replaced(table):
    """Exactly-once in the table's own folder, and the end of a merge into what was main."""
    _fresh(table).expire_snapshots(retain_max=3)
    _fresh(table).create_branch("b2", "good")
    _fresh(table).branch("b2").append(rows(70, 1))
    _fresh(table).replace_main_branch("b2", force=True)
    torn = [_tear(table, path) for path in ("ledger/expired-*", "branch/branch-b1/MERGE-1.done")]
    assert sorted(_paths(table)) == sorted(torn)
    assert _fresh(table).repair().left == ()
    assert _fresh(table).verify(deep=True).ok


@pytest.mark.parametrize("key", first_short(["merge", "snapshot", "replaced", "theirs"]))
def test_an_end_of_a_merge_that_leaves_something_unsaid(table, key):
    """What is missing would be taken for abandoned, or for appended, and later merges refused for what is not so."""
    path, storage = "branch/branch-b1/MERGE-1.done", table.context.storage
    before = storage.get(path)
    said = json.loads(before)
    del said[key]
    storage.put(path, json.dumps(said).encode())
    _fresh(table).branch("b1").append(rows(60, 1))
    SHARED.__init__()
    with pytest.raises(CorruptTableError, match=f"{path}: '{key}' is missing"):
        _fresh(table).merge_branch("b1")
    assert path in _paths(table)
    assert path in [step.path for step in _fresh(table).repair().steps]
    assert storage.get(path) == before
    SHARED.__init__()
    _fresh(table).merge_branch("b1")
    assert ids_of(_fresh(table)) == sorted([*ALL, 60])


@pytest.mark.parametrize("is_dropped", first_short([True, False]))
def test_what_becomes_of_a_replaced_main(table, is_dropped):
    _fresh(table).delete_branch("b1")
    _fresh(table).create_branch("b2", "good")
    _fresh(table).branch("b2").append(rows(70, 1))
    forget_consumer(_fresh(table).context, "c")
    _fresh(table).replace_main_branch("b2", force=True)
    if is_dropped:
        release_due(_fresh(table).context, -60_000)  # the store's clock may be a little behind
    else:
        table.context.storage.put("branch/RELEASE-1", b"")
    path = _tear(table, "branch/RELEASE-1", 10)
    assert path in _paths(table)
    assert _fresh(table).repair().left == ()
    assert _fresh(table).verify(deep=True).ok
    _fresh(table).append(rows(90, 1))
    _fresh(table).expire_snapshots(retain_max=2)
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 4, 70, 90]
    if not is_dropped:
        assert ids_of(_fresh(table).branch("main@1")) == ALL


@pytest.mark.parametrize("path", first_short(["branch/MAIN-1", "lineage/main-1"]))
def test_the_record_of_which_branch_is_main(table, path):
    _fresh(table).create_branch("b2", "good")
    _fresh(table).branch("b2").append(rows(70, 1))
    _fresh(table).replace_main_branch("b2", force=True)
    before = table.context.storage.get(path)
    _tear(table, path)
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 4, 70]
    assert _paths(table) == [path]
    assert _fresh(table).repair().left == ()
    assert table.context.storage.get(path) == before
    assert _fresh(table).verify(deep=True).ok
    _fresh(table).append(rows(90, 1))
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 4, 70, 90]


@pytest.mark.parametrize(
    "path",
    first_short(
        [
            "snapshot/snapshot-3",
            "tag/tag-anabranch-savepoint-1",
            "branch/branch-b1/MERGE-1",
            "branch/branch-b1/FORK",
        ]
    ),
)
def test_what_a_later_version_wrote_is_left_alone(table, path):
    content = json.loads(table.context.storage.get(path))
    table.context.storage.put(path, json.dumps({**content, "version": 99}).encode())
    assert path in _paths(table)
    done = _fresh(table).repair()
    assert done.steps == ()
    assert path in [problem.path for problem in done.left]
    assert json.loads(table.context.storage.get(path))["version"] == 99


@pytest.mark.long
def test_an_announcement_of_which_nothing_was_decided(table):
    table.context.storage.put("branch/SEAL-1", b"{")
    assert _paths(table) == ["branch/SEAL-1"]
    assert _fresh(table).repair().left == ()
    assert _fresh(table).verify().ok
    _check_goes_on(table)
    _fresh(table).create_branch("b2", "good")
    _fresh(table).replace_main_branch("b2", force=True)
    assert ids_of(_fresh(table)) == [0, 1, 2, 3, 4]


def test_the_log_of_what_is_gone(table):
    _fresh(table).delete_branch("b1")
    path = _tear(table, "branch/DELETED-*")
    _check_mended(table, path)
    assert {row["problem"] for row in _fresh(table).system("branches_log").to_pylist()} <= {None}


@pytest.mark.parametrize("key", first_short(["commitIdentifier", "timeMillis"]))
def test_a_tag_of_ours_that_can_be_parsed_and_says_something_else(table, key):
    path = "branch/branch-b1/tag/tag-anabranch-merge-1"
    content = json.loads(table.context.storage.get(path))
    table.context.storage.put(path, json.dumps({**content, key: True}).encode())
    _check_mended(table, path)

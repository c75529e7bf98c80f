"""A table damaged in every way that `verify` knows: found, and brought back or listed; what can be saved is there."""

import os
import shutil
from dataclasses import replace

import pytest

import anabranch
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from anabranch.kernel.repair.found import Kind
from tests.support.dying import Died, through
from tests.support.faults import FaultyStorage, run
from tests.support.lengths import first_short
from tests.support.tables import ids_of, make_table, rows

ALL = [0, 1, 2, 3, 4]


@pytest.fixture
def table(tmp_path):
    """Five rows in five snapshots, a tag at 3, a savepoint at 5, a branch with one row more."""
    made = make_table(tmp_path, schema="id BIGINT NOT NULL, v STRING", options={"write-only": "true"})
    for start in range(5):
        made.append(rows(start, 1))
    made.create_tag("good", snapshot=3)
    made.create_savepoint()
    made.create_branch("fix", tag="good")
    made.branch("fix").append(rows(30, 1))
    assert made.verify(deep=True).ok
    return made


def _fresh(table):
    return through(
        anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t"),
        table.context.storage,
    )


def _root(table):
    return table.context.storage.url.removeprefix("file://")


def _kinds(table, **how):
    return {str(p.kind) for p in _fresh(table).verify(**how).problems}


def _data_file(table, number=0):
    folder = os.path.join(_root(table), "bucket-0")
    return os.path.join(
        folder, sorted(os.listdir(folder), key=lambda n: os.path.getmtime(os.path.join(folder, n)))[number]
    )


def _check_mended(table, expected=ALL):
    done = _fresh(table).repair()
    assert [p for p in done.left if p.severity == "error"] == []
    assert done.steps
    assert ids_of(_fresh(table)) == expected
    assert _fresh(table).repair().steps == (), "nothing is left to do"
    _fresh(table).append(rows(90, 1))
    assert ids_of(_fresh(table)) == sorted([*expected, 90])
    assert _fresh(table).verify(deep=True).ok
    return done


def _unchanged(table):
    root = _root(table)
    return {
        os.path.join(folder, name): os.stat(os.path.join(folder, name)).st_mtime_ns
        for folder, _, names in os.walk(root)
        for name in names
    }


def test_a_sound_table(table):
    found = _fresh(table).verify(deep=True)
    assert (found.branches, found.snapshots, found.files, found.deep) == (2, 7, 6, True)
    assert "nothing is wrong" in str(found)
    assert _fresh(table).repair().steps == ()


def test_a_leftover_above_the_newest(table):
    faults = [
        run(
            "before",
            "put_if_absent",
            lambda _: _fresh(table).rollback(3, destructive=True, force=True),
            where="snapshot/*",
        ),
        run("after", "put_if_absent", _die, where="snapshot/*"),
    ]
    with pytest.raises(Died):
        through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    assert _kinds(table) == {"leftover"}
    before = _unchanged(table)
    plan = _fresh(table).repair(dry_run=True)
    assert [step.kind for step in plan.steps] == [Kind.LEFTOVER]
    assert _unchanged(table) == before, "a dry run changes nothing"
    _check_mended(table, [0, 1, 2])


@pytest.mark.long
def test_another_engines_leftover_keeps_its_rows(table):
    faults = [
        run(
            "before",
            "put_if_absent",
            lambda _: _fresh(table).rollback(3, destructive=True, force=True),
            where="snapshot/*",
        ),
        run("after", "put_if_absent", _die, where="snapshot/*"),
    ]
    with pytest.raises(Died):
        through(table, FaultyStorage(table.context.storage, faults)).append(rows(50, 1))
    left = table.context.snapshots.find(6)
    table.context.storage.put("snapshot/snapshot-6", replace(left, properties={}, uuid=None).to_json())
    table.context.storage.put("snapshot/LATEST", b"6")
    assert "leftover" in _kinds(table)
    _check_mended(table, [0, 1, 2, 50])


@pytest.mark.parametrize("number", first_short([3, 4]))
def test_a_snapshot_between_others_was_deleted(table, number):
    """3 is held by a tag; of 4 nothing is left but its neighbours."""
    table.context.storage.delete(f"snapshot/snapshot-{number}")
    assert _kinds(table) == {"gap"}
    if number == 3:
        _check_mended(table)
        assert [s.id for s in _fresh(table).snapshots()] == [6, 5, 4, 3, 2, 1]
    else:
        done = _fresh(table).repair()
        assert [p.snapshot_id for p in done.left] == [4], "listed"
        assert ids_of(_fresh(table)) == ALL


def test_the_newest_snapshots_were_deleted(table):
    """5 is held by the savepoint; 4 is made again from its manifest lists."""
    for number in (4, 5):
        table.context.storage.delete(f"snapshot/snapshot-{number}")
    assert ids_of(_fresh(table)) == [0, 1, 2]
    assert _kinds(table) == {"head-gone"}
    _check_mended(table)


def test_the_newest_snapshots_were_deleted_and_nothing_holds_them(table):
    table.delete_savepoint(1)
    for number in (4, 5):
        table.context.storage.delete(f"snapshot/snapshot-{number}")
    assert "head-gone" in _kinds(table)
    _check_mended(table)


def test_what_was_added_and_compacted_since_is_not_added_again(table):
    """Both appends lost the race for a number, and kept the lists of what they add."""

    def overtaken(row, number, meanwhile):
        fault = run("before", "put_if_absent", lambda _: meanwhile(), where=f"snapshot/snapshot-{number}")
        through(table, FaultyStorage(table.context.storage, [fault])).append(rows(row, 1))

    overtaken(6, 6, lambda: _fresh(table).append(rows(5, 1)))
    overtaken(7, 8, lambda: _fresh(table).compact(full=True))
    assert [s.id for s in _fresh(table).snapshots()][:4] == [9, 8, 7, 6]
    for number in (7, 8, 9):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    _check_mended(table, [*range(8)])


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize(
    "left", first_short([lambda raw: raw[: len(raw) // 2], lambda _: b"", lambda raw: bytes(len(raw))])
)
def test_the_newest_snapshot_is_damaged_and_nothing_holds_it(table, left, expired):
    """As a loss of power leaves it."""
    table.delete_savepoint(1)
    if expired:
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    path = "snapshot/snapshot-5"
    table.context.storage.put(path, left(table.context.storage.get(path)))
    assert "snapshot" in _kinds(table)
    _check_mended(table)


def test_all_snapshots_were_deleted(table):
    for number in range(1, 6):
        table.context.storage.delete(f"snapshot/snapshot-{number}")
    assert "head-gone" in _kinds(table)
    _check_mended(table)


def test_all_snapshots_were_deleted_and_a_ref_holds_one_that_had_expired(tmp_path):
    """What is rebuilt has the numbers that it had: those between are expired ones, of which nothing is left."""
    table = make_table(tmp_path, options={"write-only": "true"})
    table.append(rows(0, 1))
    table.append(rows(1, 1))
    table.create_branch("fix", snapshot=2)
    table.append(rows(9, 1))
    table.rollback(2)
    table.append(rows(3, 1))
    table.append(rows(4, 1))
    table.expire_snapshots(retain_max=2, retain_min=1, older_than=2**60)
    assert sorted(one.id for one in table.snapshots()) == [5, 6]
    for number in (5, 6):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    _check_mended(table, [0, 1, 3, 4])
    assert ids_of(_fresh(table).at(5)) == [0, 1, 3]
    assert ids_of(_fresh(table).at(6)) == [0, 1, 3, 4]


def test_all_snapshots_were_deleted_and_the_base_of_the_first_had_expired(tmp_path):
    """Nothing tells what the first was: the one after it has all rows, and keeps its number."""
    table = make_table(tmp_path, options={"write-only": "true"})
    table.append(rows(0, 1))
    table.create_branch("fix", snapshot=1)
    table.append(rows(9, 1))
    table.rollback(1)
    table.append(rows(3, 1))
    table.expire_snapshots(retain_max=2, retain_min=1, older_than=2**60)
    assert sorted(one.id for one in table.snapshots()) == [3, 4]
    for number in (3, 4):
        table.context.storage.delete(table.context.layout.snapshot_path(number))
    _check_mended(table, [0, 3])
    assert not table.context.snapshots.is_there(3)
    assert ids_of(_fresh(table).at(4)) == [0, 3]


def test_another_engine_put_the_branch_in_the_place_of_main(table):
    """As Java Paimon's fast-forward does: main's snapshots after the branch began go, the branch's are copied."""
    storage = table.context.storage
    for number in (4, 5):
        storage.delete(f"snapshot/snapshot-{number}")
    storage.put("snapshot/snapshot-4", storage.get("branch/branch-fix/snapshot/snapshot-4"))
    for schema in (1,):
        storage.put(f"schema/schema-{schema}", storage.get(f"branch/branch-fix/schema/schema-{schema}"))
    storage.put("snapshot/LATEST", b"4")
    assert _fresh(table).snapshot.properties[BRANCH_PROPERTY] == table.branch("fix").branch_uuid
    with pytest.raises(anabranch.CommitConflictError, match="BRANCH_REPLACED"):
        _fresh(table).append(rows(90, 1))
    assert "foreign-head" in _kinds(table)
    _check_mended(table, [0, 1, 2, 30])


@pytest.mark.long
def test_another_engine_copied_the_snapshots_of_the_branch_over_those_of_main(table):
    """As pypaimon's fast-forward does: no snapshot of main goes, and no schema comes with those of the branch."""
    storage = table.context.storage
    for info in list(storage.list("branch/branch-fix/snapshot")):
        storage.put(f"snapshot/{info.path.rpartition('/')[2]}", storage.get(info.path))
    assert storage.get("snapshot/LATEST") == b"4"
    assert not storage.exists("schema/schema-1")
    assert {"foreign-head", "leftover", "schema"} <= _kinds(table)
    plan = _fresh(table).repair(dry_run=True)
    assert "schema/schema-1" in [step.path for step in plan.steps]
    assert not storage.exists("schema/schema-1")
    _check_mended(table, [0, 1, 2, 30])
    (kept,) = [name for name in _fresh(table).tags() if name.startswith("leftover-5-")]
    assert ids_of(_fresh(table).at(kept)) == ALL, "what main had is kept under a tag"


def test_a_branch_whose_schema_has_no_place_on_main_is_listed(table):
    """Both changed their columns under the same numbers; pypaimon put the branch's snapshots in the place of main's."""
    table.branch("fix").alter().add_column("y", "INT").apply()
    table.branch("fix").append(rows(31, 1))
    table.alter().add_column("w", "INT").apply()
    table.append(rows(5, 1))
    storage = table.context.storage
    for info in list(storage.list("branch/branch-fix/snapshot")):
        storage.put(f"snapshot/{info.path.rpartition('/')[2]}", storage.get(info.path))
    before = _unchanged(table)
    done = _fresh(table).repair()
    assert done.steps == ()
    assert _unchanged(table) == before
    (problem,) = [p for p in done.left if p.kind is Kind.SCHEMA]
    assert "rollback" in problem.hint
    _fresh(table).rollback("good", destructive=True, force=True)
    assert ids_of(_fresh(table)) == [0, 1, 2]
    for number in (90, 91, 92, 93):
        _fresh(table).append(rows(number, 1))
    assert ids_of(_fresh(table)) == [0, 1, 2, 90, 91, 92, 93]
    kept = [name for name in _fresh(table).tags() if name.startswith("leftover-")]
    assert ids_of(_fresh(table).at(kept[-1])) == [*ALL, 5], "what main had is kept under a tag"


def test_the_schema_of_a_branch_is_not_put_in_the_place_of_mains_own(table):
    table.alter().add_column("w", "INT").apply()
    table.append(rows(5, 1))
    storage = table.context.storage
    own = storage.get("schema/schema-1")
    for info in list(storage.list("branch/branch-fix/snapshot")):
        storage.put(f"snapshot/{info.path.rpartition('/')[2]}", storage.get(info.path))
    _fresh(table).repair()
    assert storage.get("schema/schema-1") == own


@pytest.fixture
def replaced(table):
    """The branch is main."""
    table.replace_main_branch("fix", force=True)
    _fresh(table).append(rows(31, 1))
    assert ids_of(_fresh(table)) == [0, 1, 2, 30, 31]
    return table


@pytest.mark.long
def test_the_branch_that_is_main_was_renamed(replaced):
    root = _root(replaced)
    os.rename(f"{root}/branch/branch-fix", f"{root}/branch/branch-other")
    assert "main-gone" in _kinds(replaced)
    _check_mended(replaced, [0, 1, 2, 30, 31])


def test_the_branch_that_is_main_was_deleted(replaced):
    shutil.rmtree(f"{_root(replaced)}/branch/branch-fix")
    assert "main-gone" in _kinds(replaced)
    _check_mended(replaced, [0, 1, 2, 30, 31])


@pytest.mark.long
def test_another_engine_copied_main_over_what_was_main_before(replaced):
    """pypaimon's fast-forward to the branch that is main: what was replaced is overwritten, main is as it was."""
    storage = replaced.context.storage
    for info in list(storage.list("branch/branch-fix/snapshot")):
        storage.put(f"snapshot/{info.path.rpartition('/')[2]}", storage.get(info.path))
    assert ids_of(_fresh(replaced)) == [0, 1, 2, 30, 31]
    done = _fresh(replaced).repair()
    assert [p for p in done.left if p.severity == "error"] == []
    assert _fresh(replaced).repair().steps == ()
    assert _fresh(replaced).verify(deep=True).ok
    assert ids_of(_fresh(replaced)) == [0, 1, 2, 30, 31]
    _fresh(replaced).append(rows(90, 1))
    assert ids_of(_fresh(replaced)) == [0, 1, 2, 30, 31, 90]


def test_a_wrong_hint(table):
    table.context.storage.put("snapshot/LATEST", b"3")
    assert _kinds(table) == {"hint"}
    _check_mended(table)


def test_a_missing_pin(table):
    table.context.storage.delete("tag/tag-anabranch-savepoint-1")
    assert _kinds(table) == {"pin"}
    _check_mended(table)


def test_a_data_file_that_the_cleaning_moved_away(table):
    path = _data_file(table)
    away = f"{_root(table)}/.orphans/1700000000000/bucket-0"
    os.makedirs(away)
    shutil.move(path, away)
    assert _kinds(table) == {"file-missing"}
    _check_mended(table)


def test_a_data_file_is_missing(table):
    os.remove(_data_file(table))
    (problem,) = _fresh(table).verify().problems
    assert (problem.kind, problem.rows, problem.snapshot_id) == (Kind.FILE_MISSING, 1, 5)
    assert problem.job == table.at(1).snapshot.commit_user
    done = _fresh(table).repair()
    assert (done.steps, [p.kind for p in done.left]) == ((), [Kind.FILE_MISSING])
    assert "1 rows, written by" in str(done)


def test_health_tells_of_it(table):
    before = _fresh(table).health()
    assert before.score > 90
    table.context.storage.put("snapshot/LATEST", b"9")
    finding = _fresh(table).health().findings[0]
    assert (finding.points, finding.command) == (50, "anabranch repair db.t")
    os.remove(_data_file(table))
    assert _fresh(table).health().score == 0
    assert "is missing" in str(_fresh(table).health())


def test_a_data_file_is_cut_off(table):
    path = _data_file(table)
    os.truncate(path, os.path.getsize(path) - 1)
    assert _kinds(table) == {"file-size"}


def test_a_flipped_bit_in_a_data_file(table):
    path = _data_file(table)
    with open(path, "r+b") as file:
        content = bytearray(file.read())
        content[10] ^= 0x40
        file.seek(0)
        file.write(content)
    assert _fresh(table).verify().ok, "only reading tells"
    assert _kinds(table, deep=True) == {"file-damaged"}


def test_a_manifest_is_missing(table):
    first = table.at(1).snapshot
    (meta,) = table.context.manifests.read_list(first.delta_manifest_list)
    os.remove(f"{_root(table)}/manifest/{meta.file_name}")
    assert "manifest" in _kinds(table)
    os.remove(f"{_root(table)}/manifest/{table.snapshot.base_manifest_list}")
    assert "manifest" in _kinds(table)
    assert any("manifest" in p.message for p in _fresh(table).repair().left)


def test_counts_that_lie(table):
    head = table.snapshot
    table.context.storage.put(
        "snapshot/snapshot-5", replace(head, total_record_count=7, delta_record_count=3).to_json()
    )
    assert _kinds(table) == {"count"}


def test_a_snapshot_of_the_future(table):
    """The time is part of a snapshot's identity, so it is the newest one that is made anew."""
    head = table.snapshot
    table.context.storage.put(
        "snapshot/snapshot-5", replace(head, time_millis=head.time_millis + 86_400_000).to_json()
    )
    assert _kinds(table) == {"future"}


def test_a_broken_parent(table):
    second = table.at(2).snapshot
    table.context.storage.put("snapshot/snapshot-2", replace(second, commit_user="another").to_json())
    assert "parent" in _kinds(table)


def test_a_damaged_snapshot_tag_and_schema(table):
    table.context.storage.put("tag/tag-good", b"{")
    assert "ref" in _kinds(table)
    table.context.storage.put("snapshot/snapshot-2", b"{")
    assert {"ref", "snapshot"} <= _kinds(table)
    table.context.storage.delete("branch/branch-fix/schema/schema-0")
    assert "schema" not in _kinds(table), "branches of older engines have only one; the others are main's"
    table.context.storage.put("branch/branch-fix/schema/schema-1", b"{")
    assert "schema" in _kinds(table)


def test_a_half_deleted_branch(table):
    table.context.storage.put("branch/branch-fix/DELETING", b"")
    assert "branch" in _kinds(table)


def test_partition_time_and_job_of_what_is_lost(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.p", "id BIGINT, v STRING, dt STRING", partition_by=["dt"])
    with lake.job("clean-orders"):
        table.append(rows(0, 3).append_column("dt", [["a", "b", "b"]]))
    folder = tmp_path / "db.db" / "p" / "dt=b" / "bucket-0"
    (lost,) = folder.iterdir()
    lost.unlink()
    (problem,) = table.verify().problems
    assert (problem.partition, problem.rows, problem.job) == ("dt=b", 2, "clean-orders")
    assert problem.time_millis == table.snapshot.time_millis
    assert table.verify().problems == table.repair().left


def _die(path):
    raise Died

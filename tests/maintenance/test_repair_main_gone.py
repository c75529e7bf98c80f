"""Repair where another engine removed the folder of the branch that is main: its rows are brought back or listed."""

import os
import shutil
from pathlib import Path

import pytest

import anabranch
from tests.maintenance.replaced_main import READS, fresh, kinds, maker, ready, rows
from tests.support.dying import CHANGING, Died, DyingStorage, through
from tests.support.lengths import first_short
from tests.support.tables import ids_of


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "db.db" / "t")


@pytest.fixture
def made(tmp_path):
    return maker(tmp_path)


def _drop_folder(root):
    """As `drop_branch` of other engines does."""
    shutil.rmtree(f"{root}/branch/branch-fix")


@pytest.mark.parametrize("expired", first_short([False, True]), ids=["whole", "expired"])
@pytest.mark.parametrize("dropped", first_short([False, True]), ids=["kept", "dropped"])
def test_the_folder_of_main_is_gone_and_its_rows_are_brought_back(made, root, dropped, expired):
    table = made(retained="0 ms" if dropped else "1 d", savepoint=True, more=range(31, 37))
    table.maintain()
    if expired:
        fresh(table).expire_snapshots(retain_max=2, retain_min=1)
    expected, numbers = ids_of(table), [s.id for s in fresh(table).snapshots()]
    _drop_folder(root)
    before = ready(root)
    plan = fresh(table).repair(dry_run=True)
    assert plan.left == ()
    assert ready(root) == before
    done = fresh(table).repair()
    assert done.left == ()
    assert [str(step) for step in done.steps if "put snapshot" in step.what] == [
        str(step) for step in plan.steps if "put snapshot" in step.what
    ]
    assert ids_of(fresh(table)) == expected
    newest = next(iter(fresh(table).snapshots())).id
    # Where nothing tells the number of the first that is known, it is one that was never taken.
    assert newest == numbers[0] or (dropped and not expired and newest > numbers[0])
    assert fresh(table).repair().steps == ()
    if not (expired or dropped):
        assert [s.id for s in fresh(table).snapshots()] == numbers, "all of its history is there"
    fresh(table).append(rows(99))
    assert ids_of(fresh(table)) == [*expected, 99]
    assert kinds(table) == set()
    assert ids_of(fresh(table).at("savepoint.1")) == [0, 1, 2]
    if not dropped:
        assert ids_of(fresh(table).at("good")) == [0, 1, 2]
    fresh(table).maintain()
    assert ids_of(fresh(table)) == [*expected, 99]


@pytest.mark.parametrize("folder", [False, True], ids=["removed", "with a hint"])
def test_nothing_is_removed_while_main_is_gone(made, root, folder):
    table = made(retained="0 ms", more=range(31, 37), savepoint=True)
    _drop_folder(root)
    if folder:  # by a writer whom the deletion overtook
        os.makedirs(f"{root}/branch/branch-fix/snapshot")
        Path(f"{root}/branch/branch-fix/snapshot/LATEST").write_bytes(b"9")
    before = ready(root)
    for name, act in READS.items():
        with pytest.raises(anabranch.AnabranchError) as raised:
            act(fresh(table))
        assert "main" in str(raised.value) or name == "delete the branch", name
    with pytest.raises(anabranch.AnabranchError, match="which is main"):
        fresh(table).undo_replace()
    assert {name for name in before if "bucket-0/" in name or "manifest/" in name} <= ready(root)
    assert "branch/SEAL-2" not in ready(root)
    assert "main-gone" in kinds(table)
    assert fresh(table).repair().left == ()
    assert ids_of(fresh(table)) == [0, 1, 2, 30, *range(31, 37)]


def test_what_cannot_be_brought_back_is_listed(made, root):
    table = made(more=range(31, 37))
    fresh(table).expire_snapshots(retain_max=2, retain_min=1)
    known = {f"manifest/{name}" for name in os.listdir(f"{root}/manifest")}
    newest = next(iter(fresh(table).snapshots()))
    for s in (newest, fresh(table).context.snapshots.find(newest.id - 1)):
        for name in (s.base_manifest_list, s.delta_manifest_list):
            os.unlink(f"{root}/manifest/{name}")
    assert known
    _drop_folder(root)
    plan = fresh(table).repair(dry_run=True)
    done = fresh(table).repair()
    for repaired in (plan, done):
        assert [(str(p.kind), p.severity, p.rows) for p in repaired.left] == [("main-gone", "error", 5)]
        assert "snapshots 4 to 8" in str(repaired)
    assert ids_of(fresh(table)) == [0, 1, 2]


def test_what_a_killed_attempt_on_another_branch_left_is_not_taken_for_main(made, root):
    table = made(other=True, more=range(31, 34))
    fresh(table).expire_snapshots(retain_max=2, retain_min=1)
    other = fresh(table).branch("other")
    other.append(rows(70))
    other.append(rows(71))
    os.unlink(f"{root}/branch/branch-other/snapshot/snapshot-5")
    Path(f"{root}/branch/branch-other/snapshot/LATEST").write_bytes(b"4")
    _drop_folder(root)
    fresh(table).repair()
    assert ids_of(fresh(table)) == [0, 1, 2, 30, 31, 32, 33]
    assert ids_of(fresh(table).branch("other")) == [0, 1, 2, 70]


@pytest.mark.long
@pytest.mark.parametrize(
    "expired", [pytest.param(False, marks=pytest.mark.long), True], ids=["whole", "expired"]
)
def test_a_repair_of_main_that_died_is_finished_by_the_next(made, root, tmp_path, expired):
    table = made(more=range(31, 34))
    if expired:
        fresh(table).expire_snapshots(retain_max=2, retain_min=1)
    _drop_folder(root)
    shutil.copytree(root, tmp_path / "saved")
    watched = DyingStorage(fresh(table).context.storage, 10**9)
    through(fresh(table), watched).repair()
    changing = [at for at, call in enumerate(watched.calls, 1) if call.name in CHANGING]
    assert len(changing) > 5
    for at in changing:
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "saved", root)
        with pytest.raises(Died):
            through(fresh(table), DyingStorage(fresh(table).context.storage, at)).repair()
        left = [p for p in fresh(table).repair().left if p.severity == "error"]
        assert left == [], at
        assert ids_of(fresh(table)) == [0, 1, 2, 30, 31, 32, 33], at
        assert kinds(table) == set()


def test_a_version_of_the_schema_that_went_with_the_folder_is_listed(made, root):
    table = made()
    table.alter().add_column("x", "INT").apply()
    fresh(table).append([{"id": 50, "p": "a", "x": 1}])
    _drop_folder(root)
    done = fresh(table).repair()
    assert "schema" in {str(p.kind) for p in done.left}
    assert "schema" in kinds(table)

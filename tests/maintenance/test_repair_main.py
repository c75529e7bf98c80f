"""Verify and repair where main was replaced: what was dropped on purpose, and records that somebody lost."""

import os
import shutil
from pathlib import Path

import pytest

import anabranch
from anabranch.format.records.main_pointer import MainPointer
from anabranch.kernel.repair.found import Kind
from tests.maintenance.replaced_main import READS, fresh, kinds, maker, ready, rows
from tests.support.lengths import first_short
from tests.support.tables import ids_of


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "db.db" / "t")


@pytest.fixture
def made(tmp_path):
    return maker(tmp_path)


@pytest.mark.parametrize("how", first_short(["", "savepoint", "other"]))
def test_a_main_that_was_dropped_on_purpose_is_no_damage(made, root, how):
    table = made(retained="0 ms", savepoint=how == "savepoint", other=how == "other")
    assert kinds(table) == set()
    assert fresh(table).maintain() is not None
    assert kinds(table) == set()
    done = fresh(table).repair()
    assert (done.steps, done.left) == ((), ())
    left = {"snapshot-1", "snapshot-2", "snapshot-4"}
    assert {*os.listdir(f"{root}/snapshot")} <= left, "only main's past, and what stops a paused writer"
    assert {*os.listdir(f"{root}/tag")} <= {*os.listdir(f"{root}/branch/branch-fix/tag")}, "what main has too"
    assert "dropped" not in str(fresh(table).maintain()), "there is nothing left of it"
    assert ids_of(fresh(table)) == [0, 1, 2, 30, 31, 32]


def test_the_pin_of_a_savepoint_that_a_dropped_main_made_is_put_on_main(made, root):
    table = made(retained="0 ms", savepoint=True)
    table.maintain()
    os.unlink(f"{root}/branch/branch-fix/tag/tag-anabranch-savepoint-1")
    assert kinds(table) == {"pin"}
    done = fresh(table).repair()
    assert done.left == ()
    assert [(step.kind, step.path) for step in done.steps] == [
        (Kind.PIN, "branch/branch-fix/tag/tag-anabranch-savepoint-1")
    ]
    assert ids_of(fresh(table).at("savepoint.1")) == [0, 1, 2]
    assert kinds(table) == set()


def test_the_drop_of_a_main_that_died_is_no_damage(made, root):
    table = made(savepoint=True)
    shutil.copytree(f"{root}/snapshot", f"{root}/kept")
    table.with_options({"branch.replaced-main.time-retained": "0 ms"}).maintain()
    shutil.copy(f"{root}/kept/snapshot-3", f"{root}/snapshot/snapshot-3")
    shutil.rmtree(f"{root}/kept")
    assert kinds(table) == set()
    assert fresh(table).repair().steps == ()
    assert "dropped main@1" in str(fresh(table).maintain())
    assert "snapshot-3" not in os.listdir(f"{root}/snapshot")


@pytest.mark.parametrize("proof", first_short(["copy", "hint"]))
@pytest.mark.parametrize("dropped", [False, True], ids=["kept", "dropped"])
def test_the_record_of_what_is_main_was_lost(made, root, dropped, proof):
    table = made(retained="0 ms" if dropped else "1 d")
    table.maintain()
    expected = ids_of(table)
    was = Path(f"{root}/branch/MAIN-1").read_bytes()
    os.unlink(f"{root}/branch/MAIN-1")
    if proof == "hint":
        os.unlink(f"{root}/lineage/main-1")
    for name, act in READS.items():
        if dropped and name == "expire":
            continue  # what is left there is nothing to expire
        with pytest.raises(anabranch.CorruptTableError, match="MAIN-1") as raised:
            act(fresh(table))
        assert "repair" in raised.value.hint, name
    assert not os.path.exists(f"{root}/branch/MAIN-1"), "nobody decides again"
    assert "pointer" in kinds(table)
    before = ready(root)
    plan = fresh(table).repair(dry_run=True)
    assert [step.path for step in plan.steps if step.kind == "pointer"] == ["branch/MAIN-1"]
    assert ready(root) == before
    done = fresh(table).repair()
    assert done.left == ()
    if proof == "copy":
        assert Path(f"{root}/branch/MAIN-1").read_bytes() == was
    assert ids_of(fresh(table)) == expected
    fresh(table).append(rows(99))
    assert ids_of(fresh(table)) == [*expected, 99]
    assert kinds(table) == set()
    log = fresh(table).system("branches_log").to_pylist()
    assert [o["operation"] for o in log].count("replaced_main") == 1


@pytest.mark.parametrize("lost", first_short([1, 2]))
def test_one_of_several_records_was_lost(made, root, lost):
    table = made()
    table.create_tag("later")
    table.create_branch("next", tag="later")
    table.branch("next").append(rows(40))
    fresh(table).replace_main_branch("next")
    expected = ids_of(fresh(table))
    assert 40 in expected
    os.unlink(f"{root}/branch/MAIN-{lost}")
    with pytest.raises(anabranch.CorruptTableError, match=f"MAIN-{lost}"):
        fresh(table).append(rows(99))
    assert "pointer" in kinds(table)
    assert fresh(table).repair().left == ()
    assert ids_of(fresh(table)) == expected
    assert kinds(table) == set()


@pytest.mark.long
def test_a_record_in_the_middle_was_lost(made, root):
    """The newest says what main is; upkeep waits for the others."""
    table = made()
    table.undo_replace()
    fresh(table).replace_main_branch("fix", force=True)
    expected = ids_of(fresh(table))
    was = Path(f"{root}/branch/MAIN-2").read_bytes()
    os.unlink(f"{root}/branch/MAIN-2")
    assert ids_of(fresh(table)) == expected
    with pytest.raises(anabranch.CorruptTableError, match="MAIN-2"):
        fresh(table).maintain()
    assert kinds(table) == {"pointer"}
    assert fresh(table).repair().left == ()
    assert Path(f"{root}/branch/MAIN-2").read_bytes() == was
    assert kinds(table) == set()
    assert ids_of(fresh(table)) == expected


def test_a_replacement_under_way_is_no_lost_record(made, root):
    """It is announced and main is sealed, but it never came to be decided: main stays."""
    table = made()
    for name in ("branch/MAIN-1", "branch/MAIN-BRANCH", "lineage/main-1"):
        os.unlink(f"{root}/{name}")
    assert "pointer" not in kinds(table)
    assert ids_of(fresh(table)) == [0, 1, 2]
    fresh(table).append(rows(99))
    assert ids_of(fresh(table)) == [0, 1, 2, 99]


def test_maintain_keeps_the_copy_that_a_dead_process_did_not(made, root):
    table = made()
    os.unlink(f"{root}/lineage/main-1")
    fresh(table).maintain()
    assert Path(f"{root}/lineage/main-1").read_bytes() == Path(f"{root}/branch/MAIN-1").read_bytes()


def test_a_decision_that_was_made_in_the_place_of_a_lost_one_is_told(made, root):
    table = made()
    os.unlink(f"{root}/branch/MAIN-1")
    kept = f"{root}/lineage/main-1"
    os.rename(kept, f"{root}/away")
    os.unlink(f"{root}/branch/MAIN-BRANCH")
    fresh(table).append(rows(99))
    os.rename(f"{root}/away", kept)
    found = fresh(table).verify()
    assert [(str(p.kind), p.repair) for p in found.problems] == [("pointer", None)]
    assert "another made in its place" in str(found)


def _tear(root, keep, number=1):
    """The record as after a fault of the disk; its copy was never stored."""
    os.unlink(f"{root}/lineage/main-{number}")
    os.truncate(f"{root}/branch/MAIN-{number}", keep)


@pytest.mark.parametrize("keep", first_short([0, 45]))
def test_a_torn_record_without_a_copy_is_named_and_made_again(made, root, keep):
    table = made()
    expected = ids_of(table)
    was = Path(f"{root}/branch/MAIN-1").read_bytes()
    _tear(root, keep)
    os.unlink(f"{root}/snapshot/LATEST")
    for name, act in READS.items():
        with pytest.raises(anabranch.CorruptTableError, match="MAIN-1") as raised:
            act(fresh(table))
        assert "repair" in raised.value.hint, name
    found = fresh(table).verify(deep=True)
    assert {str(p.kind) for p in found.problems} == {"pointer", "hint"}, "the rest is checked as well"
    (problem,) = [p for p in found.problems if str(p.kind) == "pointer"]
    assert problem.path == "branch/MAIN-1"
    assert "branch 'fix'" in problem.repair
    plan = fresh(table).repair(dry_run=True)
    assert "branch/MAIN-1" in [step.path for step in plan.steps]
    assert os.path.getsize(f"{root}/branch/MAIN-1") == keep, "a dry run"
    assert fresh(table).repair().left == ()
    again, before = (
        MainPointer.from_json(data, generation=1, path="")
        for data in (Path(f"{root}/branch/MAIN-1").read_bytes(), was)
    )
    assert (again.main, again.replaced.head) == (before.main, before.replaced.head)
    assert ids_of(fresh(table)) == expected
    fresh(table).append(rows(99))
    assert ids_of(fresh(table)) == [*expected, 99]
    assert kinds(table) == set()


def test_branches_are_read_by_name_while_the_record_is_torn(made, root):
    table = made()
    _tear(root, 0)
    assert ids_of(fresh(table).branch("fix")) == [0, 1, 2, 30, 31, 32]


@pytest.mark.parametrize("keep", first_short([0, 40]))
def test_a_torn_record_that_main_stays(made, root, keep):
    """Someone decided so when the one who replaced main had died, and wrote on."""
    table = made()
    for name in ("branch/MAIN-1", "branch/MAIN-BRANCH", "lineage/main-1"):
        os.unlink(f"{root}/{name}")
    fresh(table).append(rows(99))
    assert b"stay" in Path(f"{root}/branch/MAIN-1").read_bytes()
    os.truncate(f"{root}/branch/MAIN-1", keep)
    with pytest.raises(anabranch.CorruptTableError, match="MAIN-1"):
        ids_of(fresh(table))
    assert kinds(table) == {"pointer"}
    assert fresh(table).repair().left == ()
    assert kinds(table) == set()
    assert ids_of(fresh(table)) == [0, 1, 2, 99]
    fresh(table).append(rows(100))
    assert ids_of(fresh(table)) == [0, 1, 2, 99, 100]


@pytest.mark.long
def test_a_torn_record_below_the_newest(made, root):
    """The newest says what main is; upkeep waits for the other."""
    table = made()
    table.create_tag("later")
    table.create_branch("next", tag="later")
    table.branch("next").append(rows(40))
    fresh(table).replace_main_branch("next")
    expected = ids_of(fresh(table))
    _tear(root, 0)
    assert ids_of(fresh(table)) == expected
    assert kinds(table) == {"pointer"}
    assert fresh(table).repair().left == ()
    assert kinds(table) == set()
    fresh(table).maintain()
    assert ids_of(fresh(table)) == expected


def test_a_torn_record_of_which_nothing_is_known_is_listed(made, root):
    table = made()
    _tear(root, 0)
    os.unlink(f"{root}/branch/SEAL-1")
    before = ready(root)
    (problem,) = fresh(table).verify().problems
    assert (str(problem.kind), problem.path, problem.repair) == ("pointer", "branch/MAIN-1", None)
    assert "copy of the table's folder" in problem.hint
    done = fresh(table).repair()
    assert [p.path for p in done.left] == ["branch/MAIN-1"]
    assert ready(root) == before

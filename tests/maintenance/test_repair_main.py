"""Verify and repair where main was replaced: what was dropped on purpose, pointers and branches that somebody lost."""

import os
import shutil
from pathlib import Path

import pytest

import anabranch
from anabranch.kernel.cache import SHARED
from anabranch.kernel.repair.problem import Kind
from tests.support.dying import CHANGING, Died, DyingStorage, through
from tests.support.tables import ids_of

SCHEMA = "id BIGINT, p STRING"


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "db.db" / "t")


@pytest.fixture
def made(tmp_path):
    """Makes a table of which the branch `fix` became main."""

    def make(*, retained="1 d", savepoint=False, other=False, more=(31, 32)):
        table = anabranch.connect(str(tmp_path)).create_table(
            "db.t",
            SCHEMA,
            options={
                "branch.replaced-main.time-retained": retained,
                "branch.seal.timeout": "1 s",
                "snapshot.expire.automatic": "false",
            },
        )
        for number in range(3):
            table.append(_rows(number))
        if savepoint:
            table.create_savepoint()
        table.create_tag("good")
        table.create_branch("fix", tag="good")
        if other:
            table.create_branch("other", tag="good")
        table.branch("fix").append(_rows(30))
        table.replace_main_branch("fix")
        for number in more:
            _fresh(table).append(_rows(number))
        return _fresh(table)

    return make


def _rows(number):
    return [{"id": number, "p": "a"}]


def _fresh(table):
    """As another process opens it, which knows nothing from before."""
    SHARED.__init__()
    return anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")


def _kinds(table):
    return {str(p.kind) for p in _fresh(table).verify(deep=True).problems}


@pytest.mark.parametrize("how", ["", "savepoint", "other"])
def test_a_main_that_was_dropped_on_purpose_is_no_damage(made, root, how):
    table = made(retained="0 ms", savepoint=how == "savepoint", other=how == "other")
    assert _kinds(table) == set()
    assert _fresh(table).maintain() is not None
    assert _kinds(table) == set()
    done = _fresh(table).repair()
    assert (done.steps, done.left) == ((), ())
    assert os.listdir(f"{root}/snapshot") == ["snapshot-4"], "only what stops a paused writer"
    assert not os.path.exists(f"{root}/tag") or os.listdir(f"{root}/tag") == []
    assert "dropped" not in str(_fresh(table).maintain()), "there is nothing left of it"
    assert ids_of(_fresh(table)) == [0, 1, 2, 30, 31, 32]


def test_the_pin_of_a_savepoint_that_a_dropped_main_made_is_put_on_main(made, root):
    table = made(retained="0 ms", savepoint=True)
    table.maintain()
    os.unlink(f"{root}/branch/branch-fix/tag/tag-anabranch-savepoint-1")
    assert _kinds(table) == {"pin"}
    done = _fresh(table).repair()
    assert done.left == ()
    assert [(step.kind, step.path) for step in done.steps] == [
        (Kind.PIN, "branch/branch-fix/tag/tag-anabranch-savepoint-1")
    ]
    assert ids_of(_fresh(table).at("savepoint.1")) == [0, 1, 2]
    assert _kinds(table) == set()


def test_the_drop_of_a_main_that_died_is_no_damage(made, root):
    table = made(savepoint=True)
    shutil.copytree(f"{root}/snapshot", f"{root}/kept")
    table.with_options({"branch.replaced-main.time-retained": "0 ms"}).maintain()
    shutil.copy(f"{root}/kept/snapshot-3", f"{root}/snapshot/snapshot-3")
    shutil.rmtree(f"{root}/kept")
    assert _kinds(table) == set()
    assert _fresh(table).repair().steps == ()
    assert "dropped main@1" in str(_fresh(table).maintain())
    assert os.listdir(f"{root}/snapshot") == ["snapshot-4"]


READS = {
    "read": ids_of,
    "append": lambda t: t.append(_rows(99)),
    "maintain": lambda t: t.maintain(),
    "expire": lambda t: t.expire_snapshots(retain_max=1, retain_min=1),
    "remove orphans": lambda t: t.remove_orphan_files(),
    "delete the branch": lambda t: t.delete_branch("fix"),
    "replace": lambda t: t.replace_main_branch("fix", force=True),
}


def _ready(root):
    """What a table is made of besides hints."""
    return {
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root)
        for name in names
    }


@pytest.mark.parametrize("proof", ["copy", "hint"])
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
            act(_fresh(table))
        assert "repair" in raised.value.hint, name
    assert not os.path.exists(f"{root}/branch/MAIN-1"), "nobody decides again"
    assert "pointer" in _kinds(table)
    before = _ready(root)
    plan = _fresh(table).repair(dry_run=True)
    assert [step.path for step in plan.steps if step.kind == "pointer"] == ["branch/MAIN-1"]
    assert _ready(root) == before
    done = _fresh(table).repair()
    assert done.left == ()
    if proof == "copy":
        assert Path(f"{root}/branch/MAIN-1").read_bytes() == was
    assert ids_of(_fresh(table)) == expected
    _fresh(table).append(_rows(99))
    assert ids_of(_fresh(table)) == [*expected, 99]
    assert _kinds(table) == set()
    log = _fresh(table).system("branches_log").to_pylist()
    assert [o["operation"] for o in log].count("replaced_main") == 1


@pytest.mark.parametrize("lost", [1, 2])
def test_one_of_several_records_was_lost(made, root, lost):
    table = made()
    table.create_tag("later")
    table.create_branch("next", tag="later")
    table.branch("next").append(_rows(40))
    _fresh(table).replace_main_branch("next")
    expected = ids_of(_fresh(table))
    assert 40 in expected
    os.unlink(f"{root}/branch/MAIN-{lost}")
    with pytest.raises(anabranch.CorruptTableError, match=f"MAIN-{lost}"):
        _fresh(table).append(_rows(99))
    assert "pointer" in _kinds(table)
    assert _fresh(table).repair().left == ()
    assert ids_of(_fresh(table)) == expected
    assert _kinds(table) == set()


def test_a_record_in_the_middle_was_lost(made, root):
    """The newest says what main is; upkeep waits for the others."""
    table = made()
    table.undo_replace()
    _fresh(table).replace_main_branch("fix", force=True)
    expected = ids_of(_fresh(table))
    was = Path(f"{root}/branch/MAIN-2").read_bytes()
    os.unlink(f"{root}/branch/MAIN-2")
    assert ids_of(_fresh(table)) == expected
    with pytest.raises(anabranch.CorruptTableError, match="MAIN-2"):
        _fresh(table).maintain()
    assert _kinds(table) == {"pointer"}
    assert _fresh(table).repair().left == ()
    assert Path(f"{root}/branch/MAIN-2").read_bytes() == was
    assert _kinds(table) == set()
    assert ids_of(_fresh(table)) == expected


def test_a_replacement_under_way_is_no_lost_record(made, root):
    """It is announced and main is sealed, but it never came to be decided: main stays."""
    table = made()
    for name in ("branch/MAIN-1", "branch/MAIN-BRANCH", "lineage/main-1"):
        os.unlink(f"{root}/{name}")
    assert "pointer" not in _kinds(table)
    assert ids_of(_fresh(table)) == [0, 1, 2]
    _fresh(table).append(_rows(99))
    assert ids_of(_fresh(table)) == [0, 1, 2, 99]


def test_maintain_keeps_the_copy_that_a_dead_process_did_not(made, root):
    table = made()
    os.unlink(f"{root}/lineage/main-1")
    _fresh(table).maintain()
    assert Path(f"{root}/lineage/main-1").read_bytes() == Path(f"{root}/branch/MAIN-1").read_bytes()


def test_a_decision_that_was_made_in_the_place_of_a_lost_one_is_told(made, root):
    table = made()
    os.unlink(f"{root}/branch/MAIN-1")
    kept = f"{root}/lineage/main-1"
    os.rename(kept, f"{root}/away")
    os.unlink(f"{root}/branch/MAIN-BRANCH")
    _fresh(table).append(_rows(99))
    os.rename(f"{root}/away", kept)
    found = _fresh(table).verify()
    assert [(str(p.kind), p.repair) for p in found.problems] == [("pointer", None)]
    assert "another made in its place" in str(found)


def _drop_folder(root):
    """As `drop_branch` of other engines does."""
    shutil.rmtree(f"{root}/branch/branch-fix")


@pytest.mark.parametrize("expired", [False, True], ids=["whole", "expired"])
@pytest.mark.parametrize("dropped", [False, True], ids=["kept", "dropped"])
def test_the_folder_of_main_is_gone_and_its_rows_are_brought_back(made, root, dropped, expired):
    table = made(retained="0 ms" if dropped else "1 d", savepoint=True, more=range(31, 37))
    table.maintain()
    if expired:
        _fresh(table).expire_snapshots(retain_max=2, retain_min=1)
    expected, numbers = ids_of(table), [s.id for s in _fresh(table).snapshots()]
    _drop_folder(root)
    before = _ready(root)
    plan = _fresh(table).repair(dry_run=True)
    assert plan.left == ()
    assert _ready(root) == before
    done = _fresh(table).repair()
    assert done.left == ()
    assert [str(step) for step in done.steps if "put snapshot" in step.what] == [
        str(step) for step in plan.steps if "put snapshot" in step.what
    ]
    assert ids_of(_fresh(table)) == expected
    newest = next(iter(_fresh(table).snapshots())).id
    # Where nothing tells the number of the first that is known, it is one that was never taken.
    assert newest == numbers[0] or (dropped and not expired and newest > numbers[0])
    assert _fresh(table).repair().steps == ()
    if not (expired or dropped):
        assert [s.id for s in _fresh(table).snapshots()] == numbers, "all of its history is there"
    _fresh(table).append(_rows(99))
    assert ids_of(_fresh(table)) == [*expected, 99]
    assert _kinds(table) == set()
    assert ids_of(_fresh(table).at("savepoint.1")) == [0, 1, 2]
    if not dropped:
        assert ids_of(_fresh(table).at("good")) == [0, 1, 2]
    _fresh(table).maintain()
    assert ids_of(_fresh(table)) == [*expected, 99]


@pytest.mark.parametrize("folder", [False, True], ids=["removed", "with a hint"])
def test_nothing_is_removed_while_main_is_gone(made, root, folder):
    table = made(retained="0 ms", more=range(31, 37), savepoint=True)
    _drop_folder(root)
    if folder:  # by a writer whom the deletion overtook
        os.makedirs(f"{root}/branch/branch-fix/snapshot")
        Path(f"{root}/branch/branch-fix/snapshot/LATEST").write_bytes(b"9")
    before = _ready(root)
    for name, act in READS.items():
        with pytest.raises(anabranch.AnabranchError) as raised:
            act(_fresh(table))
        assert "main" in str(raised.value) or name == "delete the branch", name
    with pytest.raises(anabranch.AnabranchError, match="which is main"):
        _fresh(table).undo_replace()
    assert {name for name in before if "bucket-0/" in name or "manifest/" in name} <= _ready(root)
    assert "branch/SEAL-2" not in _ready(root)
    assert "main-gone" in _kinds(table)
    assert _fresh(table).repair().left == ()
    assert ids_of(_fresh(table)) == [0, 1, 2, 30, *range(31, 37)]


def test_what_cannot_be_brought_back_is_listed(made, root):
    table = made(more=range(31, 37))
    _fresh(table).expire_snapshots(retain_max=2, retain_min=1)
    known = {f"manifest/{name}" for name in os.listdir(f"{root}/manifest")}
    newest = next(iter(_fresh(table).snapshots()))
    for s in (newest, _fresh(table).context.snapshots.find(newest.id - 1)):
        for name in (s.base_manifest_list, s.delta_manifest_list):
            os.unlink(f"{root}/manifest/{name}")
    assert known
    _drop_folder(root)
    plan = _fresh(table).repair(dry_run=True)
    done = _fresh(table).repair()
    for repaired in (plan, done):
        assert [(str(p.kind), p.severity, p.rows) for p in repaired.left] == [("main-gone", "error", 5)]
        assert "snapshots 4 to 8" in str(repaired)
    assert ids_of(_fresh(table)) == [0, 1, 2]


def test_what_a_killed_attempt_on_another_branch_left_is_not_taken_for_main(made, root):
    table = made(other=True, more=range(31, 34))
    _fresh(table).expire_snapshots(retain_max=2, retain_min=1)
    other = _fresh(table).branch("other")
    other.append(_rows(70))
    other.append(_rows(71))
    os.unlink(f"{root}/branch/branch-other/snapshot/snapshot-5")
    Path(f"{root}/branch/branch-other/snapshot/LATEST").write_bytes(b"4")
    _drop_folder(root)
    _fresh(table).repair()
    assert ids_of(_fresh(table)) == [0, 1, 2, 30, 31, 32, 33]
    assert ids_of(_fresh(table).branch("other")) == [0, 1, 2, 70]


@pytest.mark.parametrize("expired", [False, True], ids=["whole", "expired"])
def test_a_repair_of_main_that_died_is_finished_by_the_next(made, root, tmp_path, expired):
    table = made(more=range(31, 34))
    if expired:
        _fresh(table).expire_snapshots(retain_max=2, retain_min=1)
    _drop_folder(root)
    shutil.copytree(root, tmp_path / "saved")
    watched = DyingStorage(_fresh(table).context.storage, 10**9)
    through(_fresh(table), watched).repair()
    changing = [at for at, call in enumerate(watched.calls, 1) if call.name in CHANGING]
    assert len(changing) > 5
    for at in changing:
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "saved", root)
        with pytest.raises(Died):
            through(_fresh(table), DyingStorage(_fresh(table).context.storage, at)).repair()
        left = [p for p in _fresh(table).repair().left if p.severity == "error"]
        assert left == [], at
        assert ids_of(_fresh(table)) == [0, 1, 2, 30, 31, 32, 33], at
        assert _kinds(table) == set()


def test_a_version_of_the_schema_that_went_with_the_folder_is_listed(made, root):
    table = made()
    table.alter().add_column("x", "INT").apply()
    _fresh(table).append([{"id": 50, "p": "a", "x": 1}])
    _drop_folder(root)
    done = _fresh(table).repair()
    assert "schema" in {str(p.kind) for p in done.left}
    assert "schema" in _kinds(table)

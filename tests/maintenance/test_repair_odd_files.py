"""What no program of ours leaves behind: links to nowhere, folders in the place of files, savepoints that somebody deleted."""

import json
import os
from pathlib import Path

import pytest

import anabranch
from tests.maintenance.replaced_main import fresh
from tests.support.lengths import first_short
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture
def table(tmp_path):
    made = make_table(tmp_path)
    for start in range(3):
        made.append(rows(start, 1))
    made.create_tag("good")
    return made


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "db.db" / "t")


def _problems(table):
    return [(str(p.kind), p.path) for p in fresh(table).verify().problems]


@pytest.mark.parametrize(
    "name", ["branch/MAIN-1", "branch/FIELD-IDS-1", "snapshot/snapshot-4", "tag/tag-next"]
)
def test_a_link_that_leads_nowhere(table, root, name):
    os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
    os.symlink("/nowhere/at/all", f"{root}/{name}")
    assert _problems(table) == [("record", name)]
    (problem,) = fresh(table).repair().left
    assert "/nowhere/at/all" in problem.message
    assert "remove the link" in problem.hint
    if name == "branch/FIELD-IDS-1":
        with pytest.raises(anabranch.StorageError, match="is a link to /nowhere/at/all") as raised:
            fresh(table).create_branch("fix", tag="good")
        assert "link" in raised.value.hint
    os.unlink(f"{root}/{name}")
    assert _problems(table) == []
    fresh(table).append(rows(9, 1))
    assert ids_of(fresh(table)) == [0, 1, 2, 9]


def test_main_cannot_be_replaced_over_a_link_and_is_what_it_was(table, root):
    table.alter().set_option("branch.seal.timeout", "1 s").apply()
    table.create_branch("fix", tag="good")
    table.branch("fix").append(rows(30, 1))
    os.symlink("/nowhere/at/all", f"{root}/branch/MAIN-1")
    with pytest.raises(anabranch.StorageError, match="MAIN-1.*is a link to /nowhere/at/all"):
        fresh(table).replace_main_branch("fix")
    os.unlink(f"{root}/branch/MAIN-1")
    assert ids_of(fresh(table)) == [0, 1, 2]
    fresh(table).append(rows(9, 1))
    assert fresh(table).verify().ok


@pytest.mark.parametrize(
    "name", ["branch/FIELD-IDS-1", "branch/MAIN-1", "savepoint/savepoint-1", "snapshot/snapshot-4"]
)
def test_a_folder_in_the_place_of_a_file(table, root, name):
    os.makedirs(f"{root}/{name}")
    assert _problems(table) == [("record", name)]
    (problem,) = fresh(table).repair().left
    assert "is a folder" in problem.message
    assert "move the folder" in problem.hint
    act = {
        "branch/FIELD-IDS-1": lambda t: t.create_branch("fix", tag="good"),
        "snapshot/snapshot-4": lambda t: t.append(rows(9, 1)),
        "savepoint/savepoint-1": lambda t: t.create_savepoint(),
    }.get(name)
    if act is not None:
        with pytest.raises(anabranch.StorageError, match=os.path.basename(name)) as raised:
            act(fresh(table))
        assert "folder" in raised.value.hint
    os.rmdir(f"{root}/{name}")
    assert _problems(table) == []


# Savepoints


def _overwritten(table):
    """A savepoint that alone has what was overwritten since."""
    table.create_savepoint()
    table.create_savepoint()
    fresh(table).overwrite(rows(7, 1))
    fresh(table).append(rows(8, 1))
    fresh(table).delete_tag("good")
    return fresh(table)


@pytest.mark.parametrize("number", first_short([1, 2]), ids=["an older one", "the newest"])
def test_a_savepoint_whose_file_somebody_deleted(table, root, number):
    table = _overwritten(table)
    os.unlink(f"{root}/savepoint/savepoint-{number}")
    table.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")
    assert fresh(table).create_savepoint().id == 3, "its number is not given to another one"
    path = f"savepoint/savepoint-{number}"
    assert _problems(table) == [("ref", path)]
    done = fresh(table).repair()
    assert [step.path for step in done.steps] == [path]
    assert done.left == ()
    assert _problems(table) == []
    assert ids_of(fresh(table).at(f"savepoint.{number}")) == [0, 1, 2]


def test_a_savepoint_whose_file_somebody_deleted_is_let_go(table, root):
    table = _overwritten(table)
    os.unlink(f"{root}/savepoint/savepoint-2")
    fresh(table).delete_savepoint(2)
    assert _problems(table) == []
    assert fresh(table).repair().steps == ()
    assert fresh(table).create_savepoint().id == 3


def test_a_deleted_savepoint_is_not_made_again(table, root):
    table = _overwritten(table)
    tag = Path(f"{root}/tag/tag-anabranch-savepoint-1")
    content = tag.read_bytes()
    table.delete_savepoint(1)
    tag.write_bytes(content)  # as when the deletion died before its last step
    assert _problems(table) == []
    fresh(table).create_savepoint()
    assert not os.path.exists(f"{root}/tag/tag-anabranch-savepoint-1")
    assert [s.id for s in fresh(table).savepoints()] == [2, 3]


@pytest.mark.parametrize("pinned", first_short([True, False]))
def test_a_savepoint_that_names_no_list_of_the_table(table, root, pinned):
    table = _overwritten(table)
    path = f"{root}/savepoint/savepoint-1"
    with open(path) as file:
        content = json.load(file)
    name = content["fullManifestList"]
    with open(path, "w") as file:
        json.dump({**content, "fullManifestList": name[:-1] + chr(ord(name[-1]) ^ 1)}, file)
    if not pinned:
        os.unlink(f"{root}/tag/tag-anabranch-savepoint-1")
    assert ("ref", "savepoint/savepoint-1") in _problems(table)
    done = fresh(table).repair()
    if pinned:
        assert done.left == ()
        assert _problems(table) == []
        assert ids_of(fresh(table).at("savepoint.1")) == [0, 1, 2]
    else:
        (problem,) = [p for p in done.left if p.path == "savepoint/savepoint-1"]
        assert "names the manifest list" in problem.message
        assert "delete-savepoint 1" in problem.hint

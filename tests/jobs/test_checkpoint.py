"""What a job began with is written once; and which code it is."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError
from anabranch.jobs.checkpoint import (
    BeganFrom,
    Beginning,
    JobCheckpoint,
    Places,
    beside,
    checkpoints_of,
    default_checkpoint,
    opened,
    set_aside,
)
from anabranch.jobs.state.checks import check_whole
from anabranch.lineage.code_version import code_version
from anabranch.spark.context.notices import remove_abandoned
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.open import open_storage

FIRST = Beginning("clean", "t", "b", BeganFrom("good", 3, "s"), {"raw": {"scan.start-offset": "{}"}})


def test_whoever_comes_second_begins_as_the_first():
    checkpoint = JobCheckpoint("memory://x", open_storage("memory://checkpoint-of-jobs"))
    assert checkpoint.known() is None
    assert checkpoint.beginning(lambda: FIRST) == FIRST

    def second():
        raise AssertionError("nobody asks again")

    assert checkpoint.beginning(second) == checkpoint.known() == FIRST


def test_of_two_that_write_at_once_one_wins():
    checkpoint = JobCheckpoint("memory://x", open_storage("memory://checkpoint-of-two-jobs"))
    other = Beginning("clean", "t", "b")
    assert checkpoint.beginning(lambda: checkpoint.beginning(lambda: FIRST) and other) == FIRST


@pytest.mark.parametrize("text", [b"", b"[]", b'{"version": 0}', FIRST.to_json()[:-20]])
def test_what_cannot_be_read_is_an_error_that_names_the_file(text):
    with pytest.raises(CorruptTableError, match=r"here/anabranch/job\.json"):
        Beginning.from_json(text, path="here/anabranch/job.json")


def test_local_places_are_paths_whatever_they_are_called(tmp_path):
    url = open_storage(str(tmp_path / "a b@c")).url
    found = default_checkpoint(url, "clean", "fix", {})
    assert (found.location, found.copies) == (f"{tmp_path}/a b@c/_checkpoints/clean@fix", None)
    assert opened(found.location, {}).location == found.location


def test_of_an_object_store_it_lies_on_the_disk_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.setenv("ANABRANCH_CHECKPOINTS", str(tmp_path))
    one = default_checkpoint("memory://lake-1/wh", "clean", "fix", {})
    other = default_checkpoint("memory://lake-2/wh", "clean", None, {})
    assert Path(one.location).parent.parent == Path(other.location).parent.parent == tmp_path
    assert Path(one.location).name == "clean@fix"
    assert Path(one.location).parent != Path(other.location).parent
    assert one.copies is not None
    assert one.copies.url.endswith("wh/_checkpoints/@copies/clean@fix")
    open_storage("memory://lake-1/wh/_checkpoints/clean@fix").put("metadata", b"{}")  # by a connector
    assert default_checkpoint("memory://lake-1/wh", "clean", "fix", {}).copies is None


def test_the_code_is_the_commit_and_what_the_file_holds(tmp_path):
    file = tmp_path / "jobs.py"
    assert code_version(file) is None
    file.write_text("x = 1\n")
    alone = code_version(file)
    assert alone.startswith("sha256:")
    file.write_text("x = 2\n")
    assert code_version(file) != alone
    repository = tmp_path / "repository"
    repository.mkdir()
    for words in ("init -q", "-c user.name=n -c user.email=e@x commit -q --allow-empty -m first"):
        subprocess.run(["git", "-C", str(repository), *words.split()], check=True)
    inside = repository / "jobs.py"
    inside.write_text("x = 2\n")
    commit, _, digest = code_version(inside).partition("+")
    assert (len(commit), digest) == (40, code_version(file))


def test_unfinished_files_of_killed_processes_are_swept(tmp_path):
    kept = ["metadata", "offsets/3", "offsets/.3.crc", "state/0/0/3.delta", "anabranch/job.json"]
    left = [
        "offsets/.4.0f4e.tmp",
        "offsets/..4.0f4e.tmp.crc",
        "state/0/0/.4.delta.17.TID5.tmp",
        "anabranch/.sink.u.tmp",
    ]
    for name in (*kept, *left):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    opened(str(tmp_path), {}).sweep()
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == sorted(kept)


def test_folders_of_killed_processes_are_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = [
        f"anabranch-spark-{dead.pid}-a",
        f"anabranch-session-{dead.pid}-b",
        f"anabranch-lineage-{dead.pid}-c",
        f"anabranch-java-{dead.pid}-d",
    ]
    stays = [f"anabranch-spark-{os.getpid()}-a", "anabranch-lineage-abc", "anabranch-demo-1-x"]
    for name in (*names, *stays):
        (tmp_path / name / "blockmgr-1").mkdir(parents=True)
    remove_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(stays)


def test_a_folder_for_the_checkpoints_of_all_jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wh/_checkpoints/clean@fix").mkdir(parents=True)
    for root in (str(tmp_path / "all"), f"{tmp_path}/all/", "all"):
        main = default_checkpoint(str(tmp_path / "wh"), "clean", None, {}, root)
        assert (main.location, main.copies) == (f"{tmp_path}/all/clean", None)
    far = default_checkpoint("memory://lake-3/wh", "clean", "fix", {}, "all")
    assert far.location == f"{tmp_path}/all/clean@fix"
    assert far.copies.url.endswith("wh/_checkpoints/@copies/clean@fix"), "state outlives the disk there too"
    assert default_checkpoint("memory://lake-3/wh", "clean", None, {}, "memory://other/all").copies is None
    for name in ("clean", "clean@fix", "clean2"):
        (tmp_path / "all" / name).mkdir(parents=True)
    found = [one.location for one in checkpoints_of(str(tmp_path / "wh"), "clean", {}, Places(root="all"))]
    assert sorted(found) == [
        f"{tmp_path}/{name}" for name in ("all/clean", "all/clean@fix", "wh/_checkpoints/clean@fix")
    ]
    assert list(checkpoints_of(str(tmp_path / "wh"), "clean", {}, Places(root="missing"))) != [], (
        "those of the warehouse"
    )


def test_a_single_checkpoint_has_those_of_branches_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "mine@fix", "mine@@1", "mine2", "clean"):
        (tmp_path / "at" / name).mkdir(parents=True)
    for one in ("at/mine", f"{tmp_path}/at/mine/"):
        assert opened(beside(one, "fix"), {}).location == f"{tmp_path}/at/mine@fix"
        found = [place.location for place in checkpoints_of(str(tmp_path / "wh"), "clean", {}, Places(one))]
        assert found[0] == f"{tmp_path}/at/mine"
        assert sorted(found[1:]) == [f"{tmp_path}/at/{name}" for name in ("mine@@1", "mine@fix")]
    assert opened(beside("mine", "fix"), {}).location == f"{tmp_path}/mine@fix"
    assert beside("s3://bucket", "fix") == "s3://bucket/@fix", "a bucket has nothing beside it"


def test_a_single_checkpoint_may_be_a_folder_of_the_root(tmp_path):
    """As where a volume is mounted at ``/checkpoint``."""
    name = f"/{tmp_path.name}-of-nobody"
    assert beside(name, "fix") == f"{name}@fix"
    (found,) = checkpoints_of(str(tmp_path), "clean", {}, Places(name))
    assert found.location == name
    used = JobCheckpoint(name, MemoryStorage(uuid4().hex))
    used.storage.put("metadata", b"{}")
    with pytest.raises(NotFoundError, match="of-nobody"):
        set_aside(used, {})


def test_what_an_interrupted_preparation_left_is_no_damage(tmp_path):
    """State is carried into a new checkpoint with its commits first; a kill before its offsets was final."""
    checkpoint = opened(str(tmp_path / "checkpoint"), {})
    checkpoint.storage.put("commits/3", b"v1\n{}")
    check_whole(checkpoint, "clean")
    checkpoint.storage.put("metadata", b"{}")
    with pytest.raises(InvalidInputError, match=r"batch 3 is done.*offsets/3, is not there") as damaged:
        check_whole(checkpoint, "clean")
    assert "--renew clean" in damaged.value.hint
    checkpoint.storage.put("offsets/3", b"v1\n{}")
    check_whole(checkpoint, "clean")

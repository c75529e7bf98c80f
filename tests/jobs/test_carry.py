"""State is copied wholly, and is on disk before anybody is told that it is there."""

import os
from pathlib import Path

import pytest

from anabranch.errors import NotFoundError
from anabranch.jobs.state import carry
from anabranch.jobs.state.carry import copy_objects
from anabranch.storage import files
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage

PATHS = {"state/0/0/1.delta": b"a", "state/0/1/1.zip": os.urandom(100_000), "commits/1": b"v1\n{}"}


@pytest.fixture
def source(tmp_path):
    found = LocalStorage(tmp_path / "from")
    found.put_many(PATHS)
    return found


def held(storage):
    return {path: storage.get(path) for path in PATHS}


def test_on_one_disk_they_are_links_in_folders_that_are_durable(source, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync_folder", lambda folder: synced.append(Path(folder)))
    target = LocalStorage(tmp_path / "to")
    copy_objects(source, target, PATHS)
    assert held(target) == PATHS
    assert all((tmp_path / "to" / path).stat().st_nlink == 2 for path in PATHS)
    folders = {parent for path in PATHS for parent in (tmp_path / "to" / path).parents}
    assert {folder for folder in folders if folder.is_relative_to(tmp_path / "to")} <= set(synced)


def test_elsewhere_they_are_copies_made_in_parts(source, tmp_path, monkeypatch):
    monkeypatch.setattr(carry, "_PART_BYTES", 999)
    target = MemoryStorage()
    copy_objects(source, target, PATHS)
    assert held(target) == PATHS
    back = LocalStorage(tmp_path / "back")
    copy_objects(target, back, PATHS)
    assert held(back) == PATHS


def test_where_links_cannot_be_made_they_are_copies(source, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "another disk")

    with monkeypatch.context() as other:
        other.setattr(carry.os, "link", refuse)
        copy_objects(source, LocalStorage(tmp_path / "to"), PATHS)
    assert held(LocalStorage(tmp_path / "to")) == PATHS


def test_one_that_is_gone_is_said(source, tmp_path):
    with pytest.raises(NotFoundError):
        copy_objects(source, LocalStorage(tmp_path / "to"), ["state/0/0/2.delta"])

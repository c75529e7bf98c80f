"""Disks of Windows, and the fuller sync of macOS, as far as they can be put in place on Linux."""

import errno
import os
import sys

import pytest

from anabranch.errors import UnsupportedFeatureError
from anabranch.storage import files, open_storage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what other systems have is put in place")


@pytest.mark.parametrize("missing", ["O_DIRECTORY", "link"])
def test_disks_of_windows_are_refused_before_anything_is_written(tmp_path, monkeypatch, missing):
    monkeypatch.delattr(os, missing)
    with pytest.raises(UnsupportedFeatureError, match="disk of Windows") as refused:
        open_storage(str(tmp_path / "lake"))
    assert "s3://" in refused.value.hint
    assert not (tmp_path / "lake").exists()
    assert open_storage("memory://elsewhere").list() is not None


@pytest.mark.parametrize("fails", [False, True])
def test_a_system_with_a_fuller_sync_is_asked_for_it(tmp_path, monkeypatch, fails):
    asked, synced = [], []

    def control(descriptor, command):
        asked.append(command)
        if fails:
            raise OSError(errno.ENOTSUP, "not on this file system")

    monkeypatch.setattr(files, "FULL_SYNC", 51)
    monkeypatch.setattr(files.fcntl, "fcntl", control)
    monkeypatch.setattr(files.os, "fsync", synced.append)
    open_storage(str(tmp_path)).put("a/b", b"x")
    assert asked
    assert set(asked) == {51}
    assert bool(synced) is fails

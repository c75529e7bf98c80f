"""Disks that are full after a while."""

from anabranch.arrow import spill


class FullDisk:
    """A temporary file on a disk that is full after some bytes."""

    def __init__(self, file, room):
        self.file = file
        self.room = room

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return self.file.write(data)


def fill_after(monkeypatch, room):
    make = spill.tempfile.TemporaryFile
    monkeypatch.setattr(spill.tempfile, "TemporaryFile", lambda **how: FullDisk(make(**how), room))

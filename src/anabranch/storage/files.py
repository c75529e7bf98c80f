"""Atomic, durable files: whole or absent, even after a power failure.

Functions raise `OSError`; `LocalStorage` translates. A file is written under a temporary name in the
folder it belongs to, synced, and only then given its name; the folder is synced after that, because a
name is an entry of the folder.
"""

# A Path object per call would cost more than the call.
# ruff: noqa: PTH102, PTH108, PTH112, PTH120

from __future__ import annotations

import ctypes
import errno
import io
import os
import sys
from contextlib import nullcontext, suppress
from typing import Any, Final

from anabranch.errors import StorageError
from anabranch.storage.os_errors import translated

try:
    import fcntl
except ImportError:  # on Windows, whose disks are refused
    FULL_SYNC: int | None = None
else:
    FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)
    """What macOS has beside fsync, which there leaves bytes in the cache of the disk."""

# Errors of file systems without hard links (FAT, some network and FUSE mounts).
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})

_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1


def write_new(path: str, data: bytes, *, durable: bool) -> None:
    """Create a file with these bytes, on disk when `durable`; nothing is left of it on an error."""
    descriptor = create(path)
    try:
        try:
            write_all(descriptor, data)
            if durable:
                sync(descriptor)
        finally:
            os.close(descriptor)  # quotas and network file systems may report lost bytes only here
    except BaseException:
        remove_quietly(path)
        raise


def create(path: str) -> int:
    """Descriptor of a new file open for writing."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte: one call of the system may take fewer than it was given."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def publish_new(temporary: str, target: str) -> None:
    """Give a finished file its name, atomically: only one competitor can take it.

    Raises `FileExistsError` if the name is taken. The temporary name may be left over.
    """
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        _rename_new(temporary, target)


def sync(descriptor: int) -> None:
    """Wait until an open file or folder is on the disk itself."""
    if FULL_SYNC is not None:
        with suppress(OSError):  # of file systems that know fsync alone, as network mounts
            fcntl.fcntl(descriptor, FULL_SYNC)
            return
    os.fsync(descriptor)


def has_what_is_needed() -> bool:
    """Whether this system has what makes files whole or absent: Windows has not."""
    return sys.platform != "win32" and hasattr(os, "O_DIRECTORY") and hasattr(os, "link")


def sync_folder(path: str) -> None:
    """Wait until the entries of a folder are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def remove_quietly(path: str) -> None:
    """Remove an unneeded file; one that cannot be removed is harmless."""
    with suppress(OSError):
        os.unlink(path)


_MOST_FOLDERS = 10_000


class KnownFolders:
    """Folders under `root` that are known to exist and to survive a crash, so that each is checked once.

    A process that writes for years comes by ever new ones; of so many it begins anew.

    Another process may remove a folder at any time: whoever meets `FileNotFoundError` calls `forget` and
    then `ensure` again.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: set[str] = set()

    def ensure(self, folder: str, *, within: str | None = None) -> None:
        """Create a folder and all above it that are missing, durably.

        Args:
            folder: the folder.
            within: a folder that was there before: it and those above it are not made. If it is gone,
                `FileNotFoundError` is raised.
        """
        if folder in self._known or folder == within:
            return
        parent = os.path.dirname(folder)
        if folder == self._root:
            _make_missing(parent)
        else:
            self.ensure(parent, within=within)
        created = _make_folder(folder)
        # An existing one may have been made by another process a moment ago and not be synced yet.
        # Above the root we may not be allowed to look.
        with suppress(PermissionError) if folder == self._root and not created else nullcontext():
            sync_folder(parent)
        if len(self._known) >= _MOST_FOLDERS:
            self._known = set()
        self._known.add(folder)

    def forget(self, folder: str) -> None:
        """Ask again for a folder, everything below it and everything above it."""
        below = folder + "/"
        self._known = {
            known
            for known in self._known.copy()
            if not (known == folder or known.startswith(below) or folder.startswith(known + "/"))
        }


def _make_missing(folder: str) -> None:
    if not os.path.isdir(folder):
        parent = os.path.dirname(folder)
        _make_missing(parent)
        if _make_folder(folder):
            sync_folder(parent)


def _make_folder(folder: str) -> bool:
    try:
        os.mkdir(folder)
    except FileExistsError:
        return False
    return True


def _rename_new(temporary: str, target: str) -> None:
    """Rename, refusing an existing target: the Linux way where hard links are missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), target)
    source, destination = os.fsencode(temporary), os.fsencode(target)
    if rename(_AT_FDCWD, source, _AT_FDCWD, destination, ctypes.c_uint(_RENAME_NOREPLACE)) != 0:
        number = ctypes.get_errno()
        if number in {errno.EINVAL, errno.ENOSYS}:
            number = errno.ENOTSUP
        raise OSError(number, os.strerror(number), target)


class FileSink(io.RawIOBase):
    """Writes to the temporary file. Closing it publishes nothing: the end of the block does."""

    def __init__(self, target: str, descriptor: int) -> None:
        super().__init__()
        self._target = target
        self._descriptor: int | None = descriptor
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        with translated("write", self._target):
            write_all(self._open_descriptor(), view)
        self._position += len(view)
        return len(view)

    def finish(self) -> None:
        with translated("write", self._target):
            descriptor = self._open_descriptor()
            sync(descriptor)
            self._descriptor = None
            os.close(descriptor)

    def abandon(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise StorageError(f"cannot write {self._target}: the block that opened it has ended")
        return self._descriptor

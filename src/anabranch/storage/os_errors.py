"""Translates the operating system's errors into Anabranch's; the only place that knows their numbers."""

from __future__ import annotations

import errno
from typing import Final, Literal

from anabranch.errors import AnabranchError, NotFoundError, StorageError, UnreadableFileError

Deed = Literal["read", "write", "list", "remove", "move", "rename"]


class Translated:
    """Base of blocks whose errors are turned into ours, which name what was done and to which path.

    A class and not a generator, because every storage call passes through one.
    """

    __slots__ = ("_deed", "_path")

    def __init__(self, deed: Deed, path: str) -> None:
        self._deed: Deed = deed
        self._path = path

    def __enter__(self) -> None:
        return None


class translated(Translated):  # noqa: N801 - read as a verb: with translated("read", path)
    """Turns an `OSError` of the block into a `NotFoundError` or a `StorageError` that names `path`."""

    __slots__ = ()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise translate(error, self._deed, self._path) from error


def translate(error: OSError, deed: Deed, path: str) -> AnabranchError:
    """The error to raise for what went wrong when `deed` was done to `path`."""
    number = error.errno or 0
    if deed == "read" and number in _NO_SUCH_OBJECT:
        absent = NotFoundError(f"{path} does not exist")
        absent.is_folder = number == errno.EISDIR
        return absent
    if deed == "read" and number in _UNREADABLE:
        return UnreadableFileError(f"cannot read {path}: {error.strerror or error}", hint=_HINTS.get(number))
    found = StorageError(
        f"cannot {deed} {path}: {error.strerror or error}",
        hint=_HINTS.get(number),
        retryable=number in _RETRYABLE,
    )
    found.out_of_space = number in _NO_SPACE
    return found


# A folder is no object, nothing lies below a file, and nothing has a name that is longer than names can be.
_NO_SUCH_OBJECT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})

_UNREADABLE: Final = frozenset({errno.EACCES, errno.EIO, errno.ELOOP, errno.EPERM})
"""The store answers, and says that this one file cannot be read."""

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_RETRYABLE: Final = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOLCK,
        errno.ENOTCONN,
        errno.EHOSTDOWN,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)

_PERMISSIONS: Final = "Check who owns the folder and what its permissions allow this user."

_HINTS: Final = {
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EDQUOT: "The disk quota is used up; free some space or ask for more, then repeat.",
    errno.EFBIG: "The file would exceed the largest size allowed here; see ulimit -f.",
    errno.EIO: "The disk reports a fault; read the system's log before trusting it again.",
    errno.EISDIR: "A folder has that name; move it away or choose another name.",
    errno.ELOOP: "The link leads in a circle; remove it, and put the file back from a copy of the folder.",
    errno.EMFILE: "This process has too many files open; see ulimit -n.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.ENFILE: "This machine has too many files open.",
    errno.ENOSPC: "The file system is full; free some space, then repeat. No part of the object is left.",
    errno.ENOTCONN: "The network mount has lost its server; mount it again.",
    errno.ENOTDIR: "A part of the path is a file; move it away or choose another name.",
    errno.ENOTEMPTY: "Others keep writing into the folder; stop them, then repeat.",
    errno.ENOTSUP: "This file system has neither hard links nor a rename that refuses a taken name, so it cannot "
    "decide between two writers; keep tables on another one.",
    errno.EROFS: "The file system is mounted read-only; remount it or choose another place.",
    errno.ESTALE: "The file was replaced on the server of this network mount.",
}

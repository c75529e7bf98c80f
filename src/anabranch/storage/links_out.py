"""Keeps readers and writers from links out of a store's folder that neither root nor this user made.

Whoever may write to a folder could show, or let change, what only others may read or write. A link that an
administrator made, to another disk say, is followed; so is whatever leads to the store's folder itself.

Whoever planted a link may put something else in its place at any moment, so what is judged is what was opened: Linux
says where an open file lies. Only where that is outside the way there is gone again, name by name, and each link that
is followed is the very one that was judged. Other systems do not say it: there the links are judged by their names,
and the file that was opened has to be the one that they lead to afterwards.
"""

# A Path object per call would cost more than the call.
# ruff: noqa: PTH115, PTH116, PTH117, PTH118, PTH206

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from anabranch.errors import StorageError, UnreadableFileError

ATTEMPTS: Final = 16
"""Another process can take away what was just seen; this often in a row is no coincidence."""

_DESCRIPTORS: Final = "/proc/self/fd"
_LINKS: Final = 40
"""Most links in a row that Linux follows."""
_LOCATED: Final = getattr(os, "O_PATH", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK: Final = _LOCATED | getattr(os, "O_NOFOLLOW", 0)


def open_regular(target: str, flags: int) -> int:
    """Open a file as the built-in `open` does with its ``opener``; what is not a regular file is no object.

    A pipe that somebody put in the place of a file would wait for its other end for ever.
    """
    descriptor = os.open(target, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
    raise FileNotFoundError(errno.ENOENT, "it is not a regular file", target)


def check_opened(descriptor: int, target: str, root: str) -> None:
    """Check that no planted link led to a file that is open for reading; a single question where there was no link.

    Where links lead out of `root`, the descriptor is of what those lead to that were judged.
    Raises `UnreadableFileError`, `OSError`.
    """
    found = _place_of(descriptor)
    if found == target:
        return
    if found is None:
        _check_by_names(descriptor, target, root)
    elif not _is_in(found, os.path.realpath(root)):
        located = _located(target, root)
        try:
            _become(descriptor, f"{_DESCRIPTORS}/{located}")
        finally:
            os.close(located)


def name_to_open(descriptor: int, target: str) -> str:
    """Return a name by which an open file can be opened again while it is open; its own where the system has none."""
    return target if _place_of(descriptor) is None else f"{_DESCRIPTORS}/{descriptor}"


def check_links(target: str, root: str) -> None:
    """Refuse a way out of `root` by a link that neither root nor this user made. Raises `UnreadableFileError`.

    It says what is so now. Whoever opens by the name afterwards may meet something else.
    """
    base, found = os.path.realpath(root), os.path.realpath(target)
    if _is_in(found, base):
        return
    way = root
    for name in os.path.relpath(target, root).split(os.sep):
        way = os.path.join(way, name)
        try:
            status = os.lstat(way)
        except OSError:
            return  # there is nothing, or nothing more
        if _is_planted(status):
            raise _refused(way, status, root, found)


def _located(target: str, root: str) -> int:
    """Return a descriptor of where the links lead that may be followed, which is not opened for reading.

    Raises `UnreadableFileError`: a planted link leads out of `root` that lies in it, or below a link on the way.
    """
    base = os.path.realpath(root)
    place = os.open(base, _LOCATED)
    names, links = [(name, True) for name in reversed(os.path.relpath(target, root).split(os.sep))], 0
    planted: tuple[str, os.stat_result] | None = None
    try:
        while names:
            name, is_of_store = names.pop()
            found = os.open(name or ".", _NO_LINK, dir_fd=place)
            status = os.fstat(found)
            if stat.S_ISLNK(status.st_mode):
                content = _content(found)
                links += 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), target)
                here = _place_of(place) or ""
                if planted is None and _is_planted(status) and (is_of_store or _is_in(here, base)):
                    planted = os.path.join(here, name), status
                names += [(part, False) for part in reversed(content.split(os.sep))]
                if not os.path.isabs(content):
                    continue
                found = os.open(os.sep, _LOCATED)
            os.close(place)
            place = found
        end = _place_of(place) or ""
        if planted is not None and not _is_in(end, base):
            raise _refused(*planted, root, end)
    except BaseException:
        os.close(place)
        raise
    return place


def _content(link: int) -> str:
    """Return what a link says that is open itself, and close it."""
    try:
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def _check_by_names(descriptor: int, target: str, root: str) -> None:
    for _ in range(ATTEMPTS):
        check_links(target, root)
        if os.path.samestat(os.fstat(descriptor), os.stat(target)):
            return
        _become(descriptor, target)
    raise StorageError(
        f"cannot read {target}: it leads to another file each time that it is looked at",
        hint="See who changes it; that is no work of Anabranch.",
        retryable=True,
    )


def _become(descriptor: int, target: str) -> None:
    """Let a descriptor be of another file, opened for reading."""
    opened = open_regular(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.dup2(opened, descriptor, inheritable=False)
    finally:
        os.close(opened)


def _place_of(descriptor: int) -> str | None:
    """Return where an open file lies, without links; None if the system does not say it."""
    try:
        return os.readlink(f"{_DESCRIPTORS}/{descriptor}")
    except OSError:  # it is not Linux
        return None


def _is_in(found: str, base: str) -> bool:
    return found == base or found.startswith(os.path.join(base, ""))


def _is_planted(status: os.stat_result) -> bool:
    return stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid())


def _refused(way: str, status: os.stat_result, root: str, found: str) -> UnreadableFileError:
    return UnreadableFileError(
        f"{way} is a link out of {root}, to {found}, that user {status.st_uid} made: it is not followed",
        hint="Put what it leads to in its place; or make the link anew as root, or as who reads it, if it shall be followed.",
    )

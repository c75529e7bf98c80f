"""Looks at, renames and removes files and folders while other processes may work in them."""

# A Path object per call would cost more than the call.
# ruff: noqa: PTH104, PTH108, PTH112, PTH113, PTH114, PTH115, PTH116, PTH120

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress

from anabranch.errors import AlreadyExistsError, NotFoundError, StorageError
from anabranch.storage import files
from anabranch.storage.links_out import ATTEMPTS, check_opened, open_regular
from anabranch.storage.os_errors import translated
from anabranch.storage.protocol import ObjectInfo


def read_whole(target: str, root: str = "/") -> bytes:
    """Return the bytes of a file below a folder. Raises `OSError`, `UnreadableFileError`."""
    with open(target, "rb", buffering=0, opener=open_regular) as file:
        check_opened(file.fileno(), target, root)
        return file.readall()


def info_of(path: str, status: os.stat_result) -> ObjectInfo:
    """Return what a store tells of an object, from the status of its file."""
    return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000)


def publish(temporary: str, target: str, data: bytes) -> bool:
    """Whether the object of that name is ours now."""
    for _ in range(ATTEMPTS):
        with translated("write", target):
            try:
                files.publish_new(temporary, target)
                return True
            except FileExistsError:
                with suppress(FileNotFoundError):  # removed since: the name is free again
                    return read_whole(target) == data
    if os.path.islink(target):
        raise StorageError(
            f"cannot write {target}: it is a link to {os.readlink(target)}, which is not there",
            hint="Bring back what the link leads to, or else remove the link.",
        )
    if os.path.lexists(target) and not os.path.isfile(target):
        raise StorageError(
            f"cannot write {target}: what has that name is not a regular file",
            hint="Move it away or remove it.",
        )
    raise StorageError(f"cannot write {target}: the name is taken and free by turns", retryable=True)


def sync_name(target: str) -> None:
    """Make the name of a written object durable. It is visible already, so a failure leaves it open."""
    try:
        files.sync_folder(os.path.dirname(target))
    except OSError as error:
        raise StorageError(
            f"cannot make {target} durable: {error.strerror}",
            hint="The object may or may not survive a crash of the machine.",
            outcome_unknown=True,
        ) from error


def sync_removal(folder: str) -> None:
    """Make the removal of names from a folder durable."""
    with translated("remove", folder):
        try:
            files.sync_folder(folder)
        except FileNotFoundError:
            return  # gone with everything in it


def check_rename(old: str, new: str) -> None:
    """Raise `NotFoundError` if there is no folder to rename, `AlreadyExistsError` if its new name is taken."""
    if not os.path.isdir(old):
        raise NotFoundError(f"cannot rename {old}: there is no such folder")
    if os.path.lexists(new):
        raise AlreadyExistsError(f"cannot rename {old}: {new} exists already")


def rename(old: str, new: str) -> None:
    """Rename a folder. Raises `NotFoundError`, `AlreadyExistsError`, `OSError`."""
    # Looked at again after the folder above was made. POSIX lets a folder replace an empty one: nothing
    # is lost if one appears after this look.
    check_rename(old, new)
    try:
        os.rename(old, new)
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
            raise AlreadyExistsError(f"cannot rename {old}: {new} exists already") from error
        raise


def move(old: str, new: str) -> bool:
    """Rename a file; False if there is none. Raises `FileNotFoundError` if the new folder is missing."""
    if not os.path.isfile(old) and not is_circle(old):
        return False
    try:
        os.rename(old, new)
    except FileNotFoundError:
        if os.path.lexists(old):
            raise
        return False
    return True


def remove_tree(folder: str) -> bool:
    """Remove a folder while others may work in it; False if there was none."""
    for _ in range(ATTEMPTS):
        try:
            if os.path.islink(folder):
                os.unlink(folder)
                return True
            if not os.path.isdir(folder):
                return False
            shutil.rmtree(folder)
            return True
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY}:
                raise
    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), folder)


def entries_of(folder: str) -> tuple[os.DirEntry[str], ...]:
    """Return what a folder holds; nothing if there is none."""
    try:
        with os.scandir(folder) as entries:
            return tuple(entries)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # no folder has such a name
            return ()
        raise


def status_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Status of a file; None for what is none, and for one removed since its folder was read.

    A link that leads in a circle is listed as it is: left out, what it stands for would seem never to have been.
    """
    try:
        return entry.stat() if entry.is_file() else None
    except OSError:  # looked at again: to be ready to tell of errors takes longer than the look
        return _odd_status_of(entry)


def _odd_status_of(entry: os.DirEntry[str]) -> os.stat_result | None:
    with translated("list", entry.path), suppress(FileNotFoundError):
        try:
            return entry.stat() if entry.is_file() else None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return entry.stat(follow_symlinks=False)
    return None


def file_status(target: str) -> os.stat_result:
    """Status of what has a name; of a link that leads in a circle its own. Raises `OSError`."""
    try:
        return os.stat(target)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return os.lstat(target)


def is_circle(target: str) -> bool:
    """Whether a link of that name leads in a circle."""
    try:
        return stat.S_ISLNK(file_status(target).st_mode)
    except OSError:
        return False


def is_folder(entry: os.DirEntry[str], *, follow_links: bool) -> bool:
    """Whether an entry is a folder; a link that leads in a circle is none."""
    with translated("list", entry.path):
        try:
            return entry.is_dir(follow_symlinks=follow_links)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return False
            raise

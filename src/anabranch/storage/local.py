"""Objects as files in a folder of this machine, or of a network mount that keeps the rules of POSIX.

Symbolic links: names are checked by their text, so no name leads out of the root, but a link inside that root or
this user made is followed when it is named, as every local program does. One that somebody else made is not followed out of the
root: `anabranch.storage.links_out`. What works on
whole folders (recursive listing, removal) never follows one: it shows or removes the link, not what
lies behind it.
"""

# A Path object per call would cost more than the call.
# ruff: noqa: PTH100, PTH105, PTH106, PTH108, PTH112, PTH118, PTH120

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, TypeVar
from urllib.parse import quote

from anabranch.errors import InvalidNameError, NotFoundError, StorageError, UnsupportedFeatureError
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage import files, names
from anabranch.storage.files import FileSink
from anabranch.storage.folders import (
    check_rename,
    entries_of,
    file_status,
    info_of,
    is_folder,
    move,
    publish,
    read_whole,
    remove_tree,
    rename,
    status_of,
    sync_name,
    sync_removal,
)
from anabranch.storage.links_out import ATTEMPTS, check_links, check_opened, name_to_open, open_regular
from anabranch.storage.os_errors import translated
from anabranch.storage.protocol import ObjectInfo, Sink
from anabranch.storage.requests import request, written

_T = TypeVar("_T")


class LocalStorage:
    """Files under `root`, which need not exist yet.

    Once something was found there, neither the root nor a folder above it is made again: if they are missing, a disk
    or a network mount is away, and what is written in its place would hide what comes back.

    Args:
        root: the folder, relative to the working folder if it is relative; may be a symbolic link.
        runtime: source of the unique part of temporary names.
        was_there: whether something was found there before.

    Raises `UnsupportedFeatureError`: the system is Windows.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, runtime: Runtime = SYSTEM, was_there: bool = False
    ) -> None:
        if not files.has_what_is_needed():
            raise UnsupportedFeatureError(
                f"tables on a disk of Windows are not supported, and {os.fspath(root)} is on one: files are made whole or absent by "
                "hard links and by syncing folders, which it has not",
                feature="windows-disk",
                hint="use an object store (s3://, gs://, az://), or Linux on the same machine (WSL 2).",
            )
        self._root = os.path.abspath(os.fspath(root))
        self._url = "file://" + quote(os.fsencode(self._root))
        self._runtime = runtime
        self._folders = files.KnownFolders(self._root)
        self._was_there = was_there

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self._root, self._runtime, self._was_there))

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_far(self) -> bool:
        return False

    def scoped(self, prefix: str) -> LocalStorage:
        inner = LocalStorage(self._folder(prefix), runtime=self._runtime)
        inner._folders = self._folders  # all views of a root remember its folders together
        return inner

    @request("read")
    def get(self, path: str) -> bytes:
        target = self._target(path)
        with translated("read", target):
            data = read_whole(target, self._root)
        self._was_there = True
        return data

    @request("read")
    def get_range(self, path: str, start: int, length: int) -> bytes:
        target = self._target(path)
        names.check_range(path, start, length)
        with translated("read", target), open(target, "rb", opener=open_regular) as file:
            check_opened(file.fileno(), target, self._root)
            size = os.fstat(file.fileno()).st_size
            self._was_there = True
            file.seek(min(start, size))
            return file.read(min(length, size))

    @request("look")
    def info(self, path: str) -> ObjectInfo:
        target = self._target(path)
        with translated("read", target):
            status = file_status(target)
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
                absent = NotFoundError(f"{target} does not exist as a file")
                absent.is_folder = stat.S_ISDIR(status.st_mode)
                raise absent
        self._was_there = True
        return info_of(path, status)

    def exists(self, path: str) -> bool:
        try:
            self.info(path)
        except NotFoundError:
            return False
        return True

    @request("read")
    def open_input(self, path: str, *, size: int | None = None) -> IO[bytes]:
        target = self._target(path)
        with translated("read", target):
            file = open(target, "rb", opener=open_regular)  # noqa: SIM115 - the caller closes it
            try:
                check_opened(file.fileno(), target, self._root)
            except BaseException:
                file.close()
                raise
        self._was_there = True
        return file

    def native_path(self, path: str) -> str:
        """Return the object's path on this machine, for libraries that read files by themselves."""
        return self._target(path)

    @contextmanager
    def native_input(self, path: str) -> Iterator[str]:
        """Yield a name by which a library can open, within the block, the very file that `get` would read.

        Raises `UnreadableFileError`, `OSError`.
        """
        target = self._target(path)
        descriptor = open_regular(target, os.O_RDONLY | os.O_CLOEXEC)
        try:
            check_opened(descriptor, target, self._root)
            yield name_to_open(descriptor, target)
        finally:
            os.close(descriptor)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Sink]:
        target = self._target(path)
        temporary = self._temporary(target)
        sink = FileSink(target, self._in_folder_of(target, lambda: files.create(temporary)))
        try:
            yield sink
            with written() as tell:
                sink.finish()
                with translated("write", target):
                    os.replace(temporary, target)
                tell(sink.tell())
        except BaseException:
            sink.abandon()
            files.remove_quietly(temporary)
            raise
        sync_name(target)

    @request("write")
    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        target = self._target(path)
        self._write(target, data, durable=durable)
        if durable:
            sync_name(target)

    @request("write")
    def put_many(self, objects: Mapping[str, bytes]) -> None:
        targets = {self._target(path): data for path, data in objects.items()}
        for target, data in targets.items():
            self._write(target, data, durable=True)
        for one_of_its_folder in {os.path.dirname(target): target for target in targets}.values():
            sync_name(one_of_its_folder)

    @request("decide")
    def put_if_absent(self, path: str, data: bytes) -> bool:
        target = self._target(path)
        temporary = self._write_temporary(target, data, durable=True)
        try:
            ours = publish(temporary, target, data)
        finally:
            files.remove_quietly(temporary)
        if ours:
            sync_name(target)
        return ours

    @request("list")
    def list(
        self, prefix: str = "", *, recursive: bool = False, include_temporary: bool = False
    ) -> Iterator[ObjectInfo]:
        names.check_prefix(prefix)
        return self._walk(prefix, recursive=recursive, include_temporary=include_temporary)

    @request("list")
    def list_folders(self, prefix: str = "") -> Iterator[str]:
        folder = self._folder(prefix)
        with translated("list", folder):
            entries = entries_of(folder)
        return (names.join(prefix, entry.name) for entry in entries if is_folder(entry, follow_links=True))

    def delete(self, path: str) -> None:
        self.delete_many((path,))

    @request("remove")
    def delete_many(self, paths: Iterable[str]) -> None:
        changed = set()
        targets = [self._target(path) for path in paths]
        self._check_inside(os.path.dirname(target) for target in targets)
        for target in targets:
            with translated("remove", target):
                try:
                    os.unlink(target)
                except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    continue  # there is no such object
                changed.add(os.path.dirname(target))
        for folder in changed:
            sync_removal(folder)

    @request("move")
    def move_many(self, moves: Mapping[str, str]) -> None:
        emptier, fuller = set(), set()
        pairs = [(self._target(source), self._target(target)) for source, target in moves.items()]
        self._check_inside(os.path.dirname(target) for pair in pairs for target in pair)
        for old, new in pairs:
            if self._in_folder_of(new, lambda old=old, new=new: move(old, new)):  # type: ignore[misc]
                emptier.add(os.path.dirname(old))
                fuller.add(os.path.dirname(new))
        for folder in [*fuller, *emptier]:  # a crash in between shows an object twice rather than never
            sync_removal(folder)

    @request("remove")
    def delete_folder(self, prefix: str) -> None:
        names.check_path(prefix)
        folder = self._folder(prefix)
        self._check_inside([os.path.dirname(folder)])
        self._folders.forget(folder)
        with translated("remove", folder):
            removed = remove_tree(folder)
        if removed:
            sync_removal(os.path.dirname(folder))

    @request("remove")
    def delete_empty_folder(self, prefix: str) -> None:
        names.check_path(prefix)
        folder = self._folder(prefix)
        self._check_inside([os.path.dirname(folder)])
        with translated("remove", folder):
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}:
                    raise
                return
        self._folders.forget(folder)
        sync_removal(os.path.dirname(folder))

    @request("move")
    def rename_folder(self, source: str, target: str) -> None:
        names.check_path(source)
        names.check_path(target)
        if target.startswith(source + "/"):
            raise InvalidNameError(f"cannot move the folder {source} into itself, to {target}")
        old, new = self._folder(source), self._folder(target)
        self._check_inside([os.path.dirname(old), os.path.dirname(new)])
        check_rename(old, new)
        self._folders.forget(old)
        self._in_folder_of(new, lambda: rename(old, new))
        for parent in {os.path.dirname(old), os.path.dirname(new)}:
            sync_removal(parent)

    def _check_inside(self, folders: Iterable[str]) -> None:
        """Refuse to move or remove the target of a linked folder outside of the root. Raises `StorageError`."""
        root = os.path.realpath(self._root)
        for folder in {*folders}:
            found = os.path.realpath(folder)
            if found != root and not found.startswith(os.path.join(root, "")):
                raise StorageError(
                    f"{folder} is a link that leads out of {self._root}, to {found}: nothing is moved or removed there",
                    hint="Put a folder in the place of the link, or remove the files where they are.",
                )

    def _target(self, path: str) -> str:
        names.check_path(path)
        return os.path.join(self._root, path)

    def _folder(self, prefix: str) -> str:
        names.check_prefix(prefix)
        return os.path.join(self._root, prefix) if prefix else self._root

    def _temporary(self, target: str) -> str:
        return names.temporary_name(target, self._runtime.ids.uuid())

    def _write_temporary(self, target: str, data: bytes, *, durable: bool) -> str:
        temporary = self._temporary(target)
        self._in_folder_of(target, lambda: files.write_new(temporary, data, durable=durable))
        return temporary

    def _write(self, target: str, data: bytes, *, durable: bool) -> None:
        temporary = self._write_temporary(target, data, durable=durable)
        try:
            with translated("write", target):
                os.replace(temporary, target)
        except BaseException:
            files.remove_quietly(temporary)
            raise

    def _in_folder_of(self, target: str, action: Callable[[], _T]) -> _T:
        """Run an operation that needs the folder of `target`, which others may remove although it is cached."""
        folder = os.path.dirname(target)
        with translated("write", target):
            for _ in range(ATTEMPTS):
                try:
                    check_links(folder, self._root)
                    self._folders.ensure(folder, within=self._root if self._was_there else None)
                    done = action()
                except FileNotFoundError:
                    self._folders.forget(folder)
                    self._check_root()
                    continue
                self._was_there = True
                return done
        raise StorageError(f"cannot write {target}: its folder is removed again and again", retryable=True)

    def _check_root(self) -> None:
        """Raise `NotFoundError` if the root was there before and is gone, `StorageError` if what it lay in is gone too."""
        if self._was_there and not os.path.isdir(self._root):
            if os.path.isdir(os.path.dirname(self._root)):
                raise NotFoundError(
                    f"{self._root} does not exist any more: it was dropped or renamed; nothing is written in its place",
                    hint="`tables` lists those there are.",
                )
            raise StorageError(
                f"{self._root} was there and is gone: nothing is written in its place",
                hint="if it is on a disk or a network mount, mount that again: writers go on then. If it was removed on "
                "purpose, end what writes to it.",
                retryable=True,
            )

    def _walk(self, prefix: str, *, recursive: bool, include_temporary: bool) -> Iterator[ObjectInfo]:
        pending = [prefix]
        while pending:
            prefix = pending.pop()
            folder = self._folder(prefix)
            with translated("list", folder):
                entries = entries_of(folder)
            self._was_there |= bool(entries)
            for entry in entries:
                path = names.join(prefix, entry.name)
                if recursive and is_folder(entry, follow_links=False):
                    pending.append(path)
                elif include_temporary or not names.is_temporary(path):
                    status = status_of(entry)
                    if status is not None:
                        yield info_of(path, status)


def _reopen(root: str, runtime: Runtime, was_there: bool) -> LocalStorage:
    return LocalStorage(root, runtime=runtime, was_there=was_there)

"""Objects as files in a folder of this machine, or of a network mount that keeps the rules of POSIX.

Symbolic links: names are checked by their text, so no name leads out of the root, but a link that an
administrator placed inside is followed when it is named, as every local program does. What works on
whole folders (recursive listing, removal) never follows one: it shows or removes the link, not what
lies behind it.
"""

# A Path object per call would cost more than the call.
# ruff: noqa: PTH100, PTH104, PTH105, PTH106, PTH108, PTH112, PTH113, PTH114, PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, TypeVar
from urllib.parse import quote

from anabranch.errors import AlreadyExistsError, InvalidNameError, NotFoundError, StorageError
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage import files, names
from anabranch.storage.os_errors import translated
from anabranch.storage.protocol import ObjectInfo, Sink

_T = TypeVar("_T")

# Another process can take away what was just seen; this often in a row is no coincidence.
_ATTEMPTS: Final = 16


class LocalStorage:
    """Files under `root`, which need not exist yet.

    Args:
        root: the folder, relative to the working folder if it is relative; may be a symbolic link.
        runtime: source of the unique part of temporary names.
    """

    def __init__(self, root: str | os.PathLike[str], *, runtime: Runtime = SYSTEM) -> None:
        self._root = os.path.abspath(os.fspath(root))
        self._url = "file://" + quote(os.fsencode(self._root))
        self._runtime = runtime
        self._folders = files.KnownFolders(self._root)

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self._root, self._runtime))

    @property
    def url(self) -> str:
        return self._url

    def scoped(self, prefix: str) -> LocalStorage:
        inner = LocalStorage(self._folder(prefix), runtime=self._runtime)
        inner._folders = self._folders  # all views of a root remember its folders together
        return inner

    def get(self, path: str) -> bytes:
        target = self._target(path)
        with translated("read", target):
            return _read(target)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        target = self._target(path)
        names.check_range(path, start, length)
        with translated("read", target), open(target, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(min(start, size))
            return file.read(min(length, size))

    def info(self, path: str) -> ObjectInfo:
        target = self._target(path)
        with translated("read", target):
            status = os.stat(target)
            if not stat.S_ISREG(status.st_mode):
                raise NotFoundError(f"{target} does not exist as a file")
            return _info(path, status)

    def exists(self, path: str) -> bool:
        try:
            self.info(path)
        except NotFoundError:
            return False
        return True

    def open_input(self, path: str, *, size: int | None = None) -> IO[bytes]:
        target = self._target(path)
        with translated("read", target):
            return open(target, "rb")

    def native_path(self, path: str) -> str:
        """Where the object is, or would be, on this machine: for libraries that read files by themselves."""
        return self._target(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Sink]:
        target = self._target(path)
        temporary = self._temporary(target)
        sink = _FileSink(target, self._in_folder_of(target, lambda: files.create(temporary)))
        try:
            yield sink
            sink.finish()
            with translated("write", target):
                os.replace(temporary, target)
        except BaseException:
            sink.abandon()
            files.remove_quietly(temporary)
            raise
        _sync_name(target)

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        target = self._target(path)
        self._write(target, data, durable=durable)
        if durable:
            _sync_name(target)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        targets = {self._target(path): data for path, data in objects.items()}
        for target, data in targets.items():
            self._write(target, data, durable=True)
        for one_of_its_folder in {os.path.dirname(target): target for target in targets}.values():
            _sync_name(one_of_its_folder)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        target = self._target(path)
        temporary = self._write_temporary(target, data, durable=True)
        try:
            ours = _publish(temporary, target, data)
        finally:
            files.remove_quietly(temporary)
        if ours:
            _sync_name(target)
        return ours

    def list(
        self, prefix: str = "", *, recursive: bool = False, include_temporary: bool = False
    ) -> Iterator[ObjectInfo]:
        names.check_prefix(prefix)
        return self._walk(prefix, recursive=recursive, include_temporary=include_temporary)

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        folder = self._folder(prefix)
        with translated("list", folder):
            entries = _entries(folder)
        return (names.join(prefix, entry.name) for entry in entries if _is_folder(entry, follow_links=True))

    def delete(self, path: str) -> None:
        self.delete_many((path,))

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
            _sync_removal(folder)

    def move_many(self, moves: Mapping[str, str]) -> None:
        emptier, fuller = set(), set()
        pairs = [(self._target(source), self._target(target)) for source, target in moves.items()]
        self._check_inside(os.path.dirname(target) for pair in pairs for target in pair)
        for old, new in pairs:
            if self._in_folder_of(new, lambda old=old, new=new: _move(old, new)):  # type: ignore[misc]
                emptier.add(os.path.dirname(old))
                fuller.add(os.path.dirname(new))
        for folder in [*fuller, *emptier]:  # a crash in between shows an object twice rather than never
            _sync_removal(folder)

    def delete_folder(self, prefix: str) -> None:
        names.check_path(prefix)
        folder = self._folder(prefix)
        self._check_inside([os.path.dirname(folder)])
        self._folders.forget(folder)
        with translated("remove", folder):
            removed = _remove_tree(folder)
        if removed:
            _sync_removal(os.path.dirname(folder))

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
        _sync_removal(os.path.dirname(folder))

    def rename_folder(self, source: str, target: str) -> None:
        names.check_path(source)
        names.check_path(target)
        if target.startswith(source + "/"):
            raise InvalidNameError(f"cannot move the folder {source} into itself, to {target}")
        old, new = self._folder(source), self._folder(target)
        self._check_inside([os.path.dirname(old), os.path.dirname(new)])
        _check_rename(old, new)
        self._folders.forget(old)
        self._in_folder_of(new, lambda: _rename(old, new))
        for parent in {os.path.dirname(old), os.path.dirname(new)}:
            _sync_removal(parent)

    def _check_inside(self, folders: Iterable[str]) -> None:
        """Refuse to move or remove what a linked folder leads to outside of the root. Raises `StorageError`."""
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
        """Do what needs the folder of `target`, which others may remove while we believe it is there."""
        folder = os.path.dirname(target)
        with translated("write", target):
            for _ in range(_ATTEMPTS):
                try:
                    self._folders.ensure(folder)
                    return action()
                except FileNotFoundError:
                    self._folders.forget(folder)
        raise StorageError(f"cannot write {target}: its folder is removed again and again", retryable=True)

    def _walk(self, prefix: str, *, recursive: bool, include_temporary: bool) -> Iterator[ObjectInfo]:
        pending = [prefix]
        while pending:
            prefix = pending.pop()
            folder = self._folder(prefix)
            with translated("list", folder):
                entries = _entries(folder)
            for entry in entries:
                path = names.join(prefix, entry.name)
                if recursive and _is_folder(entry, follow_links=False):
                    pending.append(path)
                elif include_temporary or not names.is_temporary(path):
                    status = _status(entry)
                    if status is not None:
                        yield _info(path, status)


class _FileSink(io.RawIOBase):
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
            files.write_all(self._open_descriptor(), view)
        self._position += len(view)
        return len(view)

    def finish(self) -> None:
        with translated("write", self._target):
            descriptor = self._open_descriptor()
            os.fsync(descriptor)
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


def _reopen(root: str, runtime: Runtime) -> LocalStorage:
    return LocalStorage(root, runtime=runtime)


def _read(target: str) -> bytes:
    with open(target, "rb", buffering=0) as file:
        return file.readall()


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _publish(temporary: str, target: str, data: bytes) -> bool:
    """Whether the object of that name is ours now."""
    for _ in range(_ATTEMPTS):
        with translated("write", target):
            try:
                files.publish_new(temporary, target)
                return True
            except FileExistsError:
                with suppress(FileNotFoundError):  # removed since: the name is free again
                    return _read(target) == data
    raise StorageError(f"cannot write {target}: the name is taken and free by turns", retryable=True)


def _sync_name(target: str) -> None:
    """Make the name of a written object durable. It is visible already, so a failure leaves it open."""
    try:
        files.sync_folder(os.path.dirname(target))
    except OSError as error:
        raise StorageError(
            f"cannot make {target} durable: {error.strerror}",
            hint="The object may or may not survive a crash of the machine.",
            outcome_unknown=True,
        ) from error


def _sync_removal(folder: str) -> None:
    with translated("remove", folder):
        try:
            files.sync_folder(folder)
        except FileNotFoundError:
            return  # gone with everything in it


def _check_rename(old: str, new: str) -> None:
    if not os.path.isdir(old):
        raise NotFoundError(f"cannot rename {old}: there is no such folder")
    if os.path.lexists(new):
        raise AlreadyExistsError(f"cannot rename {old}: {new} exists already")


def _rename(old: str, new: str) -> None:
    # Looked at again after the folder above was made. POSIX lets a folder replace an empty one: nothing
    # is lost if one appears after this look.
    _check_rename(old, new)
    try:
        os.rename(old, new)
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
            raise AlreadyExistsError(f"cannot rename {old}: {new} exists already") from error
        raise


def _move(old: str, new: str) -> bool:
    """Rename a file; False if there is none. Raises `FileNotFoundError` if the new folder is missing."""
    if not os.path.isfile(old):
        return False
    try:
        os.rename(old, new)
    except FileNotFoundError:
        if os.path.lexists(old):
            raise
        return False
    return True


def _remove_tree(folder: str) -> bool:
    """Remove a folder while others may work in it; False if there was none."""
    for _ in range(_ATTEMPTS):
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


def _entries(folder: str) -> tuple[os.DirEntry[str], ...]:
    try:
        with os.scandir(folder) as entries:
            return tuple(entries)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Status of a file; None for what is none, and for one removed since its folder was read."""
    with translated("list", entry.path), suppress(FileNotFoundError):
        return entry.stat() if _holds(entry.is_file) else None
    return None


def _is_folder(entry: os.DirEntry[str], *, follow_links: bool) -> bool:
    with translated("list", entry.path):
        return _holds(lambda: entry.is_dir(follow_symlinks=follow_links))


def _holds(question: Callable[[], bool]) -> bool:
    """Answer of a directory entry; a link that leads in a circle is neither file nor folder."""
    try:
        return question()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise

"""Objects in a cloud's store, or in a compatible server, through obstore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError as NameTakenError
from obstore.exceptions import PreconditionError

from anabranch.errors import NotFoundError, OptionError, StorageError, UnsupportedFeatureError
from anabranch.forked import Unforked
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage import names
from anabranch.storage.object_errors import (
    OBJECT_ERRORS,
    is_refusal,
    lacks_conditional_writes,
    reason,
    translate_object,
    translated_object,
)
from anabranch.storage.object_files import PART_BYTES, UploadSink, open_reader
from anabranch.storage.object_options import KINDS, Clients, make_clients
from anabranch.storage.protocol import ObjectInfo, Sink
from anabranch.storage.requests import request, written
from anabranch.storage.settings import settings_for

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore

# Requests at a time of one call that makes many.
_PARALLEL: Final = 16

# Objects listed, and removed, at a time; obstore splits them into the store's bulk requests.
_BATCH: Final = 10_000

# Tries of a conditional write whose answers stay ambiguous, and of a read whose answer breaks off, and seconds before the second one.
_ATTEMPTS: Final = 5
_FIRST_PAUSE: Final = 0.1

_may_use_obstore: Final = Unforked("obstore")

_LARGEST_COPY: Final = 5 << 30
"""Bytes up to which S3 copies an object in one request."""


class ObjectStorage:
    """A folder of a bucket. `open_storage` makes one from a URL and options.

    Args:
        url: where the folder is.
        folder: the folder within the bucket, "" for all of it.
        options: what re-opens the store in another process, never shown; without it, none can.
    """

    def __init__(
        self,
        clients: Clients,
        *,
        url: str,
        folder: str = "",
        options: Mapping[str, str] | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        names.check_prefix(folder)
        self._made = clients
        self._url = url
        self._root = folder
        self._options = options
        self._runtime = runtime

    @classmethod
    def open(
        cls, url: str, options: Mapping[str, str] | None = None, *, runtime: Runtime = SYSTEM
    ) -> ObjectStorage:
        """The store at ``scheme://bucket/folder``. Raises `OptionError`; asks nothing of the server yet.

        The folder is taken as it is spelled: nothing in it is decoded.
        """
        scheme, _, place = url.partition("://")
        bucket, _, folder = place.partition("/")
        kind = next((kind for kind in KINDS if scheme.lower() in kind.schemes), None)
        if kind is None or not bucket:
            raise OptionError(f"{url} names no bucket", hint="Write it like s3://bucket/folder.")
        chosen = settings_for(url, kind, options or {})
        kept = {kind.prefixes[0] + name: value for name, value in chosen.items()}
        folder = folder.rstrip("/")
        return cls(
            make_clients(kind, bucket, chosen),
            url=names.join(f"{scheme}://{bucket}", folder),
            folder=folder,
            options=kept,
            runtime=runtime,
        )

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._options is None:
            raise UnsupportedFeatureError(
                f"{self._url} cannot be sent to another process: it was not opened by its URL",
                feature="pickle-object-store",
                hint="Open the store with open_storage.",
            )
        return (_reopen, (self._url, self._options, self._runtime))

    @property
    def _clients(self) -> Clients:
        _may_use_obstore()
        return self._made

    @property
    def _store(self) -> ObjectStore:
        return self._clients.patient

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_far(self) -> bool:
        return True

    @property
    def settings(self) -> Mapping[str, str] | None:
        """Settings that re-open the store beside its URL, credentials too; None if it was not opened by its URL."""
        return self._options

    def scoped(self, prefix: str) -> ObjectStorage:
        return ObjectStorage(
            self._made,
            url=names.join(self._url, prefix),
            folder=self._folder(prefix),
            options=self._options,
            runtime=self._runtime,
        )

    def get(self, path: str) -> bytes:
        return self._read(self._key(path), None)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        key = self._key(path)
        names.check_range(path, start, length)
        try:
            if length:
                return self._read(key, (start, start + length))
        except StorageError:
            # Stores refuse a range that begins at the end of the object or after it.
            if start < self.info(path).size:
                raise
        self.info(path)
        return b""

    @request("look")
    def info(self, path: str) -> ObjectInfo:
        key = self._key(path)
        with translated_object("read", self._shown(path)):
            return _info(path, obstore.head(self._store, key))

    def exists(self, path: str) -> bool:
        try:
            self.info(path)
        except NotFoundError:
            return False
        return True

    def open_input(self, path: str, *, size: int | None = None) -> IO[bytes]:
        key = self._key(path)
        known = self.info(path).size if size is None else size
        return open_reader(partial(self._read, key), size=known, url=self._shown(path))

    @contextmanager
    def open_output(self, path: str) -> Iterator[Sink]:
        sink = UploadSink(self._store, self._key(path), self._shown(path))
        try:
            yield sink
            with written() as tell:
                sink.finish()
                tell(sink.tell())
        except BaseException:
            sink.abandon()
            raise

    @request("write")
    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        key = self._key(path)
        with translated_object("write", self._shown(path)):
            obstore.put(self._store, key, data, chunk_size=PART_BYTES)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        for path in objects:
            self._key(path)
        if len(objects) < 2:
            for path, data in objects.items():
                self.put(path, data)
            return
        with ThreadPoolExecutor(min(_PARALLEL, len(objects))) as threads:
            for done in [threads.submit(self.put, path, data) for path, data in objects.items()]:
                done.result()

    @request("decide")
    def put_if_absent(self, path: str, data: bytes) -> bool:
        key = self._key(path)
        doubt: str | None = None
        for attempt in range(_ATTEMPTS):
            self._pause(attempt)
            try:
                obstore.put(self._clients.single, key, data, mode="create")
                return True
            except (NameTakenError, PreconditionError) as error:
                reported = reason(error)
            except OBJECT_ERRORS as error:
                if doubt is None and lacks_conditional_writes(error):
                    raise _cannot_decide(self._url, reason(error)) from None
                # Only a refusal of the first try says that nothing was written.
                if doubt is None and is_refusal(error):
                    raise translate_object(error, "write", self._shown(path)) from None
                reported = reason(error)
            doubt = reported
            # Absent or unreadable leaves it open: our write may still be on its way. Trying again is
            # safe, for the store lets one write through at most.
            with suppress(NotFoundError, StorageError):
                return self.get(path) == data
        raise StorageError(
            f"cannot tell whether {self._shown(path)} was written; the last answer was: {doubt}",
            hint="Look at the object when the store answers again; until then delete nothing it may name.",
            outcome_unknown=True,
        )

    def list(
        self, prefix: str = "", *, recursive: bool = False, include_temporary: bool = False
    ) -> Iterator[ObjectInfo]:
        folder = self._folder(prefix)
        listed = self._everything_in(folder) if recursive else self._directly_in(folder)
        found = (_info(self._path(meta["path"]), meta) for meta in listed)
        return (info for info in found if include_temporary or not names.is_temporary(info.path))

    @request("list")
    def list_folders(self, prefix: str = "") -> Iterator[str]:
        folder = self._folder(prefix)
        with translated_object("list", self._shown(prefix)):
            listed = obstore.list_with_delimiter(self._store, folder or None)
        return (self._path(inner) for inner in listed["common_prefixes"])

    @request("remove")
    def delete(self, path: str) -> None:
        key = self._key(path)
        with translated_object("remove", self._shown(path)), suppress(FileNotFoundError):
            obstore.delete(self._store, key)

    def delete_many(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        with translated_object("remove", f"{len(keys)} objects of {self._url}"):
            self._delete_keys(keys)

    def move_many(self, moves: Mapping[str, str]) -> None:
        keys = [(self._key(source), self._key(target)) for source, target in moves.items()]
        if not keys:
            return
        with ThreadPoolExecutor(min(_PARALLEL, len(keys))) as threads:
            for done in [threads.submit(self._copy_key, source, target) for source, target in keys]:
                done.result()
        with translated_object("remove", f"{len(keys)} moved objects of {self._url}"):
            self._delete_keys([source for source, _ in keys])

    def delete_folder(self, prefix: str) -> None:
        names.check_path(prefix)
        folder = self._folder(prefix)
        with translated_object("remove", self._shown(prefix)):
            for chunk in obstore.list(self._store, folder, chunk_size=_BATCH):
                self._delete_keys([meta["path"] for meta in chunk if meta["path"] != folder])

    def delete_empty_folder(self, prefix: str) -> None:
        names.check_path(prefix)

    def rename_folder(self, source: str, target: str) -> None:
        names.check_path(source)
        names.check_path(target)
        raise UnsupportedFeatureError(
            f"cannot rename {self._shown(source)}: an object store cannot move a folder at once",
            feature="rename-folder",
            hint="Create the new one and drop the old one.",
        )

    def _key(self, path: str) -> str:
        names.check_path(path)
        return names.join(self._root, path)

    def _folder(self, prefix: str) -> str:
        names.check_prefix(prefix)
        return names.join(self._root, prefix)

    def _path(self, key: str) -> str:
        return key[len(self._root) + 1 :] if self._root else key

    def _shown(self, path: str) -> str:
        return names.join(self._url, path)

    @request("read")
    def _read(self, key: str, part: tuple[int, int] | None) -> bytes:
        """An object, or its bytes from the first of two numbers to before the second.

        The client repeats a request that was not answered. An answer that breaks off is repeated here.
        """
        shown = self._shown(self._path(key))
        options: GetOptions | None = None if part is None else {"range": part}
        for attempt in range(_ATTEMPTS):
            self._pause(attempt)
            with translated_object("read", shown):
                answer = obstore.get(self._store, key, options=options)
            try:
                return answer.bytes().to_bytes()
            except OBJECT_ERRORS as error:
                broken: Exception = error
        raise translate_object(broken, "read", shown) from None

    def _pause(self, attempt: int) -> None:
        if attempt:
            longest = _FIRST_PAUSE * 2.0 ** (attempt - 1)
            self._runtime.sleeper.sleep(longest * (1 + self._runtime.ids.jitter()) / 2)

    def _directly_in(self, folder: str) -> Iterator[ObjectMeta]:
        return (meta for meta in self._listed(folder) if meta["path"] != folder)

    @request("list")
    def _listed(self, folder: str) -> Sequence[ObjectMeta]:
        with translated_object("list", self._shown(self._path(folder))):
            return obstore.list_with_delimiter(self._store, folder or None)["objects"]

    def _everything_in(self, folder: str) -> Iterator[ObjectMeta]:
        """List all objects below a folder, except the empty folder markers that other tools put.

        Such a marker's key ends with a slash, which obstore takes away; no object has the name that is left.
        """
        with translated_object("list", self._shown(self._path(folder))):
            chunks = iter(obstore.list(self._store, folder or None, chunk_size=_BATCH))
            while (chunk := _next_of(chunks)) is not None:
                for meta in chunk:
                    if meta["path"] != folder and (meta["size"] or self._is_object(meta["path"])):
                        yield meta

    def _is_object(self, key: str) -> bool:
        try:
            obstore.head(self._store, key)
        except FileNotFoundError:
            return False
        return True

    @request("move")
    def _copy_key(self, source: str, target: str) -> None:
        shown = self._shown(self._path(source))
        with translated_object("move", shown), suppress(FileNotFoundError):
            try:
                obstore.copy(self._store, source, target)
            except FileNotFoundError:
                raise
            except OBJECT_ERRORS:
                size = obstore.head(self._store, source)["size"]
                if size <= _LARGEST_COPY:
                    raise
                self._copy_pieces(source, target, size)

    def _copy_pieces(self, source: str, target: str, size: int) -> None:
        """Copy an object that the store does not copy at once: through this machine, in a bounded part of its memory."""
        sink = UploadSink(self._store, target, self._shown(self._path(target)))
        try:
            for start in range(0, size, PART_BYTES):
                sink.write(self._read(source, (start, min(size, start + PART_BYTES))))
            sink.finish()
        except BaseException:
            sink.abandon()
            raise

    @request("remove")
    def _delete_keys(self, keys: Sequence[str]) -> None:
        try:
            if keys:
                obstore.delete(self._store, keys)
        except FileNotFoundError:
            # Some stores report what was gone already, and leave it open what became of the rest.
            for key in keys:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, key)


def _reopen(url: str, options: Mapping[str, str], runtime: Runtime) -> ObjectStorage:
    return ObjectStorage.open(url, options, runtime=runtime)


@request("list")
def _next_of(chunks: Iterator[Sequence[ObjectMeta]]) -> Sequence[ObjectMeta] | None:
    return next(chunks, None)


def _info(path: str, meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(path, meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _cannot_decide(url: str, answer: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{url} has no conditional writes: {answer}",
        feature="atomic-create",
        hint="Without them two writers would overwrite each other's commits; use another store.",
    )

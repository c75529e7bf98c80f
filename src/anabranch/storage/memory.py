"""Objects in the memory of this process: for tests and throw-away tables."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Final, NoReturn

from anabranch.errors import AlreadyExistsError, InvalidNameError, NotFoundError, UnsupportedFeatureError
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage import names
from anabranch.storage.protocol import ObjectInfo, Sink
from anabranch.storage.requests import request


class MemoryStorage:
    """A store that ends with its process.

    Args:
        name: stores of one name are one store, as ``memory://name``; without a name this is a new one.
        runtime: the clock of the objects' times.
    """

    def __init__(self, name: str | None = None, *, runtime: Runtime = SYSTEM) -> None:
        if name is not None:
            names.check_path(name)
            if "/" in name:
                raise InvalidNameError(f"{name!r} is not the name of a store in memory: it has a slash")
        self._objects = _Objects() if name is None else _shared(name)
        self._name = name or f"unnamed-{next(_UNNAMED)}"
        self._prefix = ""
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"MemoryStorage({self.url!r})"

    def __reduce__(self) -> NoReturn:
        raise UnsupportedFeatureError(
            f"{self.url} cannot be sent to another process: its objects live in this one's memory",
            feature="pickle-memory-storage",
            hint="Keep the table under a folder or in an object store.",
        )

    @property
    def url(self) -> str:
        return "memory://" + names.join(self._name, self._prefix)

    @property
    def is_far(self) -> bool:
        return False

    def scoped(self, prefix: str) -> MemoryStorage:
        inner = MemoryStorage(runtime=self._runtime)
        inner._objects = self._objects
        inner._name = self._name
        inner._prefix = self._folder(prefix)
        return inner

    @request("read")
    def get(self, path: str) -> bytes:
        return self._object(path).data

    @request("read")
    def get_range(self, path: str, start: int, length: int) -> bytes:
        names.check_range(path, start, length)
        return self._object(path).data[start : start + length]

    @request("look")
    def info(self, path: str) -> ObjectInfo:
        found = self._object(path)
        return ObjectInfo(path, len(found.data), found.modified_millis)

    @request("look")
    def exists(self, path: str) -> bool:
        return self._key(path) in self._objects.by_key

    @request("read")
    def open_input(self, path: str, *, size: int | None = None) -> IO[bytes]:
        return io.BytesIO(self._object(path).data)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Sink]:
        self._key(path)
        sink = _MemorySink()
        yield sink
        self.put(path, bytes(sink.written))

    @request("write")
    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        key = self._key(path)
        with self._objects.lock:
            self._objects.by_key[key] = self._new(data)

    @request("write")
    def put_many(self, objects: Mapping[str, bytes]) -> None:
        fresh = {self._key(path): self._new(data) for path, data in objects.items()}
        with self._objects.lock:
            self._objects.by_key.update(fresh)

    @request("decide")
    def put_if_absent(self, path: str, data: bytes) -> bool:
        key = self._key(path)
        with self._objects.lock:
            return self._objects.by_key.setdefault(key, self._new(data)).data == data

    @request("list")
    def list(
        self, prefix: str = "", *, recursive: bool = False, include_temporary: bool = False
    ) -> Iterator[ObjectInfo]:
        return (
            ObjectInfo(names.join(prefix, rest), len(found.data), found.modified_millis)
            for rest, found in self._below(prefix).items()
            if recursive or "/" not in rest
            if include_temporary or not names.is_temporary(rest)
        )

    @request("list")
    def list_folders(self, prefix: str = "") -> Iterator[str]:
        found = dict.fromkeys(rest.partition("/")[0] for rest in self._below(prefix) if "/" in rest)
        return (names.join(prefix, name) for name in found)

    def delete(self, path: str) -> None:
        self.delete_many((path,))

    @request("remove")
    def delete_many(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        with self._objects.lock:
            for key in keys:
                self._objects.by_key.pop(key, None)

    @request("move")
    def move_many(self, moves: Mapping[str, str]) -> None:
        keys = [(self._key(source), self._key(target)) for source, target in moves.items()]
        with self._objects.lock:
            for source, target in keys:
                found = self._objects.by_key.pop(source, None)
                if found is not None:
                    self._objects.by_key[target] = found

    @request("remove")
    def delete_folder(self, prefix: str) -> None:
        names.check_path(prefix)
        with self._objects.lock:
            for rest in self._below(prefix):
                del self._objects.by_key[f"{self._folder(prefix)}/{rest}"]

    @request("remove")
    def delete_empty_folder(self, prefix: str) -> None:
        names.check_path(prefix)

    @request("move")
    def rename_folder(self, source: str, target: str) -> None:
        names.check_path(source)
        names.check_path(target)
        if target.startswith(source + "/"):
            raise InvalidNameError(f"cannot move the folder {source} into itself, to {target}")
        with self._objects.lock:
            moved = self._below(source)
            if not moved:
                raise NotFoundError(f"cannot rename {source}: there is no such folder in {self.url}")
            if self._below(target) or self.exists(target):
                raise AlreadyExistsError(f"cannot rename {source}: {target} exists already in {self.url}")
            for rest, found in moved.items():
                del self._objects.by_key[f"{self._folder(source)}/{rest}"]
                self._objects.by_key[f"{self._folder(target)}/{rest}"] = found

    def _key(self, path: str) -> str:
        names.check_path(path)
        return names.join(self._prefix, path)

    def _folder(self, prefix: str) -> str:
        names.check_prefix(prefix)
        return names.join(self._prefix, prefix)

    def _new(self, data: bytes) -> _Object:
        return _Object(bytes(data), self._runtime.clock.now_millis())

    def _object(self, path: str) -> _Object:
        try:
            return self._objects.by_key[self._key(path)]
        except KeyError:
            raise NotFoundError(f"{path} does not exist in {self.url}") from None

    def _below(self, prefix: str) -> dict[str, _Object]:
        """Everything in a folder at this moment, by its name inside of it."""
        folder = self._folder(prefix)
        with self._objects.lock:
            everything = dict(self._objects.by_key)
        if not folder:
            return everything
        start = folder + "/"
        return {key[len(start) :]: found for key, found in everything.items() if key.startswith(start)}


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    modified_millis: int


@dataclass(frozen=True, slots=True)
class _Objects:
    by_key: dict[str, _Object] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


_UNNAMED: Final = itertools.count(1)
_NAMED: Final[dict[str, _Objects]] = {}
_NAMED_LOCK: Final = threading.Lock()


def _shared(name: str) -> _Objects:
    with _NAMED_LOCK:
        return _NAMED.setdefault(name, _Objects())


class _MemorySink(io.RawIOBase):
    """Collects the pieces; closing it publishes nothing: the end of the block does."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return len(self.written)

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self.written += view
        return len(view)

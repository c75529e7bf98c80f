"""The storage interface that the rest of Anabranch needs.

A store holds immutable byte objects under one root. Names are relative paths with ``/`` between
segments; they never start with ``/`` and no segment is empty, ``.`` or ``..``. A name that breaks these
rules, or would lead out of the root, raises `InvalidNameError` before anything is touched. A folder
exists because something lies in it; whether an emptied folder lingers is the store's business.

Ordering and durability, for every implementation:

* When a write or a removal returns, it survives a crash of the process and of the machine, and every
  reader that asks afterwards sees its result. Nobody ever sees a part of an object.
* `put_if_absent` is the only primitive that decides between competitors: while an object lives, of all
  calls on its name only those with exactly its bytes return True.
* A write that raises `StorageError` with ``outcome_unknown`` may or may not have happened.
* A listing shows every object written before it began and not deleted since; of objects written or
  deleted meanwhile it shows some.

Every method may be called from several threads at once and may raise `StorageError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Protocol, Self


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it."""

    path: str
    size: int
    modified_millis: int


class Sink(Protocol):
    """A new object being written piece by piece."""

    def write(self, data: bytes | memoryview, /) -> int: ...
    def flush(self) -> None: ...


class Storage(Protocol):
    """A store of byte objects. Implementations are picklable, except `MemoryStorage`."""

    @property
    def url(self) -> str:
        """URL of the root, for messages and for re-opening it in another process."""
        ...

    @property
    def is_far(self) -> bool:
        """Whether a request takes so long that even two of them are better made side by side."""
        ...

    def scoped(self, prefix: str) -> Self:
        """Return the same store seen from a folder below; nothing outside of it can be named."""
        ...

    def get(self, path: str) -> bytes:
        """The whole object. Raises `NotFoundError`."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """`length` bytes from `start`, fewer at the end of the object. Raises `NotFoundError`."""
        ...

    def info(self, path: str) -> ObjectInfo:
        """Size and time of an object. Raises `NotFoundError`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the object exists now."""
        ...

    def open_input(self, path: str, *, size: int | None = None) -> IO[bytes]:
        """A seekable binary file for random access, closed by the caller. Raises `NotFoundError`.

        A caller who knows the object's `size` in bytes saves a round trip on object stores; a missing
        object is then noticed by the first read.
        """
        ...

    def open_output(self, path: str) -> AbstractContextManager[Sink]:
        """Write a new object piece by piece; it appears, durably, when the block ends without error.

        On an error in the block nothing appears. The name must be unique to this writer.
        """
        ...

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Store an object, replacing one of that name at once or not at all.

        ``durable=False`` is for hints: a crash of the machine may lose or damage the object.
        """
        ...

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        """Store several new objects of unique names, in any order, all durable when it returns.

        On an error some of them may exist.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Store an object unless the name is taken; True if the object is this caller's now.

        A taken name and an ambiguous answer are settled by reading the object back and comparing it with
        `data`: that makes a repeated call harmless, and means that `data` must be unique to its writer.
        Raises `StorageError` with ``outcome_unknown`` if it stays ambiguous.
        """
        ...

    def list(
        self, prefix: str = "", *, recursive: bool = False, include_temporary: bool = False
    ) -> Iterator[ObjectInfo]:
        """Objects in the folder `prefix` (and below it when recursive), in no promised order.

        A folder that does not exist is empty. Temporary files of unfinished or killed writes are shown
        only on request: for those who clean up.
        """
        ...

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        """Paths of the folders directly inside `prefix`."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens if it does not exist."""
        ...

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove several objects, in any order; cheaper than one by one. On an error some may be left."""
        ...

    def move_many(self, moves: Mapping[str, str]) -> None:
        """Give several objects new names, by the old ones, in any order; a new name must be free.

        An object that does not exist is passed over. At no moment is one under neither name; after an error or
        a crash some are moved, and on object stores one may be under both.
        """
        ...

    def delete_folder(self, prefix: str) -> None:
        """Remove a folder and everything below it; nothing happens if it does not exist."""
        ...

    def delete_empty_folder(self, prefix: str) -> None:
        """Remove a folder in which nothing lies, not even an unfinished write; any other stays as it is.

        Does nothing where folders exist only by what lies in them. Whoever writes into it at the same moment
        succeeds: the folder is made again.
        """
        ...

    def rename_folder(self, source: str, target: str) -> None:
        """Move a folder at once or not at all.

        Raises `UnsupportedFeatureError` on object stores, `AlreadyExistsError` when the target exists and
        `NotFoundError` when the source does not.
        """
        ...

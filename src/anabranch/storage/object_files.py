"""Objects of a store as Python files: random-access reads, streaming writes."""

from __future__ import annotations

import io
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import obstore
from obstore.store import ObjectStore

from anabranch.errors import StorageError
from anabranch.storage.object_errors import OBJECT_ERRORS, translate_object, translated_object

# Fewest bytes fetched in one request, and size of a part of a long upload. A store's answer takes tens of
# milliseconds to begin, in which these many bytes travel as well.
READ_BYTES: Final = 1 << 20
PART_BYTES: Final = 8 << 20

_PARTS_WAITING: Final = 2
_PARTS_UNDER_WAY: Final = 4


ReadPart = Callable[[tuple[int, int]], bytes]
"""Gives the bytes of an object from the first number to before the second."""


def open_reader(read: ReadPart, *, size: int, url: str) -> io.BufferedReader:
    """A seekable file over an object of `size` bytes; every read beyond the buffer is one request."""
    return io.BufferedReader(_ObjectReader(read, size, url), READ_BYTES)


class _ObjectReader(io.RawIOBase):
    def __init__(self, read: ReadPart, size: int, url: str) -> None:
        super().__init__()
        self._read = read
        self._size = size
        self._url = url
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._size - self._position)
        if wanted <= 0:
            return 0
        data = self._read((self._position, self._position + wanted))
        got = len(data)
        if got < wanted:
            raise StorageError(f"cannot read {self._url}: it has fewer than the {self._size} bytes expected")
        view[:got] = data
        self._position += got
        return got


class UploadSink(io.RawIOBase):
    """Collects pieces and uploads them: at once when few, in parts from a thread when many.

    Closing it publishes nothing. `finish` does, and `abandon` leaves nothing behind in the store.
    """

    def __init__(self, store: ObjectStore, key: str, url: str) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._url = url
        self._position = 0
        self._pending = bytearray()
        self._upload: _Upload | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._pending += view
        self._position += len(view)
        if len(self._pending) >= PART_BYTES:
            if self._upload is None:
                self._upload = _Upload(self._store, self._key, self._url)
            self._upload.add(bytes(self._pending))
            self._pending.clear()
        return len(view)

    def finish(self) -> None:
        if self._upload is None:
            with translated_object("write", self._url):
                obstore.put(self._store, self._key, bytes(self._pending), use_multipart=False)
        else:
            if self._pending:
                self._upload.add(bytes(self._pending))
            self._upload.finish()

    def abandon(self) -> None:
        if self._upload is not None:
            self._upload.abandon()


class _Abandoned(Exception):  # noqa: N818 - a signal to obstore, which aborts the upload
    pass


class _Upload:
    """A multipart upload. obstore pulls the parts, so it runs in a thread of its own."""

    def __init__(self, store: ObjectStore, key: str, url: str) -> None:
        self._store = store
        self._key = key
        self._url = url
        self._parts: queue.Queue[bytes | type[_Abandoned] | None] = queue.Queue(_PARTS_WAITING)
        self._exhausted = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"upload {key}", daemon=True)
        self._thread.start()

    def add(self, part: bytes) -> None:
        """Hand over a part; waits while enough of them are under way."""
        self._check()
        self._parts.put(part)

    def finish(self) -> None:
        """Wait until the object is there."""
        self._parts.put(None)
        self._thread.join()
        self._check()

    def abandon(self) -> None:
        """Stop, and wait until the store has forgotten the parts."""
        self._parts.put(_Abandoned)
        self._thread.join()

    def _check(self) -> None:
        if self._failure is not None:
            if isinstance(self._failure, OBJECT_ERRORS):
                raise translate_object(self._failure, "write", self._url) from None
            raise self._failure

    def _run(self) -> None:
        try:
            obstore.put(
                self._store,
                self._key,
                self._taken(),
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_UNDER_WAY,
            )
        except BaseException as error:  # whatever it is, the writing thread must hear of it
            self._failure = error
            while not self._exhausted:  # nobody should wait for room in the queue
                self._exhausted = not isinstance(self._parts.get(), bytes)

    def _taken(self) -> Iterator[bytes]:
        while isinstance(part := self._parts.get(), bytes):
            yield part
        self._exhausted = True
        if part is not None:
            raise part

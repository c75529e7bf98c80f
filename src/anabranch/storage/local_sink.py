"""Writing of a local file, which has its name once it is whole."""

from __future__ import annotations

import io
import os
from typing import Any

from anabranch.errors import StorageError
from anabranch.storage import files
from anabranch.storage.os_errors import translated


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
            files.write_all(self._open_descriptor(), view)
        self._position += len(view)
        return len(view)

    def finish(self) -> None:
        with translated("write", self._target):
            descriptor = self._open_descriptor()
            files.sync(descriptor)
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

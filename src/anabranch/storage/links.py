"""Links of a local disk, and other things that stand where files are looked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

from anabranch.storage import names
from anabranch.storage.os_errors import translated
from anabranch.storage.protocol import Storage


def is_link(storage: Storage, folder: str) -> bool:
    """Whether a folder is a link: a recursive listing passes it over, and where it leads others may keep their files."""
    locate = getattr(storage, "native_path", None)
    path = locate(folder) if folder and callable(locate) else None
    return isinstance(path, str) and os.path.islink(path)  # noqa: PTH114 - no Path here


def no_files(storage: Storage, folder: str) -> Iterator[tuple[str, str | None]]:
    """Yield what is no file in a folder of a local disk: paths of folders, and of links with what they lead to.

    A link is yielded only if nothing is there that it leads to. Such a name looks free and is not: nothing can be read
    from it, and no file can be put there. In object stores there is no such thing.
    """
    locate = getattr(storage, "native_path", None)
    place = locate(folder) if callable(locate) else None
    if not isinstance(place, str):
        return
    with translated("list", place):
        try:
            with os.scandir(place) as entries:
                odd = [entry for entry in entries if entry.is_symlink() or not entry.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return
    for entry in odd:
        path = names.join(folder, entry.name)
        if entry.is_symlink() and not os.path.exists(entry.path):  # noqa: PTH110 - no Path here
            yield path, os.readlink(entry.path)  # noqa: PTH115 - no Path here
        elif os.path.isdir(entry.path):  # noqa: PTH112 - no Path here
            yield path, None

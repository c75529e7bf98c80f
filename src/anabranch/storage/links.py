"""Folders of a local disk that are links."""

from __future__ import annotations

import os

from anabranch.storage.protocol import Storage


def is_link(storage: Storage, folder: str) -> bool:
    """Whether a folder is a link: a recursive listing passes it over, and where it leads others may keep their files."""
    locate = getattr(storage, "native_path", None)
    path = locate(folder) if folder and callable(locate) else None
    return isinstance(path, str) and os.path.islink(path)  # noqa: PTH114 - no Path here

"""Replaces damaged files, or moves them aside."""

from __future__ import annotations

import json
from typing import Final

import zstandard

from anabranch.errors import NotFoundError
from anabranch.format.records.layout import BRANCH_FOLDER, HISTORY_FOLDER, ORPHANS_FOLDER
from anabranch.format.records.main_pointer import MAIN_PREFIX
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.repair.problem import Act

_VERSION: Final = 1
_POINTER_VERSION: Final = 2
_MOST: Final = 1 << 26
"""Most bytes of an unpacked archive segment."""


def put_again(context: TableContext, path: str, content: bytes) -> Act:
    """Replace a damaged file, unless it has changed since this was planned."""
    before = _content(context, path)

    def act() -> bool:
        now = _content(context, path)
        if now != before:
            return False
        if now is None:
            return context.storage.put_if_absent(path, content)
        context.storage.put(path, content)
        return True

    return act


def put_aside(context: TableContext, path: str) -> Act:
    """Move a damaged file to the quarantine of orphan cleaning, which removes it later."""

    def act() -> bool:
        now = context.runtime.clock.now_millis()
        context.storage.move_many({path: f"{ORPHANS_FOLDER}/{now}/{path}"})
        return True

    return act


def is_of_later_version(context: TableContext, path: str) -> bool:
    """Whether an unreadable file is intact, but of a later format version."""
    data = _content(context, path) or b""
    try:
        if path.startswith(f"{HISTORY_FOLDER}/history-"):
            if zstandard.frame_content_size(data) > _MOST:
                return False
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=_MOST).partition(b"\n")[0]
        found = json.loads(data)
    except (ValueError, RecursionError, zstandard.ZstdError):
        return False
    version = found.get("version") if isinstance(found, dict) else None
    known = _POINTER_VERSION if path.startswith(f"{BRANCH_FOLDER}/{MAIN_PREFIX}") else _VERSION
    return isinstance(version, int) and version > known


def _content(context: TableContext, path: str) -> bytes | None:
    try:
        return context.storage.get(path)
    except NotFoundError:
        return None

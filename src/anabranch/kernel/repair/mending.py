"""Putting a file again in place of a damaged one, or putting the damaged one aside."""

from __future__ import annotations

from anabranch.errors import NotFoundError
from anabranch.kernel.context import TableContext
from anabranch.kernel.repair.step import Act
from anabranch.spec.layout import ORPHANS_FOLDER


def put_again(context: TableContext, path: str, content: bytes) -> Act:
    """Put a file in place of the damaged one, unless that is another by now than it was when this was planned."""
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
    """Move a damaged file to where the cleaning of orphans moves files too, which removes it after their time."""

    def act() -> bool:
        now = context.runtime.clock.now_millis()
        context.storage.move_many({path: f"{ORPHANS_FOLDER}/{now}/{path}"})
        return True

    return act


def _content(context: TableContext, path: str) -> bytes | None:
    try:
        return context.storage.get(path)
    except NotFoundError:
        return None

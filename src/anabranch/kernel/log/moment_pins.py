"""Short-lived tags that hold a moment while something that refers to it is being made.

A pin is put first and removed when all else is in place. In between, anything that computes what must be
kept, in any engine, finds it. The pin of a process that died stays until `release_old` removes it after a day. No
operation takes as long, unless it is paused: `hand_over` finds out.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from anabranch.errors import AnabranchError, StorageError
from anabranch.format.text.names import RESERVED_TAG_PREFIX
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import Moment, check_holds, holds_nothing
from anabranch.kernel.log.store_clock import day_old
from anabranch.kernel.log.tag_log import delete_tags, find_tags, put_tag

_PREFIX = f"{RESERVED_TAG_PREFIX}pin-"


def take(context: TableContext, moment: Moment) -> str:
    """Pin a moment and return the name of the pin.

    Raises:
        NotFoundError: the moment was removed before it could be pinned; nothing is left behind.
        InvalidInputError: it is readable, but nothing can refer to it (see `Savepoint.snapshot`).
    """
    name = f"{_PREFIX}{context.runtime.ids.uuid()}"
    put_tag(context, name, moment.snapshot)
    try:
        check_holds(context, moment)
    except AnabranchError:
        release(context, name)
        raise
    return name


def is_pin(tag_name: str) -> bool:
    """Whether a tag is a moment pin."""
    return tag_name.startswith(_PREFIX)


def is_old(context: TableContext, pin: str) -> bool:
    """Whether a pin is old enough to be of a killed operation. Raises `NotFoundError`."""
    stored = context.storage.info(context.layout.tag_path(pin)).modified_millis
    return bool(day_old(context, {pin: stored}))


def release(context: TableContext, pin: str) -> None:
    """Remove a pin. If that fails now, `release_old` removes it later."""
    with suppress(StorageError):
        context.storage.delete(context.layout.tag_path(pin))


def hand_over(context: TableContext, pin: str, moment: Moment) -> None:
    """Remove the pin of what has been made and holds the moment by itself from now on.

    Raises `NotFoundError`: the maker was paused for so long that its pin was taken for one of a killed operation, and the
    moment was removed since. What was made must be taken back.
    """
    if context.storage.exists(context.layout.tag_path(pin)):
        release(context, pin)
    else:
        check_holds(context, moment)


def release_old(context: TableContext, tags: Mapping[str, int]) -> list[str]:
    """Remove the pins of killed operations and return their names; `tags` are all tags, with when they were stored.

    A pin's name is used once, so however long ago it was listed, it is the one that was stored then. One that holds nothing goes
    at once: nothing could expire as long as it is there, and its maker finds the same.
    """
    stored = {name: at for name, at in tags.items() if is_pin(name)}
    old = day_old(context, stored)
    young = find_tags(context, sorted(stored.keys() - set(old)), unread=lambda *_: None)
    let_go = [*old, *(pin.name for pin in young if holds_nothing(context, pin.snapshot))]
    delete_tags(context, let_go)
    return let_go

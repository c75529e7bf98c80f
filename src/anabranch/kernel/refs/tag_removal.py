"""Removal of exactly one tag, not of another that was put under its name since.

A store deletes by name, so a process that looks at a tag, stands still, and then deletes it could take another. So the tag is
first moved to a name of its own, which nobody gives again, and looked at there: what was to go is deleted, anything
else is put back, if its name was not given again. Under that name it is a tag like any other: it holds its snapshot all the time.

The name says what was to go, so that anybody can finish what a process that died has begun, and two who do so agree.

An object store copies and then deletes by name: a process that stands still between these two can still take another tag.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.refs import Tag
from anabranch.format.text.names import RESERVED_TAG_PREFIX, fits_file
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.inherited_tags import hide_inherited, inherited_tags, is_hidden
from anabranch.kernel.log.tag_log import own_tag

_PREFIX: Final = f"{RESERVED_TAG_PREFIX}going-"
_NAME: Final = re.compile(f"{_PREFIX}[0-9a-f-]{{36}}-([0-9a-f]{{16}})-(.+)", re.DOTALL)


def remove_exactly(context: TableContext, tag: Tag) -> bool:
    """Remove this very tag; False if it is gone, or another has its name."""
    found, inherited = own_tag(context, tag.name), inherited_tags(context).get(tag.name)
    is_inherited = inherited is not None and _digest(inherited.tag) == _digest(tag)
    if found is None and is_inherited and not is_hidden(context, tag.name):
        hide_inherited(context, tag.name)
        found = own_tag(context, tag.name)  # which main may have been given meanwhile, see `own_inherited`
        if found is None:
            return True
    if found is None or _digest(found) != _digest(tag):
        return False
    hide_inherited(context, tag.name)  # so that it does not come back from behind this one
    return _remove(context, tag)


def take_back(context: TableContext, tag: Tag) -> None:
    """Remove a tag that was just put and turned out not to be allowed, if its name is still its own."""
    with suppress(CorruptTableError):  # it was replaced by something else
        found = own_tag(context, tag.name)
        if found is not None and _digest(found) == _digest(tag):
            _remove(context, tag)


def _remove(context: TableContext, tag: Tag) -> bool:
    path = context.layout.tag_path(tag.name)
    aside = f"{_PREFIX}{context.runtime.ids.uuid()}-{_digest(tag)}-{tag.name}"
    if not fits_file(aside):
        context.storage.delete(path)
        return True
    context.storage.move_many({path: context.layout.tag_path(aside)})
    return _settle(context, aside)


def finish_removals(context: TableContext, names: Iterable[str]) -> None:
    """Finish the removals, among tags of these names, whose processes died before they had looked."""
    for name in names:
        if _NAME.fullmatch(name):
            _settle(context, name)


def _settle(context: TableContext, aside: str) -> bool:
    """Delete a tag that was moved aside if it is what was to go, else put it back; whether it was."""
    match = _NAME.fullmatch(aside)
    assert match is not None, "names are made here"
    digest, name = match.groups()
    path = context.layout.tag_path(aside)
    try:
        content = context.storage.get(path)
    except NotFoundError:
        return False  # somebody else was faster
    is_it = _digest(Tag.from_json(content, name=name, path=path)) == digest
    if not is_it:  # it stays where it was copied, as on object stores, or its name was given again
        context.storage.put_if_absent(context.layout.tag_path(name), content)
    context.storage.delete(path)
    return is_it


def _digest(tag: Tag) -> str:
    """What tells a tag from any other of its name; those without a mark are as other engines make them."""
    told = tag.to_json() if tag.mark is None else tag.mark.encode()
    return hashlib.sha256(told).hexdigest()[:16]

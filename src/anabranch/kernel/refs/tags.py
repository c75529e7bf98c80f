"""Creation, change and removal of tags: names for snapshots, which they keep from expiring.

The rule that keeps a tag readable: it is written first, and then its snapshot is checked to still exist;
if not, the tag is removed. An expiry that removed the snapshot before shows in that check; one that comes later finds
the tag, because it removes snapshots first and computes afterwards what is still referred to.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.errors import (
    AlreadyExistsError,
    AnabranchError,
    CorruptTableError,
    InvalidInputError,
    InvalidNameError,
    NotFoundError,
    StorageError,
)
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import pinned_savepoint_of
from anabranch.format.text.names import check_tag_name
from anabranch.kernel.log import moment_pins as pins
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.inherited_tags import hide_inherited, inherited_tags, is_hidden
from anabranch.kernel.log.moment import Moment, check_holds, check_there, of_tag
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.seals import settled
from anabranch.kernel.log.store_clock import removal_time
from anabranch.kernel.log.tag_log import (
    UNKNOWN,
    find_own,
    find_tag,
    get_tag,
    is_internal,
    own_tag,
    stored_millis,
    stored_tags,
    tag_names,
)
from anabranch.kernel.refs.tag_removal import finish_removals, remove_exactly, take_back
from anabranch.option_kinds import LONGEST, parse_duration
from anabranch.options import TAG_DEFAULT_TIME_RETAINED


def create_tag(
    context: TableContext, name: str, moment: Moment, *, retained: int | None = None, automatic: bool = False
) -> Tag:
    """Create a tag; if several callers create the same name at once, one succeeds. See `Table.create_tag`.

    Args:
        moment: the moment to tag.
        retained: how many milliseconds to keep it; `tag.default-time-retained` if None.
        automatic: whether the name was made from a period, and so may have digits only.
    """
    if not automatic:
        check_tag_name(name)
    existing = find_tag(context, name)
    if existing is not None:
        raise _exists(context, existing)
    tag = _new(context, name, moment, retained)
    if not context.storage.put_if_absent(context.layout.tag_path(name), tag.to_json()):
        raise _exists(context, find_tag(context, name) or tag)
    try:
        check_holds(context, moment)
        _check_not_inherited(context, tag)
    except AnabranchError as refused:
        _take_back(context, tag, refused)
        raise
    return tag


def delete_tag(context: TableContext, name: str) -> Tag:
    """Remove a tag, even an unreadable one. What only it kept goes with the next expiry and orphan cleaning.

    Returns:
        The tag; of a damaged one only the name is known.

    Raises:
        InvalidNameError: the table made the tag for itself.
        NotFoundError: there is no such tag.
    """
    _check_not_internal(name)
    try:
        tag = get_tag(context, name)
    except CorruptTableError:
        tag = Tag(name, UNKNOWN)
    hide_inherited(context, name)  # first, so that it does not come back
    context.storage.delete(context.layout.tag_path(name))
    return tag


def rename_tag(context: TableContext, name: str, new_name: str) -> Tag:
    """Rename a tag. If the process dies both names may exist; repeating it then says so.

    Raises:
        InvalidNameError: the name is not allowed for a tag.
        NotFoundError: there is no such tag, or it was removed meanwhile.
        AlreadyExistsError: the new name exists.
    """
    _check_not_internal(name)
    check_tag_name(new_name)
    old = get_tag(context, name)
    if new_name == name:
        raise _exists(context, old)
    new = replace(old, name=new_name, mark=context.runtime.ids.uuid())
    if old.created_millis is not None:
        new = replace(new, created_millis=old.created(stored_millis(context, name)), is_renamed=True)
    path = context.layout.tag_path(new_name)
    existing = find_tag(context, new_name)
    if existing == new:
        # Left by a renaming that died, or by one under way, which does not take it back any more; nor do we.
        context.storage.put(path, new.to_json())
    elif existing is not None or not context.storage.put_if_absent(path, new.to_json()):
        raise _exists(context, existing or find_tag(context, new_name) or new)
    try:
        check_there(context, of_tag(old))
        _check_not_inherited(context, new)
    except AnabranchError as refused:
        if existing is None:
            _take_back(context, new, refused)
        raise
    remove_exactly(context, old)  # not one that was put in its place since
    return new


def replace_tag(context: TableContext, name: str, moment: Moment, *, retained: int | None = None) -> Tag:
    """Point a tag to another moment, atomically: readers see the old one or the new one.

    Args:
        moment: the new moment.
        retained: how many milliseconds to keep it from now on; None to keep the current duration.

    Raises:
        InvalidNameError: the table made the tag for itself.
        NotFoundError: there is no such tag, or the moment was removed meanwhile; the tag is unchanged.
    """
    _check_not_internal(name)
    own = own_tag(context, name)
    old = own or get_tag(context, name)
    pin = pins.take(context, moment)  # what the tag names when it is written is held already
    tag = _new(context, name, moment, old.time_retained if retained is None else retained)
    context.storage.put(context.layout.tag_path(name), tag.to_json())
    try:
        pins.hand_over(context, pin, moment)
    except NotFoundError as refused:
        if own is None:
            _take_back(context, tag, refused)
        elif find_tag(context, name) == tag:
            context.storage.put(context.layout.tag_path(name), old.to_json())
        raise
    hide_inherited(context, name)  # so that it does not come back from behind this one
    return tag


def expire_tags(context: TableContext, *, dry_run: bool = False) -> list[str]:
    """Remove expired tags and return their names. Reads all tags.

    Ages are based on `removal_time`, and do not depend on the time zones of this machine or the tags' creators.
    """
    stored = stored_tags(context)
    now = context.runtime.clock.now_millis()
    expired = [one for one in stored if one.tag.is_expired(now, one.stored_millis)]
    if expired:
        now = removal_time(context)
        expired = [one for one in expired if one.tag.is_expired(now, one.stored_millis)]
    if dry_run:
        return [one.tag.name for one in expired]
    finish_removals(context, tag_names(context))
    return [one.tag.name for one in expired if remove_exactly(context, one.tag)]


def own_inherited(main: TableContext, former: TableContext) -> None:
    """Give main files of its own for the tags that it inherits and of which the files, in the folder of a former main, are to go."""
    inherited = inherited_tags(main)

    def put(tag: Tag) -> None:
        known = inherited.get(tag.name)
        if known is None or known.tag.snapshot.stamp != tag.snapshot.stamp or is_hidden(main, tag.name):
            return
        path, kept = main.layout.tag_path(tag.name), known.tag
        if kept.created_millis is not None:  # it is as old as it was
            kept = replace(kept, created_millis=kept.created(known.stored_millis), is_renamed=True)
        is_new = main.storage.put_if_absent(path, kept.to_json())
        # From now on that file alone says whether it is there. If others have hidden it meanwhile, they have deleted it.
        if not hide_inherited(main, tag.name) and is_new:
            take_back(main, kept)

    names = [name for name in tag_names(former) if name in inherited]
    each(put, find_own(former, names), at=main.storage)


def _take_back(context: TableContext, tag: Tag, refused: AnabranchError) -> None:
    """Remove a tag that was just put and is refused; where the store does not let us, the error says that it may be left."""
    try:
        take_back(context, tag)  # not another that has its name since
    except StorageError as error:
        left = f"The tag '{tag.name}' may be left ({error.message}): `delete_tag` removes it."
        refused.hint = left if refused.hint is None else f"{refused.hint} {left}"


def parse_retained(text: str | int | None) -> int | None:
    """How long to keep a tag, in milliseconds, from text such as ``7 d``. Raises `InvalidInputError`."""
    if text is None:
        return None
    try:
        millis = text if isinstance(text, int) else parse_duration(text)
        if not 0 <= millis <= LONGEST:
            raise ValueError(text)
    except ValueError as error:
        raise InvalidInputError(
            f"tags and branches cannot be kept for '{text}', which is no duration, or longer than {LONGEST} ms",
            hint="write '7 d', '12 h' or '30 min'; without a duration they are kept for good.",
        ) from error
    return millis


def _new(context: TableContext, name: str, moment: Moment, retained: int | None) -> Tag:
    if retained is None:
        schema = context.schemas.latest()
        retained = TAG_DEFAULT_TIME_RETAINED.of({} if schema is None else schema.options)
    mark = context.runtime.ids.uuid()
    if retained is None:
        return Tag(name, moment.snapshot, mark=mark)
    if not 0 <= retained <= LONGEST:
        raise InvalidInputError(f"tag '{name}' cannot be kept for {retained} ms")
    now = context.runtime.clock.now_millis()
    local = now + context.runtime.clock.local_offset_millis(now)
    return Tag(name, moment.snapshot, local, retained, now, mark=mark)


def _check_not_inherited(context: TableContext, tag: Tag) -> None:
    """Raise `AlreadyExistsError` if a branch has become main since it was opened, and inherits another tag of that name.

    Waits for the end of a replacement that is under way: it lists the branch's own tags before it is decided.
    """
    if context.main_generation is not None or context.branch is None:
        return
    main = settled(context.on_branch(None))
    inherited = inherited_tags(main).get(tag.name) if main.branch == context.branch else None
    is_other = inherited is not None and inherited.tag.snapshot.stamp != tag.snapshot.stamp
    if inherited is not None and is_other and not is_hidden(main, tag.name):
        raise _exists(main, inherited.tag)


def _check_not_internal(name: str) -> None:
    if not is_internal(name):
        return
    savepoint = pinned_savepoint_of(name)
    hint = "the table removes it itself when it is not needed any more."
    raise InvalidNameError(
        f"the tag '{name}' belongs to the table itself",
        hint=hint
        if savepoint is None
        else f"let go of savepoint {savepoint} instead, with `delete_savepoint`.",
    )


def _exists(context: TableContext, tag: Tag) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"tag '{tag.name}' exists already in '{context.title}' and names snapshot {tag.snapshot.id}",
        hint="choose another name, or let it name another snapshot with `replace_tag`.",
    )

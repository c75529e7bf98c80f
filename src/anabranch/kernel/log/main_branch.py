"""Resolution of the main branch: the one in the table's own folder, until a replacement names another.

A context that was opened as main knows the number of replacements decided by then. Operations that start
with it call `main_of` again, which costs one look for the next pointer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from anabranch.errors import AnabranchError, CorruptTableError, InvalidInputError, NotFoundError
from anabranch.format.records.layout import MAIN_BRANCH, Part
from anabranch.format.records.main_pointer import MAIN_PREFIX, MainPointer, former_main_name, former_main_of
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_pointer import (
    find_pointer,
    is_dropped,
    newest_pointer,
    numbers,
    past_after,
    replacements,
)
from anabranch.kernel.log.parallel import afterwards
from anabranch.kernel.log.properties import WRITER_PROPERTY
from anabranch.kernel.log.tag_log import find_tag
from anabranch.options import SCAN_VERSION

_LOG = logging.getLogger(__name__)


def main_of(context: TableContext) -> TableContext:
    """Return the current main branch of a table.

    Args:
        context: the table, on any branch. If it was opened as main and still is, it is returned itself.

    Raises `CorruptTableError`: a pointer cannot be read, so main is unknown.
    """
    pointer = newest_pointer(context, above=context.main_generation or 0)
    if pointer is not None:
        # A warning, and nothing of the answer: nobody waits for it where the store is far.
        afterwards(partial(_warn_of_foreign_commits, context, pointer), at=context.storage)
        return as_main_by(context, pointer)
    return context if context.main_generation is not None else as_main(context, None, 0)


def main_as_far_as_known(context: TableContext) -> TableContext:
    """Return main by the newest decision that can be read, to verify and repair a table that has damaged ones.

    Whatever reads or writes rows asks `main_of`, which refuses such a table.

    Raises `CorruptTableError`: there is a decision that cannot have been made.
    """
    try:
        return main_of(context)
    except CorruptTableError:
        known, last = as_main(context, None, 0), 0
        for number in numbers(context, MAIN_PREFIX):
            if number != last + 1:
                break
            last = number
            with suppress(CorruptTableError):
                pointer = find_pointer(context, number, fresh=True)
                if pointer is not None:
                    known = as_main_by(context, pointer)
        if is_main_known(known):
            raise  # nothing is damaged: a file lies there that no replacement made
        return known


def is_main_known(context: TableContext) -> bool:
    """Whether the newest record of what is main can be read."""
    try:
        main_of(context)
    except CorruptTableError:
        return False
    return True


def as_main(
    context: TableContext, branch: str | None, generation: int, past: tuple[Part, ...] = ()
) -> TableContext:
    """Return a branch as the main after that many decisions.

    Args:
        past: where its history goes on below what lies in its folder.
    """
    return replace(context, branch=branch, main_generation=generation, known_as=None, past=past)


def as_main_by(context: TableContext, pointer: MainPointer) -> TableContext:
    """Return main as a decision left it."""
    return as_main(context, pointer.main.name, pointer.generation, pointer.past)


def as_main_before(context: TableContext, pointer: MainPointer) -> TableContext:
    """Return the main that a replacement replaced, as it was by then."""
    assert pointer.replaced is not None, "it is a replacement"
    before = pointer.generation - 1
    return as_main(context, pointer.replaced.old.name, before, past_after(context, before))


def former_main(context: TableContext, generation: int) -> TableContext:
    """Return the read-only former main ``main@<g>`` that a replacement replaced.

    Raises `NotFoundError`: there was no such replacement, or its old main was dropped or deleted.
    """
    name = former_main_name(generation)
    pointer = find_pointer(context, generation)
    if pointer is None or pointer.replaced is None:
        known = ", ".join(former_main_name(found.generation) for found in replacements(context))
        raise NotFoundError(
            f"branch '{name}' does not exist in '{context.name}': main was not replaced under that number",
            hint=f"replaced mains there are: {known}." if known else "main was never replaced.",
        )
    if is_dropped(context, pointer):
        raise NotFoundError(
            f"'{name}' of '{context.name}' was dropped, when it was not kept any longer",
            hint="branch.replaced-main.time-retained says how long a replaced main is kept.",
        )
    old = as_main_before(context, pointer)
    if old.branch is not None and old.branch_uuid != pointer.replaced.old.uuid:
        raise NotFoundError(
            f"'{name}' of '{context.name}' was deleted: it was in branch '{old.branch}', which is not there any more, or "
            "is another one of that name",
            hint="`branches` lists the branches there are.",
        )
    return replace(old, main_generation=None, known_as=name)


def foreign_after(context: TableContext, pointer: MainPointer) -> Snapshot | None:
    """Return a snapshot that another engine put on a replaced main after it was sealed, or None.

    Such a snapshot is in no main. Only for a pointer whose old main is not main again.
    """
    if pointer.replaced is None:
        return None
    old = context.on_branch(pointer.replaced.old.name)
    found = old.snapshots.find(pointer.replaced.head.id + 2)
    return None if found is None or WRITER_PROPERTY in found.properties else found


def _warn_of_foreign_commits(context: TableContext, pointer: MainPointer) -> None:
    try:
        found = foreign_after(context, pointer)
    except AnabranchError as error:
        _LOG.debug("%s: whether others still write to its old main is not known: %s", context.name, error)
        return
    key = (context.storage.url, context.table_uuid, "foreign after seal", str(pointer.generation))
    if found is not None and context.cache.get(key) is None:
        context.cache.put(key, True, 1)
        _LOG.warning(
            "FOREIGN_AFTER_SEAL: another engine committed snapshot %d to the old main of '%s' after it was replaced; its "
            "rows are not in main, but in '%s'",
            found.id,
            context.name,
            former_main_name(pointer.generation),
        )


def succession(context: TableContext, branch_uuid: str) -> MainPointer | None:
    """Return the newest replacement that replaced this branch as main, or None if there is none."""
    for pointer in reversed(replacements(context)):
        if pointer.replaced is not None and pointer.replaced.old.uuid == branch_uuid:
            return pointer
    return None


def last_replacements(main: TableContext) -> Iterator[MainPointer]:
    """Yield the last replacement of each former main, latest first."""
    seen = {main.branch_uuid}
    for pointer in reversed(replacements(main)):
        if pointer.replaced is not None and pointer.replaced.old.uuid not in seen:
            seen.add(pointer.replaced.old.uuid)
            yield pointer


def is_in_past(main: TableContext, snapshot: SnapshotRef) -> bool:
    """Whether a snapshot is in the history of main, including what that took over by replacements.

    Where its own file has expired, the replacements tell how much of the previous main's past each main took over.
    """
    found = main.snapshots.find(snapshot.id) if snapshot.id else None
    if found is not None:
        return found.stamp == snapshot.stamp
    head = main.snapshots.head()
    if head is None or not 0 < snapshot.id < head.id:
        return False
    known = replacements(main)
    return _maker(known, main.branch_uuid, snapshot.id) == _maker(known, snapshot.branch_uuid, snapshot.id)


def _maker(known: Sequence[MainPointer], uuid: str, number: int) -> str:
    """Return the identity of the branch that made a snapshot number in the history of a current or former main."""
    for begun in beginnings(known, uuid):
        if number > begun.id:
            break
        uuid = begun.branch_uuid
    return uuid


def beginnings(known: Sequence[MainPointer], uuid: str) -> Iterator[SnapshotRef]:
    """Yield what a current or former main began with on the main before it, then what that began with, and so on.

    Where a branch is put in the place of main again, the record says where the two parted, which may be in its own history.
    """
    for _ in known:  # each step goes to an older branch, which bounds the loop
        forks = [
            p.replaced.fork for p in known if p.main.uuid == uuid and p.replaced and p.replaced.undoes is None
        ]
        begun = max(
            (fork for fork in forks if fork.branch_uuid != uuid), key=lambda ref: ref.id, default=None
        )
        if begun is None or not begun.id:
            return
        yield begun
        uuid = begun.branch_uuid


def begun_with(context: TableContext) -> tuple[tuple[str, int], ...]:
    """Return what a branch began with, what that began with, and so on: identities, and their newest snapshots that it shares.

    Empty for the table's own folder, for what another engine made, and where the record of it cannot be read.
    """

    def load() -> tuple[SnapshotRef, ...]:
        fork = None if context.branch is None else context.fork
        if fork is None:
            return ()
        begun = fork.snapshot
        is_first = begun.branch_uuid == context.table_uuid
        return (begun, *(() if is_first else beginnings(replacements(context), begun.branch_uuid)))

    key = (context.storage.url, context.branch_uuid, "begun")
    try:
        found = context.cache.get_or(key, load, lambda refs: 200 * len(refs))
    except CorruptTableError:
        return ()  # rows can be read, and lineage must not keep anybody from that
    return tuple((ref.branch_uuid, ref.id) for ref in found)


def main_by_uuid(context: TableContext, branch_uuid: str) -> TableContext | None:
    """Return the branch of that identity as the main it is or was; None if it never was."""
    main = main_of(context)
    if main.branch_uuid == branch_uuid:
        return main
    pointer = succession(main, branch_uuid)
    if pointer is None or pointer.replaced is None:
        return None
    return as_main_before(main, pointer)


# Versions of main after replacements: two mains may share a snapshot number, so versions can name the main.
#
# ``main@1.snapshot.57`` is snapshot 57 of the main that replacement 1 replaced, ``main.snapshot.57`` that of the current
# main. The bare number is refused if it is ambiguous. The same prefixes go before every other version: ``main@1.good``.

V = TypeVar("V", str, int, str | int)


def located(context: TableContext, version: V) -> tuple[TableContext, V]:
    """Split a version of main into the branch to look on and the version without its main prefix.

    Raises `NotFoundError`: there is no such former main.
    """
    if not isinstance(version, str) or context.main_generation is None:
        return context, version
    place, _, rest = version.partition(".")
    replacement = former_main_of(place)
    if rest and replacement is not None:
        return former_main(context, replacement), rest
    if rest and place == MAIN_BRANCH and (context.main_generation or find_tag(context, version) is None):
        # By its name: no number is ambiguous there. Who called a tag so before main was replaced still means the tag.
        return replace(context, main_generation=None, known_as=None), rest
    return context, version


def located_here(context: TableContext, version: V) -> tuple[TableContext, V]:
    """Split a version as `located`, of this branch's own history.

    Raises as that, and `InvalidInputError` for a version of a main that was replaced.
    """
    place, named = located(context, version)
    if place.branch_uuid != context.branch_uuid:
        raise InvalidInputError(
            f"'{version}' of '{context.name}' is of a main that was replaced, not of main as it is now",
            hint="open that main as a branch and name the moment there; `undo-replace` brings it back as main.",
        )
    return place, named


def located_options(
    context: TableContext, options: Mapping[str, str]
) -> tuple[TableContext, Mapping[str, str]]:
    """Apply `located` to the version in read options. Raises `NotFoundError`."""
    version = SCAN_VERSION.of(options)
    if version is None:
        return context, options
    place, rest = located(context, version)
    return place, {**options, SCAN_VERSION.key: rest}


def check_unambiguous(context: TableContext, number: int) -> None:
    """Raise `InvalidInputError` if a former main had another snapshot of that number."""
    if not context.main_generation:
        return
    for pointer in reversed(replacements(context)):
        if pointer.replaced is not None and pointer.replaced.fork.id < number <= pointer.replaced.head.id:
            former = former_main_name(pointer.generation)
            raise InvalidInputError(
                f"AMBIGUOUS_SNAPSHOT: main of '{context.name}' had a snapshot {number} before replacement "
                f"{pointer.generation}, and may have another one since",
                hint=f"ask for '{former}.snapshot.{number}' or for '{MAIN_BRANCH}.snapshot.{number}'.",
            )

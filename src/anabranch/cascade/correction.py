"""The commits a correction takes out of a table: those that replacements of main left behind, or those after a tag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from anabranch.cascade.affected import Affected, Fork
from anabranch.cascade.naming import branch_name, correction_name
from anabranch.cascade.taken_away import Taking, begun_anew, takings
from anabranch.errors import AnabranchError, InvalidInputError, NotFoundError
from anabranch.format.records.main_pointer import former_main_name
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import is_in_past, main_of
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.tag_log import get_tag
from anabranch.lineage.commit import CommitRef
from anabranch.lineage.content import Contents, Segment, Segments, union, without
from anabranch.lineage.store import CommitStore


@dataclass(frozen=True, slots=True)
class Correction:
    """A table whose main was replaced."""

    table: str
    main: TableContext
    """The current main."""
    number: int
    """Number of its last replacement."""
    taken_out: Segments
    """All commits that were in a former main of the table, as history or content, and are not in main now."""
    former: Mapping[str, str]
    """Current names of the mains that have them, such as ``main@1``, by the identity of the branch."""
    name: str
    """Name of the branches of its cascade."""
    root: Affected | None = None
    """The table itself, if it is still to be corrected: from a tag."""
    warnings: tuple[str, ...] = ()
    takings: tuple[Taking, ...] = ()
    """Commits of its branches that took rows away before they became main."""


@dataclass(frozen=True, slots=True)
class FromTag:
    """A correction that begins at a tag of a table, whose main is replaced together with those of derived tables."""

    tag: str
    name: str | None = None
    """Name of the branches; derived from table and tag if None."""


def correction_of(context: TableContext, store: CommitStore) -> Correction:
    """Return what the replacements of a table's main took out. Raises `NotFoundError`: its main was never replaced.

    If a table was corrected more than once, all corrections count: tables derived from what the first one took out may
    not have been corrected since. What became main again after an undo is in main.
    """
    main = main_of(context)
    known = replacements(main)
    if not known:
        raise NotFoundError(
            f"main of '{main.name}' was not replaced, so nothing was taken out that other tables may be made from",
            hint="correct it on a branch first, and put that in the place of main: replace-main-branch.",
        )
    taking = takings(main, store)
    contents = Contents(begun_anew(store, taking))
    left: list[Segment] = []
    taken_away: list[Segment] = []
    former: dict[str, str] = {}
    for pointer in known:
        replaced = pointer.replaced
        assert replaced is not None, "those that came to nothing are left out"
        parted = contents.history(replaced.old.uuid, replaced.fork.id + 1, replaced.head.id)
        # What the branch took away itself is in the history of both.
        away = without(_content(contents, replaced.head), _content(contents, replaced.taken))
        name = former_main_name(pointer.generation)
        former = dict.fromkeys((one.branch for one in away), name) | former
        former |= dict.fromkeys((one.branch for one in parted), name)
        left += parted
        taken_away += away
    head = main.snapshots.head()
    here = () if head is None else contents.history(main.branch_uuid, 1, head.id)
    content = () if head is None else contents.content(CommitRef(main.branch_uuid, head.id))
    return Correction(
        main.name,
        main,
        known[-1].generation,
        union((*without(left, here), *without(taken_away, content))),
        former,
        branch_name(main.name, known[-1].generation),
        takings=taking,
    )


def _content(contents: Contents, at: SnapshotRef) -> Segments:
    return contents.content(CommitRef(at.branch_uuid, at.id))


def correction_from(context: TableContext, store: CommitStore, start: FromTag) -> Correction:
    """Return what a correction that begins at a tag takes out of a table: everything its main got since.

    Nothing is taken out if the correction's branch is main already, and began with what the tag names now.

    Raises:
        NotFoundError: there is no such tag.
        InvalidInputError: the tag is not in the history of the current main.
    """
    main = main_of(context)
    tag = get_tag(main, start.tag)
    name = start.name or _name_of(main, tag)
    known, head = replacements(main), main.snapshots.head()
    number = known[-1].generation if known else 0
    is_done = main.branch == name and _begins_with(main, tag)
    if head is None or is_done:
        return Correction(main.name, main, number, (), {}, name)
    at = SnapshotRef(main.branch_uuid, tag.snapshot.id, tag.snapshot.stamp)
    if head.stamp != tag.snapshot.stamp and not is_in_past(main, at):
        raise InvalidInputError(
            f"tag '{tag.name}' of '{main.name}' names snapshot {tag.snapshot.id}, which is not in the history of what main "
            "is now",
            hint="main was replaced since by a branch that had parted before it: choose a tag of the new main.",
        )
    contents = Contents(store)
    kept = contents.content(CommitRef(main.branch_uuid, tag.snapshot.id))
    taken = without(contents.content(CommitRef(main.branch_uuid, head.id)), kept)
    since = tuple((segment.first, segment.last) for segment in taken)
    root = Affected(main, since, Fork(tag.snapshot.id), tag.snapshot.id, kept, taken)
    dropped = tuple(
        f"replacement {one.generation} of main of {main.name}{_by(one.made_by, one.replaced.reason)} came after tag "
        f"'{tag.name}': what it brought is made anew from the tag"
        for one in known
        if one.replaced is not None and one.replaced.fork.id >= tag.snapshot.id
    )
    # Other tables may still contain what earlier replacements left behind: those are corrected as well.
    before = correction_of(context, store) if known else None
    left = () if before is None else before.taken_out
    former = {} if before is None else dict(before.former)
    former |= {segment.branch: "main" for segment in taken}
    all_of_it = union((*taken, *left))
    taking = () if before is None else before.takings
    return Correction(
        main.name, main, number, all_of_it, former, name, root if taken else None, dropped, taking
    )


def _name_of(main: TableContext, tag: Tag) -> str:
    """Return the name of the branches of a correction: a new one where the tag named another snapshot before."""
    for number in count(1):
        name = correction_name(main.name, tag.name, number)
        try:
            if _begins_with(open_branch(main, name), tag):
                break
        except AnabranchError:
            break  # it does not exist, or is being created
    return name


def _begins_with(branch: TableContext, tag: Tag) -> bool:
    return branch.fork is not None and branch.fork.snapshot.stamp == tag.snapshot.stamp


def _by(by: str | None, reason: str | None) -> str:
    who = "" if by is None else f" by {by}"
    return who if reason is None else f"{who} ({reason})"

"""Records what later merges must know of expiring snapshots, before these are removed.

A merge needs to know main's changes since the fork, and the branch's since its last merge. Before snapshots with such
changes are removed, an expiry writes the changes, as a `Span`, into the folder of each branch that may need them:

- ``carry-<first>-<last>``: snapshots of main, in the folder of each branch forked before the last of them;
- ``carry-own-<first>-<last>``: the branch's own, with the births of its files (see `provenance`).

Each file absorbs the preceding one if they are contiguous, which is then removed: so there is one of each kind,
or two where an expiry was killed. Stamps tell whether a file leads to the retained snapshots. If another
engine removed snapshots, none does, and a merge goes by the live files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Final

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.fork import Fork
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_snapshot
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.kernel.log.tag_log import find_tags, tag_names
from anabranch.kernel.provenance.births import Birth, births, live_names
from anabranch.kernel.provenance.classify import MarksReader, Span, joined, span_of

_VERSION: Final = 1
_FILE: Final = re.compile(r"carry-(own-)?([1-9][0-9]{0,17})-([1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class Carried:
    """Recorded changes of contiguous snapshots that are removed, or about to be."""

    span: Span
    births: Mapping[str, Birth] = field(default_factory=dict)
    """For a branch's own snapshots: births of its files, except those from the fork. Covers files
    that were live after the span, or that a tag of the branch can bring back."""
    others: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Fields that this release does not know."""


def behind(
    branch: TableContext, left: Sequence[Snapshot], *, own: bool = False
) -> tuple[Carried | None, tuple[Snapshot, ...]]:
    """Return the record of what came right before the retained snapshots, if there is one.

    Args:
        branch: the branch that is to be merged.
        left: the retained snapshots of main, oldest first and without gap; with `own` those of the branch.
        own: about the branch itself instead of main.

    Returns:
        the record, or None; and the snapshots that follow it. These are `left` unless an expiry was killed
        after it had written the record and before it had removed the snapshots.

    Raises `CorruptTableError` if a record cannot be read.
    """
    if left:
        for page in sorted(_pages(branch, own=own), key=lambda page: (page.first, -page.last)):
            if page.last < left[0].id - 1:
                continue
            found = _read(branch, page)
            if found is not None and _leads_to(found.span, left):
                return found, tuple(snapshot for snapshot in left if snapshot.id > found.span.last)
    return None, tuple(left)


def carried_births(branch: TableContext, head: Snapshot) -> Mapping[str, Birth]:
    """Return the recorded births of a branch's files, if the record leads to the snapshot `head`."""
    left = [*branch.snapshots.backwards(head)][::-1]
    found, _ = behind(branch, left, own=True)
    return {} if found is None else found.births


def carry_over(context: TableContext, due: Sequence[Snapshot], following: Snapshot) -> None:
    """Record what merges must know of snapshots that are about to be removed.

    Must return before the first of them is removed. Idempotent.

    Args:
        due: oldest first, without gap.
        following: the first that stays.

    Raises `CorruptTableError` if their changes cannot be read.
    """
    if context.fork is not None and context.main_generation is None:
        _carry_own(context, context.fork, due, following)
        return
    marks_by = MarksReader(context)  # main's changes are the same for all branches
    for branch, fork in _others_of(context):
        # Excludes the fork snapshot: a rollback to before that is a change for this branch.
        later = [snapshot for snapshot in due if snapshot.id > fork.snapshot.id]
        _carry(branch, marks_by, context, later, besides=fork.branch_uuid)


def carried_after(context: TableContext) -> int | None:
    """Return the id of the snapshot after which `carry_over` reads the changes of snapshots; None if it reads none.

    Costs nothing on a branch, which reads its own.
    """
    if context.fork is not None and context.main_generation is None:
        return context.fork.snapshot.id - 1
    return min((fork.snapshot.id for _, fork in _others_of(context)), default=None)


def _others_of(main: TableContext) -> list[tuple[TableContext, Fork]]:
    """Return the other branches that can be merged, each with its fork record."""
    branches = [main.on_branch(name) for name in branch_names(main)]
    forks = each(attrgetter("fork"), branches, at=main.storage)
    return [
        (branch, fork)
        for branch, fork in zip(branches, forks, strict=True)
        if fork is not None and fork.branch_uuid != main.branch_uuid
    ]


def _carry(
    branch: TableContext, marks_by: MarksReader, main: TableContext, due: Sequence[Snapshot], *, besides: str
) -> None:
    known, rest = behind(branch, due)
    if rest:
        span = _joined(known, span_of(main, rest, besides=besides, marks_by=marks_by))
        _put(branch, Carried(span, others=_others(known)), own=False)


def _carry_own(branch: TableContext, fork: Fork, due: Sequence[Snapshot], following: Snapshot) -> None:
    later = [snapshot for snapshot in due if snapshot.id >= fork.snapshot.id]
    known, rest = behind(branch, later, own=True)
    if rest:
        span = _joined(known, span_of(branch, rest))
        _put(branch, Carried(span, _births_kept(branch, following), _others(known)), own=True)


def _births_kept(branch: TableContext, following: Snapshot) -> dict[str, Birth]:
    """Return births of the files that are live after the expiring snapshots, or may be again."""
    found = births(branch, following, partial(carried_births, branch, following))
    tagged = [tag.snapshot for tag in find_tags(branch, tag_names(branch))]
    needed = set[str]().union(*(live_names(branch, snapshot) for snapshot in (following, *tagged)))
    begun_with = fork_snapshot(branch)
    needed -= set() if begun_with is None else live_names(branch, begun_with)
    return {name: birth for name, birth in found.known.items() if name in needed}


def _joined(known: Carried | None, span: Span) -> Span:
    spans = [span] if known is None else [known.span, span]
    result = joined(spans)
    assert result is not None
    return result


def _others(known: Carried | None) -> Mapping[str, Any]:
    return {} if known is None else known.others


def _leads_to(span: Span, left: Sequence[Snapshot]) -> bool:
    """Whether a recorded span is the past of these snapshots."""
    if span.last == left[0].id - 1:
        return left[0].properties.get(PARENT_PROPERTY) in (None, span.end)
    return any(snapshot.id == span.last and snapshot.stamp == span.end for snapshot in left)


# The files


@dataclass(frozen=True, slots=True)
class _Page:
    first: int
    last: int
    path: str


def _pages(branch: TableContext, *, own: bool) -> list[_Page]:
    pages = []
    for info in branch.storage.list(branch.layout.branch_root):
        match = _FILE.fullmatch(info.path.rpartition("/")[2])
        if match is not None and (match[1] is not None) == own:
            pages.append(_Page(int(match[2]), int(match[3]), info.path))
    return pages


def _read(branch: TableContext, page: _Page) -> Carried | None:
    """Read a record; None if it was joined with a later one meanwhile."""
    try:
        return carried_of(branch.storage.get(page.path), page.path)
    except NotFoundError:
        return None


def carried_of(data: bytes, path: str) -> Carried:
    """Parse a record. Raises `CorruptTableError`."""
    content = JsonObject.parse(data, path=path)
    content.version(_VERSION)
    span = Span.from_dict(content.values.get("span"), where=path)
    births = _to_births(content.values.get("births", []), path)
    return Carried(span, births, content.others(("version", "span", "births")))


def _put(branch: TableContext, carried: Carried, *, own: bool) -> None:
    """Store a record, and remove those it has absorbed or that nothing leads to any more."""
    span = carried.span
    before = _pages(branch, own=own)
    name = f"carry-{'own-' if own else ''}{span.first}-{span.last}"
    path = branch.layout.branch_file_path(name)
    births = _from_births(carried.births)
    content = {**carried.others, "version": _VERSION, "span": span.to_dict(), "births": births}
    branch.storage.put(path, to_bytes(content))
    branch.storage.delete_many([p.path for p in before if p.path != path and p.last <= span.last])


def _from_births(found: Mapping[str, Birth]) -> list[Any]:
    """Group names by birth: many files have the same."""
    by_birth: dict[tuple[int, int], list[str]] = {}
    for name, birth in found.items():
        by_birth.setdefault((birth.first, birth.last), []).append(name)
    return [[first, last, names] for (first, last), names in sorted(by_birth.items())]


def _to_births(value: Any, path: str) -> dict[str, Birth]:
    try:
        return {str(name): Birth(int(first), int(last)) for first, last, names in value for name in names}
    except (ValueError, TypeError) as error:
        raise CorruptTableError("does not say how old the files of a branch are", path=path) from error

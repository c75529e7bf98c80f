"""Commits of other tables that may belong to an answer, because the origin of their rows is unknown.

A reader commits after the rows it read. So only commits count that are not older than what is
asked about, allowing for clock differences between two machines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from anabranch.lineage.commit import CommitRef, Line
from anabranch.lineage.content import Contents, Segment
from anabranch.lineage.ranges import Ids
from anabranch.lineage.store import CommitStore
from anabranch.lineage.trace import Unknown

_CLOCKS_APART_MILLIS: Final = 60_000
_NOT_SAID: Final = "not said where the rows come from"


def may_belong(
    store: CommitStore, contents: Contents, asked: Collection[Segment], found: Sequence[tuple[str, Ids]]
) -> Iterator[Unknown]:
    """Return commits of every table's main whose rows may come from what is asked about, without a record of it.

    Args:
        store: where commits are known.
        contents: of the store.
        asked: what is asked about; other commits of these branches are not listed.
        found: the commits, by branch, that are in the answer already.
    """
    since = min((time for one in asked if (time := _time_from(store, one)) is not None), default=None)
    if since is None:
        return
    known = dict(found)
    own = {one.branch for one in asked}
    tables = {line.table_uuid for branch in own if (line := store.line(branch)) is not None}
    for line in sorted(store.lines(), key=lambda line: (line.title, line.branch_uuid)):
        if line.is_main and line.table_uuid not in tables:
            yield from _of_table(store, contents, line, since - _CLOCKS_APART_MILLIS, known)


def _of_table(
    store: CommitStore, contents: Contents, line: Line, since: int, known: dict[str, Ids]
) -> Iterator[Unknown]:
    reasons: dict[str, Ids] = {}
    newest = store.newest(line.branch_uuid) or (0 if line.fork is None else line.fork.snapshot)
    for branch, first, last in contents.history(line.branch_uuid, 1, newest):
        begin = _first_since(store, branch, first, last, since)
        taken = known.get(branch, Ids())
        for number in store.unsaid(branch, begin, last):
            reasons.setdefault(_NOT_SAID, Ids()).add(number, number)
        rowless = Ids.of(store.rowless(branch, begin, last))
        for number, problem in store.problems(branch, begin, last):
            if number not in taken and number not in rowless:
                reasons.setdefault(problem, Ids()).add(number, number)
    for reason, ids in reasons.items():
        yield Unknown(line.title, tuple(ids), reason)


def _time_from(store: CommitStore, segment: Segment) -> int | None:
    """Return the time of the first known commit of a range."""
    first = next(store.commits(segment.branch, segment.first), None)
    return None if first is None or first.snapshot > segment.last else first.time_millis


def _first_since(store: CommitStore, branch: str, first: int, last: int, since: int) -> int:
    """Return the first id of a range from which on commits are not older than a time; unknown commits count."""
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        commit = store.commit(CommitRef(branch, middle))
        if commit is not None and commit.time_millis < since:
            low = middle + 1
        else:
            high = middle
    return low

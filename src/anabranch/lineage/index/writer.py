"""Brings the index's rows for one branch up to date, totals included, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise, takewhile
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from anabranch.lineage.commit import Commit, Line
from anabranch.lineage.index.rows import Words, insert_commits
from anabranch.lineage.index.tables import (
    COMMITS,
    FLOWS,
    GAPS,
    INPUT_KEYS,
    INPUTS,
    JOBS,
    LINES,
    OF_COMMITS,
    OTHER_READS,
    READS,
    owner,
)

_AT_ONCE: Final = 512


class CommitCounts(NamedTuple):
    """Number of commits that were added, and removed."""

    added: int
    removed: int


def put_line(connection: sa.Connection, words: Words, line: Line, warehouse: str) -> None:
    """Insert or update the row of a branch."""
    words.learn([line.branch_uuid])
    number = words[line.branch_uuid]
    values: dict[str, Any] = {
        "branch_uuid": line.branch_uuid,
        "table_uuid": line.table_uuid,
        "table_name": line.table,
        "branch_name": line.branch,
        "fork_branch": None if line.fork is None else line.fork.branch_uuid,
        "fork_snapshot": None if line.fork is None else line.fork.snapshot,
        "is_main": line.is_main,
        "warehouse": warehouse,
        "is_dropped": False,
    }
    known = connection.execute(sa.update(LINES).where(LINES.c.branch == number).values(values))
    if not known.rowcount:
        connection.execute(
            LINES.insert().values(values | {"branch": number, "newest": 0, "newest_stamp": ""})
        )


def put_commits(
    connection: sa.Connection, words: Words, line: Line, newest: int, backwards: Iterable[Commit]
) -> CommitCounts:
    """Bring the commits of a branch in the index up to date.

    Args:
        connection: in a transaction.
        words: of the transaction.
        line: the branch, already written by `put_line`.
        newest: id of the newest commit that the index has of it; 0 without any.
        backwards: its commits, newest first. Read up to the first that the index has; if there is none the
            older ones in the index stay: another engine may have removed what lies between.
    """
    branch, commits = words[line.branch_uuid], iter(backwards)
    head, kept, above = None, None, None
    ids: list[int] = []
    removed = 0
    at_once = 2  # usually one is new: then only that one and the one before it are read
    while kept is None and (chunk := list(islice(commits, at_once))):
        at_once = min(2 * at_once, _AT_ONCE)
        head = head or chunk[0]
        new = list(_until_known(connection, branch, chunk, newest))
        if new:
            removed += _delete(connection, branch, new[-1].snapshot, above, newest)
            insert_commits(connection, words, new)
            above = new[-1].snapshot
            ids += (commit.snapshot for commit in new)
        if len(new) < len(chunk):
            kept = chunk[len(new)].snapshot
    if kept is None:
        kept = 0 if above is None else _newest_before(connection, branch, above)
    removed += _delete(connection, branch, kept + 1, above, newest)
    _put_gaps(connection, branch, [*ids, kept or (0 if line.fork is None else line.fork.snapshot)], kept)
    summarise(connection, branch, None if removed else kept)
    _put_newest(connection, branch, head)
    return CommitCounts(len(ids), removed)


def _until_known(
    connection: sa.Connection, branch: int, chunk: Sequence[Commit], newest: int
) -> Iterator[Commit]:
    """Yield the commits before the first that the index has."""
    known: dict[int, str] = {}
    if chunk[-1].snapshot <= newest:
        wanted = sa.select(COMMITS.c.snapshot, COMMITS.c.stamp).where(
            COMMITS.c.branch == branch,
            COMMITS.c.snapshot.between(chunk[-1].snapshot, chunk[0].snapshot),
        )
        known = {row.snapshot: row.stamp for row in connection.execute(wanted)}
    return takewhile(lambda commit: known.get(commit.snapshot) != commit.stamp, chunk)


def _delete(connection: sa.Connection, branch: int, first: int, above: int | None, newest: int) -> int:
    """Delete the commits from an id up to the one below `above`; return how many there were."""
    if first > newest:
        return 0
    counts = []
    for table in OF_COMMITS:
        below = sa.true() if above is None else table.c.snapshot < above
        counts.append(
            connection.execute(
                table.delete().where(owner(table) == branch, table.c.snapshot >= first, below)
            ).rowcount
        )
    return counts[OF_COMMITS.index(COMMITS)]


def _newest_before(connection: sa.Connection, branch: int, snapshot: int) -> int:
    wanted = sa.select(sa.func.max(COMMITS.c.snapshot)).where(
        COMMITS.c.branch == branch, COMMITS.c.snapshot < snapshot
    )
    return connection.scalar(wanted) or 0


def _put_gaps(connection: sa.Connection, branch: int, ids: Sequence[int], kept: int) -> None:
    """Write the ids missing between these, which descend, and delete the gaps recorded above the kept one."""
    connection.execute(GAPS.delete().where(GAPS.c.branch == branch, GAPS.c.first > kept))
    missing = [
        {"branch": branch, "first": older + 1, "last": younger - 1}
        for younger, older in pairwise(ids)
        if younger > older + 1
    ]
    if missing:
        connection.execute(GAPS.insert(), missing)


def _put_newest(connection: sa.Connection, branch: int, head: Commit | None) -> None:
    values = {
        "newest": 0 if head is None else head.snapshot,
        "newest_stamp": "" if head is None else head.stamp,
    }
    connection.execute(sa.update(LINES).where(LINES.c.branch == branch).values(values))


Sums = dict[tuple[Any, ...], dict[str, Any]]
"""Rows by their keys."""


def summarise(connection: sa.Connection, sink: int, after: int | None) -> None:
    """Bring the totals of a branch up to date.

    Args:
        connection: in a transaction.
        sink: the branch.
        after: commits newer than this are not in the totals yet; None if anything else may have changed too.
    """
    if after is None:
        for table in (FLOWS, JOBS, INPUT_KEYS):
            connection.execute(table.delete().where(table.c.sink == sink))
        keys = [INPUTS.c.sink, INPUTS.c.job, INPUTS.c.query, INPUTS.c.source]
        distinct = sa.select(*keys).where(INPUTS.c.sink == sink).distinct()
        connection.execute(INPUT_KEYS.insert().from_select([key.name for key in keys], distinct))
    _add(connection, FLOWS, sink, _flows(connection, sink, after or 0))
    _add(connection, JOBS, sink, _jobs(connection, sink, after or 0))


def _flows(connection: sa.Connection, sink: int, after: int) -> Sums:
    is_merge = sa.case((READS.c.kind == "merge", 1), else_=0).label("is_merge")
    tables = sa.select(
        READS.c.source,
        READS.c.job,
        is_merge,
        sa.literal("table"),
        sa.null(),
        *_counted(READS),
    )
    tables = tables.where(READS.c.sink == sink, READS.c.snapshot > after)
    others = sa.select(
        OTHER_READS.c.source,
        OTHER_READS.c.job,
        sa.literal(0),
        OTHER_READS.c.kind,
        OTHER_READS.c.name,
        *_counted(OTHER_READS),
    ).where(OTHER_READS.c.sink == sink, OTHER_READS.c.snapshot > after)
    found = [
        *connection.execute(tables.group_by(READS.c.source, READS.c.job, sa.text("is_merge"))),
        *connection.execute(
            others.group_by(OTHER_READS.c.source, OTHER_READS.c.job, OTHER_READS.c.kind, OTHER_READS.c.name)
        ),
    ]
    return {
        (sink, source, job, bool(merge)): {
            "kind": kind,
            "name": name,
            "commits": commits,
            "first_millis": first,
            "last_millis": last,
        }
        for source, job, merge, kind, name, commits, first, last in found
    }


def _counted(table: sa.Table) -> tuple[sa.ColumnElement[int], ...]:
    time = table.c.time_millis
    return sa.func.count(table.c.snapshot.distinct()), sa.func.min(time), sa.func.max(time)


def _jobs(connection: sa.Connection, sink: int, after: int) -> Sums:
    time, last = COMMITS.c.time_millis, sa.func.max(COMMITS.c.snapshot)
    wanted = (
        sa.select(COMMITS.c.job, sa.func.count(), sa.func.min(time), sa.func.max(time), last.label("last"))
        .where(COMMITS.c.branch == sink, COMMITS.c.snapshot > after, COMMITS.c.job.is_not(None))
        .group_by(COMMITS.c.job)
        .subquery()
    )
    newest = sa.and_(COMMITS.c.branch == sink, COMMITS.c.snapshot == wanted.c.last)
    found = connection.execute(sa.select(wanted, COMMITS.c.engine).join(COMMITS, newest))
    return {
        (sink, job): {
            "commits": commits,
            "first_millis": first,
            "last_millis": last_millis,
            "last_snapshot": snapshot,
            "engine": engine,
        }
        for job, commits, first, last_millis, snapshot, engine in found
    }


def _add(connection: sa.Connection, table: sa.Table, sink: int, new: Sums) -> None:
    """Add new totals to the existing ones."""
    if not new:
        return
    keys = [column.name for column in table.primary_key.columns]
    found = connection.execute(sa.select(table).where(table.c.sink == sink)).mappings()
    known = {tuple(row[key] for key in keys): row for row in found}
    for key, sums in new.items():
        values = dict(zip(keys, key, strict=True))
        before = known.get(key)
        if before is None:
            connection.execute(table.insert().values(values | sums))
            continue
        together = sums | {
            "commits": before["commits"] + sums["commits"],
            "first_millis": min(before["first_millis"], sums["first_millis"]),
            "last_millis": max(before["last_millis"], sums["last_millis"]),
        }
        same = [table.c[name] == value for name, value in values.items()]
        connection.execute(sa.update(table).where(*same).values(together))

"""Totals over the commits of a branch, so that the flows of a whole lake are known without reading each commit."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from anabranch.lineage.index.tables import COMMITS, FLOWS, INPUT_KEYS, INPUTS, JOBS, OTHER_READS, READS

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

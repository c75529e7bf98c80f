"""Finds what is new in the tables of a warehouse, and puts it into the index.

First every table is checked without a lock. One that never had a branch, which is most of them, costs three requests if
nothing is new: the newest snapshot that the index knows is there under its stamp, there is none above it, and the
folder of branches is empty. A stamp is that of one commit of one table, so this is the very table, with the history
that the index has. What our verbs do to branches leaves records in that folder. Only a branch that another engine
deleted after its commits had expired is then seen no sooner than the table's next commit. Of every other table all
branches are looked at; each costs two reads if it is unchanged. Then each changed table is brought up to date in one transaction, in which it is checked again; so concurrent runs
work one after the other, and the second finds nothing to do. A killed run leaves the index as it was before the
table, and the next run repairs it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from anabranch.catalog import FilesystemCatalog, Identifier
from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError, UnsupportedFeatureError
from anabranch.format.records.layout import BRANCH_FOLDER, Layout
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.snapshot_log import SnapshotLog
from anabranch.lineage.commit import Line
from anabranch.lineage.commits import Newest, branches_of, commits_backwards, has_news
from anabranch.lineage.index.database import Database
from anabranch.lineage.index.rows import Words
from anabranch.lineage.index.store import line_of
from anabranch.lineage.index.tables import FLOWS, GAPS, INPUT_KEYS, JOBS, LINES, OF_COMMITS, owner
from anabranch.lineage.index.writer import CommitCounts, put_commits, put_line

_UNREADABLE: Final = (CorruptTableError, UnsupportedFeatureError)


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Result of a catch-up: what was new to the index."""

    commits: int = 0
    """Commits that were added."""
    removed: int = 0
    """Commits that were removed, because history was rolled back for good."""
    tables: tuple[str, ...] = ()
    """Names of the changed tables."""
    problems: tuple[str, ...] = ()
    """Tables that could not be read, and why; their rows in the index stay."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The content of the index for one table."""

    lines: Mapping[str, Line]
    newest: Mapping[str, Newest]
    """Newest commit by branch identity; branches without commits are left out."""


_NOTHING: Final = _Known({}, {})


def catch_up(database: Database, catalog: FilesystemCatalog) -> CaughtUp:
    """Bring the index up to date with all tables of a warehouse. Raises `StorageError`, `DamagedIndexError`."""
    warehouse = catalog.storage.url
    with database.reading() as connection:
        known = _known(connection)
        settled = _settled(connection, warehouse)
    names = [
        name for of_database in map(partial(_names, catalog), catalog.databases()) for name in of_database
    ]
    tables, copies, problems, quiet = _looked_for(catalog, names, settled)
    problems += copies
    looked = each(lambda table: _look(table, known.get(table.table_uuid, _NOTHING)), tables)
    problems += (found for found in looked if isinstance(found, str))
    news = [table for table, found in zip(tables, looked, strict=True) if found is True]
    added = removed = 0
    changed = []
    for table in news:
        try:
            with database.writing() as connection:
                more, less = _update(connection, table, warehouse)
        except NotFoundError:
            continue  # it was dropped meanwhile
        except _UNREADABLE as error:
            problems.append(_problem(table.name, error))
            continue
        added, removed = added + more, removed + less
        changed.append(table.name)
    if not problems:
        _mark_dropped(database, warehouse, quiet | {table.table_uuid for table in tables})
    return CaughtUp(added, removed, tuple(changed), tuple(problems))


def forget(database: Database, warehouse: str) -> None:
    """Remove all rows of a warehouse from the index."""
    with database.writing() as connection:
        mine = sa.select(LINES.c.branch).where(LINES.c.warehouse == warehouse)
        for table in (*OF_COMMITS, GAPS, FLOWS, JOBS, INPUT_KEYS):
            connection.execute(table.delete().where(owner(table).in_(mine)))
        connection.execute(LINES.delete().where(LINES.c.warehouse == warehouse))


def _names(catalog: FilesystemCatalog, database: str) -> list[Identifier]:
    try:
        return [Identifier(database, table) for table in catalog.table_folders(database)]
    except NotFoundError:
        return []  # it was dropped meanwhile


def _settled(connection: sa.Connection, warehouse: str) -> dict[str, tuple[str, Newest]]:
    """Return the identity and newest commit of tables with no branch but main in their own folder, by name."""
    mine = sa.select(LINES).where(LINES.c.warehouse == warehouse)
    lines: dict[str, list[sa.Row[Any]]] = {}
    for row in connection.execute(mine):
        lines.setdefault(row.table_uuid, []).append(row)
    return {
        row.table_name: (row.table_uuid, Newest(row.newest, row.newest_stamp))
        for row in (found[0] for found in lines.values() if len(found) == 1)
        if row.branch_name is None and row.is_main and row.newest and not row.is_dropped
    }


def _looked_for(
    catalog: FilesystemCatalog, names: Sequence[Identifier], settled: Mapping[str, tuple[str, Newest]]
) -> tuple[list[TableContext], list[str], list[str], set[str]]:
    """Return the tables to look at, with copies and problems, and the identities of those with nothing new."""
    is_quiet = each(
        lambda name: name.full_name in settled and _is_quiet(catalog, name, settled[name.full_name][1]), names
    )
    quiet = {settled[name.full_name][0] for name, found in zip(names, is_quiet, strict=True) if found}
    rest = [name for name, found in zip(names, is_quiet, strict=True) if not found]
    opened = each(partial(_open, catalog), rest)
    tables = [found for found in opened if isinstance(found, TableContext)]
    if any(
        table.table_uuid in quiet for table in tables
    ):  # a copy: which is the table is told from all of them
        return _looked_for(catalog, names, {})
    single, copies = _told_apart(tables)
    return single, copies, [found for found in opened if isinstance(found, str)], quiet


def _is_quiet(catalog: FilesystemCatalog, name: Identifier, newest: Newest) -> bool:
    """Whether a table without branches is as the index knows it: see the top of this module."""
    storage = catalog.storage.scoped(name.path)
    snapshots = SnapshotLog(storage, Layout())
    try:
        found = snapshots.find(newest.id)
        if found is None or found.stamp != newest.stamp or snapshots.is_there(newest.id + 1):
            return False
        return next(iter(storage.list(BRANCH_FOLDER, recursive=True)), None) is None
    except _UNREADABLE:
        return False  # looking at the whole of it says what is wrong


def _open(catalog: FilesystemCatalog, name: Identifier) -> TableContext | str | None:
    """Open a table; None if there is none or it was dropped meanwhile, or as text why it cannot be opened."""
    try:
        return catalog.open(name) if catalog.exists(name) else None
    except NotFoundError:
        return None
    except _UNREADABLE as error:
        return _problem(name.full_name, error)


def _told_apart(tables: Sequence[TableContext]) -> tuple[list[TableContext], list[str]]:
    """Return the tables with unique identities, and a problem for each other one: its folder was copied."""
    first: dict[str, TableContext] = {}
    for table in tables:
        first.setdefault(table.table_uuid, table)
    copies = [
        f"{table.name}: has the identity of {first[table.table_uuid].name}, of which it is a copy"
        for table in tables
        if first[table.table_uuid] is not table
    ]
    return list(first.values()), copies


def _look(table: TableContext, known: _Known) -> bool | str:
    """Whether there is anything that the index lacks, or the problem with the table as text."""
    try:
        branches, _ = branches_of(table, known.lines)
        lines = {branch.line.branch_uuid: branch.line for branch in branches}
        is_other = any(known.lines.get(uuid) != line for uuid, line in lines.items())
        if is_other or _left_without_trace(known, lines):
            return True
        return any(has_news(branch, known.newest.get(branch.line.branch_uuid), table) for branch in branches)
    except NotFoundError:
        return False  # it was dropped meanwhile
    except _UNREADABLE as error:
        return _problem(table.name, error)


def _update(connection: sa.Connection, table: TableContext, warehouse: str) -> CommitCounts:
    known = _known(connection, table.table_uuid).get(table.table_uuid, _NOTHING)
    words = Words(connection)
    branches, forks = branches_of(table, known.lines)
    total = CommitCounts(0, 0)
    gone = _left_without_trace(known, {branch.line.branch_uuid for branch in branches})
    if gone:
        connection.execute(LINES.delete().where(LINES.c.branch_uuid.in_(gone)))
    for branch in branches:
        line = branch.line
        newest = known.newest.get(line.branch_uuid)
        put_line(connection, words, line, warehouse)
        if has_news(branch, newest, table):
            backwards = commits_backwards(branch, forks, table)
            done = put_commits(connection, words, line, 0 if newest is None else newest.id, backwards)
            total = CommitCounts(total.added + done.added, total.removed + done.removed)
    return total


def _left_without_trace(known: _Known, there: Collection[str]) -> list[str]:
    """Return branches that were deleted before anything was committed on them."""
    return sorted(known.lines.keys() - set(there) - known.newest.keys())


def _known(connection: sa.Connection, table_uuid: str | None = None) -> dict[str, _Known]:
    """Return the content of the index by table identity."""
    wanted = (
        sa.select(LINES) if table_uuid is None else sa.select(LINES).where(LINES.c.table_uuid == table_uuid)
    )
    lines: dict[str, dict[str, Line]] = {}
    newest: dict[str, dict[str, Newest]] = {}
    for row in connection.execute(wanted):
        lines.setdefault(row.table_uuid, {})[row.branch_uuid] = line_of(row)
        if row.newest:
            newest.setdefault(row.table_uuid, {})[row.branch_uuid] = Newest(row.newest, row.newest_stamp)
    return {uuid: _Known(found, newest.get(uuid, {})) for uuid, found in lines.items()}


def _mark_dropped(database: Database, warehouse: str, there: Collection[str]) -> None:
    is_mine = sa.and_(LINES.c.warehouse == warehouse, LINES.c.is_dropped == sa.false())
    with database.reading() as connection:
        known = set(connection.scalars(sa.select(LINES.c.table_uuid).where(is_mine).distinct()))
    gone = sorted(known - set(there))
    if not gone:
        return
    with database.writing() as connection:
        dropped = sa.update(LINES).where(is_mine, LINES.c.table_uuid.in_(gone))
        connection.execute(dropped.values(is_dropped=True, is_main=False))


def _problem(name: str, error: AnabranchError) -> str:
    return f"{name}: {error.message}"

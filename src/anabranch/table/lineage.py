"""Lineage of a table's rows, upstream and downstream: `Table.lineage`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import check_unambiguous, located
from anabranch.kernel.log.moment import Moment
from anabranch.kernel.log.tag_log import find_tag
from anabranch.kernel.refs.moments import resolve
from anabranch.lineage.commit import CommitRef
from anabranch.lineage.content import Contents
from anabranch.lineage.memory import MemoryStore
from anabranch.lineage.questions.asked import AskedCommits, commits, contained, whole
from anabranch.lineage.questions.downstream import downstream, impact
from anabranch.lineage.questions.positions import positions
from anabranch.lineage.questions.upstream import upstream
from anabranch.lineage.store import CommitStore, Known, LineageSource, healing
from anabranch.lineage.trace import Positions, Producer, Trace
from anabranch.table.view import TableView

_NUMBER: Final = re.compile(r"(?:snapshot\.)?([0-9]{1,18})")


class _Question(Protocol):
    def __call__(self, store: CommitStore, asked: AskedCommits, /, *, depth: int | None) -> Trace: ...


class LineageMethods(TableView):
    """Table methods for lineage."""

    @property
    def lineage(self) -> TableLineage:
        """Lineage of this branch's rows, upstream and downstream.

        A table that was opened from a lake is asked about among all tables of the warehouse; one that was opened by its
        path knows only itself: nothing is found downstream of it, and of its sources only what it says itself.
        """
        context = self._follow()
        return TableLineage(context, self._pinned, self._lineage_source or _OnlyTable(context))


class TableLineage:
    """Lineage queries about the commits of one branch, or of a moment of it.

    Commits are named by a snapshot's id, by ``snapshot.5``, ``savepoint.2`` or a tag, which stand for that one commit; or by
    a range such as ``5..9``, ``5..``, ``..9`` or ``good..``, both ends included. Asked about nothing in particular, a table
    stands for all commits it ever had, and a view of a moment, such as ``t.at("good")``, for what it contains. Commits that
    have expired are known as well.
    """

    def __init__(self, context: TableContext, moment: Moment | None, source: LineageSource) -> None:
        self._context = context
        self._moment = moment
        self._source = source

    def __repr__(self) -> str:
        return f"<lineage of {self._context.title}>"

    def upstream(self, snapshot: str | int | None = None, *, depth: int | None = None) -> Trace:
        """Trace the origin of rows, over any number of jobs.

        Args:
            snapshot: the commits whose rows are meant.
            depth: at most so many steps; all if None.

        Raises:
            InvalidInputError: `snapshot` is no range, or `depth` is below 1.
            NotFoundError: there is no such snapshot or tag, nor was there.
        """
        return self._trace(upstream, snapshot, depth)

    def downstream(self, snapshot: str | int | None = None, *, depth: int | None = None) -> Trace:
        """Trace what was derived from rows, over any number of jobs. Arguments and errors as `upstream`."""
        return self._trace(downstream, snapshot, depth)

    def impact(self, snapshots: str | int, *, depth: int | None = None) -> Trace:
        """Trace the effect of bad snapshots: all affected snapshots of all tables, in the order to correct them in.

        The same as `downstream`. Arguments and errors as `upstream`.
        """
        return self._trace(impact, snapshots, depth)

    @healing
    def positions(self, at: str | int | None = None) -> tuple[Positions, ...]:
        """Return the source offsets that the table's jobs had reached at a moment, by job.

        It is from there that a job goes on exactly after that moment: with nothing twice, and nothing left out.

        Args:
            at: a snapshot, savepoint or tag; the newest snapshot, or the moment of this view, if None.

        Raises:
            NotFoundError: there is no such moment.
            CorruptTableError: nothing is known of the table, because it cannot be read.
        """
        ref = self._ref(at)
        if ref is None:
            return ()
        with self._source.reading() as known:
            found = positions(known.store, ref)
        unread = known.problems_of(self._context.name)
        if unread and not found:
            raise CorruptTableError(
                f"lineage does not know who wrote to '{self._context.title}': {unread[0]}",
                hint="`verify` of the table tells what is damaged, `repair` makes it again where it can.",
            )
        return tuple(replace(one, problems=(*one.problems, *known.problems), unread=unread) for one in found)

    @healing
    def producer(self, snapshot: str | int | None = None) -> Producer:
        """Return the producer of a snapshot: the job, its run and code, and what it read.

        Args:
            snapshot: as in `positions`.

        Raises `NotFoundError`: there is no such snapshot, nor was there.
        """
        ref = self._ref(snapshot)
        if ref is None:
            raise NotFoundError(f"'{self._context.title}' has no snapshots: nothing has made one")
        with self._reading() as known:
            found = producer(known.store, ref)
        return replace(found, problems=(*found.problems, *known.problems))

    @contextmanager
    def _reading(self) -> Iterator[Known]:
        """Open the known commits. A `NotFoundError` inside says if parts of the table could not be read."""
        with self._source.reading() as known:
            try:
                yield known
            except NotFoundError as error:
                unread = known.problems_of(self._context.name)
                if not unread:
                    raise
                raise NotFoundError(
                    f"{error.message}; {unread[0]}",
                    hint=error.hint
                    or "`verify` of the table tells what is damaged, `repair` makes it again where it can.",
                ) from error

    @healing
    def _trace(self, question: _Question, snapshot: str | int | None, depth: int | None) -> Trace:
        with self._reading() as known:
            trace = question(known.store, self._asked(known.store, snapshot), depth=depth)
        return replace(trace, problems=(*trace.problems, *known.problems))

    def _asked(self, store: CommitStore, snapshot: str | int | None) -> AskedCommits:
        if snapshot is not None:
            return commits(store, self._context.branch_uuid, str(snapshot), self._resolve)
        if self._moment is not None:
            ref = CommitRef(self._context.branch_uuid, self._moment.snapshot.id)
            return contained(store, ref, self._moment.name)
        return whole(store, self._context.branch_uuid)

    def _ref(self, version: str | int | None) -> CommitRef | None:
        if version is not None:
            return self._resolve(str(version))
        found = self._context.snapshots.head() if self._moment is None else self._moment.snapshot
        return None if found is None else CommitRef(self._context.branch_uuid, found.id)

    def _resolve(self, version: str) -> CommitRef:
        """Return the commit that a version stands for. A number stands for itself, also when it has expired."""
        context, name = located(self._context, version)
        number = _NUMBER.fullmatch(name)
        if number is None or find_tag(context, name) is not None:
            return CommitRef(context.branch_uuid, resolve(context, name).snapshot.id)
        check_unambiguous(context, int(number[1]))
        return CommitRef(context.branch_uuid, int(number[1]))


class _OnlyTable:
    """Lineage source of a table outside of a warehouse: only its own commits."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    @contextmanager
    def reading(self) -> Iterator[Known]:
        yield Known(MemoryStore.of_tables([self._context]))


def producer(store: CommitStore, ref: CommitRef) -> Producer:
    """Return the producer of a snapshot. Raises `NotFoundError` if lineage does not know it.

    Args:
        store: where commits are known.
        ref: the branch, and an id that the snapshot has on it.
    """
    own = Contents(store).own(ref)
    commit, line = store.commit(own), store.line(own.branch_uuid)
    title = own.branch_uuid if line is None else line.title
    if commit is None:
        raise NotFoundError(
            f"lineage knows no snapshot {own.snapshot} of '{title}': the newest is {store.newest(own.branch_uuid)}"
        )
    unread = () if commit.unread is None else (commit.unread,)
    said = () if commit.entry is None else commit.entry.problems
    return Producer(title, own.snapshot, commit.time_millis, commit.kind, commit.entry, (*unread, *said))

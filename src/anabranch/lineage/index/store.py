"""The index as what questions ask: `anabranch.lineage.store.CommitStore`, over one moment of the database.

Every question about a range is answered by a range of an index, whose cost does not depend on how many commits there
are besides. Which reads meet a range is asked for each class of widths: reads of a class that meet it end within a
narrow range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa

from anabranch.lineage.commit import Commit, CommitRef, Line
from anabranch.lineage.index.tables import (
    COMMITS,
    ENTRIES,
    FLOWS,
    GAPS,
    INPUT_KEYS,
    INPUTS,
    JOBS,
    LINES,
    OTHER_READS,
    PROBLEMS,
    READS,
    WORDS,
)
from anabranch.lineage.model import LineageEntry
from anabranch.lineage.store import Break, FlowSummary, JobSummary, NewestInput, OtherRead, Read
from anabranch.lineage.trace import Range

_JOB: Final = WORDS.alias("job_word")
_SINK: Final = WORDS.alias("sink_word")
_SOURCE: Final = WORDS.alias("source_word")
_OTHER: Final = WORDS.alias("other_word")
_AT_ONCE: Final = 1_000


class IndexStore:
    """What the index says at one moment. Get one from `LineageIndex.reading`."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str, int | None] = {}

    def lines(self, table_uuid: str | None = None) -> Sequence[Line]:
        of_table = sa.true() if table_uuid is None else LINES.c.table_uuid == table_uuid
        return self._lines(of_table)

    def line(self, branch_uuid: str) -> Line | None:
        found = self._lines(LINES.c.branch_uuid == branch_uuid)
        return found[0] if found else None

    def newest(self, branch_uuid: str) -> int:
        wanted = sa.select(LINES.c.newest).where(LINES.c.branch_uuid == branch_uuid)
        return self._connection.scalar(wanted) or 0

    def commit(self, ref: CommitRef) -> Commit | None:
        row = self._connection.execute(
            _COMMIT.where(
                COMMITS.c.branch == self._number(ref.branch_uuid), COMMITS.c.snapshot == ref.snapshot
            )
        ).first()
        return None if row is None else _commit(row)

    def breaks(self, branch_uuid: str) -> Sequence[Break]:
        wanted = (
            sa.select(COMMITS.c.snapshot, _OTHER.c.text, COMMITS.c.base_snapshot, COMMITS.c.restores)
            .outerjoin(_OTHER, _OTHER.c.id == COMMITS.c.base_branch)
            .where(COMMITS.c.branch == self._number(branch_uuid), COMMITS.c.is_break == sa.true())
            .order_by(COMMITS.c.snapshot)
        )
        return [
            Break(snapshot, None if branch is None else CommitRef(branch, base), restores)
            for snapshot, branch, base, restores in self._connection.execute(wanted)
        ]

    def rowless(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        return self._marked(COMMITS.c.has_rows == sa.false(), branch_uuid, first, last)

    def unsaid(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        return self._marked(COMMITS.c.is_unsaid == sa.true(), branch_uuid, first, last)

    def gaps(self, branch_uuid: str) -> Sequence[Range]:
        wanted = sa.select(GAPS.c.first, GAPS.c.last).where(GAPS.c.branch == self._number(branch_uuid))
        return [(first, last) for first, last in self._connection.execute(wanted.order_by(GAPS.c.first))]

    def problems(self, branch_uuid: str, first: int, last: int) -> Sequence[tuple[int, str]]:
        wanted = (
            sa.select(PROBLEMS.c.snapshot, PROBLEMS.c.problem)
            .where(PROBLEMS.c.branch == self._number(branch_uuid), PROBLEMS.c.snapshot.between(first, last))
            .order_by(PROBLEMS.c.snapshot, PROBLEMS.c.number)
        )
        return [(snapshot, problem) for snapshot, problem in self._connection.execute(wanted)]

    def reads(self, sink: str, first: int, last: int) -> Iterator[Read]:
        wanted = _READ.where(
            READS.c.sink == self._number(sink),
            READS.c.snapshot.between(first, last),
            READS.c.has_rows == sa.true(),
        )
        yield from self._reads(wanted.order_by(READS.c.snapshot, READS.c.number))

    def readers(self, source: str, first: int, last: int) -> Iterator[Read]:
        number = self._number(source)
        widest = self._connection.scalar(
            sa.select(sa.func.max(READS.c.width)).where(READS.c.source == number)
        )
        if widest is None:
            return
        for width in range(widest + 1):
            meets = _READ.where(
                READS.c.source == number,
                READS.c.width == width,
                READS.c.through.between(first, last + 2**width - 1),
                READS.c.after < last,
                READS.c.has_rows == sa.true(),
            )
            yield from self._reads(meets)

    def other_reads(self, sink: str, first: int, last: int) -> Iterator[OtherRead]:
        wanted = (
            sa.select(
                _SINK.c.text,
                OTHER_READS.c.snapshot,
                OTHER_READS.c.time_millis,
                _JOB.c.text,
                OTHER_READS.c.kind,
                _OTHER.c.text,
            )
            .join(_SINK, _SINK.c.id == OTHER_READS.c.sink)
            .join(_JOB, _JOB.c.id == OTHER_READS.c.job)
            .join(_OTHER, _OTHER.c.id == OTHER_READS.c.name)
            .where(
                OTHER_READS.c.sink == self._number(sink),
                OTHER_READS.c.snapshot.between(first, last),
                OTHER_READS.c.has_rows == sa.true(),
            )
            .order_by(OTHER_READS.c.snapshot, OTHER_READS.c.number)
        )
        for row in self._connection.execute(wanted):
            yield OtherRead(*row)

    def flows(self) -> Sequence[FlowSummary]:
        wanted = (
            sa.select(
                _SOURCE.c.text,
                FLOWS.c.kind,
                _OTHER.c.text,
                _SINK.c.text,
                _JOB.c.text,
                FLOWS.c.is_merge,
                FLOWS.c.commits,
                FLOWS.c.first_millis,
                FLOWS.c.last_millis,
            )
            .join(_SOURCE, _SOURCE.c.id == FLOWS.c.source)
            .join(_SINK, _SINK.c.id == FLOWS.c.sink)
            .join(_JOB, _JOB.c.id == FLOWS.c.job)
            .outerjoin(_OTHER, _OTHER.c.id == FLOWS.c.name)
        )
        titles = {line.branch_uuid: line.title for line in self.lines()}
        found = [FlowSummary(*row) for row in self._connection.execute(wanted)]
        named = [
            flow._replace(source_name=titles.get(flow.source, flow.source))
            if flow.source_kind == "table"
            else flow
            for flow in found
        ]
        return sorted(named, key=lambda flow: (flow.source, flow.sink, flow.job, flow.is_merge))

    def jobs(self) -> Sequence[JobSummary]:
        wanted = (
            sa.select(
                _JOB.c.text,
                _SINK.c.text,
                _OTHER.c.text,
                JOBS.c.commits,
                JOBS.c.first_millis,
                JOBS.c.last_millis,
                JOBS.c.last_snapshot,
            )
            .join(_JOB, _JOB.c.id == JOBS.c.job)
            .join(_SINK, _SINK.c.id == JOBS.c.sink)
            .join(_OTHER, _OTHER.c.id == JOBS.c.engine)
        )
        found = [JobSummary(*row) for row in self._connection.execute(wanted)]
        return sorted(found, key=lambda job: (job.job, job.sink))

    def newest_inputs(self, sink: str, first: int, last: int) -> Iterator[NewestInput]:
        newest = (
            sa.select(sa.func.max(INPUTS.c.snapshot))
            .where(
                *(INPUTS.c[key.name] == key for key in INPUT_KEYS.c), INPUTS.c.snapshot.between(first, last)
            )
            .scalar_subquery()
            .label("newest")
        )
        wanted = (
            sa.select(_JOB.c.text, _OTHER.c.text, _SOURCE.c.text, newest)
            .select_from(INPUT_KEYS)
            .join(_JOB, _JOB.c.id == INPUT_KEYS.c.job)
            .join(_SOURCE, _SOURCE.c.id == INPUT_KEYS.c.source)
            .outerjoin(_OTHER, _OTHER.c.id == INPUT_KEYS.c.query)
            .where(INPUT_KEYS.c.sink == self._number(sink))
        )
        for job, query, key, snapshot in self._connection.execute(wanted):
            if snapshot is not None:
                yield NewestInput(job, query, key, snapshot)

    def commits(self, branch_uuid: str) -> Iterator[Commit]:
        """All commits of a branch, ascending."""
        after = 0
        while True:
            wanted = _COMMIT.where(COMMITS.c.branch == self._number(branch_uuid), COMMITS.c.snapshot > after)
            rows = self._connection.execute(wanted.order_by(COMMITS.c.snapshot).limit(_AT_ONCE)).all()
            yield from map(_commit, rows)
            if len(rows) < _AT_ONCE:
                return
            after = rows[-1].snapshot

    def _number(self, text: str) -> int | None:
        """The number of a word, or None: then nothing equals it."""
        if text not in self._numbers:
            self._numbers[text] = self._connection.scalar(sa.select(WORDS.c.id).where(WORDS.c.text == text))
        return self._numbers[text]

    def _lines(self, which: sa.ColumnElement[bool]) -> list[Line]:
        found = self._connection.execute(sa.select(LINES).where(which))
        return sorted(map(line_of, found), key=lambda line: line.branch_uuid)

    def _marked(self, mark: sa.ColumnElement[bool], branch_uuid: str, first: int, last: int) -> list[int]:
        wanted = sa.select(COMMITS.c.snapshot).where(
            COMMITS.c.branch == self._number(branch_uuid), COMMITS.c.snapshot.between(first, last), mark
        )
        return list(self._connection.scalars(wanted.order_by(COMMITS.c.snapshot)))

    def _reads(self, wanted: sa.Select[Any]) -> Iterator[Read]:
        for row in self._connection.execute(wanted):
            yield Read(*row)


def line_of(row: Any) -> Line:
    """A row of `LINES` as what it stands for."""
    fork = None if row.fork_branch is None else CommitRef(row.fork_branch, row.fork_snapshot)
    return Line(row.table_uuid, row.branch_uuid, row.table_name, row.branch_name, fork, row.is_main)


_READ: Final = (
    sa.select(
        _SINK.c.text,
        READS.c.snapshot,
        READS.c.time_millis,
        _JOB.c.text,
        READS.c.kind,
        _SOURCE.c.text,
        READS.c.after,
        READS.c.through,
        READS.c.whole,
    )
    .join(_SINK, _SINK.c.id == READS.c.sink)
    .join(_JOB, _JOB.c.id == READS.c.job)
    .join(_SOURCE, _SOURCE.c.id == READS.c.source)
)

_COMMIT: Final = (
    sa.select(COMMITS, LINES.c.table_uuid, LINES.c.branch_uuid, _OTHER.c.text.label("base"), ENTRIES.c.entry)
    .join(LINES, LINES.c.branch == COMMITS.c.branch)
    .outerjoin(_OTHER, _OTHER.c.id == COMMITS.c.base_branch)
    .outerjoin(
        ENTRIES, sa.and_(ENTRIES.c.branch == COMMITS.c.branch, ENTRIES.c.snapshot == COMMITS.c.snapshot)
    )
)


def _commit(row: Any) -> Commit:
    where = f"snapshot {row.snapshot}"
    return Commit(
        row.table_uuid,
        row.branch_uuid,
        row.snapshot,
        row.stamp,
        row.kind,
        row.time_millis,
        row.schema_id,
        row.added,
        None if row.base is None else CommitRef(row.base, row.base_snapshot),
        None if row.entry is None else LineageEntry.from_json(row.entry, where=where),
        row.unread,
        row.restores,
    )

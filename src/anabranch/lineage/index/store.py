"""Implements `anabranch.lineage.store.CommitStore` on the index, over one snapshot of the database.

Every question about a range is answered by an index range scan, whose cost does not depend on how many other
commits there are. Reads that meet a range are looked up per class of widths: reads of one class that meet it end within
narrow range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from anabranch.lineage.commit import Commit, CommitRef, Line
from anabranch.lineage.index import statements
from anabranch.lineage.model import LineageEntry
from anabranch.lineage.store import (
    Break,
    FlowSummary,
    JobSummary,
    NewestInput,
    OtherRead,
    Read,
    name_of_source,
)
from anabranch.lineage.trace import Range

_AT_ONCE: Final = 1_000
_FIRST: Final = 50
"""Commits looked up before it is known that more are wanted."""
_BEYOND: Final = 2**62
"""An id that no snapshot has."""


class IndexStore:
    """A consistent snapshot of the index. Get one from `LineageIndex.reading`."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str, int] = {}

    def lines(self, table_uuid: str | None = None) -> Sequence[Line]:
        if table_uuid is None:
            return _lines(self._connection.execute(statements.LINES_OF_ALL))
        return _lines(self._connection.execute(statements.LINES_OF_TABLE, {"table": table_uuid}))

    def line(self, branch_uuid: str) -> Line | None:
        row = self._connection.execute(statements.LINE, {"branch": branch_uuid}).first()
        return None if row is None else line_of(row)

    def warehouses(self) -> Mapping[str, str]:
        return {row.branch_uuid: row.warehouse for row in self._connection.execute(statements.LINES_OF_ALL)}

    def newest(self, branch_uuid: str) -> int:
        row = self._connection.execute(statements.LINE, {"branch": branch_uuid}).first()
        return 0 if row is None else int(row.newest)

    def commit(self, ref: CommitRef) -> Commit | None:
        row = self._ask(statements.COMMIT, ref.branch_uuid, first=ref.snapshot).first()
        return None if row is None else _commit(row)

    def commits(self, branch_uuid: str, first: int = 1) -> Iterator[Commit]:
        at_most = _FIRST
        while rows := self._ask(statements.COMMITS_FROM, branch_uuid, first=first, at_most=at_most).all():
            yield from map(_commit, rows)
            first, at_most = rows[-1].snapshot + 1, _AT_ONCE

    def breaks(self, branch_uuid: str) -> Sequence[Break]:
        return [
            Break(snapshot, None if branch is None else CommitRef(branch, base), restores)
            for snapshot, branch, base, restores in self._ask(statements.BREAKS, branch_uuid)
        ]

    def rowless(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        return [*self._ask(statements.ROWLESS, branch_uuid, first=first, last=last).scalars()]

    def unsaid(self, branch_uuid: str, first: int, last: int) -> Sequence[int]:
        return [*self._ask(statements.UNSAID, branch_uuid, first=first, last=last).scalars()]

    def gaps(self, branch_uuid: str) -> Sequence[Range]:
        return [(first, last) for first, last in self._ask(statements.GAPS_OF, branch_uuid)]

    def problems(self, branch_uuid: str, first: int, last: int) -> Sequence[tuple[int, str]]:
        found = self._ask(statements.PROBLEMS_OF, branch_uuid, first=first, last=last)
        return [(snapshot, problem) for snapshot, problem in found]

    def reads(self, sink: str, first: int, last: int) -> Iterator[Read]:
        for row in self._ask(statements.READS_OF, sink, first=first, last=last):
            yield Read(*row)

    def readers(self, source: str, first: int, last: int) -> Iterator[Read]:
        widest = self._ask(statements.WIDEST, source).scalar()
        for width in range(0 if widest is None else widest + 1):
            furthest = last + 2**width - 1
            asked = {"first": first, "last": last, "width": width, "furthest": furthest}
            for row in self._ask(statements.READERS, source, **asked):
                yield Read(*row)

    def other_reads(self, sink: str, first: int, last: int) -> Iterator[OtherRead]:
        for row in self._ask(statements.OTHER_READS_OF, sink, first=first, last=last):
            yield OtherRead(*row)

    def flows(self) -> Sequence[FlowSummary]:
        titles = {line.branch_uuid: line.title for line in self.lines()}
        found = [FlowSummary(*row) for row in self._connection.execute(statements.ALL_FLOWS)]
        # A table that was never seen here is known by name only to those that have read it.
        for flow in found:
            if flow.source_kind == "table" and flow.source not in titles:
                titles[flow.source] = self._called(flow.source)
        named = [
            flow._replace(source_name=titles[flow.source]) if flow.source_kind == "table" else flow
            for flow in found
        ]
        return sorted(named, key=lambda flow: (flow.source, flow.sink, flow.job, flow.is_merge))

    def jobs(self) -> Sequence[JobSummary]:
        found = [JobSummary(*row) for row in self._connection.execute(statements.ALL_JOBS)]
        return sorted(found, key=lambda job: (job.job, job.sink))

    def newest_inputs(self, sink: str, first: int, last: int) -> Iterator[NewestInput]:
        found = self._ask(statements.NEWEST_INPUTS, sink, first=first, last=last)
        for job, query, key, snapshot in found:
            if snapshot is not None:
                yield NewestInput(job, query, key, snapshot)

    def _called(self, source: str) -> str:
        """Return the name by which a commit read a branch of a table; its identity if none did."""
        for read in self.readers(source, 1, _BEYOND):
            commit = self.commit(CommitRef(read.sink, read.snapshot))
            if commit is not None:
                return name_of_source(commit, source)
        return source

    def _ask(self, statement: sa.Select[Any], branch_uuid: str, **values: int) -> Any:
        return self._connection.execute(statement, {"branch": self._number(branch_uuid), **values})

    def _number(self, text: str) -> int:
        """Return the number of a word; one that matches nothing if the index does not know it."""
        found = self._numbers.get(text)
        if found is None:
            found = self._connection.scalar(statements.NUMBER, {"text": text}) or 0
            self._numbers[text] = found
        return found


def line_of(row: Any) -> Line:
    """Convert a row of the lines to a `Line`."""
    fork = None if row.fork_branch is None else CommitRef(row.fork_branch, row.fork_snapshot)
    return Line(row.table_uuid, row.branch_uuid, row.table_name, row.branch_name, fork, row.is_main)


def _lines(rows: sa.Result[Any]) -> list[Line]:
    return sorted(map(line_of, rows), key=lambda line: line.branch_uuid)


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

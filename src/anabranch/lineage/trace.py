"""The answer to a question about lineage: datasets, and the flows between them.

Plain values, in a deterministic order, so that two answers can be compared. Drawing
is done by `anabranch.lineage.drawing`.
"""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from anabranch.format.text.record import JsonRecord, Stored
from anabranch.lineage.model import LineageEntry
from anabranch.tabular import Shown, one_screen

_MOST_DRAWN = 40
"""Most datasets in an inline drawing."""

Range = tuple[int, int]
"""Ids of snapshots, the first and the last included."""

_NAMED_AT_MOST = 5

DatasetKind = Literal["table", "kafka", "files", "unknown"]


class _Told(JsonRecord):
    """Part of an answer, as JSON has it."""

    __slots__ = ()

    SNAKE: ClassVar = True


@dataclass(frozen=True, slots=True)
class Dataset(_Told):
    """A branch of a table, or another source."""

    id: str
    """Identity of the branch; for other sources their kind and name."""
    kind: DatasetKind
    name: str
    """``db.t`` or ``db.t$branch_fix``; the topic, the folder, or whatever is known."""
    table_uuid: Annotated[str | None, Stored(key="table")] = None
    snapshots: tuple[Range, ...] = ()
    """Commits of it that the answer is about, ascending and joined where nothing but commits without rows of their own
    lies between; empty if it is no table, or if the question was about whole tables."""
    depth: int = 0
    """Longest distance, in flows, from what was asked about; 0 for that itself."""


@dataclass(frozen=True, slots=True)
class Flow(_Told):
    """Rows that a job took from one dataset into another."""

    source: str
    """Id of the `Dataset`."""
    sink: str
    job: str
    kind: Literal["job", "merge"]
    """``merge`` if it only brought a branch's own commits into main."""
    commits: int
    """Number of commits of the sink that took it."""
    first_millis: int
    """Time of the first of them, epoch milliseconds."""
    last_millis: int


@dataclass(frozen=True, slots=True)
class Unknown(_Told):
    """Commits of a table that may or may not belong to the answer."""

    table: str
    snapshots: tuple[Range, ...]
    reason: str
    """What is not known of their origin."""

    def __str__(self) -> str:
        named = ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in self.snapshots[:_NAMED_AT_MOST])
        left = len(self.snapshots) - _NAMED_AT_MOST
        what = "snapshot" if len(self.snapshots) == 1 and len(set(self.snapshots[0])) == 1 else "snapshots"
        more = f" and {left} more ranges" if left > 0 else ""
        return f"{self.table}, {what} {named}{more}, may belong here: {self.reason}"


@dataclass(frozen=True, slots=True, repr=False)
class Trace(Shown):
    """Answer to a lineage question: where rows came from, or where they went.

    Example:
        >>> trace = lake.table("db.copy").lineage.upstream()
        >>> [flow.job for flow in trace.flows]
        ['copy']
        >>> trace
        upstream of db.copy
        ├── db.copy  snapshot 1
        │   └── ◂ copy (1 commit) ◂ db.orders  snapshots 1..2
        └── may be incomplete: db.orders, snapshots 1..2: not said where the rows come from
    """

    question: str
    """The question, for people: ``downstream of db.orders, snapshots 5..9``."""
    datasets: tuple[Dataset, ...]
    """In topological order: readers come after what they read; ties by name. A dataset that reaches itself keeps the
    place of its first mention."""
    flows: tuple[Flow, ...]
    """In the order of their sinks, then of their sources, then by job."""
    problems: tuple[str, ...] = ()
    """Possible gaps in the answer, and why."""
    unknown: tuple[Unknown, ...] = ()
    """Downstream only: commits of other tables that may belong to it, because it is not known where their rows come
    from. Each is among the problems as well."""

    def __repr__(self) -> str:
        from anabranch.lineage.drawing import drawn

        return one_screen(drawn(self, "tree"))

    def _repr_html_(self) -> str:
        """Show a drawing; of very many tables the beginning of the tree."""
        from anabranch.lineage.drawing import drawn

        if len(self.datasets) > _MOST_DRAWN:
            return f"<pre>{html.escape(repr(self))}</pre>"
        return f'<div style="max-width: 100%; overflow: auto">{drawn(self, "svg")}</div>'

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables and branches, in topological order."""
        return tuple(found.name for found in self.datasets if found.kind == "table")

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs, each once, in the order of their flows."""
        return tuple(dict.fromkeys(flow.job for flow in self.flows if flow.kind == "job"))

    def snapshots(self, name: str) -> tuple[Range, ...]:
        """Return commits of a table that belong to the answer, by its name; empty if it does not."""
        return next((found.snapshots for found in self.datasets if found.name == name), ())

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "question": self.question,
            "datasets": [dataset.to_dict() for dataset in self.datasets],
            "flows": [flow.to_dict() for flow in self.flows],
            "tables": list(self.tables),
            "jobs": list(self.jobs),
            "problems": list(self.problems),
            "unknown": [found.to_dict() for found in self.unknown],
        }


@dataclass(frozen=True, slots=True)
class SourcePosition(_Told):
    """How far a job had read one of its sources."""

    kind: DatasetKind
    name: str
    source: str
    """Key of the source within the job: for a stream its place in the query, such as ``source 0``; for a
    table its identity and that of its branch."""
    position: Any
    """The end as JSON values, as the engine stores it: everything up to there is in the table."""
    options: dict[str, str]
    """Options with which a reader of this kind begins right after it; empty if none express it exactly."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions from which a job continues exactly after a snapshot of a table."""

    table: str
    snapshot: int
    """Snapshot that was asked about."""
    job: str
    commit: int
    """The job's newest commit that the table contains at that moment."""
    sources: tuple[SourcePosition, ...]
    problems: tuple[str, ...] = ()
    made_on: str = ""
    """Name of the branch this commit was made on: another one if its rows came by a merge."""
    unread: tuple[str, ...] = ()
    """Why newer commits of the table may not be known, if so; among the problems as well. A job that begins
    at these positions might read again what the table has."""
    entry: LineageEntry | None = None
    """Lineage entry of that commit."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "job": self.job,
            "commit": self.commit,
            "made_on": self.made_on,
            "sources": [source.to_dict() for source in self.sources],
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer of a snapshot."""

    table: str
    snapshot: int
    time_millis: int
    kind: str
    """Kind of the commit."""
    entry: LineageEntry | None
    """None if the commit has no entry: then nothing but the kind is known."""
    problems: tuple[str, ...] = ()
    """What is not known, and why."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "time_millis": self.time_millis,
            "kind": self.kind,
            "entry": None if self.entry is None else json.loads(self.entry.to_json()),
            "problems": list(self.problems),
        }


@dataclass(frozen=True, slots=True)
class Job(_Told):
    """A job that writes tables. Merges are not jobs."""

    name: str
    engine: str
    """Engine of its newest commit; so are the next two."""
    run: str | None
    code: str | None
    sources: tuple[str, ...]
    """Names of everything it has ever read."""
    sinks: tuple[str, ...]
    """Tables and branches that it has ever written."""
    commits: int
    first_millis: int
    """Time of its first commit, epoch milliseconds."""
    last_millis: int
    problems: tuple[str, ...] = ()
    """Tables that could not be read, and why: the job's work there may be missing."""

"""What a commit says of its origin: which job made it, by which run, from which inputs.

A snapshot that a job writes carries one entry in its properties, so lineage is exactly as durable as
the data. Everything that is shown or asked later is derived from these entries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from anabranch.errors import CorruptTableError
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot
from anabranch.streaming.offsets import Position
from anabranch.version import __version__

LINEAGE_PROPERTY = "anabranch.lineage"
"""Key in the properties of a snapshot."""

LINEAGE_VERSION = 1

STREAM_SOURCE = "source "
"""Begins what the sources of a streaming query are called that are no tables; their number follows."""


@dataclass(frozen=True, slots=True)
class TableInput:
    """Snapshots of a branch of a table that went into the commit."""

    name: str
    table_uuid: str
    branch_uuid: str
    start: Position
    end: Position

    @property
    def is_state(self) -> bool:
        """Whether the table was read as it was at a moment, not what was added to it."""
        return self.end.full and self.end.files is None

    @property
    def is_lookup(self) -> bool:
        """Whether a stream that names it only looked something up in it."""
        return self.is_state

    @property
    def after(self) -> int:
        """Rows of snapshots newer than this one went in; 0 if the commit saw the table from its beginning."""
        return self.start.delivered_through

    @property
    def through(self) -> int:
        """The newest snapshot of which rows went in."""
        return self.end.snapshot

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "table",
            "name": self.name,
            "table": self.table_uuid,
            "branch": self.branch_uuid,
            "from": self.start.to_dict(),
            "to": self.end.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class SourceInput:
    """Something that is no table of ours, with its offsets as the engine wrote them."""

    kind: str
    """``kafka``, ``files`` or ``unknown``."""
    source: str
    """What is known of it; for a stream, its place among the sources of the query."""
    start: Any
    """Exclusive, JSON; None at the beginning."""
    end: Any
    """Inclusive, JSON."""
    name: str | None = None
    """What it is called, where that is known and `source` does not say it: the folder, what Spark calls the source."""

    @property
    def is_lookup(self) -> bool:
        """Whether a stream that names it only looked something up in it: its own sources are numbered."""
        return not self.source.startswith(STREAM_SOURCE)

    def to_dict(self) -> dict[str, Any]:
        named = {} if self.name is None else {"name": self.name}
        return {"kind": self.kind, "source": self.source, **named, "from": self.start, "to": self.end}


Input = TableInput | SourceInput


@dataclass(frozen=True, slots=True)
class Engine:
    """Who computed the rows. What is not known is None."""

    name: str
    version: str | None = None
    application: str | None = None
    query: str | None = None
    """Id of a streaming query, the same over all its runs."""
    batch: int | None = None


EMBEDDED = Engine("anabranch", __version__)
"""What computes the rows of a program that hands them over in its own process."""


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Which columns of the inputs a column was computed from."""

    column: str
    """Of the table that was written."""
    sources: tuple[str, ...]
    """Such as ``db.orders.price``; empty for what no column went into."""


@dataclass(frozen=True, slots=True)
class LineageEntry:
    """The origin of one commit."""

    job: str
    run: str | None
    """Id of this run of the job."""
    code: str | None
    """Version of the job's code, for example a git commit."""
    engine: Engine
    inputs: tuple[Input, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be found out, and why."""
    taken: TableInput | None = None
    """For a merge: the commits of the branch whose rows it brought into main. Its `inputs` are then theirs together, so
    that what main has read of a source is known when the branch is gone."""
    columns: tuple[ColumnOrigin, ...] = ()
    """For a statement in SQL: where each column comes from, as far as its text tells."""
    held: tuple[Input, ...] = ()
    """For a batch of a stream with state: what earlier batches took into the state, from which its rows may be made too."""
    is_positioned: bool | None = None
    """Whether `inputs` has all that the job read on from where it was before, whatever the problems are about; None for an
    entry that does not say it apart, and whose problems may be about just that."""

    @property
    def knows_positions(self) -> bool:
        """Whether it is certain how far the job had read its sources."""
        return not self.problems if self.is_positioned is None else self.is_positioned

    @property
    def consumed(self) -> tuple[Input, ...]:
        """The inputs that tell how far the job has come: for a batch of a stream not those it only looked things up in.

        None where it is known not to be known.
        """
        if self.is_positioned is False:
            return ()
        if self.engine.batch is None:
            return self.inputs
        return tuple(read for read in self.inputs if not read.is_lookup)

    watermark: int | None = None
    """Event-time watermark that a batch of a stream ran under, epoch milliseconds, 0 for none yet; None if not known."""
    millis: int | None = None
    """How long a batch of a stream took, from the first task that wrote rows to the commit; None if not known."""

    @property
    def is_of_no_job(self) -> bool:
        """Whether rows were written outside of any job: then `job` is only what the program is called."""
        of_program = self.engine.name == EMBEDDED.name and self.engine.query is None
        return of_program and self.run is None and self.taken is None

    @property
    def is_silent(self) -> bool:
        """Whether it names no source at all; a batch of a stream without one only found nothing new."""
        return not self.inputs and self.engine.batch is None

    @property
    def is_anonymous(self) -> bool:
        """Whether it names neither a job nor a source, and only says why: to whoever asks for these it is as if there was none."""
        return self.is_of_no_job and self.is_silent

    @property
    def ranges(self) -> tuple[dict[str, Any], ...]:
        """What was consumed, without the names that may change; equal for a batch and its repetition."""
        return tuple({k: v for k, v in i.to_dict().items() if k != "name"} for i in self.consumed)

    def to_json(self) -> str:
        """The value of the property."""
        engine = self.engine
        return json.dumps(
            {
                "version": LINEAGE_VERSION,
                "job": self.job,
                "run": self.run,
                "code": self.code,
                "engine": {
                    "name": engine.name,
                    "version": engine.version,
                    "application": engine.application,
                    "query": engine.query,
                    "batch": engine.batch,
                },
                "inputs": [i.to_dict() for i in self.inputs],
                "problems": list(self.problems),
                **({} if self.taken is None else {"taken": self.taken.to_dict()}),
                **({"columns": {c.column: list(c.sources) for c in self.columns}} if self.columns else {}),
                **({"held": [i.to_dict() for i in self.held]} if self.held else {}),
                **({} if self.is_positioned is None else {"positions": self.is_positioned}),
                **({} if self.watermark is None else {"watermark": self.watermark}),
                **({} if self.millis is None else {"millis": self.millis}),
            },
            separators=(",", ":"),
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str, *, where: str) -> Self:
        """Raises `CorruptTableError` naming `where`, usually the snapshot, if `text` is no entry."""
        try:
            value = json.loads(text)
            if value["version"] != LINEAGE_VERSION:
                raise CorruptTableError(
                    f"has lineage of version {value['version']!r}, this release reads {LINEAGE_VERSION}",
                    path=where,
                    hint="a newer Anabranch wrote it: use that release.",
                )
            taken = value.get("taken")
            return cls(
                job=str(value["job"]),
                run=value.get("run"),
                code=value.get("code"),
                engine=Engine(**value["engine"]),
                inputs=tuple(input_of(i) for i in value["inputs"]),
                problems=tuple(value.get("problems", ())),
                taken=None if taken is None else _table_input(taken),
                columns=tuple(
                    ColumnOrigin(column, tuple(sources))
                    for column, sources in value.get("columns", {}).items()
                ),
                held=tuple(input_of(i) for i in value.get("held", ())),
                is_positioned=value.get("positions"),
                watermark=value.get("watermark"),
                millis=value.get("millis"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptTableError("has lineage that cannot be read", path=where) from error


def lineage_of(properties: Mapping[str, str] | None, *, where: str) -> LineageEntry | None:
    """The entry among the properties of a snapshot, or None. Raises `CorruptTableError`."""
    text = (properties or {}).get(LINEAGE_PROPERTY)
    return None if text is None else LineageEntry.from_json(text, where=where)


def entry_or_none(snapshot: Snapshot | PastSnapshot) -> LineageEntry | None:
    """The entry of a snapshot; None as well for one that cannot be read, which says as little as none."""
    try:
        return lineage_of(snapshot.properties, where=f"snapshot {snapshot.id}")
    except CorruptTableError:
        return None


def input_of(value: dict[str, Any]) -> Input:
    """The input that `to_dict` gave. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
    if value["kind"] != "table":
        return SourceInput(value["kind"], value["source"], value["from"], value["to"], value.get("name"))
    return _table_input(value)


def _table_input(value: dict[str, Any]) -> TableInput:
    start, end = Position.from_dict(value["from"]), Position.from_dict(value["to"])
    if start is None or end is None:
        raise ValueError(value)
    return TableInput(value["name"], value["table"], value["branch"], start, end)

"""The lineage entry of a commit: which job made it, by which run, from which inputs.

A snapshot that a job writes carries one entry in its properties, so lineage is exactly as durable as
the data. Everything that is shown or asked later is derived from these entries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from anabranch.errors import CorruptTableError
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.json_object import check_version
from anabranch.streaming.offsets import Beginnings, Position, beginnings_of
from anabranch.version import __version__

LINEAGE_PROPERTY = "anabranch.lineage"
"""Key in the properties of a snapshot."""

LINEAGE_VERSION = 1

STREAM_SOURCE = "source "
"""Prefix of the names of a streaming query's sources other than tables; their number follows."""


@dataclass(frozen=True, slots=True)
class TableInput:
    """Snapshots of a branch of a table that went into the commit."""

    name: str
    table_uuid: str
    branch_uuid: str
    start: Position
    end: Position
    begun: Beginnings = field(default=(), compare=False)
    """What the branch began with, where it was read as a stream: see `Beginnings`."""

    @property
    def is_state(self) -> bool:
        """Whether the table was read as it was at a moment, not what was added to it."""
        return self.end.full and self.end.files is None

    @property
    def is_lookup(self) -> bool:
        """Whether a stream only looked up rows in it."""
        return self.is_state

    @property
    def after(self) -> int:
        """Only rows of snapshots newer than this one went in; 0 if the commit saw the table from its beginning."""
        return self.start.delivered_through

    @property
    def through(self) -> int:
        """The newest snapshot whose rows went in."""
        return self.end.snapshot

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "table",
            "name": self.name,
            "table": self.table_uuid,
            "branch": self.branch_uuid,
            "from": self.start.to_dict(),
            "to": self.end.to_dict(),
            **({"begun": [[*pair] for pair in self.begun]} if self.begun else {}),
        }


@dataclass(frozen=True, slots=True)
class SourceInput:
    """An input other than one of our tables, with its offsets as the engine wrote them."""

    kind: str
    """``kafka``, ``files`` or ``unknown``."""
    source: str
    """Description; for a stream, its place among the sources of the query."""
    start: Any
    """Exclusive, JSON; None at the beginning."""
    end: Any
    """Inclusive, JSON."""
    name: str | None = None
    """Name, if known and not in `source`: the folder, or what Spark calls the source."""

    @property
    def is_lookup(self) -> bool:
        """Whether a stream only looked up rows in it: its own sources are numbered."""
        return not self.source.startswith(STREAM_SOURCE)

    def to_dict(self) -> dict[str, Any]:
        named = {} if self.name is None else {"name": self.name}
        return {"kind": self.kind, "source": self.source, **named, "from": self.start, "to": self.end}


Input = TableInput | SourceInput
_BESIDE: Final = ("name", "begun")
"""Keys of an input that say nothing of its range, and that an earlier release may not have written."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine that computed the rows. Unknown values are None."""

    name: str
    version: str | None = None
    application: str | None = None
    query: str | None = None
    """Id of a streaming query, the same over all its runs."""
    batch: int | None = None


EMBEDDED = Engine("anabranch", __version__)
"""The engine of rows that a program hands over in its own process."""


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """The input columns that a column was computed from."""

    column: str
    """Column of the table that was written."""
    sources: tuple[str, ...]
    """Such as ``db.orders.price``; empty if no column went into it."""


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
    """What could not be determined, and why."""
    taken: TableInput | None = None
    """For a merge: the commits of the branch whose rows it brought into main. Its `inputs` are then theirs together, so
    that what main has read of a source is known when the branch is gone."""
    columns: tuple[ColumnOrigin, ...] = ()
    """For a statement in SQL: where each column comes from, as far as its text tells."""
    held: tuple[Input, ...] = ()
    """For a stateful streaming batch: inputs of earlier batches held in state, which its rows may come from too."""
    is_positioned: bool | None = None
    """Whether `inputs` has everything the job consumed since its last position, whatever the problems; None for an
    entry that does not record it, and whose problems may be about just that."""

    @property
    def knows_positions(self) -> bool:
        """Whether it is certain how far the job had read its sources."""
        return not self.problems if self.is_positioned is None else self.is_positioned

    @property
    def consumed(self) -> tuple[Input, ...]:
        """The inputs that tell how far the job has read: for a streaming batch, without those it only looked up.

        Empty if it is known to be unknown.
        """
        if self.is_positioned is False:
            return ()
        if self.engine.batch is None:
            return self.inputs
        return tuple(read for read in self.inputs if not read.is_lookup)

    @property
    def streams(self) -> tuple[Input, ...]:
        """Those of them that were read as streams; a table as it was at a moment has no position."""
        return tuple(read for read in self.consumed if not (isinstance(read, TableInput) and read.is_state))

    watermark: int | None = None
    """Event-time watermark that a batch of a stream ran under, epoch milliseconds, 0 for none yet; None if not known."""
    millis: int | None = None
    """Duration of a streaming batch, from the first task that wrote rows to the commit, or of the write of a DataFrame; None
    if not known."""

    @property
    def is_of_no_job(self) -> bool:
        """Whether rows were written outside of any job: then `job` is only the name of the program."""
        of_program = self.engine.name == EMBEDDED.name and self.engine.query is None
        return of_program and self.run is None and self.taken is None

    @property
    def is_silent(self) -> bool:
        """Whether it names no source at all; a streaming batch without one only found nothing new."""
        return not self.inputs and self.engine.batch is None

    @property
    def is_anonymous(self) -> bool:
        """Whether it names neither a job nor a source, only a reason: queries for these treat it as missing."""
        return self.is_of_no_job and self.is_silent

    @property
    def ranges(self) -> tuple[dict[str, Any], ...]:
        """The consumed ranges, without names that may change; equal for a batch and its repetition."""
        return tuple({k: v for k, v in i.to_dict().items() if k not in _BESIDE} for i in self.consumed)

    def to_json(self) -> str:
        """Return the value of the property."""
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
        """Parse an entry. Raises `CorruptTableError` naming `where`, usually the snapshot, if `text` is invalid."""
        try:
            value = json.loads(text)
            check_version(value["version"], LINEAGE_VERSION, path=where)
            if value["version"] != LINEAGE_VERSION:
                raise ValueError(value["version"])
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
    """Return the entry in a snapshot's properties, or None. Raises `CorruptTableError`."""
    text = (properties or {}).get(LINEAGE_PROPERTY)
    return None if text is None else LineageEntry.from_json(text, where=where)


def entry_or_none(snapshot: Snapshot | PastSnapshot) -> LineageEntry | None:
    """Return the entry of a snapshot; None if missing or unreadable, which says as little."""
    try:
        return lineage_of(snapshot.properties, where=f"snapshot {snapshot.id}")
    except CorruptTableError:
        return None


def input_of(value: dict[str, Any]) -> Input:
    """Return the input that `to_dict` wrote. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
    if value["kind"] != "table":
        return SourceInput(value["kind"], value["source"], value["from"], value["to"], value.get("name"))
    return _table_input(value)


def _table_input(value: dict[str, Any]) -> TableInput:
    start, end = Position.from_dict(value["from"]), Position.from_dict(value["to"])
    if start is None or end is None:
        raise ValueError(value)
    begun = beginnings_of(value.get("begun"))
    return TableInput(value["name"], value["table"], value["branch"], start, end, begun)

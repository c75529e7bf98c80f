"""Lineage, for the command line: questions, drawings, and what to do next."""

from __future__ import annotations

import json as jsons
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.format.text.shell import command_line
from anabranch.lineage.drawing import FORMATS, drawn
from anabranch.lineage.joining import made_of
from anabranch.lineage.model import TableInput
from anabranch.lineage.store import kind_of, names_of
from anabranch.lineage.trace import Job, Positions, Producer, Trace
from anabranch.service.refs import open_branch
from anabranch.service.tables import open_lake
from anabranch.table import Table

__all__ = ["Drawing", "Job", "Positions", "Producer", "Rebuilt", "Trace"]

_ASKED = re.compile(r"([^@]+\$branch_main@\d+|[^@]+)(?:@(.+))?", re.DOTALL)
"""A table, possibly on a former main such as ``db.t$branch_main@1``, and optionally its snapshots."""
_ENDINGS = {
    ".json": "json",
    ".dot": "dot",
    ".gv": "dot",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".svg": "svg",
    ".txt": "tree",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of a question."""

    table: str
    snapshots: str | None
    """A snapshot, a range, or a name such as a tag; None for the table as a whole."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A trace, ready to be shown."""

    text: str = ""
    value: Any = None
    """What programs get as JSON; None if the text is for them."""
    shown: Any = None
    """A rich tree for people; None if the text is for programs or in a file."""
    file: str | None = None

    @property
    def is_for_people(self) -> bool:
        return self.shown is not None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The content of the lineage index after a rebuild."""

    commits: int
    tables: int
    problems: tuple[str, ...]


def asked(table: str, snapshots: str | None = None) -> Asked:
    """Split ``db.orders@5..9`` into table and snapshots. Raises `InvalidInputError`."""
    found = _ASKED.fullmatch(table)
    if found is None:
        raise InvalidInputError(
            f"'{table}' names no snapshots of a table", hint="write db.orders@57 or db.orders@5..9."
        )
    if found[2] is not None and snapshots is not None:
        raise InvalidInputError(
            f"snapshots are named twice: '{found[2]}' and '{snapshots}'", hint="leave out one of them."
        )
    return Asked(found[1], found[2] or snapshots)


def upstream(warehouse: str, about: Asked, *, depth: int | None) -> Trace:
    """Return `TableLineage.upstream`."""
    return _table(warehouse, about).lineage.upstream(about.snapshots, depth=depth)


def downstream(warehouse: str, about: Asked, *, depth: int | None) -> Trace:
    """Return `TableLineage.downstream`."""
    return _table(warehouse, about).lineage.downstream(about.snapshots, depth=depth)


def impact(warehouse: str, about: Asked, *, depth: int | None) -> Trace:
    """Return `TableLineage.impact`. Raises `InvalidInputError` if no snapshots are named."""
    if about.snapshots is None:
        raise InvalidInputError(
            "which snapshots are bad was not said",
            hint=f"write {about.table}@57 or {about.table}@5..9; `lineage down` shows what was made of the whole table.",
        )
    return _table(warehouse, about).lineage.impact(about.snapshots, depth=depth)


def positions(warehouse: str, about: Asked) -> tuple[Positions, ...]:
    """Return `TableLineage.positions`."""
    return _table(warehouse, about).lineage.positions(about.snapshots)


def producer(warehouse: str, about: Asked) -> Producer:
    """Return `TableLineage.producer`."""
    return _table(warehouse, about).lineage.producer(about.snapshots)


def topology(warehouse: str) -> Trace:
    """Return all tables and jobs."""
    return open_lake(warehouse).lineage.topology()


def jobs(warehouse: str) -> tuple[Job, ...]:
    """Return all jobs, by name."""
    return open_lake(warehouse).lineage.jobs()


def rebuild(warehouse: str) -> Rebuilt:
    """Rebuild the index."""
    done = open_lake(warehouse).lineage.rebuild()
    return Rebuilt(done.commits, len(done.tables), done.problems)


# Drawings


def drawing(trace: Trace, *, format: str | None, output: str | None, json: bool) -> Drawing:
    """Return a drawing of a trace, writing it to the file `output` if given.

    Raises `InvalidInputError`: the format is unknown, cannot be told from the file name, or the file cannot be written.
    """
    if json and format not in (None, "json"):
        raise InvalidInputError(
            f"--json and --format {format} exclude each other", hint="leave out one of them."
        )
    chosen = "json" if json else format or ("tree" if output is None else _format_of(output))
    if output is not None:
        try:
            Path(output).write_text(drawn(trace, chosen), encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(f"'{output}' cannot be written: {error.strerror}") from error
        return Drawing(file=output)
    if chosen == "tree":
        from anabranch.lineage.drawing.tree import as_tree

        return Drawing(shown=as_tree(trace))
    if json:
        return Drawing(value=trace.to_dict())
    return Drawing(drawn(trace, chosen))


def _format_of(file: str) -> str:
    found = _ENDINGS.get(Path(file).suffix.lower())
    if found is None:
        raise InvalidInputError(
            f"the name '{file}' does not say in which format to draw",
            hint=f"add --format, with one of {', '.join(FORMATS)}; or end it in {', '.join(_ENDINGS)}.",
        )
    return found


def input_rows(found: Producer) -> list[tuple[Any, ...]]:
    """Return what a commit read, for people: kind, name, after, through."""
    entry, rows = found.entry, list[tuple[Any, ...]]()
    if entry is None:
        return rows
    for read in made_of(entry):
        if isinstance(read, TableInput):
            rows.append(("table", read.name, "" if read.is_state else read.after, read.through))
        else:
            ends = (
                jsons.dumps(end, ensure_ascii=False) if end is not None else ""
                for end in (read.start, read.end)
            )
            rows.append((kind_of(read), ", ".join(names_of(read, entry.job)), *ends))
    return rows


def position_rows(at: Positions) -> list[tuple[str, str, str]]:
    """Return how far a job had read each source, for people: kind, name, position."""
    rows: list[tuple[str, str, str]] = []
    for source in at.sources:
        place = source.position
        if source.kind == "table" and isinstance(place, dict) and "snapshot" in place:
            files = place.get("files")
            part = "" if files is None else f", {files} of its files"
            text = f"snapshot {place['snapshot']}{part}"
        else:
            text = jsons.dumps(place, ensure_ascii=False)
        rows.append((source.kind, source.name, text))
    return rows


# Guarantees and next steps


def after_impact(about: Asked, trace: Trace) -> tuple[str, list[str]]:
    """Return what an answer about bad snapshots guarantees, and the commands that begin their correction."""
    own = next((found for found in trace.datasets if found.depth == 0 and found.snapshots), None)
    others = [name for name in trace.tables if own is None or name != own.name]
    reached = f"{len(others)} {'table' if len(others) == 1 else 'tables'}" if others else "No other table"
    sure = (
        f"{reached} reached. Exactly these commits recorded that they took in rows of the snapshots asked about, "
        "themselves or by way of others; what says nothing of its origin cannot be found."
    )
    commands = [command_line("create-savepoint", about.table)]
    before = own.snapshots[0][0] - 1 if own is not None else 0
    if before > 0:
        at = ("--tag", "before", "--snapshot", f"{before}")
        commands.append(command_line("create-branch", about.table, "--name", "fix", *at))
    return sure, commands


def after_positions(about: Asked, found: tuple[Positions, ...]) -> tuple[str, list[str]]:
    """Return what positions guarantee, and how a job starts from them."""
    if not found:
        return "No commit of this table says what it read: there is no position to go on from.", []
    sure = (
        "All rows up to these positions are in the table at that moment, and none after them: a job that starts there "
        "leaves none out and repeats none."
    )
    at = about.snapshots
    is_tag = at is not None and not at.isdecimal() and "." not in at
    tag = at if is_tag and at is not None else "good"
    snapshot = () if at is None else ("--snapshot", at)
    tagging = command_line("create-tag", about.table, "--name", tag, *snapshot)
    starting = command_line("run", "JOB.py", "--branch", "fix", "--from-tag", tag, "--create-branch")
    return sure, [starting] if is_tag else [tagging, starting]


def after_producer(found: Producer) -> tuple[str, list[str]]:
    """Return what the answer is based on, and what to ask next."""
    at = f"{found.table}@{found.snapshot}"
    if found.entry is None or found.entry.is_anonymous:
        return "The commit does not say who made it; other engines, and writes outside of a job, do not.", []
    return "This is what the commit itself recorded.", [
        command_line("lineage", verb, at) for verb in ("up", "impact")
    ]


def _table(warehouse: str, about: Asked) -> Table:
    return open_branch(warehouse, about.table, None)

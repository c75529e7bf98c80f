"""Verbs about lineage: where rows came from and went to, what made them, and from where to go on."""

from __future__ import annotations

import json as jsons
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.errors import InvalidInputError
from anabranch.format.text.shell import command_line
from anabranch.verbs.answer import Answer, Document, Grid, Line, Note, Pairs, Rich, Shown, moment
from anabranch.verbs.caller import Caller, View
from anabranch.verbs.subject import InLake
from anabranch.verbs.verb import Called, Group, Option, Parameter, argument, option, verb

if TYPE_CHECKING:
    from anabranch.lineage.trace import Positions, Producer, Trace
    from anabranch.table import Table

LINEAGE: Group = "Lineage"
HELP = "Where rows came from and went to, what made them, and from where to go on."
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
_TRACE = (
    "depth INT, kind STRING, dataset STRING, first_snapshot_id BIGINT, last_snapshot_id BIGINT, jobs STRING"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of a question."""

    table: str
    snapshots: str | None
    """A snapshot, a range, or a name such as a tag; None for the table as a whole."""


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


@dataclass(frozen=True)
class Subject:
    """A table and snapshots of it."""

    about: Asked
    caller: Caller

    @property
    def table(self) -> Table:
        """The table, opened."""
        return self.caller.table(View(self.about.table))


_TABLE = argument(
    "A table or branch, and which snapshots of it: db.orders, db.orders@57, db.orders@5..9, db.orders@good, "
    "'db.orders$branch_fix@3..'.",
    "DB.TABLE[@SNAPSHOTS]",
    sql=None,
)
_SNAPSHOT = option("A snapshot, tag, savepoint, or a range of snapshots; instead of the part after @.")


@dataclass(frozen=True)
class _Of:
    """A table with snapshots in its name."""

    snapshot: Option = _SNAPSHOT

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("table", str, _TABLE), Parameter("snapshot", str, self.snapshot, None)

    def value(self, caller: Caller, given: Mapping[str, Any]) -> Subject:
        """Split what was asked for. Raises `InvalidInputError`."""
        return Subject(asked(given["table"], given.get("snapshot")), caller)


Of = Annotated[Subject, _Of()]
OfBad = Annotated[Subject, _Of(replace(_SNAPSHOT, sql="snapshots", required_in_sql=True))]
Depth = Annotated[int | None, option("How many jobs to go on; as far as it leads if absent.", min=1)]
Format = Annotated[
    str | None,
    option(
        "tree, json, dot (Graphviz), mermaid or svg; of a file if absent, its ending says it.",
        "--format",
        sql=None,
    ),
]
Output = Annotated[
    str | None, option("File to write to, in place of standard output.", "--output", "-o", sql=None)
]


@verb(LINEAGE, "Table.lineage", parent="lineage", procedure="lineage_upstream", columns=_TRACE)
def up(
    of: Of, depth: Depth = None, format: Format = None, output: Output = None, *, caller: Called
) -> Answer:
    """What a table or snapshots of it were made of, back to the sources."""
    trace = of.table.lineage.upstream(of.about.snapshots, depth=depth)
    return drawing(trace, format, output, caller, rows=_rows(trace, towards=True))


@verb(LINEAGE, "Table.lineage", parent="lineage", procedure="lineage_downstream", columns=_TRACE)
def down(
    of: Of, depth: Depth = None, format: Format = None, output: Output = None, *, caller: Called
) -> Answer:
    """What was made of a table or of snapshots of it, on to the last table."""
    trace = of.table.lineage.downstream(of.about.snapshots, depth=depth)
    return drawing(trace, format, output, caller, rows=_rows(trace))


@verb(LINEAGE, "Table.lineage", parent="lineage", columns=_TRACE)
def impact(
    of: OfBad, depth: Depth = None, format: Format = None, output: Output = None, *, caller: Called
) -> Answer:
    """Which snapshots, tables and jobs have taken in bad snapshots, in the order in which to correct them."""
    if of.about.snapshots is None:
        raise InvalidInputError(
            "which snapshots are bad was not said",
            hint=f"write {of.about.table}@57 or {of.about.table}@5..9; `lineage down` shows what was made of the whole table.",
        )
    trace = of.table.lineage.impact(of.about.snapshots, depth=depth)
    is_drawn = output is None and not caller.wants_values and format in (None, "tree")
    after = _guaranteed(*_after_impact(of.about, trace)) if is_drawn else ()
    return drawing(trace, format, output, caller, *after, rows=_rows(trace))


def _rows(trace: Trace, *, towards: bool = False) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each range of snapshots of each dataset, with the jobs on the way to it."""
    for dataset in trace.datasets:
        near = (flow.job for flow in trace.flows if dataset.id == (flow.source if towards else flow.sink))
        jobs = ", ".join(dict.fromkeys(near)) or None
        for first, last in dataset.snapshots or ((None, None),):
            yield (dataset.depth, dataset.kind, dataset.name, first, last, jobs)


def drawing(
    trace: Trace,
    format: str | None,
    output: str | None,
    caller: Caller,
    *after: Shown,
    rows: Iterator[tuple[Any, ...]] | tuple[()] = (),
) -> Answer:
    """Draw a trace, into the file `output` if given.

    Raises `InvalidInputError`: the format is unknown, cannot be told from the file name, or the file cannot be written.
    """
    if caller.is_of_sql:
        return Answer(None, rows=rows)
    from anabranch.lineage.drawing import drawn

    json = caller.wants_values
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
        return Answer(None, Note(f"written to {output}"))
    if json:
        return Answer(trace.to_dict())
    if chosen == "tree":
        from anabranch.lineage.drawing.tree import as_tree

        return Answer(None, Rich(as_tree(trace)), *after)
    return Answer(None, Document(drawn(trace, chosen)))


def _format_of(file: str) -> str:
    from anabranch.lineage.drawing import FORMATS

    found = _ENDINGS.get(Path(file).suffix.lower())
    if found is None:
        raise InvalidInputError(
            f"the name '{file}' does not say in which format to draw",
            hint=f"add --format, with one of {', '.join(FORMATS)}; or end it in {', '.join(_ENDINGS)}.",
        )
    return found


def _guaranteed(guarantee: str, commands: Sequence[str]) -> list[Shown]:
    """Say what one can rely on, and what to do next."""
    return [Line(guarantee, "dim"), *(f"next: {command}" for command in commands)]


def _after_impact(about: Asked, trace: Trace) -> tuple[str, list[str]]:
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


@verb(
    LINEAGE,
    "Table.lineage",
    parent="lineage",
    columns="job STRING, snapshot_id BIGINT, kind STRING, name STRING, source STRING, position STRING, options STRING",
)
def positions(of: Of) -> Answer:
    """How far each job had read its sources at a moment of a table: from where to go on exactly after it."""
    found = of.table.lineage.positions(of.about.snapshots)
    rows = (
        (at.job, at.commit, one.kind, one.name, one.source, _json(one.position), _json(one.options))
        for at in found
        for one in at.sources
    )
    after = _guaranteed(*_after_positions(of.about, found))
    return Answer([one.to_dict() for one in found], _positions(found), *after, rows=rows)


def _json(value: Any) -> str:
    return jsons.dumps(value, ensure_ascii=False)


def _positions(found: Sequence[Positions]) -> Iterator[Shown]:
    for at in found:
        of = "" if at.made_on in ("", at.table) else f" of {at.made_on}"
        yield f"job {at.job}, whose newest commit there is snapshot {at.commit}{of}, had read:"
        rows = [(one.kind, one.name, _place(one.kind, one.position)) for one in at.sources]
        yield Grid(("source", "name", "up to"), rows, grouped=False)
        yield from (f"  may be incomplete: {problem}" for problem in at.problems)


def _place(kind: str, place: Any) -> str:
    if kind == "table" and isinstance(place, dict) and "snapshot" in place:
        files = place.get("files")
        return f"snapshot {place['snapshot']}" + ("" if files is None else f", {files} of its files")
    return _json(place)


def _after_positions(about: Asked, found: Sequence[Positions]) -> tuple[str, list[str]]:
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


@verb(
    LINEAGE,
    "Table.lineage",
    parent="lineage",
    columns="snapshot_id BIGINT, commit_kind STRING, job STRING, run STRING, code STRING, engine STRING, batch BIGINT, "
    "input_kind STRING, input_name STRING, input_after STRING, input_through STRING",
)
def producer(of: Of) -> Answer:
    """What made a snapshot: the job, its run, the version of its code, and what it read."""
    found = of.table.lineage.producer(of.about.snapshots)
    return Answer(
        found.to_dict(), _producer(found), *_guaranteed(*_after_producer(found)), rows=_made_of(found)
    )


def _inputs(found: Producer) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield what a commit read: kind, name, after, through; positions as JSON."""
    from anabranch.lineage.joining import made_of
    from anabranch.lineage.model import TableInput
    from anabranch.lineage.store import kind_of, names_of

    entry = found.entry
    for read in () if entry is None else made_of(entry):
        if isinstance(read, TableInput):
            yield "table", read.name, None if read.is_state else read.after, read.through
        elif entry is not None:
            ends = [None if end is None else _json(end) for end in (read.start, read.end)]
            yield kind_of(read), ", ".join(names_of(read, entry.job)), ends[0], ends[1]


def _made_of(found: Producer) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each input, or a single row if there are none."""
    entry = found.entry
    if entry is None:
        yield (found.snapshot, found.kind, *(None,) * 9)
        return
    job, engine = None if entry.is_of_no_job else entry.job, entry.engine
    nothing: tuple[Any, ...] = (None,) * 4
    by = (found.snapshot, found.kind, job, entry.run, entry.code, engine.name, engine.batch)
    for kind, name, after, through in [*_inputs(found)] or [nothing]:
        yield (*by, kind, name, *(None if end is None else str(end) for end in (after, through)))


def _producer(found: Producer) -> Iterator[Shown]:
    entry = found.entry
    pairs: list[tuple[str, object]] = [
        ("snapshot", f"{found.table}@{found.snapshot}"),
        ("kind", found.kind),
        ("time", moment(found.time_millis)),
    ]
    if entry is not None:
        engine = entry.engine
        named = [("application", engine.application), ("query", engine.query), ("batch", engine.batch)]
        pairs += [
            ("program" if entry.is_of_no_job else "job", entry.job),
            ("run", entry.run),
            ("code", entry.code),
            ("engine", f"{engine.name} {engine.version or ''}".strip()),
            *((name, value) for name, value in named if value is not None),
        ]
    yield Pairs(pairs, grouped=False)
    rows = [tuple("" if cell is None else cell for cell in row) for row in _inputs(found)]
    if rows:
        yield Grid(("input", "name", "after", "through"), rows, grouped=False)
    yield from (f"  may be incomplete: {problem}" for problem in found.problems)


def _after_producer(found: Producer) -> tuple[str, list[str]]:
    """Return what the answer is based on, and what to ask next."""
    at = f"{found.table}@{found.snapshot}"
    if found.entry is None or found.entry.is_anonymous:
        return "The commit does not say who made it; other engines, and writes outside of a job, do not.", []
    return "This is what the commit itself recorded.", [
        command_line("lineage", verb, at) for verb in ("up", "impact")
    ]


@verb(
    LINEAGE,
    "Lake.lineage",
    parent="lineage",
    columns="job STRING, reads STRING, writes STRING, commits BIGINT, first_millis BIGINT, last_millis BIGINT, "
    "engine STRING, code STRING",
)
def jobs(
    lake: InLake,
    format: Annotated[
        str | None, option("Draw all tables and jobs: tree, json, dot, mermaid or svg.", "--format", sql=None)
    ] = None,
    output: Output = None,
    *,
    caller: Called,
) -> Answer:
    """All jobs, and what they read and write; with --format or --output a drawing of them and of all tables."""
    if format is not None or output is not None:
        return drawing(lake.lineage.topology(), format, output, caller)
    found = lake.lineage.jobs()
    rows = [
        (job.name, ", ".join(job.sources), ", ".join(job.sinks), job.commits, job.first_millis, job.last_millis, job.engine, job.code)
        for job in found
    ]  # fmt: skip
    shown = [(*row[:4], moment(row[4]), moment(row[5]), row[6], (row[7] or "")[:12]) for row in rows]
    columns = ("job", "reads", "writes", "commits", "first", "last", "engine", "code")
    problems = dict.fromkeys(problem for job in found for problem in job.problems)
    return Answer(
        [job.to_dict() for job in found],
        Grid(columns, shown),
        *(f"  may be incomplete: {problem}" for problem in problems),
        rows=rows,
    )


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The content of the lineage index after a rebuild."""

    commits: int
    tables: int
    problems: tuple[str, ...]


@verb(LINEAGE, "Lake.lineage", parent="lineage", columns="commits BIGINT, tables BIGINT", changes=True)
def rebuild(lake: InLake) -> Answer:
    """Make the index of lineage anew from what the tables and their archives of expired commits say."""
    made = lake.lineage.rebuild()
    done = Rebuilt(made.commits, len(made.tables), made.problems)
    return Answer(
        done,
        f"the index of lineage has {done.commits:,} commits of {done.tables:,} tables",
        *(f"  could not be read: {problem}" for problem in done.problems),
        rows=[(done.commits, done.tables)],
    )


@verb(LINEAGE, "Lake.lineage", parent="lineage")
def export(
    lake: InLake,
    to: Annotated[str, option("file:PATH, or a server such as http://127.0.0.1:5000.", "--to")],
    since: Annotated[
        str | None,
        option(
            "Send, also again, what was committed since then: a time such as '2026-01-31 12:00:00', an age such as "
            "'2 d', or 'beginning'. If absent it goes on where the last export to there ended."
        ),
    ] = None,
    follow: Annotated[bool, option("Go on until interrupted.", "--follow")] = False,
    throttle: Annotated[
        str | None, option("At most one event a job in so long, such as '10 s', which sums up its commits.")
    ] = None,
    namespace: Annotated[str, option("Namespace of the jobs.")] = "anabranch",
    kafka: Annotated[
        str | None,
        option("Broker, HOST:PORT, that names the cluster of topics: what was read of them does not say it."),
    ] = None,
    cursor: Annotated[
        str | None, option("File that says how far it came; if absent one in the warehouse, for each --to.")
    ] = None,
    *,
    caller: Called,
) -> Answer:
    """Send an event of OpenLineage for each commit that names its job, at least once, to a file or a server."""
    done = lake.lineage.export(
        to,
        since=since,
        follow=follow,
        throttle=throttle,
        namespace=namespace,
        kafka=kafka,
        cursor=cursor,
        report=caller.tell,
    )
    shown: list[Shown] = [f"{done.events:,} events about {done.commits:,} commits sent to {to}"]
    if done.unsaid:
        shown.append(f"  {done.unsaid:,} commits do not say where their rows come from, and were left out")
    if done.failure is not None:
        shown.append(Note(f"Error: not all was sent: {done.failure}"))
        shown.append(
            Note("  hint: run it again, it goes on where it stopped; --follow waits for the server.")
        )
    return Answer(done, *shown, code=1 if done.failure is not None or done.refused else 0)

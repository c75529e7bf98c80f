"""Verbs about lineage: where rows came from and went to, what made them, and from where to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson
from anabranch.cli.output import (
    console,
    moment,
    printable,
    say,
    show_document,
    show_json,
    show_pairs,
    show_table,
)

if TYPE_CHECKING:
    from anabranch.service.lineage import Drawing, Positions, Producer

Of = Annotated[
    str,
    typer.Argument(
        metavar="DB.TABLE[@SNAPSHOTS]",
        help="A table or branch, and which snapshots of it: db.orders, db.orders@57, db.orders@5..9, db.orders@good, "
        "'db.orders$branch_fix@3..'.",
    ),
]
Snapshot = Annotated[
    str | None,
    typer.Option(help="A snapshot, tag, savepoint, or a range of snapshots; instead of the part after @."),
]
Depth = Annotated[
    int | None, typer.Option(min=1, help="How many jobs to go on; as far as it leads if absent.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="tree, json, dot (Graphviz), mermaid or svg; of a file if absent, its ending says it.",
    ),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", help="File to write to, in place of standard output.")
]

_lineage = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Where rows came from and went to, what made them, and from where to go on.",
)


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    for verb in (up, down, impact, positions, producer, jobs, rebuild, export):
        _lineage.command()(verb)
    app.add_typer(_lineage, name="lineage")


def up(
    table: Of,
    snapshot: Snapshot = None,
    depth: Depth = None,
    format: Format = None,
    output: Output = None,
    json: AsJson = False,
) -> None:
    """What a table or snapshots of it were made of, back to the sources."""
    from anabranch.service import lineage as service

    asked = service.asked(table, snapshot)
    trace = service.upstream(state.warehouse, asked, depth=depth)
    _draw(service.drawing(trace, format=format, output=output, json=json))


def down(
    table: Of,
    snapshot: Snapshot = None,
    depth: Depth = None,
    format: Format = None,
    output: Output = None,
    json: AsJson = False,
) -> None:
    """What was made of a table or of snapshots of it, on to the last table."""
    from anabranch.service import lineage as service

    asked = service.asked(table, snapshot)
    trace = service.downstream(state.warehouse, asked, depth=depth)
    _draw(service.drawing(trace, format=format, output=output, json=json))


def impact(
    table: Of,
    snapshot: Snapshot = None,
    depth: Depth = None,
    format: Format = None,
    output: Output = None,
    json: AsJson = False,
) -> None:
    """Which snapshots, tables and jobs have taken in bad snapshots, in the order in which to correct them."""
    from anabranch.service import lineage as service

    asked = service.asked(table, snapshot)
    trace = service.impact(state.warehouse, asked, depth=depth)
    drawing = service.drawing(trace, format=format, output=output, json=json)
    _draw(drawing)
    if drawing.is_for_people:
        _say(*service.after_impact(asked, trace))


def positions(table: Of, snapshot: Snapshot = None, json: AsJson = False) -> None:
    """How far each job had read its sources at a moment of a table: from where to go on exactly after it."""
    from anabranch.service import lineage as service

    asked = service.asked(table, snapshot)
    found = service.positions(state.warehouse, asked)
    if json:
        show_json([one.to_dict() for one in found])
        return
    _show_positions(found)
    _say(*service.after_positions(asked, found))


def producer(table: Of, snapshot: Snapshot = None, json: AsJson = False) -> None:
    """What made a snapshot: the job, its run, the version of its code, and what it read."""
    from anabranch.service import lineage as service

    asked = service.asked(table, snapshot)
    found = service.producer(state.warehouse, asked)
    if json:
        show_json(found.to_dict())
        return
    _show_producer(found)
    _say(*service.after_producer(found))


def jobs(
    format: Annotated[
        str | None,
        typer.Option("--format", help="Draw all tables and jobs: tree, json, dot, mermaid or svg."),
    ] = None,
    output: Output = None,
    json: AsJson = False,
) -> None:
    """All jobs, and what they read and write; with --format or --output a drawing of them and of all tables."""
    from anabranch.service import lineage as service

    if format is not None or output is not None:
        trace = service.topology(state.warehouse)
        _draw(service.drawing(trace, format=format, output=output, json=json))
        return
    found = service.jobs(state.warehouse)
    if json:
        show_json([job.to_dict() for job in found])
        return
    show_table(
        ["job", "reads", "writes", "commits", "first", "last", "engine", "code"],
        [
            (
                *(job.name, ", ".join(job.sources), ", ".join(job.sinks), job.commits),
                *(moment(job.first_millis), moment(job.last_millis), job.engine, (job.code or "")[:12]),
            )
            for job in found
        ],
    )
    for problem in dict.fromkeys(problem for job in found for problem in job.problems):
        say(f"  may be incomplete: {problem}")


def rebuild(json: AsJson = False) -> None:
    """Make the index of lineage anew from what the tables and their archives of expired commits say."""
    from anabranch.service import lineage as service

    done = service.rebuild(state.warehouse)
    if json:
        show_json(done)
        return
    say(f"the index of lineage has {done.commits:,} commits of {done.tables:,} tables")
    for problem in done.problems:
        say(f"  could not be read: {problem}")


def export(
    to: Annotated[str, typer.Option("--to", help="file:PATH, or a server such as http://127.0.0.1:5000.")],
    since: Annotated[
        str | None,
        typer.Option(
            help="Send, also again, what was committed since then: a time such as '2026-01-31 12:00:00', an age such as "
            "'2 d', or 'beginning'. If absent it goes on where the last export to there ended."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until interrupted.")] = False,
    throttle: Annotated[
        str | None,
        typer.Option(help="At most one event a job in so long, such as '10 s', which sums up its commits."),
    ] = None,
    namespace: Annotated[str, typer.Option(help="Namespace of the jobs.")] = "anabranch",
    kafka: Annotated[
        str | None,
        typer.Option(
            help="Broker, HOST:PORT, that names the cluster of topics: what was read of them does not say it."
        ),
    ] = None,
    cursor: Annotated[
        str | None,
        typer.Option(help="File that says how far it came; if absent one in the warehouse, for each --to."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Send an event of OpenLineage for each commit that names its job, at least once, to a file or a server."""
    from anabranch.service import lineage_export as service

    done = service.export(
        state.warehouse,
        to,
        since=since,
        follow=follow,
        throttle=throttle,
        namespace=namespace,
        kafka=kafka,
        cursor=cursor,
        report=lambda text: say(text, err=True),
    )
    if json:
        show_json(done)
    else:
        say(f"{done.events:,} events about {done.commits:,} commits sent to {to}")
        if done.unsaid:
            say(f"  {done.unsaid:,} commits do not say where their rows come from, and were left out")
    if done.failure is not None:
        say(f"Error: not all was sent: {done.failure}", err=True)
        say("  hint: run it again, it goes on where it stopped; --follow waits for the server.", err=True)
    if done.failure is not None or done.refused:
        raise typer.Exit(1)


def _draw(drawing: Drawing) -> None:
    if drawing.file is not None:
        say(f"written to {drawing.file}", err=True)
    elif drawing.is_for_people:
        from rich.tree import Tree

        assert isinstance(drawing.shown, Tree), "people see a tree"
        console.print(drawing.shown)
    elif drawing.value is not None:
        show_json(drawing.value)
    else:
        show_document(drawing.text)


def _say(guarantee: str, commands: list[str]) -> None:
    """What one can rely on, and what to do next."""
    console.print(printable(guarantee), style="dim", markup=False, highlight=False, soft_wrap=True)
    for command in commands:
        say(f"next: {command}")


def _show_positions(found: tuple[Positions, ...]) -> None:
    from anabranch.service.lineage import position_rows

    for at in found:
        of = "" if at.made_on in ("", at.table) else f" of {at.made_on}"
        say(f"job {at.job}, whose newest commit there is snapshot {at.commit}{of}, had read:")
        show_table(["source", "name", "up to"], position_rows(at), grouped=False)
        for problem in at.problems:
            say(f"  may be incomplete: {problem}")


def _show_producer(found: Producer) -> None:
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
    show_pairs(pairs, grouped=False)
    from anabranch.service.lineage import input_rows

    rows = input_rows(found)
    if rows:
        show_table(["input", "name", "after", "through"], rows, grouped=False)
    for problem in found.problems:
        say(f"  may be incomplete: {problem}")

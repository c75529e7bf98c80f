"""Verbs about what is kept: tags, savepoints and the positions of consumers."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, Branch, DryRun, TableName, Yes, confirm
from anabranch.cli.output import moment, say, show_json, show_table, wall_time

Name = Annotated[str, typer.Option("--name", "-n", help="Name of the tag.")]
Retained = Annotated[
    str | None, typer.Option("--retained", help="How long to keep it, such as '7 d'; for good if absent.")
]
Version = Annotated[
    str | None,
    typer.Option(
        "--snapshot", "--at", help="What to keep: a snapshot id, snapshot.N, a tag; the newest if absent."
    ),
]


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    for verb in (
        *(create_tag, delete_tag, rename_tag, replace_tag, tags),
        *(create_savepoint, delete_savepoint, savepoints, consumers),
    ):
        app.command(verb.__name__.replace("_", "-"))(verb)


def create_tag(
    table: TableName,
    name: Name,
    snapshot: Version = None,
    timestamp: Annotated[str | None, typer.Option(help="Tag what the table was at this time.")] = None,
    retained: Retained = None,
    branch: Branch = None,
    json: AsJson = False,
) -> None:
    """Name a moment of a table and keep it."""
    from anabranch.service import refs as service

    view = service.open_branch(state.warehouse, table, branch)
    info = service.create_tag(view, name, snapshot=snapshot, timestamp=timestamp, retained=retained)
    show_json(info) if json else say(f"tag '{name}' keeps snapshot {info.snapshot} of {view.name}")


def delete_tag(
    table: TableName,
    name: Name,
    branch: Branch = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Let go of a tag; what only it held goes with the next expiry and clean-up."""
    from anabranch.service import refs as service

    view = service.open_branch(state.warehouse, table, branch)
    info = service.tag(view, name)
    confirm(f"delete tag '{name}' of {view.name} (snapshot {info.snapshot})?", yes=yes or dry_run or json)
    if not dry_run:
        view.delete_tag(name)
    if json:
        show_json({"tag": name, "snapshot": info.snapshot, "deleted": not dry_run})
    else:
        say(f"{'would delete' if dry_run else 'deleted'} tag '{name}' (snapshot {info.snapshot})")


def rename_tag(
    table: TableName,
    name: Name,
    to: Annotated[str, typer.Option("--to", help="Its new name.")],
    branch: Branch = None,
    json: AsJson = False,
) -> None:
    """Give a tag another name."""
    from anabranch.service import refs as service

    view = service.open_branch(state.warehouse, table, branch)
    view.rename_tag(name, to)
    info = service.tag(view, to)
    show_json(info) if json else say(f"tag '{name}' is '{to}' now (snapshot {info.snapshot})")


def replace_tag(
    table: TableName,
    name: Name,
    snapshot: Version = None,
    retained: Retained = None,
    branch: Branch = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Let a tag keep another moment."""
    from anabranch.service import refs as service

    view = service.open_branch(state.warehouse, table, branch)
    before = service.tag(view, name)
    if not dry_run:
        service.replace_tag(view, name, snapshot=snapshot, retained=retained)
    info = service.tag(view, name)
    if json:
        show_json({"before": before, "tag": info})
    else:
        target = info.snapshot if not dry_run else snapshot or "the newest snapshot"
        say(f"tag '{name}' {'would keep' if dry_run else 'keeps'} {target}, before: {before.snapshot}")


def tags(
    table: TableName,
    all: Annotated[bool, typer.Option("--all", help="Also those the table made for itself.")] = False,
    branch: Branch = None,
    json: AsJson = False,
) -> None:
    """List the tags of a table."""
    from anabranch.service import refs as service

    found = service.tags(service.open_branch(state.warehouse, table, branch), include_internal=all)
    if json:
        show_json(found)
        return
    show_table(
        ["tag", "snapshot", "time", "rows", "created", "kept until"],
        [
            (
                t.name,
                str(t.snapshot),
                moment(t.time_millis),
                t.rows,
                wall_time(t.create_time),
                wall_time(t.expires),
            )
            for t in found
        ],
    )


def create_savepoint(
    table: TableName,
    snapshot: Version = None,
    branch: Branch = None,
    json: AsJson = False,
) -> None:
    """Keep a moment of a table for good, under the next number."""
    from anabranch.service import refs as service

    view = service.open_branch(state.warehouse, table, branch)
    info = service.create_savepoint(view, snapshot=snapshot)
    if json:
        show_json(info)
    else:
        say(
            f"savepoint {info.id} keeps snapshot {info.snapshot} of {view.name} ({info.rows:,} rows); "
            f"read it with --at savepoint.{info.id}"
        )


def delete_savepoint(
    table: TableName,
    id: Annotated[int, typer.Option("--id", help="Number of the savepoint.", min=1)],
    branch: Branch = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Let go of a savepoint; its number is never given out again."""
    from anabranch.service import refs as service

    view = service.open_branch(state.warehouse, table, branch)
    info = service.savepoint(view, id)
    confirm(f"delete savepoint {id} of {view.name} (snapshot {info.snapshot})?", yes=yes or dry_run or json)
    if not dry_run:
        view.delete_savepoint(id)
    if json:
        show_json({"savepoint": id, "snapshot": info.snapshot, "deleted": not dry_run})
    else:
        say(f"{'would delete' if dry_run else 'deleted'} savepoint {id} (snapshot {info.snapshot})")


def savepoints(table: TableName, branch: Branch = None, json: AsJson = False) -> None:
    """List the savepoints of a table."""
    from anabranch.service import refs as service

    found = service.savepoints(service.open_branch(state.warehouse, table, branch))
    if json:
        show_json(found)
        return
    show_table(
        ["savepoint", "snapshot", "schema", "saved", "rows"],
        [(str(s.id), str(s.snapshot), str(s.schema_id), moment(s.save_time), s.rows) for s in found],
    )


def consumers(
    table: TableName,
    reset: Annotated[str | None, typer.Option(help="Name of a consumer to move.")] = None,
    to: Annotated[
        int | None,
        typer.Option(help="With --reset: the snapshot it reads next; the one after the newest if absent."),
    ] = None,
    delete: Annotated[str | None, typer.Option(help="Name of a consumer to let go of.")] = None,
    branch: Branch = None,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """List the consumers of a table and how far each is behind; move or delete one."""
    from anabranch.service import refs as service

    if to is not None and reset is None:
        raise typer.BadParameter("--to says where a consumer is moved, but --reset does not say which one.")
    view = service.open_branch(state.warehouse, table, branch)
    if reset is not None:
        service.reset_consumer(view, reset, to)
    if delete is not None:
        confirm(f"delete consumer '{delete}' of {view.name}?", yes=yes or json)
        service.delete_consumer(view, delete)
    found = service.consumers(view)
    if json:
        show_json(found)
        return
    show_table(
        ["consumer", "reads next", "snapshots behind", "rows behind", "seconds behind", "last moved"],
        [
            (c.name, str(c.next_snapshot), c.snapshots, c.rows, c.millis // 1000, moment(c.modified_millis))
            for c in found
        ],
    )

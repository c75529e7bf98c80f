"""Verbs about branches: making and deleting them, and how they stand to main."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, DryRun, TableName, Yes, confirm
from anabranch.cli.output import moment, say, show_json, show_table, show_tree
from anabranch.cli.watching import watch_lags

if TYPE_CHECKING:
    from anabranch.service.branches import BranchInfo, MergeResult

CONFLICT = 3
"""Exit code where something stands against what was asked."""

Name = Annotated[str, typer.Option("--name", "-n", help="Name of the branch.")]


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    for verb in (create_branch, delete_branch, merge_branch, branches):
        app.command(verb.__name__.replace("_", "-"))(verb)


def create_branch(
    table: TableName,
    name: Name,
    tag: Annotated[
        str | None,
        typer.Option(help="Tag of main to begin with; with --snapshot or --savepoint the tag to make."),
    ] = None,
    snapshot: Annotated[str | None, typer.Option(help="Snapshot of main to begin with.")] = None,
    savepoint: Annotated[int | None, typer.Option(help="Number of the savepoint to begin with.")] = None,
    retained: Annotated[
        str | None,
        typer.Option(help="How long maintain keeps the branch, such as '7 d'; for good if absent."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Create a branch that begins as a tag of main is. No data is copied."""
    from anabranch.service import branches as service
    from anabranch.service.refs import open_branch

    view = open_branch(state.warehouse, table, None)
    info = service.create_branch(
        view, name, tag=tag, snapshot=snapshot, savepoint=savepoint, retained=retained
    )
    if json:
        show_json(info)
    else:
        say(
            f"branch '{name}' of {view.name} begins with snapshot {info.fork_snapshot} (tag '{info.tag}'); "
            f"read and write it as {view.name}$branch_{name}"
        )


def delete_branch(
    table: TableName, name: Name, dry_run: DryRun = False, yes: Yes = False, json: AsJson = False
) -> None:
    """Remove a branch with its snapshots, tags and savepoints; its data goes with the next clean-up."""
    from anabranch.service import branches as service
    from anabranch.service.refs import open_branch

    view = open_branch(state.warehouse, table, None)
    info = service.branch(view, name)
    moved = "" if info.tag is None else f" ({service.moved(info)})"
    confirm(f"delete branch '{name}' of {view.name}{moved}?", yes=yes or dry_run or json)
    deleted = None if dry_run else service.delete_branch(view, name)
    if json:
        show_json({"branch": name, "facts": info, "deleted": deleted is not None})
    else:
        say(f"{'would delete' if dry_run else 'deleted'} branch '{name}' of {view.name}{moved}")


def merge_branch(
    table: TableName,
    name: Name,
    resolve: Annotated[
        list[str] | None,
        typer.Option(
            help="Whose rows partitions with a conflict get: 'ours' (main's) or 'theirs' (the branch's) for all, "
            "'dt=2026-01-01:theirs' for one; may be repeated."
        ),
    ] = None,
    allow_source_overlap: Annotated[
        bool,
        typer.Option(
            "--allow-source-overlap", help="Merge events that main has from the same source as well."
        ),
    ] = False,
    require_audit: Annotated[
        str | None, typer.Option(help="Name of the checks that the branch must have passed as it is now.")
    ] = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Bring what a branch did since it was merged last into main. Exits with 3 if something stands against it."""
    from anabranch.service import branches as service
    from anabranch.service.refs import open_branch

    view = open_branch(state.warehouse, table, None)
    result = service.merge_branch(
        view,
        name,
        resolve=resolve or (),
        allow_source_overlap=allow_source_overlap,
        require_audit=require_audit,
        dry_run=dry_run,
    )
    if json:
        show_json(result)
    else:
        _show_merge(view.name, result)
    if result.conflicts:
        raise typer.Exit(CONFLICT)


def _show_merge(table: str, result: MergeResult) -> None:
    if result.conflicts:
        _show_conflicts(table, result)
        return
    if not result.dry_run and result.snapshot is None:
        say(f"nothing to merge: {table} has all that branch '{result.branch}' did")
        return
    for change in result.schema_changes:
        say(f"schema: {change}")
    if result.partitions:
        show_table(
            ["partition", "outcome", "chosen", "files added", "removed", "rows added", "removed"],
            [
                (
                    *(p.partition, str(p.outcome), p.chosen and str(p.chosen)),
                    *(p.files_added, p.files_removed, p.rows_added, p.rows_removed),
                )
                for p in result.partitions
            ],
        )
    if result.snapshot is None:
        say(f"would merge branch '{result.branch}' into {table}")
    else:
        say(f"merged branch '{result.branch}' into {table}: snapshot {result.snapshot.id}")


def _show_conflicts(table: str, result: MergeResult) -> None:
    many = len(result.conflicts)
    say(
        f"branch '{result.branch}' cannot be merged into {table} as it is: "
        f"{many} {'conflict' if many == 1 else 'conflicts'}"
    )
    show_table(
        ["conflict", "partition", "main's snapshots", "files", "what"],
        [
            (c.kind, c.partition, ", ".join(map(str, c.snapshots)), len(c.files) or None, c.message)
            for c in result.conflicts
        ],
    )
    for hint in dict.fromkeys(c.hint for c in result.conflicts):
        say(f"  hint: {hint}")


def branches(
    table: TableName,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show how far each branch is behind main, per source, until Ctrl-C."),
    ] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks of --watch.", min=0)] = 2.0,
    times: Annotated[int | None, typer.Option(help="Looks of --watch; no end if absent.", min=1)] = None,
    json: AsJson = False,
) -> None:
    """Show main and its branches: where each began, and how far it and main have moved since."""
    from anabranch.service import branches as service

    view, found = service.branches(state.warehouse, table)
    if watch:
        watch_lags(view, interval, times, json=json)
        return
    if json:
        show_json(found)
        return
    main, *others = found
    known = [info for info in others if info.fork_snapshot is not None]
    beginnings = sorted({(info.fork_snapshot or 0, info.tag or "") for info in known})
    show_tree(
        _of_main(view.name, main),
        [
            (
                f"snapshot {snapshot}, tag '{tag}'",
                [_of_branch(info) for info in known if (info.fork_snapshot, info.tag) == (snapshot, tag)],
            )
            for snapshot, tag in beginnings
        ]
        + [(_of_branch(info), []) for info in others if info.fork_snapshot is None],
    )


def _of_main(table: str, main: BranchInfo) -> str:
    where = "" if main.folder is None else f", in the place of main since it was replaced by '{main.folder}'"
    return f"{table}: main{where}{_head(main)}"


def _of_branch(info: BranchInfo) -> str:
    from anabranch.service import branches as service

    if info.state == "begun":
        return f"{info.name}: is being created, or a creation died; create it again or delete it"
    if info.state == "deleting":
        return f"{info.name}: is being deleted, or a removal died; delete it again"
    if info.state == "left-over":
        return f"{info.name}: what is left of a branch; delete it"
    if info.tag is None:
        return f"{info.name}: made by another engine{_head(info)}"
    by = "" if info.created_by is None else f" by {info.created_by}"
    until = "" if info.expires is None else f", kept until {moment(info.expires)}"
    lacks = "".join(f"\nonly main has {job}" for job in info.only_on_main)
    return (
        f"{info.name}{_head(info)}\n{service.moved(info)}\ncreated {moment(info.created)}{by}{until}{lacks}"
    )


def _head(info: BranchInfo) -> str:
    if info.head is None:
        return ", without snapshots"
    rows = "" if info.rows is None else f", {info.rows:,} rows"
    return f": snapshot {info.head} of {moment(info.head_time)}{rows}"

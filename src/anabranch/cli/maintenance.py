"""Verbs that keep tables fast and small: compaction, sorting, expiry, clean-up, health."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, Branch, DryRun, TableName, Yes, confirm, names
from anabranch.cli.output import runnable, say, show_json, show_table, told

if TYPE_CHECKING:
    from anabranch.service.maintenance import CompactionInfo

Tables = Annotated[
    str, typer.Argument(metavar="DB.TABLE|DB", help="The table, or a database for all of its tables.")
]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", help="dt=2026-01-01/hour=3; may be repeated. All if absent."),
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Work on Spark, for example local[4]; in this process if absent."),
]


_MOST_NAMED = 10
"""Names that are shown of files that are left alone."""


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    for verb in (
        *(compact, sort_compact, expire_snapshots, remove_orphan_files, restore_orphan_files),
        *(maintain, health, verify, repair),
    ):
        app.command(verb.__name__.replace("_", "-"))(verb)


def compact(
    table: Tables,
    full: Annotated[bool, typer.Option("--full", help="Leave no small file, however few there are.")] = False,
    partition: Partitions = None,
    idle: Annotated[
        str | None,
        typer.Option(
            "--partition-idle-time", help="Only partitions without new files for so long, as '1 h'."
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Go on for ever, looking again so often, as '30 s'; Ctrl-C ends it.")
    ] = None,
    branch: Branch = None,
    master: Master = None,
    json: AsJson = False,
) -> None:
    """Rewrite small files as fewer large ones, while everybody keeps reading and writing."""
    from anabranch.service import maintenance as service

    job = service.CompactionJob(state.warehouse, table, branch, full, partition or (), idle, master)
    for round_ in job.rounds(every):
        if json:
            show_json(round_)
        elif any(done.files_before or done.given_up for done in round_):
            show_table(
                ["table", "files", "became", "bytes", "became", "rows", "snapshot"],
                [
                    (
                        *(d.table, d.files_before, d.files_after, d.bytes_before, d.bytes_after),
                        *(d.rows, d.snapshot),
                    )
                    for d in round_
                ],
            )
            for done in round_:
                _say_given_up(done)
        elif every is None:
            say("nothing to compact")


def _say_given_up(done: CompactionInfo) -> None:
    if done.given_up:
        say(f"{done.table}: {done.given_up:,} tasks were given up, others rewrote their files meanwhile")


def sort_compact(
    table: TableName,
    order_by: Annotated[str, typer.Option("--order-by", help="Comma-separated columns.")],
    strategy: Annotated[
        str, typer.Option(help="order (by the first column first), zorder or hilbert (by all alike).")
    ] = "zorder",
    partition: Partitions = None,
    branch: Branch = None,
    master: Master = None,
    json: AsJson = False,
) -> None:
    """Rewrite partitions in the order of some columns, so that queries on them skip files."""
    from anabranch.service import maintenance as service

    done = service.sort_compact(
        *(state.warehouse, table, branch),
        by=names(order_by) or [],
        strategy=strategy,
        partitions=partition or (),
        master=master,
    )
    if json:
        show_json(done)
    elif not done.files_before and not done.given_up:
        say(f"nothing to sort: {done.table} is empty, or sorted like this already")
    else:
        say(
            f"sorted {done.rows:,} rows by {order_by} ({strategy}): {done.files_before:,} files became "
            f"{done.files_after:,}" + ("" if done.snapshot is None else f" in snapshot {done.snapshot}")
        )
        _say_given_up(done)


def expire_snapshots(
    table: Tables,
    retain_max: Annotated[int | None, typer.Option(help="Keep at most so many snapshots.", min=1)] = None,
    retain_min: Annotated[int | None, typer.Option(help="Keep at least so many.", min=1)] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Expire those older than this: '2 d', or a time such as 2026-01-31.")
    ] = None,
    branch: Branch = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    master: Master = None,
    json: AsJson = False,
) -> None:
    """Let go of old snapshots, and of files that no snapshot, tag, savepoint or branch reaches any more."""
    from anabranch.service import maintenance as service

    confirm(f"expire snapshots of {table}?", yes=yes or dry_run or json)
    done = service.expire_snapshots(
        *(state.warehouse, table, branch),
        retain_max=retain_max,
        retain_min=retain_min,
        older_than=older_than,
        dry_run=dry_run,
        master=master,
    )
    if json:
        show_json(done)
        return
    show_table(
        [
            "table",
            f"{'would expire' if dry_run else 'expired'}",
            "data files",
            "metadata files",
            "bytes",
            "left",
        ],
        [(d.table, d.snapshots, d.data_files, d.metadata_files, d.bytes, d.snapshots_left) for d in done],
    )
    for d in done:
        for kind, gone in (("tags", d.tags), ("consumers", d.consumers), ("state of", d.states)):
            if gone:
                say(f"{d.table}: {'would let' if dry_run else 'let'} go of {kind} {', '.join(gone)}")
        for ref, held in d.held.items():
            say(f"{d.table}: {ref} keeps {held['files']:,} files, {held['bytes']:,} bytes")


def remove_orphan_files(
    table: Tables,
    older_than: Annotated[str, typer.Option(help="Spare what is younger: writers may be at it.")] = "1 d",
    dry_run: DryRun = False,
    yes: Yes = False,
    master: Master = None,
    json: AsJson = False,
) -> None:
    """Move files that belong to no snapshot out of the way, and purge those moved long ago."""
    from anabranch.service import maintenance as service

    confirm(f"remove orphan files of {table} older than {older_than}?", yes=yes or dry_run or json)
    done = service.remove_orphan_files(
        state.warehouse, table, older_than=older_than, dry_run=dry_run, master=master
    )
    if json:
        show_json(done)
        return
    show_table(
        [
            "table",
            "would move" if dry_run else "moved",
            "bytes",
            "would purge" if dry_run else "purged",
            "bytes",
        ],
        [(d.table, d.moved, d.moved_bytes, d.purged, d.purged_bytes) for d in done],
    )
    for d in done:
        if d.moved and not dry_run:
            say(
                f"{d.table}: anabranch restore-orphan-files {shlex.quote(d.table)} --run {d.run} brings them back"
            )
        if d.foreign:
            some = ", ".join(d.foreign[:_MOST_NAMED])
            more = f" and {len(d.foreign) - _MOST_NAMED:,} more" if len(d.foreign) > _MOST_NAMED else ""
            say(f"{d.table}: left alone, because no engine of the format made them: {some}{more}")


def restore_orphan_files(
    table: TableName,
    run: Annotated[int, typer.Option(help="Number that remove-orphan-files gave.")],
    json: AsJson = False,
) -> None:
    """Bring back what a run of remove-orphan-files moved away, until a later run purges it."""
    from anabranch.service import maintenance as service

    files, size = service.restore_orphan_files(state.warehouse, table, run)
    if json:
        show_json({"table": table, "run": run, "files": files, "bytes": size})
    else:
        say(f"brought back {files:,} files, {size:,} bytes")


def maintain(
    table: Tables,
    dry_run: DryRun = False,
    yes: Yes = False,
    master: Master = None,
    json: AsJson = False,
) -> None:
    """Compact, expire and clean up, as the options of the table say."""
    from anabranch.service import maintenance as service

    confirm(f"maintain {table}: compact, expire snapshots, remove orphan files?", yes=yes or dry_run or json)
    done = service.maintain(state.warehouse, table, dry_run=dry_run, master=master)
    if json:
        show_json(done)
        return
    for one in done:
        say(one.text)


def health(table: Tables, branch: Branch = None, json: AsJson = False) -> None:
    """Say how a table is: small files, what compaction would gain, and the command that mends it."""
    from anabranch.service import maintenance as service

    found = service.health(state.warehouse, table, branch)
    if json:
        show_json([_with_commands(asdict(one)) for one in found])
        return
    for one in found:
        say(str(one))


def _with_commands(state_of: dict[str, Any]) -> dict[str, Any]:
    """A state of health with commands that name the warehouse as it was named."""
    findings = [
        {**finding, "command": finding["command"] and runnable(finding["command"])}
        for finding in state_of["findings"]
    ]
    return {**state_of, "findings": findings}


def verify(
    table: Tables,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read every data file in full, with its checksums.")
    ] = False,
    master: Master = None,
    json: AsJson = False,
) -> None:
    """Find what is wrong with a table: history, refs, manifests, missing files. Ends with 1 if anything is."""
    from anabranch.service import maintenance as service

    with told(silent=json) as progress:
        found = service.verify(state.warehouse, table, deep=deep, progress=progress, master=master)
    if json:
        show_json([{**asdict(one), "ok": one.ok} for one in found])
    else:
        for one in found:
            say(str(one))
        if not all(one.ok for one in found):
            say(f"anabranch repair {shlex.quote(table)} --dry-run says what can be done")
    if not all(one.ok for one in found):
        raise typer.Exit(1)


def repair(
    table: Tables,
    dry_run: DryRun = False,
    yes: Yes = False,
    master: Master = None,
    json: AsJson = False,
) -> None:
    """Bring a table back from what verify finds; say what cannot be. Ends with 1 if something is left."""
    from anabranch.service import maintenance as service

    confirm(f"repair {table}? --dry-run says what would be done", yes=yes or dry_run or json)
    with told(silent=json) as progress:
        done = service.repair(state.warehouse, table, dry_run=dry_run, progress=progress, master=master)
    if json:
        show_json(done)
    else:
        for one in done:
            say(str(one))
    if any(problem.severity == "error" for one in done for problem in one.left):
        raise typer.Exit(1)

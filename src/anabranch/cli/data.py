"""Verbs about rows: read, append, overwrite, explain."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import (
    AsJson,
    At,
    Branch,
    Columns,
    Exact,
    Filter,
    Limit,
    Published,
    TableName,
    limit_option,
    names,
)
from anabranch.cli.output import limited, say, say_cut, show_json, show_moment, show_rows, working
from anabranch.cli.system_tables import show_system_table


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    for verb in (read, append, overwrite, explain):
        app.command(verb.__name__)(verb)


def read(
    table: TableName,
    columns: Columns = None,
    filter: Filter = None,
    limit: Annotated[Limit | None, limit_option("20")] = None,
    branch: Branch = None,
    at: At = None,
    exact: Exact = False,
    published: Published = False,
    json: AsJson = False,
) -> None:
    """Read rows of a table, or of a system table such as 'db.t$files'; with --json one object a line."""
    from anabranch.frames.row_values import First, rows_of
    from anabranch.service import tables as service
    from anabranch.service.system_tables import is_system_table

    most = limited(None if limit is None else limit.rows, is_given=limit is not None, usual=20)
    if is_system_table(table):
        show_system_table(
            table,
            filter=filter,
            columns=names(columns),
            limit=most,
            branch=branch,
            at=at,
            exact=exact,
            published=published,
            json=json,
        )
        return
    asked = service.View(table, branch, at, exact, published)
    view = service.open_table(service.open_lake(state.warehouse), asked)
    scan = view.scan(filter, names(columns), None if most is None else most + 1)
    show_moment(view.moment)
    batches = First(scan.to_batches(), most)
    if json:
        for batch in batches:
            for row in rows_of(batch):
                show_json(row)
    else:
        found = (tuple(row.values()) for batch in batches for row in rows_of(batch))
        show_rows(scan.reader.schema.names, found)
    if most is not None and batches.is_cut:
        say_cut(most)


def append(
    table: TableName,
    source: Annotated[str, typer.Argument(help="A parquet, csv or json file, or - for standard input.")],
    format: Annotated[
        str | None, typer.Option(help="parquet, csv or json, where the name does not tell.")
    ] = None,
    branch: Branch = None,
    json: AsJson = False,
) -> None:
    """Append the rows of a file."""
    from anabranch.frames.user_files import read_rows
    from anabranch.service import tables as service

    view = service.open_table(service.open_lake(state.warehouse), service.View(table, branch))
    with working(json=json):
        snapshot = view.append(read_rows(source, format, view.scan().reader.schema))
    if json:
        show_json(service.snapshot_info(snapshot))
    else:
        say(f"appended {snapshot.delta_record_count:,} rows to {view.name}: snapshot {snapshot.id}")


def overwrite(
    table: TableName,
    source: Annotated[str, typer.Argument(help="A parquet, csv or json file, or - for standard input.")],
    format: Annotated[
        str | None, typer.Option(help="parquet, csv or json, where the name does not tell.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="Replace all rows of this partition, such as dt=2026-01-01/hour=3.")
    ] = None,
    if_unchanged_since: Annotated[
        int | None,
        typer.Option(help="Fail if rows to be replaced were changed after this snapshot.", min=0),
    ] = None,
    branch: Branch = None,
    json: AsJson = False,
) -> None:
    """Replace rows by those of a file: the partitions that occur in it, or all rows of an unpartitioned table."""
    from anabranch.frames.user_files import read_rows
    from anabranch.service import tables as service
    from anabranch.verbs.upkeep import partition_values

    view = service.open_table(service.open_lake(state.warehouse), service.View(table, branch))
    values = next(iter(partition_values([] if partition is None else [partition]) or ()), None)
    rows = read_rows(source, format, view.scan().reader.schema)
    with working(json=json):
        snapshot = view.overwrite(rows, values, if_unchanged_since=if_unchanged_since)
    if json:
        show_json(service.snapshot_info(snapshot))
    else:
        say(f"overwrote rows of {view.name}: snapshot {snapshot.id}")


def explain(
    table: TableName,
    filter: Filter = None,
    columns: Columns = None,
    branch: Branch = None,
    at: At = None,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Show how a read finds its files, step by step."""
    from anabranch.service import tables as service

    view = service.open_table(service.open_lake(state.warehouse), service.View(table, branch, at, exact))
    show_moment(view.moment)
    info = service.explain(view, filter, names(columns))
    show_json(info) if json else say(info.text)

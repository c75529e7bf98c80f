"""Verbs that show what a table knows of itself."""

from __future__ import annotations

from collections.abc import Callable

import typer

from anabranch.cli import state
from anabranch.cli.arguments import (
    AsJson,
    At,
    Branch,
    Columns,
    Exact,
    Filter,
    TableName,
    names,
)
from anabranch.cli.output import say_cut, show_json, show_moment, show_rows

_VERBS = {
    "schemas": "List the versions of a table's schema.",
    "options": "List the options that are set in a table.",
    "manifests": "List the manifests of a table.",
    "partitions": "List the partitions of a table with their rows, files and bytes.",
    "buckets": "List the buckets of a table with their rows, files and bytes.",
}


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    for name, help_text in _VERBS.items():
        app.command(name, help=help_text)(_verb(name))


def show_system_table(
    table: str,
    *,
    filter: str | None = None,
    columns: list[str] | None = None,
    limit: int | None = None,
    branch: str | None = None,
    at: str | None = None,
    exact: bool = False,
    published: bool = False,
    json: bool = False,
) -> None:
    """Print a system table, with `json` one object a line."""
    from anabranch.frames.row_values import rows_of
    from anabranch.service import system_tables as service
    from anabranch.service.tables import View, open_lake

    lake = open_lake(state.warehouse)
    view = View(table, branch, at, exact, published)
    wanted = None if limit is None else limit + 1
    rows, found = service.read(lake, view, filter=filter, columns=columns, limit=wanted)
    is_cut = limit is not None and rows.num_rows > limit
    rows = rows if limit is None else rows.slice(0, limit)
    show_moment(found)
    if json:
        for row in rows_of(rows):
            show_json(row)
    else:
        show_rows(rows.schema.names, (tuple(row.values()) for row in rows_of(rows)))
    if is_cut:
        say_cut(rows.num_rows)


def _verb(name: str) -> Callable[..., None]:
    def show(
        table: TableName,
        branch: Branch = None,
        at: At = None,
        exact: Exact = False,
        filter: Filter = None,
        columns: Columns = None,
        json: AsJson = False,
    ) -> None:
        show_system_table(
            f"{table}${name}",
            filter=filter,
            columns=names(columns),
            branch=branch,
            at=at,
            exact=exact,
            json=json,
        )

    return show

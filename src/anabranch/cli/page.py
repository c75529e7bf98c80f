"""The verbs ui, the local web page, and report, the same page as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli import state
from anabranch.cli.arguments import AsJson, JobFiles
from anabranch.cli.output import say, show_json
from anabranch.errors import NotFoundError, UnsupportedFeatureError


def register(app: typer.Typer) -> None:
    """Add these verbs to the command line."""
    app.command()(ui)
    app.command()(report)


def ui(
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of this machine; 0 for any. If absent 8765, or the next that is free.",
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="Let the page correct tables; else it only shows.")
    ] = False,
    jobs: JobFiles = None,
    checks: Annotated[
        str | None, typer.Option(help="File of checks that what is corrected from the page must pass.")
    ] = None,
) -> None:
    """Look at the lake in a browser: tables, history, branches, differences and lineage. Ends with Ctrl-C.

    The page is for this machine only, and for who has the printed address.
    """
    if not has_web():
        raise UnsupportedFeatureError(
            "the web page needs starlette and uvicorn, which are not installed",
            feature="ui",
            hint="pip install 'anabranch[ui]'",
        )
    for file in (*(jobs or ()), *([checks] if checks else ())):
        if not Path(file).is_file():
            raise NotFoundError(
                f"there is no file '{file}'",
                hint="name files of jobs with --jobs, one of checks with --checks.",
            )
    from anabranch.service.tables import open_lake
    from anabranch.ui.serve import serve
    from anabranch.ui.site import Site

    lake = open_lake(state.warehouse)
    lake.databases()  # fails here if there is no such warehouse
    site = Site(
        lake,
        warehouse=state.warehouse,
        allow_actions=allow_actions,
        jobs=jobs or (),
        checks=[checks] if checks else (),
    )
    serve(site, port=port, browser=not no_browser, say=_say)


def report(
    table: Annotated[
        str | None, typer.Argument(metavar="DB.TABLE", help="The table; the whole lake if absent.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="File to write, such as report.html.")
    ] = "report.html",
    diff: Annotated[
        str | None, typer.Option(help="Two refs to compare, such as main..fix, with the rows that differ.")
    ] = None,
    from_tag: Annotated[
        str | None, typer.Option("--from-tag", help="Plan of a correction of the table from this tag.")
    ] = None,
    jobs: JobFiles = None,
    no_rows: Annotated[
        bool, typer.Option("--no-rows", help="Leave out rows and statistics: names and counts only.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Write the pictures of a table, a difference, a correction or the lake into one HTML file, to send to somebody.

    The file loads nothing from elsewhere. It holds the first rows of the table, unless --no-rows is given.
    """
    from anabranch.service.tables import open_lake
    from anabranch.ui.report import Wanted, write
    from anabranch.ui.report import report as page_of
    from anabranch.ui.site import Site

    lake = open_lake(state.warehouse)
    lake.databases()  # fails here if there is no such warehouse
    site = Site(lake, warehouse=state.warehouse, jobs=jobs or ())
    page = page_of(site, Wanted(table, diff, from_tag, not no_rows))
    write(output, page)
    show_json({"file": output, "bytes": len(page)}) if json else say(
        f"written to {output}, {len(page):,} bytes"
    )


def _say(url: str) -> None:
    say(f"Anabranch shows {state.warehouse} at {url}")
    say("Ctrl-C ends it. Who has this address sees the lake.", err=True)


def has_web() -> bool:
    """Whether what the page needs is installed."""
    try:
        import starlette
        import uvicorn
    except ImportError:
        return False
    return bool(starlette.__version__ and uvicorn.__version__)

"""The verbs ui, the local web page, and report, the same page as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from anabranch.errors import NotFoundError, UnsupportedFeatureError
from anabranch.verbs.answer import Answer
from anabranch.verbs.parameters import JobFiles
from anabranch.verbs.subject import InLake
from anabranch.verbs.verb import Called, argument, option, verb


@verb("This machine", "", has_json=False, shows_itself=True)
def ui(
    lake: InLake,
    port: Annotated[
        int | None,
        option(
            "Port of this machine; 0 for any. If absent 8765, or the next that is free.", min=0, max=65535
        ),
    ] = None,
    no_browser: Annotated[bool, option("Only print the address.", "--no-browser")] = False,
    allow_actions: Annotated[
        bool, option("Let the page correct tables; else it only shows.", "--allow-actions")
    ] = False,
    jobs: JobFiles = None,
    checks: Annotated[
        str | None, option("File of checks that what is corrected from the page must pass.")
    ] = None,
    *,
    caller: Called,
) -> Answer:
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
    from anabranch.ui.serve import serve
    from anabranch.ui.site import Site

    lake.databases()  # fails here if there is no such warehouse
    site = Site(
        lake,
        warehouse=caller.warehouse,
        allow_actions=allow_actions,
        jobs=jobs or (),
        checks=[checks] if checks else (),
    )

    def say(url: str) -> None:
        caller.say(f"Anabranch shows {caller.warehouse} at {url}")
        caller.tell("Ctrl-C ends it. Who has this address sees the lake.")

    serve(site, port=port, browser=not no_browser, say=say)
    return Answer(None)


@verb("This machine", "")
def report(
    lake: InLake,
    table: Annotated[str | None, argument("The table; the whole lake if absent.", "DB.TABLE")] = None,
    output: Annotated[str, option("File to write, such as report.html.", "--output", "-o")] = "report.html",
    diff: Annotated[
        str | None, option("Two refs to compare, such as main..fix, with the rows that differ.")
    ] = None,
    from_tag: Annotated[
        str | None, option("Plan of a correction of the table from this tag.", "--from-tag")
    ] = None,
    jobs: JobFiles = None,
    no_rows: Annotated[
        bool, option("Leave out rows and statistics: names and counts only.", "--no-rows")
    ] = False,
    *,
    caller: Called,
) -> Answer:
    """Write the pictures of a table, a difference, a correction or the lake into one HTML file, to send to somebody.

    The file loads nothing from elsewhere. It holds the first rows of the table, unless --no-rows is given.
    """
    from anabranch.ui.report import ReportSubject, write
    from anabranch.ui.report import report as page_of
    from anabranch.ui.site import Site

    lake.databases()  # fails here if there is no such warehouse
    site = Site(lake, warehouse=caller.warehouse, jobs=jobs or ())
    page = page_of(site, ReportSubject(table, diff, from_tag, not no_rows))
    write(output, page)
    return Answer({"file": output, "bytes": len(page)}, f"written to {output}, {len(page):,} bytes")


def has_web() -> bool:
    """Whether what the page needs is installed."""
    try:
        import starlette
        import uvicorn
    except ImportError:
        return False
    return bool(starlette.__version__ and uvicorn.__version__)

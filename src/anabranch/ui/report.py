"""The page of a lake, of a table, of a difference or of a correction as one file, to send to somebody.

It holds the page itself and what the page would have asked for, so that it opens anywhere, and asks nobody.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.ui.answers import ANSWERS
from anabranch.ui.asked import Asked
from anabranch.ui.assets import hashed, policy, read_asset
from anabranch.ui.cells import to_json
from anabranch.ui.site import Site
from anabranch.verbs.comparing import sides_of

_MOST_TABLES: Final = 5_000
_AT_ONCE: Final = 60
_OF_A_TABLE: Final = (
    *("table", "health", "schemas", "sizes", "trend", "history", "graph", "rows", "statistics", "partitions"),
)


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """What a report is about."""

    table: str | None = None
    """None for the whole lake."""
    diff: str | None = None
    """Two refs, as ``main..fix``, with the rows that differ."""
    from_tag: str | None = None
    """The tag from which a correction of the table is planned."""
    rows: bool = True
    """Whether rows of tables go into the file."""


def report(site: Site, wanted: ReportSubject) -> bytes:
    """Return the file, a page of HTML.

    Raises:
        NotFoundError: there is no such table, ref or tag.
        InvalidInputError: a difference or correction without its table, or a difference that cannot be read.
    """
    if wanted.table is None and (wanted.diff or wanted.from_tag):
        raise InvalidInputError("the report lacks the table", hint="write `anabranch report db.t ...`.")
    data = _Data(site)
    data.put("about")
    sides: tuple[str, str] | None = None
    if wanted.table is None:
        start, title = "#/", f"Lake {site.warehouse}"
        _put_lake(data, site)
    else:
        start, title = f"#/table/{wanted.table}", wanted.table
        data.put(
            "table", table=wanted.table
        )  # raises if there is none; the others are left out where they fail
        for what in _OF_A_TABLE:
            if wanted.rows or what not in ("rows", "statistics"):
                data.try_to_put(what, table=wanted.table)
        if wanted.diff is not None:
            sides = sides_of(wanted.diff)
            given = {"table": wanted.table, "left": sides[0], "right": sides[1]}
            data.put("diff", **given, **({"rows": "1"} if wanted.rows else {}))
            start, title = f"{start}?tab=compare", f"{wanted.table}, {wanted.diff}"
        elif wanted.from_tag is not None:
            data.put("correction", table=wanted.table, tag=wanted.from_tag)
            data.put("lake")
            start, title = (
                f"#/correct?table={wanted.table}&tag={wanted.from_tag}",
                f"Correction of {wanted.table}",
            )
    told = {"start": start, "title": title, "made": site.now, "sides": sides, "data": data.found}
    return _page(title, to_json(told).decode("ascii"))


def write(file: str, page: bytes) -> None:
    """Write a report to a file. Raises `InvalidInputError` if it cannot be written."""
    try:
        Path(file).write_bytes(page)
    except OSError as error:
        raise InvalidInputError(
            f"'{file}' cannot be written: {error.strerror}",
            hint="name a file with -o in a folder that you may write to.",
        ) from error


def _put_lake(data: _Data, site: Site) -> None:
    lake = data.put("lake")
    names = lake["tables"][:_MOST_TABLES]
    facts: dict[str, Any] = {}
    for first in range(0, len(names), _AT_ONCE):
        asked = Asked(("name", name) for name in names[first : first + _AT_ONCE])
        facts |= ANSWERS["facts"](site, asked)
    data.found["facts"] = facts
    with suppress(AnabranchError):  # which the answers tell
        site.calm.catch_up()  # to its end: a file is not asked again
    data.try_to_put("jobs")
    data.try_to_put("lineage")


class _Data:
    """Answers, by the keys under which the page looks for them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.found: dict[str, Any] = {}

    def put(self, what: str, **given: str) -> Any:
        answer = ANSWERS[what](self._site, Asked(given.items()))
        self.found[key_of(what, given)] = answer
        return answer

    def try_to_put(self, what: str, **given: str) -> None:
        try:
            self.put(what, **given)
        except AnabranchError as error:  # the page says so in its place
            self.found[key_of(what, given)] = {"problem": error.message, "hint": error.hint}


def key_of(what: str, given: Mapping[str, str]) -> str:
    """Return the key of an answer; the page makes the same of what it asks."""
    return "\n".join([what, *(f"{name}={value}" for name, value in sorted(given.items()))])


def _page(title: str, data: str) -> bytes:
    style = read_asset("app.css").decode()
    script = read_asset("app.js").decode().replace("</script", "<\\/script")
    allowed = policy(hashed(script), hashed(style))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="{html.escape(allowed)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body><div id="page"><noscript>This page needs JavaScript.</noscript></div>
<script type="application/json" id="report">{data}</script>
<script>{script}</script>
</body>
</html>
""".encode()

"""The difference of two moments: schema, partitions, files, and rows side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from anabranch.ui.asked import Asked
from anabranch.ui.cells import cell
from anabranch.ui.site import Site
from anabranch.verbs.branches import describe_diff

_MOST_PARTITIONS = 1_000
_MOST_ROWS = 400
_MOST_FILES = 200
_CHANGE = "_change"

Row = Sequence[str | None]


def difference(site: Site, asked: Asked) -> dict[str, Any]:
    """Return what differs from `left` to `right`. Rows are read only if asked for: ``rows=1``."""
    table = site.open(asked.text("table"))
    left, right = asked.optional("left") or "main", asked.optional("right") or "main"
    diff = table.diff(left, right)
    wants_rows = asked.flag("rows")
    limit = asked.number("limit", 100, least=1, most=_MOST_ROWS)
    info = describe_diff(
        diff, count=wants_rows, limit=limit if wants_rows else 0, filter=asked.optional("filter")
    )
    size = {
        side: int(frame["file_size"].sum())
        for side, frame in (("added", diff.files.added), ("removed", diff.files.removed))
    }
    return {
        "table": info.table,
        "left": {"name": info.left, "snapshot": info.left_snapshot},
        "right": {"name": info.right, "snapshot": info.right_snapshot},
        "files": {
            "added": info.files_added,
            "removed": info.files_removed,
            "shared": info.files_shared,
            "bytes_added": size["added"],
            "bytes_removed": size["removed"],
            "list": [*_files("removed", diff.files.removed), *_files("added", diff.files.added)],
        },
        "schema": info.schema,
        "partitions": info.partitions[:_MOST_PARTITIONS],
        "partitions_changed": len(info.partitions),
        "counts": info.rows,
        "rows": None if info.changes is None else side_by_side(info.changes),
        "only_on_main": [str(job) for job in info.only_on_main],
    }


def _files(change: str, frame: pl.DataFrame) -> list[list[Any]]:
    """Return change, name, rows and bytes of the first files."""
    rows = frame.select("file_name", "row_count", "file_size").head(_MOST_FILES).iter_rows()
    return [[change, *row] for row in rows]


def side_by_side(changes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Arrange removed and added rows in pairs, by the column that fits best; a row without a partner stands alone."""
    columns = [name for name in (changes[0] if changes else {}) if name != _CHANGE]
    sides: dict[str, list[Row]] = {"delete": [], "insert": []}
    for change in changes:
        sides[change[_CHANGE]].append([cell(change[name]) for name in columns])
    removed, added = sides["delete"], sides["insert"]
    key = _key(removed, added)
    pairs: list[tuple[Row | None, Row | None]] = []
    partners = {} if key is None else {row[key]: row for row in added}
    taken = set()
    for row in removed:
        partner = None if key is None else partners.get(row[key])
        taken.add(id(partner))
        pairs.append((row, partner))
    pairs += [(None, row) for row in added if id(row) not in taken]
    return {"columns": columns, "key": None if key is None else columns[key], "pairs": pairs}


def _key(removed: Sequence[Row], added: Sequence[Row]) -> int | None:
    """Return the column whose values, once on each side, pair the most rows; None if none pairs any."""
    best, found = 0, None
    for place in range(len(removed[0]) if removed and added else 0):
        counts = [Counter(row[place] for row in side if row[place] is not None) for side in (removed, added)]
        if any(number > 1 for side in counts for number in side.values()):
            continue
        common = len(counts[0].keys() & counts[1].keys())
        if common > best:
            best, found = common, place
    return found

"""The difference of two moments: schema, partitions, files, and rows side by side."""

from __future__ import annotations

from typing import Any

import polars as pl

from anabranch.compare import Diff
from anabranch.lineage.recording import aside
from anabranch.ui.asked import Asked
from anabranch.ui.pairing import side_by_side
from anabranch.ui.site import Site
from anabranch.verbs.comparing import describe_diff

_MOST_PARTITIONS = 1_000
_MOST_ROWS = 400
_MOST_FILES = 200
_MOST_LOOKED_AT = 200_000
"""Rows that differ among which partners are found."""


def difference(site: Site, asked: Asked) -> dict[str, Any]:
    """Return what differs from `left` to `right`. Rows are read only if asked for: ``rows=1``."""
    table = site.open(asked.text("table"))
    left, right = asked.optional("left") or "main", asked.optional("right") or "main"
    diff = table.diff(left, right)
    wants_rows = asked.flag("rows")
    limit = asked.number("limit", 100, least=1, most=_MOST_ROWS)
    filter = asked.optional("filter")
    info = describe_diff(diff, count=wants_rows, filter=filter)
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
        "rows": _rows(diff, filter, limit) if wants_rows else None,
        "only_on_main": [str(job) for job in info.only_on_main],
    }


def _rows(diff: Diff, filter: str | None, limit: int) -> dict[str, Any]:
    with aside():  # they are only looked at
        return side_by_side(diff.rows(filter, None, _MOST_LOOKED_AT).to_arrow(), limit)


def _files(change: str, frame: pl.DataFrame) -> list[list[Any]]:
    """Return change, name, rows and bytes of the first files."""
    rows = frame.select("file_name", "row_count", "file_size").head(_MOST_FILES).iter_rows()
    return [[change, *row] for row in rows]

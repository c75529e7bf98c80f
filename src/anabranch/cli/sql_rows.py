"""Results of SQL statements, shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.cli.output import say, say_cut, show_json, show_rows

if TYPE_CHECKING:
    from anabranch.service.sql import Rows, Started


def show_result(found: Rows | Started, *, json: bool) -> None:
    """Print the rows of a statement, or that its query was started."""
    from anabranch.service.sql import Started

    if not isinstance(found, Started):
        _show(found, json=json)
    elif json:
        show_json({"query": found.name, "id": found.id})
    else:
        say(f"started {found.name}; press Ctrl-C to end it")


def _show(found: Rows, *, json: bool) -> None:
    if json:
        for row in found.rows:
            show_json(dict(zip(found.columns, map(_plain, row), strict=True)))
    elif found.columns:
        show_rows(found.columns, (tuple(map(_plain, row)) for row in found.rows))
    if found.more:
        say_cut(len(found.rows))


def _plain(value: Any) -> Any:
    """Rows inside rows as dicts, bytes as they are."""
    if hasattr(value, "asDict"):
        return {key: _plain(inner) for key, inner in value.asDict().items()}
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value

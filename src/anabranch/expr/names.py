"""Names of columns as SQL spells them."""

from __future__ import annotations

import re

from anabranch.errors import PredicateError

RESERVED = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "ESCAPE", "BETWEEN", "TRUE", "FALSE"})
"""Words that cannot name a column without back-ticks."""


def quote_name(name: str) -> str:
    """A name as SQL spells it, in back-ticks where it needs them."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def split_path(text: str) -> tuple[str, ...]:
    """The names in ``a.b`` or ``` `a.b`.c ```. Raises `PredicateError`."""
    names, at = [], 0
    while True:
        found = _SEGMENT.match(text, at)
        if found is None:
            break
        names.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        at = found.end()
        if at == len(text):
            return tuple(names)
        if text[at] != ".":
            break
        at += 1
    raise PredicateError(
        f"{text!r} is no column name", hint="put names with special characters in back-ticks"
    )


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SEGMENT = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")

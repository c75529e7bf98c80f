"""What the branches of a cascade are called: all of them the same, after the table that was corrected and its replacement."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_LONGEST_TAG = 30
_OTHER_SIGNS = re.compile(r"[^A-Za-z0-9_.-]")
_SHORTENED = 60
"""Characters that are left of a name that goes with its hash."""


def branch_name(table: str, number: int) -> str:
    """``cascade-db.orders-2``, after replacement 2 of the main of `table`.

    A name that is too long for a branch, or has signs that a branch's may not have, is shortened or written with ``_`` in
    their place, and told from others by a part of its hash.
    """
    return f"{_beginning(table)}{number}"


def correction_name(table: str, tag: str) -> str:
    """``correct-db.orders-good``: the branches of a correction of `table` that begins at a tag."""
    return f"{_beginning(table, 'correct')}{_OTHER_SIGNS.sub('_', tag)[:_LONGEST_TAG]}"


def is_cascade_of(table: str, branch: str) -> bool:
    """Whether a branch is called as those of a cascade of this table are."""
    number = branch.removeprefix(_beginning(table))
    return number != branch and number.isascii() and number.isdigit()


def _beginning(table: str, what: str = "cascade") -> str:
    name = table
    if not _PLAIN.fullmatch(table):
        digest = hashlib.sha256(table.encode()).hexdigest()
        name = f"{_OTHER_SIGNS.sub('_', table)[:_SHORTENED]}-{digest[:12]}"
    return f"{what}-{name}-"

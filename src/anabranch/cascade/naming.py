"""Names of the branches of a cascade: all the same, after the corrected table and its replacement."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_PLAIN_TAG = re.compile(r"[A-Za-z0-9_.-]{1,30}")
_OTHER_SIGNS = re.compile(r"[^A-Za-z0-9_.-]")
_SHORTENED = 60
"""Characters kept of a name that is shortened to its beginning and a hash."""
_SHORTENED_TAG = 17


def branch_name(table: str, number: int) -> str:
    """Return ``cascade-db.orders-2``, after replacement 2 of the main of `table`.

    A name that is too long for a branch is shortened, and characters that a branch's name may not have become ``_``;
    part of its hash then makes it unique.
    """
    return f"{_beginning(table)}{number}"


def correction_name(table: str, tag: str, number: int = 1) -> str:
    """Return ``correct-db.orders-good``: the branches of a correction of `table` that begins at a tag.

    Args:
        number: of several corrections, when the tag named another snapshot each time; not in the name of the first.
    """
    name = tag
    if not _PLAIN_TAG.fullmatch(tag):
        digest = hashlib.sha256(tag.encode()).hexdigest()
        name = f"{_OTHER_SIGNS.sub('_', tag)[:_SHORTENED_TAG]}-{digest[:12]}"
    return f"{_beginning(table, 'correct')}{name}{'' if number == 1 else f'.{number}'}"


def is_correction_of(table: str, tag: str, branch: str) -> bool:
    """Whether a branch has the name of a correction of this table from this tag."""
    first = correction_name(table, tag)
    number = branch.removeprefix(f"{first}.")
    return branch == first or (number != branch and number.isascii() and number.isdigit())


def is_cascade_of(table: str, branch: str) -> bool:
    """Whether a branch has the name of this table's cascades."""
    number = branch.removeprefix(_beginning(table))
    return number != branch and number.isascii() and number.isdigit()


def _beginning(table: str, what: str = "cascade") -> str:
    name = table
    if not _PLAIN.fullmatch(table):
        digest = hashlib.sha256(table.encode()).hexdigest()
        name = f"{_OTHER_SIGNS.sub('_', table)[:_SHORTENED]}-{digest[:12]}"
    return f"{what}-{name}-"

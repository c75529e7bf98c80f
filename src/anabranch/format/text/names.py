"""Rules for names of databases, tables, columns, branches and tags; and how options are shown without their secrets.

Names become folders and files, so whatever could lead elsewhere, hide or clash is refused before anything
is written. Names that others gave are not judged here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final, NoReturn

from anabranch.errors import InvalidInputError, InvalidNameError

RESERVED_TAG_PREFIX = "anabranch-"
"""Tags beginning so pin what the table itself needs; users neither make nor delete them."""

_MOST_CHARACTERS = 128
_MOST_BYTES = 255
_SHORTEST_PREFIX = len("tag-")
"""The shortest of what stands before a name in that of its file: no name is refused that some file has."""
SYSTEM_DATABASE = "sys"
"""The database in which the system tables of a warehouse are named; nobody's own."""
_DATABASE_SUFFIX = ".db"
_RESERVED_COLUMN_PREFIX = "_KEY_"
_RESERVED_COLUMNS = frozenset({"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "_ROW_ID", "rowkind"})
_BRANCH_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_VERSION_NAME = re.compile(r"(?:snapshot\.|savepoint\.|watermark-)[0-9]+")
_ON_A_MAIN = re.compile(r"main(?:@[0-9]+)?\..+")
# Control characters, half surrogate pairs, line ends, and the signs that turn the direction of text.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION_SIGNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def name_list(given: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Names as a caller gave them: text is one name, never its letters. Raises `InvalidInputError`.

    Args:
        given: one name, or several.
        what: what they name, in the plural, for the message.
    """
    if isinstance(given, str):
        return (given,)
    names = tuple(given) if isinstance(given, Iterable) else (given,)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise InvalidInputError(
            f"{what} are named by text, found {wrong[0]!r}", hint="write ['a', 'b'], or 'a' for one."
        )
    return names


def check_is_text(kind: str, name: object) -> None:
    """Raise `InvalidNameError` unless a name is text: of the name of what exists, no more is asked."""
    if not isinstance(name, str):
        raise InvalidNameError(f"the name of a {kind} is text, found {type(name).__name__}")


def check_database_name(name: str) -> None:
    """Raise `InvalidNameError` unless a database may be called so."""
    _check("database", name)
    if name.lower() == SYSTEM_DATABASE:
        _refuse("database", name, "is reserved for system tables")
    if name.lower().endswith(_DATABASE_SUFFIX):
        _refuse("database", name, f"ends with '{_DATABASE_SUFFIX}', which its folder gets anyway")
    if "$" in name or "." in name:
        _refuse("database", name, "has a sign that separates names ('.' or '$')")


def fits_file(name: str) -> bool:
    """Whether a file or folder of a tag, branch or consumer can have this name. Lone surrogates cannot be encoded in UTF-8."""
    try:
        return len(name.encode()) <= _MOST_BYTES - _SHORTEST_PREFIX
    except UnicodeEncodeError:
        return False


def check_table_name(name: str) -> None:
    """Raise `InvalidNameError` unless a table may be called so."""
    _check("table", name)
    if "$" in name:
        _refuse("table", name, "has a '$', which separates a table from its branches and system tables")


def check_column_name(name: str, *, nested: bool = False) -> None:
    """Raise `InvalidNameError` unless a column, or with `nested` a field inside one, may be called so."""
    _check("column", name)
    if not nested and (name in _RESERVED_COLUMNS or name.startswith(_RESERVED_COLUMN_PREFIX)):
        _refuse("column", name, "is reserved for system columns")


def check_branch_name(name: str) -> None:
    """Raise `InvalidNameError` unless a branch besides main may be called so."""
    _check("branch", name)
    if not _BRANCH_NAME.fullmatch(name):
        _refuse("branch", name, "has other signs than letters, digits, '_', '-' and '.'")
    if name.lower() == "main":
        _refuse("branch", name, "is the name of the branch every table has")
    if name.isdigit():
        _refuse("branch", name, "consists of digits alone, like a snapshot's number")


def check_tag_name(name: str, *, reserved: bool = False) -> None:
    """Raise `InvalidNameError` unless a new tag may be called so.

    `reserved` allows, and asks for, the prefix that only the table itself uses.
    """
    _check("tag", name)
    if reserved != name.startswith(RESERVED_TAG_PREFIX):
        _refuse(
            "tag",
            name,
            f"{'lacks' if reserved else 'has'} the prefix '{RESERVED_TAG_PREFIX}' of internal tags",
        )
    if any(c.isspace() and c != " " for c in name) or "  " in name:
        _refuse("tag", name, "has another blank than single spaces")
    if name.isdecimal() or _VERSION_NAME.fullmatch(name):
        _refuse("tag", name, "reads like the number of a snapshot, savepoint or watermark")
    if _ON_A_MAIN.fullmatch(name):
        _refuse(
            "tag", name, "reads like a version of main or of one that was replaced ('main.' or 'main@1.')"
        )


def check_consumer_name(name: str) -> None:
    """Raise `InvalidNameError` unless a consumer may be called so."""
    _check("consumer", name)


def check_group_name(name: str) -> None:
    """Raise `InvalidNameError` unless a group of streams that are aligned may be called so."""
    _check("group", name)


def _check(kind: str, name: str) -> None:
    """Check the rules for names of every kind."""
    check_is_text(kind, name)
    if not name.strip():
        _refuse(kind, name, "is empty or blank")
    if any(unicodedata.category(c) in _INVISIBLE_CATEGORIES or c in _DIRECTION_SIGNS for c in name):
        _refuse(kind, name, "has a control or invisible character")
    if "/" in name or "\\" in name:
        _refuse(kind, name, "has a path separator")
    if name.startswith("."):
        _refuse(kind, name, "begins with a dot")
    if ".." in name:
        _refuse(kind, name, "has two dots in a row")
    if kind != "column" and name != name.strip():
        _refuse(kind, name, "begins or ends with a blank")
    if len(name) > _MOST_CHARACTERS or len(name.encode("utf-8")) > _MOST_BYTES:
        _refuse(kind, name, f"is longer than {_MOST_CHARACTERS} characters or {_MOST_BYTES} bytes")


def _refuse(kind: str, name: str, reason: str) -> NoReturn:
    shown = name if len(name) <= 60 else f"{name[:60]}…"
    raise InvalidNameError(
        f"{shown!r} cannot name a {kind}: it {reason}", hint=f"choose another name for the {kind}."
    )


HIDDEN: Final = "*********(redacted)"
"""Shown in place of such a value, as Spark does."""

_KEYS: Final = re.compile(
    r"secret|passw(or)?d|token|credential|jaas|\bsas\b|(access|account|private|api)[-._]?key", re.IGNORECASE
)
_VALUES: Final = re.compile(
    r"://[^/@\s]+:[^/@\s]+@|(password|passwd|secret|token|sig|signature)=", re.IGNORECASE
)


def shown_option(key: str, value: str) -> str:
    """Return the value of an option, or `HIDDEN` if its key or the value itself looks like a secret."""
    return HIDDEN if _KEYS.search(key) or _VALUES.search(value) else value

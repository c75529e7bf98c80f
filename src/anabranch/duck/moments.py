"""Moments and options behind the name of a table: ``db.t VERSION AS OF 5``, ``db.t /*+ OPTIONS(...) */``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.duck.words import Word
from anabranch.errors import SqlError

DEFAULT = "default"
"""The database of tables that are named without one."""
_BEFORE_TABLES = frozenset({"FROM", "JOIN", "TABLE", "DESCRIBE", "DESC", "SUMMARIZE"})
"""Words that the name of a table may follow; any other word and a name are a table and its alias."""
_NOT_ALIASES = frozenset({
    *("ON", "USING", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "JOIN"),
    *("INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ASOF", "POSITIONAL", "SEMI", "ANTI", "QUALIFY", "WINDOW"),
    *("SAMPLE", "TABLESAMPLE", "PIVOT", "UNPIVOT", "FETCH", "FOR", "LATERAL", "SELECT"),
})  # fmt: skip
"""Words that may follow a table and are not its alias."""


def end_of_name(words: Sequence[Word], place: int) -> int:
    """Return the end of the dotted name that begins at a place; the place itself if there is none."""
    end = place
    while end < len(words) and words[end].kind in ("word", "quoted"):
        if end + 2 < len(words) and words[end + 1].text == "." and words[end + 2].kind in ("word", "quoted"):
            end += 2
        else:
            return end + 1
    return place


def needs_quotes(words: Sequence[Word]) -> bool:
    """Whether DuckDB cannot read a name without quotes."""
    return any(word.text.startswith("`") or "$" in word.text for word in words) or (
        len(words) > 1 and words[0].text.lower() == DEFAULT
    )


def moment_at(words: Sequence[Word], place: int) -> tuple[int, dict[str, Any]] | None:
    """Parse ``[FOR] VERSION AS OF 5`` or a hint with options at a place. Return its end, and what it asks for, as args
    of `Table.at`, or ``options``; None if neither is there.
    """
    if place < len(words) and words[place].kind == "hint":
        return hint_end(words, place)
    if place < len(words) and words[place].is_("FOR"):
        place += 1
    if place + 3 >= len(words) or not (words[place + 1].is_("AS") and words[place + 2].is_("OF")):
        return None
    is_time = words[place].is_("TIMESTAMP", "SYSTEM_TIME")
    if not is_time and not words[place].is_("VERSION", "SYSTEM_VERSION"):
        return None
    place += 3
    if is_time and words[place].is_("TIMESTAMP", "DATE"):
        place += 1
    literal = words[place] if place < len(words) else words[-1]
    if literal.kind == "text":
        value: str | int = literal.text[1:-1].replace("''", "'")
    elif literal.kind == "number" and literal.text.isdecimal() and not is_time:
        value = int(literal.text)
    else:
        raise SqlError(
            f"AS OF is followed by '{literal.text}', which names no moment",
            hint="write VERSION AS OF 5, VERSION AS OF 'tag' or TIMESTAMP AS OF '2026-01-31 12:00:00'.",
        )
    return place + 1, {"timestamp": value} if is_time else {"version": value}


def hint_end(words: Sequence[Word], place: int) -> tuple[int, dict[str, Any]] | None:
    """Parse ``/*+ OPTIONS('key' = 'value', ...) */`` at a place. Return its end, and the options; None if absent."""
    texts = [word.text for word in words[place : place + 3]]
    if len(texts) < 3 or words[place].kind != "hint" or texts[1].upper() != "OPTIONS" or texts[2] != "(":
        return None
    options: dict[str, str] = {}
    place += 3
    while place + 3 < len(words) and words[place].kind == words[place + 2].kind == "text":
        key, value = (words[at].text[1:-1].replace("''", "'") for at in (place, place + 2))
        if words[place + 1].text != "=":
            return None
        options[key] = value
        place += 3
        if words[place].text != ",":
            break
        place += 1
    closed = [word.text for word in words[place : place + 3]] == [")", "*", "/"]
    return (place + 3, {"options": options}) if closed and options else None


def follows_from(before: Word) -> bool:
    """Whether a name that follows this word is that of a table."""
    return before.is_(*_BEFORE_TABLES)


def may_be_alias(before: Word) -> bool:
    """Whether a name that follows this word is an alias."""
    return before.kind == "quoted" or (before.kind == "word" and not before.is_(*_BEFORE_TABLES))


def is_alias(words: Sequence[Word], place: int) -> bool:
    """Whether the word at a place is the alias of the table before it."""
    if place >= len(words):
        return False
    word = words[place]
    return word.kind == "quoted" or (word.kind == "word" and word.text.upper() not in _NOT_ALIASES)

"""What the proposals write and Spark does not know, put into Spark's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from anabranch.errors import SqlError
from anabranch.spark.sql.scanner import Word, closing, matches, spliced, words_of

_OPTIONS_HINT: Final = re.compile(r"/\*\+\s*OPTIONS\s*(\(.*\))\s*\*/", re.IGNORECASE | re.DOTALL)


def rewritten(statement: str) -> str:
    """The statement in Spark's SQL; its text stays as it is where Spark understands it. Raises `SqlError`."""
    for rewrite in REWRITES:
        statement = rewrite(statement)
    return statement


def options_hints(statement: str) -> str:
    """``FROM t /*+ OPTIONS('k' = 'v') */`` becomes ``FROM t WITH ('k' = 'v')``."""
    hints = [
        (word, _OPTIONS_HINT.fullmatch(word.text)) for word in words_of(statement) if word.kind == "hint"
    ]
    return spliced(
        statement, [(word.start, word.end, f"WITH {match[1]}") for word, match in hints if match is not None]
    )


def properties_of_tables(statement: str) -> str:
    """``CREATE TABLE t (...) WITH ('k' = 'v')`` becomes ``CREATE TABLE t (...) TBLPROPERTIES ('k' = 'v')``."""
    words = words_of(statement)
    if not (matches(words, 0, "CREATE") or matches(words, 0, "REPLACE")):
        return statement
    place = 0
    while place < len(words):
        word = words[place]
        if word.is_("AS"):
            break  # what follows is a query, whose WITH is another
        if word.is_("WITH") and _is_property_list(words, place + 1):
            return spliced(statement, [(word.start, word.end, "TBLPROPERTIES")])
        place = closing(words, place) + 1 if word.is_("(") else place + 1
    return statement


def windows(statement: str) -> str:
    """``TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '10' MINUTES))`` becomes a query with Spark's windows.

    It has all columns of the table, and ``window_start``, ``window_end`` and ``window_time``, the last
    millisecond of the window. ``HOP`` takes the slide before the size.
    """
    words = words_of(statement)
    pieces = []
    for place in range(len(words)):
        if matches(words, place, "TABLE", "(") and place + 2 < len(words):
            end = closing(words, place + 1)
            text = _window(statement, words, place + 2)
            if text is not None:
                pieces.append((words[place].start, words[end].end, text))
    return spliced(statement, pieces)


REWRITES: Final[tuple[Callable[[str], str], ...]] = (options_hints, properties_of_tables, windows)
"""In the order in which they are done."""

_WINDOW: Final = (
    "(SELECT * EXCEPT (__window), __window.start AS window_start, __window.end AS window_end, "
    "__window.end - INTERVAL '0.001' SECOND AS window_time "
    "FROM (SELECT *, window({column}, {durations}) AS __window FROM {table}))"
)


def _window(statement: str, words: Sequence[Word], place: int) -> str | None:
    """The query for ``TUMBLE(...)`` or ``HOP(...)`` at a place; None if something else stands there."""
    kind = words[place].text.upper()
    if not words[place].is_("TUMBLE", "HOP", "CUMULATE", "SESSION") or not matches(words, place + 1, "("):
        return None
    arguments = _arguments(words, place + 1)
    durations = {"TUMBLE": 1, "HOP": 2}.get(kind)
    if durations is None or len(arguments) != 2 + durations:
        raise SqlError(
            f"{kind} is not written as it is understood here",
            hint="write TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '10' MINUTES) or "
            "HOP(TABLE t, DESCRIPTOR(c), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES).",
        )
    table, column, *times = arguments
    if not (table[0].is_("TABLE") and matches(column, 0, "DESCRIPTOR", "(")):
        raise SqlError(
            f"{kind} is about a table and a column of event times",
            hint=f"write {kind}(TABLE t, DESCRIPTOR(c), ...).",
        )
    # Spark has the size of a window before its slide.
    spelled = [_duration(kind, time) for time in reversed(times)]
    return _WINDOW.format(
        column=_text(statement, column[2:-1]),
        durations=", ".join(spelled),
        table=_text(statement, table[1:]),
    )


def _arguments(words: Sequence[Word], opening: int) -> list[list[Word]]:
    """The arguments between a parenthesis and the one that closes it."""
    found: list[list[Word]] = [[]]
    place, end = opening + 1, closing(words, opening)
    while place < end:
        if words[place].is_(","):
            found.append([])
            place += 1
            continue
        after = closing(words, place) + 1 if words[place].is_("(") else place + 1
        found[-1] += words[place:after]
        place = after
    return found


def _duration(kind: str, words: Sequence[Word]) -> str:
    if len(words) != 3 or not words[0].is_("INTERVAL") or words[1].kind not in ("text", "number"):
        raise SqlError(f"the size of {kind} is no interval", hint="write INTERVAL '10' MINUTES.")
    number = words[1].value if words[1].kind == "text" else words[1].text
    return f"'{number} {words[2].text}'"


def _text(statement: str, words: Sequence[Word]) -> str:
    return statement[words[0].start : words[-1].end] if words else ""


def _is_property_list(words: Sequence[Word], place: int) -> bool:
    """Whether ``('key'`` stands there, and not a query."""
    return matches(words, place, "(") and place + 1 < len(words) and words[place + 1].kind == "text"

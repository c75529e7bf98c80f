"""Statements as DuckDB is handed them: their words, which only read, and what stands behind the name of a table.

Moments and options behind the name of a table: ``db.t VERSION AS OF 5``, ``db.t /*+ OPTIONS(...) */``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.errors import SqlError, UnsupportedFeatureError
from anabranch.table.upkeep_statements import is_answered

_PATTERN = re.compile(
    r"""
    (?P<skip>\s+|--[^\n]*)
  | (?P<hint>/\*\+)
  | (?P<comment>/\*.*?\*/)
  | (?P<text>'(?:[^']|'')*')
  | (?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*")
  | (?P<number>\d[\w.]*)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<sign>[^'"`])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a statement, and where it stands."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        if self.kind != "quoted":
            return self.text
        quote = self.text[0]
        return self.text[1:-1].replace(quote * 2, quote)

    def is_(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words


def words_of(statement: str) -> list[Word]:
    """Return the words of a statement without comments. Raises `SqlError` for a quote or comment that is never closed."""
    found, place = [], 0
    while place < len(statement):
        match = _PATTERN.match(statement, place)
        if match is None or (statement.startswith("/*", place) and match.lastgroup == "sign"):
            what = "the quote" if match is None else "the comment"
            raise SqlError(
                f"{what} is never closed (character {place + 1}: {statement[place : place + 30]!r})",
                hint="look at the quotes.",
            )
        if match.lastgroup not in ("skip", "comment"):
            found.append(Word(str(match.lastgroup), match[0], place))
        place = match.end()
    return found


def statements_of(script: str) -> list[str]:
    """Split a script at semicolons, leaving out empty and comment-only parts. Raises `SqlError`."""
    found, begin = [], None
    for word in words_of(script):
        if word.text == ";":
            if begin is not None:
                found.append(script[begin : word.start].rstrip())
            begin = None
        elif begin is None:
            begin = word.start
    return found if begin is None else [*found, script[begin:].strip()]


def quoted(name: str) -> str:
    """Return a name as DuckDB reads it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


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


_READS = frozenset(
    {"SELECT", "WITH", "FROM", "VALUES", "DESCRIBE", "DESC", "EXPLAIN", "SUMMARIZE", "SHOW", "("}
)
_OF_DUCKDB = frozenset({"PIVOT", "UNPIVOT", "PRAGMA", "ATTACH", "DETACH", "INSTALL", "LOAD", "CHECKPOINT"})
"""First words of statements of DuckDB's that Spark does not have either."""
_EXPLAIN_OPTIONS = ("ANALYZE", "ANALYSE", "FORMAT")


def is_read(statement: str) -> bool:
    """Whether a statement only reads, judging by its first word and its hints."""
    if is_answered(statement):
        return True
    try:
        check_reads(words_of(statement), statement)
    except (SqlError, UnsupportedFeatureError):
        return False
    return True


def check_reads(words: Sequence[Word], statement: str) -> None:
    """Raise `UnsupportedFeatureError` unless a statement only reads, `SqlError` if there is none."""
    if not words:
        raise SqlError("there is no statement", hint='write a query: "SELECT ...".')
    first = words[0].text.upper()
    is_listing = first != "SHOW" or (
        len(words) > 1 and words[1].is_("DATABASES", "SCHEMAS", "NAMESPACES", "TABLES")
    )
    if first in _OF_DUCKDB:
        raise UnsupportedFeatureError(
            f"{first} is not answered here: {' '.join(statement.split())[:200]}",
            feature="sql-statement",
            hint="statements that begin with SELECT, WITH, FROM, DESCRIBE, SUMMARIZE or SHOW TABLES are; anabranch.duckdb(lake) "
            "gives a connection of DuckDB, which takes all of its statements.",
        )
    if first not in _READS or not is_listing:
        raise only_spark(f"{first} is", statement)
    if first == "EXPLAIN":
        check_reads(explained(words), statement)  # DuckDB runs the statement that EXPLAIN ANALYZE explains
        return
    for place, word in enumerate(words):
        is_behind_name = (
            place > 0 and words[place - 1].kind in ("word", "quoted") and not words[place - 1].is_("SELECT")
        )
        if word.kind == "hint" and (not is_behind_name or hint_end(words, place) is None):
            raise only_spark("hints other than OPTIONS behind the name of a table are", statement)


def explained(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words after EXPLAIN, ANALYZE and options in parentheses."""
    place = 1
    if place < len(words) and words[place].is_("ANALYZE", "ANALYSE"):
        place += 1
    elif place < len(words) - 1 and words[place].text == "(" and words[place + 1].is_(*_EXPLAIN_OPTIONS):
        place = next((n + 1 for n, word in enumerate(words) if word.text == ")"), len(words))
    return words[place:]


def only_spark(what: str, statement: str) -> UnsupportedFeatureError:
    """Return the error for a statement that only Spark carries out."""
    return UnsupportedFeatureError(
        f"{what} for Spark, and none is attached: {' '.join(statement.split())[:200]}",
        feature="spark",
        hint="open the lake with anabranch.connect(warehouse, spark=spark), or use the methods of lake and table, or verbs of the "
        "command line; without Spark statements that only read are answered, by DuckDB.",
    )

"""Where a query names tables, and what stands with the name: a moment, options, an alias.

Queries are not parsed, only looked through: tables stand after FROM, JOIN, TABLE and the commas of a FROM clause. What is
no table of the lake is left to Spark, so a place that is taken for a name and is none does no harm unless a table is
called so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.spark.sql.create import properties
from anabranch.spark.sql.scanner import Word, closing, matches, spliced, words_of

_ENDS_FROM: Final = (
    *("SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"),
    *("WINDOW", "UNION", "EXCEPT", "INTERSECT", "MINUS", "INSERT", "VALUES", "QUALIFY"),
)
_NO_ALIAS: Final = (
    *_ENDS_FROM,
    *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ANTI", "SEMI", "ON", "USING", "LATERAL"),
    *("TABLESAMPLE", "PIVOT", "UNPIVOT", "SET", "WHEN", "MAP", "REDUCE", "FROM", "WITH", "WATERMARK"),
)
_FROM_IS_AN_ARGUMENT: Final = ("EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY")
_LITERALS: Final = ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "DATE")


@dataclass(frozen=True)
class Reference:
    """One place that names a table."""

    parts: tuple[str, ...]
    """The name, without back-ticks."""
    start: int
    end: int
    """The piece of the statement to replace: the name and what is said of the moment and the options."""
    version: str | None = None
    """``VERSION AS OF``."""
    timestamp: str | None = None
    """``TIMESTAMP AS OF``: the expression as it was typed."""
    options: Mapping[str, str] = field(default_factory=dict)
    """``WITH ('k' = 'v')``."""
    alias_at: int | None = None
    """Where an alias would have to stand; None if one was given."""


def references(query: str) -> list[Reference]:
    """The tables that a query may name, in their order. Raises `SqlError` for what is never closed."""
    return _Reading(query).references()


def replaced(query: str, found: Sequence[tuple[Reference, str]]) -> str:
    """The query with other names for tables; columns go on to be known as those of the table that was named."""
    pieces = []
    for reference, name in found:
        pieces.append((reference.start, reference.end, name))
        if reference.alias_at is not None:
            pieces.append((reference.alias_at, reference.alias_at, f" AS {quoted(reference.parts[-1])}"))
            pieces += _qualifiers(query, reference.parts) if len(reference.parts) > 1 else []
    return spliced(query, sorted(set(pieces)))


def quoted(name: str) -> str:
    """A name between back-ticks."""
    return "`" + name.replace("`", "``") + "`"


def name_at(words: Sequence[Word], place: int) -> tuple[tuple[str, ...], int]:
    """A name with dots, and the place after it; () if there is none."""
    parts: list[str] = []
    while place < len(words) and words[place].kind in ("word", "quoted"):
        parts.append(words[place].name)
        if not matches(words, place + 1, "."):
            return tuple(parts), place + 1
        place += 2
    return (), place


@dataclass
class _Level:
    """What is known inside one pair of parentheses."""

    function: str = ""
    in_from: bool = False


class _Reading:
    """One walk through the words of a query."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._words = words_of(query)
        self._common = _common_tables(self._words)

    def references(self) -> list[Reference]:
        found: list[Reference] = []
        levels = [_Level()]
        expecting = False
        place = 0
        while place < len(self._words):
            word, level = self._words[place], levels[-1]
            if expecting and word.kind in ("word", "quoted") and not word.is_("LATERAL", *_ENDS_FROM):
                expecting = False
                reference, place = self._reference(place)
                if reference is not None:
                    found.append(reference)
                continue
            if word.is_("("):
                before = self._words[place - 1] if place else None
                function = before.text.upper() if before is not None and before.kind == "word" else ""
                levels.append(_Level(function, in_from=expecting))
            elif word.is_(")"):
                levels = levels[:-1] or [_Level()]
                expecting = False
            elif word.is_("FROM") and self._begins_from(place, level):
                expecting = level.in_from = True
            elif word.is_("JOIN") or self._is_table_command(place):
                expecting = True
            elif word.is_(","):
                expecting = level.in_from
            elif word.is_("VALUES"):
                expecting = False
            elif word.is_(*_ENDS_FROM) or matches(self._words, place, "LATERAL", "VIEW"):
                expecting = level.in_from = False
            place += 1
        return found

    def _begins_from(self, place: int, level: _Level) -> bool:
        if level.function in _FROM_IS_AN_ARGUMENT:
            return False
        return not (matches(self._words, place - 1, "DISTINCT") and self._is_compared(place - 2))

    def _is_compared(self, place: int) -> bool:
        return place >= 0 and self._words[place].is_("IS", "NOT")

    def _is_table_command(self, place: int) -> bool:
        """Whether ``TABLE t`` stands there, as a query or an argument."""
        if not self._words[place].is_("TABLE") or matches(self._words, place + 1, "("):
            return False
        return place == 0 or self._words[place - 1].is_(
            "(", ",", ")", "ALL", "UNION", "EXCEPT", "INTERSECT", "AS", "DISTINCT"
        )

    def _reference(self, place: int) -> tuple[Reference | None, int]:
        """The table that is named at a place, and the place after all that belongs to it."""
        first = self._words[place]
        parts, after = name_at(self._words, place)
        if not parts or matches(self._words, after, "("):  # a function that gives a table
            return None, max(after, place + 1)
        if len(parts) == 1 and any(
            parts[0].lower() == name and first.start > end for name, end in self._common
        ):
            return None, after
        version, timestamp, after = self._moment(after)
        options: dict[str, str] = {}
        if (
            matches(self._words, after, "WITH", "(")
            and after + 2 < len(self._words)
            and self._words[after + 2].kind == "text"
        ):
            end = closing(self._words, after + 1)
            options, after = properties(self._words[after + 2 : end]), end + 1
        end_at = self._words[after - 1].end
        is_query = place > 0 and self._is_table_command(place - 1)  # TABLE t, which takes no alias
        alias_at = None if is_query else self._alias_at(after)
        return Reference(parts, first.start, end_at, version, timestamp, options, alias_at), after

    def _moment(self, place: int) -> tuple[str | None, str | None, int]:
        here = place + 1 if matches(self._words, place, "FOR") else place
        if here < len(self._words) and matches(self._words, here + 1, "AS", "OF"):
            value = self._words[here + 3] if here + 3 < len(self._words) else None
            if self._words[here].is_("VERSION", "SYSTEM_VERSION") and value is not None:
                text = value.value if value.kind == "text" else value.text
                return text, None, here + 4
            if self._words[here].is_("TIMESTAMP", "SYSTEM_TIME") and value is not None:
                end = self._after_expression(here + 3)
                return None, self._query[value.start : self._words[end - 1].end], end
        return None, None, place

    def _after_expression(self, place: int) -> int:
        """The place after an expression: operands, between plus and minus."""
        while place < len(self._words):
            word = self._words[place]
            following = self._words[place + 1] if place + 1 < len(self._words) else None
            if word.is_(*_LITERALS) and following is not None and following.kind == "text":
                place += 2
            elif word.is_("INTERVAL"):
                place += 5 if matches(self._words, place + 3, "TO") else 3
            elif word.is_("("):
                place = closing(self._words, place) + 1
            elif following is not None and following.is_("("):
                place = closing(self._words, place + 1) + 1
            else:
                place += 1
            if not (place < len(self._words) and self._words[place].is_("+", "-")):
                break
            place += 1
        return min(place, len(self._words))

    def _alias_at(self, place: int) -> int | None:
        """Where an alias belongs; None if there is one."""
        if matches(self._words, place, "TABLESAMPLE", "("):
            place = closing(self._words, place + 1) + 1
            if matches(self._words, place, "REPEATABLE", "("):
                place = closing(self._words, place + 1) + 1
        if place < len(self._words):
            word = self._words[place]
            if word.kind == "quoted" or (word.kind == "word" and not word.is_(*_NO_ALIAS)):
                return None
        return self._words[place - 1].end


def _common_tables(words: Sequence[Word]) -> list[tuple[str, int]]:
    """Names that WITH defines, in lower case, and where each definition ends: from there on they hide tables."""
    found: list[tuple[str, int]] = []
    for place, word in enumerate(words):
        if word.kind not in ("word", "quoted") or place == 0:
            continue
        after = closing(words, place + 1) + 1 if _is_list(words, place + 1) else place + 1
        if words[place - 1].is_("WITH", "RECURSIVE", ",") and matches(words, after, "AS", "("):
            recursive = any(w.is_("RECURSIVE") for w in words[:place])
            end = word.end if recursive else words[closing(words, after + 1)].end
            found.append((word.name.lower(), end))
    return found


def _is_list(words: Sequence[Word], place: int) -> bool:
    return matches(words, place, "(") and matches(words, closing(words, place) + 1, "AS", "(")


def _qualifiers(query: str, parts: tuple[str, ...]) -> list[tuple[int, int, str]]:
    """``db.t`` in front of a column or a star, as ``t``."""
    words = words_of(query)
    pieces = []
    place = 0
    while place < len(words):
        first, names = place, []
        while place < len(words) and words[place].kind in ("word", "quoted"):
            names.append(words[place].name)
            place += 1
            if not matches(words, place, "."):
                break
            place += 1
        more = len(names) > len(parts) or (len(names) == len(parts) and matches(words, place, "*"))
        if more and same(names[: len(parts)], parts):
            last = words[first + 2 * (len(parts) - 1)]
            pieces.append((words[first].start, last.end, quoted(parts[-1])))
        place = max(place, first + 1)
    return pieces


def same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two names are, when case does not matter."""
    return [part.lower() for part in one] == [part.lower() for part in other]

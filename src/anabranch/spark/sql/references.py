"""References to tables in a query, with their moment, options and alias.

Queries are not parsed, only looked through: tables stand after FROM, JOIN, TABLE and the commas of a FROM clause. What is
no table of the lake is left to Spark, so a place that is taken for a name and is none does no harm unless a table is
called so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anabranch.spark.sql.scanner import Word, closing, matches, name_at, properties, spliced, words_of

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
    """One mention of a table in a query."""

    parts: tuple[str, ...]
    """The name, without back-ticks."""
    start: int
    end: int
    """Range of the text to replace: the name with its time travel clause and options."""
    version: str | None = None
    """Value of ``VERSION AS OF``."""
    timestamp: str | None = None
    """Expression of ``TIMESTAMP AS OF``, as typed."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of ``WITH ('k' = 'v')``."""
    alias_at: int | None = None
    """Position for inserting an alias; None if there is one already."""


def references(query: str) -> list[Reference]:
    """Return the tables that a query may name, in order. Raises `SqlError` for unclosed quotes or parentheses."""
    return _Reading(query).references()


def replaced(query: str, found: Sequence[tuple[Reference, str]]) -> str:
    """Replace tables' names in a query; columns stay qualified by the original names."""
    pieces = []
    for reference, name in found:
        pieces.append((reference.start, reference.end, name))
        if reference.alias_at is not None:
            pieces.append((reference.alias_at, reference.alias_at, f" AS {quoted(reference.parts[-1])}"))
            pieces += _qualifiers(query, reference.parts) if len(reference.parts) > 1 else []
    return spliced(query, sorted(set(pieces)))


def quoted(name: str) -> str:
    """Return a name in back-ticks."""
    return "`" + name.replace("`", "``") + "`"


@dataclass
class _Level:
    """Parser state inside one pair of parentheses."""

    function: str = ""
    in_from: bool = False


class _Reading:
    """One pass over the words of a query."""

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
        """Whether ``TABLE t`` stands at that index, as a query or an argument."""
        if not self._words[place].is_("TABLE") or matches(self._words, place + 1, "("):
            return False
        return place == 0 or self._words[place - 1].is_(
            "(", ",", ")", "ALL", "UNION", "EXCEPT", "INTERSECT", "AS", "DISTINCT"
        )

    def _reference(self, place: int) -> tuple[Reference | None, int]:
        """Return the table named at an index, and the index after all that belongs to it."""
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
        """Return the index after an expression: operands, between plus and minus."""
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
        """Return the position for inserting an alias; None if there is one already."""
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
    """Return the names that WITH defines, in lower case, with the ends of their definitions, where hiding starts."""
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
    """Find ``db.t`` qualifiers of columns and stars, to be replaced by ``t``."""
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
    """Whether two names are equal, ignoring case."""
    return [part.lower() for part in one] == [part.lower() for part in other]

"""CREATE TABLE in the words of tables: with types that Spark's grammar lacks, and WATERMARK FOR among the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.errors import SqlError
from anabranch.spark.sql.scanner import Word, closing, matches, words_of


@dataclass(frozen=True)
class CreateTable:
    """A statement that makes an empty table."""

    name: tuple[str, ...]
    """One to three parts, as they were typed."""
    columns: str
    """What stands between the parentheses."""
    if_not_exists: bool = False
    comment: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


def create_table(statement: str) -> CreateTable | None:
    """The table that a statement makes; None if it is another statement, or says what only Spark understands.

    Understood are, after the columns and in any order: COMMENT, PARTITIONED BY (names), TBLPROPERTIES and WITH.
    """
    words = words_of(statement)
    while words and words[-1].is_(";"):
        words.pop()
    if not matches(words, 0, "CREATE", "TABLE"):
        return None
    if_not_exists = matches(words, 2, "IF", "NOT", "EXISTS")
    name, place = _name(words, 5 if if_not_exists else 2)
    if not name or not matches(words, place, "("):
        return None
    end = closing(words, place)
    columns = statement[words[place].end : words[end].start]
    clauses = _clauses(words, end + 1)
    return None if clauses is None else CreateTable(name, columns, if_not_exists, **clauses)  # type: ignore[arg-type]


def _name(words: Sequence[Word], place: int) -> tuple[tuple[str, ...], int]:
    """A name with dots, and the place after it."""
    parts: list[str] = []
    while place < len(words) and words[place].kind in ("word", "quoted"):
        parts.append(words[place].name)
        if not matches(words, place + 1, "."):
            return tuple(parts), place + 1
        place += 2
    return (), place


def _clauses(words: Sequence[Word], place: int) -> dict[str, object] | None:
    """What stands after the columns; None if some of it is not understood."""
    found: dict[str, object] = {}
    while place < len(words):
        word = words[place]
        following = words[place + 1] if place + 1 < len(words) else None
        if word.is_("COMMENT") and following is not None and following.kind == "text":
            found["comment"], place = following.value, place + 2
        elif matches(words, place, "PARTITIONED", "BY", "("):
            end = closing(words, place + 2)
            names = words[place + 3 : end : 2]
            commas = words[place + 4 : end : 2]
            if not all(w.kind in ("word", "quoted") for w in names) or not all(c.is_(",") for c in commas):
                return None
            found["partition_by"], place = tuple(w.name for w in names), end + 1
        elif word.is_("WITH", "TBLPROPERTIES") and matches(words, place + 1, "("):
            end = closing(words, place + 1)
            found["options"], place = _properties(words[place + 2 : end]), end + 1
        else:
            return None
    return found


def _properties(words: Sequence[Word]) -> dict[str, str]:
    """``'k' = 'v', ...``. Raises `SqlError`."""
    found: dict[str, str] = {}
    for place in range(0, len(words), 4):
        entry = words[place : place + 4]
        shape = [w.kind for w in entry[:3]]
        last = len(entry) == 3 or (len(entry) == 4 and entry[3].is_(","))
        if len(shape) < 3 or shape[0] != "text" or not entry[1].is_("=") or not last:
            raise SqlError(
                "the properties of the table are not written as 'key' = 'value'",
                hint="write WITH ('bucket' = '8', 'bucket-key' = 'id').",
            )
        found[entry[0].value] = entry[2].value if shape[2] == "text" else entry[2].text
    return found

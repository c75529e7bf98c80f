"""Which statements only read, and are answered without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.duck.moments import hint_end
from anabranch.duck.words import Word, words_of
from anabranch.errors import SqlError, UnsupportedFeatureError
from anabranch.table.upkeep_statements import is_answered

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

"""The 99 queries of TPC-DS as DuckDB has them, in the SQL of Spark."""

import re
from collections.abc import Callable

from tests.tpcds.data import connection

SUBSTITUTIONS: dict[int, list[tuple[str, str]]] = {}
"""What Spark says otherwise, query by query."""


def queries() -> dict[int, str]:
    """All queries by number. Those that keep the first rows of an order keep rows of equal rank by chance."""
    with connection() as database:
        found = dict(database.execute("FROM tpcds_queries()").fetchall())
    return {number: _in_spark(number, text) for number, text in found.items()}


def in_total_order(text: str, columns_of: Callable[[str], list[str]]) -> str:
    """The query with an order in which only equal rows have equal rank, so that its LIMIT leaves nothing to chance.

    Args:
        text: the query.
        columns_of: the names of the columns that a query gives.
    """
    limited = _LIMIT.search(text)
    if limited is None:
        return text
    whole = text[: limited.start()]
    more = ", ".join(str(number) for number, _ in enumerate(columns_of(text), start=1))
    ordered = _LAST_ORDER.search(whole)
    return f"{whole}{',' if ordered else ' ORDER BY'} {more} {limited[0]}"


_LIMIT = re.compile(r"\bLIMIT\s+\d+\s*\Z", re.IGNORECASE)
_LAST_ORDER = re.compile(r"\bORDER\s+BY\b(?:[^()]|\([^()]*(?:\([^()]*\)[^()]*)*\))*\Z", re.IGNORECASE)


def _in_spark(number: int, text: str) -> str:
    text = text.strip().rstrip(";").rstrip()
    for duckdb, spark in SUBSTITUTIONS.get(number, []):
        assert duckdb in text, f"query {number} has no {duckdb}"
        text = text.replace(duckdb, spark)
    return re.sub(r'"([^"]+)"', r"`\1`", text)

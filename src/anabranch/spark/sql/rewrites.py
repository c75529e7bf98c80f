"""Rewriting of the proposals' syntax into Spark's SQL."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from anabranch.errors import SqlError
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.compiled import NotCompiledError, driver_class, made_by
from anabranch.spark.sql.scanner import Word, closing, matches, spliced, words_of
from anabranch.streaming.between import between_calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OPTIONS_HINT: Final = re.compile(r"/\*\+\s*OPTIONS\s*(\(.*\))\s*\*/", re.IGNORECASE | re.DOTALL)


def rewritten(statement: str) -> str:
    """Rewrite a statement into Spark's SQL; text that Spark understands stays unchanged. Raises `SqlError`."""
    for rewrite in REWRITES:
        statement = rewrite(statement)
    return statement


def functions_of_changes(statement: str) -> str:
    """Rewrite ``FROM paimon_incremental_query('t', 1, 2)`` to the table with a hint, which is rewritten in its turn."""
    return spliced(statement, [*between_calls(words_of(statement))])


def options_hints(statement: str) -> str:
    """Rewrite ``FROM t /*+ OPTIONS('k' = 'v') */`` to ``FROM t WITH ('k' = 'v')``.

    Raises `SqlError` for one after SELECT, where Spark would not heed it.
    """
    pieces, before = [], None
    for word in words_of(statement):
        match = _OPTIONS_HINT.fullmatch(word.text) if word.kind == "hint" else None
        if match is not None and before is not None and before.is_("SELECT"):
            raise SqlError(
                "a hint OPTIONS stands after SELECT, where it would not be heeded",
                hint="write it after the table: FROM db.t /*+ OPTIONS('scan.snapshot-id' = '1') */",
            )
        if match is not None:
            is_apart = statement[word.start - 1 : word.start].isspace()
            pieces.append((word.start, word.end, f"{'' if is_apart else ' '}WITH {match[1]}"))
        before = before if word.kind == "hint" and match is None else word
    return spliced(statement, pieces)


def properties_of_tables(statement: str) -> str:
    """Rewrite ``CREATE TABLE t (...) WITH ('k' = 'v')`` to ``CREATE TABLE t (...) TBLPROPERTIES ('k' = 'v')``."""
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
    """Rewrite ``TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '10' MINUTES))`` to a query with Spark's windows.

    It has all columns of the table, and ``window_start``, ``window_end`` and ``window_time``, the last
    millisecond of the window. ``HOP`` takes the slide before the size, ``CUMULATE`` the step before the size. ``SESSION``
    takes the gap; ``PARTITION BY`` after its table says whose sessions they are. It is for batches: rows that come later
    may join two sessions, which Spark's own ``session_window`` allows for in a stream.
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


REWRITES: Final[tuple[Callable[[str], str], ...]] = (
    functions_of_changes,
    options_hints,
    properties_of_tables,
    windows,
)
"""Rewrites in the order in which they are applied."""

_CUMULATED: Final = (
    "(SELECT * EXCEPT (__window, __end), __window.start AS window_start, __end AS window_end, "
    "__end - INTERVAL '0.001' SECOND AS window_time "
    "FROM (SELECT *, explode(filter(sequence(__window.start + {step}, __window.end, {step}), e -> e > {column})) AS __end "
    "FROM (SELECT *, window({column}, {size}) AS __window FROM {table})))"
)
_SESSIONS: Final = (
    "(SELECT * EXCEPT (__begins, __session), min({column}) OVER (PARTITION BY {keys}__session) AS window_start, "
    "max({column}) OVER (PARTITION BY {keys}__session) + {gap} AS window_end, "
    "max({column}) OVER (PARTITION BY {keys}__session) + {gap} - INTERVAL '0.001' SECOND AS window_time "
    "FROM (SELECT *, sum(__begins) OVER ({order}) AS __session "
    "FROM (SELECT *, CASE WHEN {column} <= lag({column}) OVER ({order}) + {gap} THEN 0 ELSE 1 END AS __begins "
    "FROM {table} WHERE {column} IS NOT NULL)))"
)
_WINDOW: Final = (
    "(SELECT * EXCEPT (__window), __window.start AS window_start, __window.end AS window_end, "
    "__window.end - INTERVAL '0.001' SECOND AS window_time "
    "FROM (SELECT *, window({column}, {durations}) AS __window FROM {table}))"
)


_UNITS: Final[dict[str, Fraction | int]] = {
    "millisecond": Fraction(1, 1000),
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
}
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?")
_DURATIONS: Final = {"TUMBLE": 1, "HOP": 2, "CUMULATE": 2, "SESSION": 1}
"""Number of intervals that each window function takes."""


def _window(statement: str, words: Sequence[Word], place: int) -> str | None:
    """Return the query for ``TUMBLE(...)``, ``HOP(...)`` and the like at an index; None for anything else."""
    kind = words[place].text.upper()
    if not words[place].is_(*_DURATIONS) or not matches(words, place + 1, "("):
        return None
    arguments = _arguments(words, place + 1)
    if len(arguments) != 2 + _DURATIONS[kind]:
        more = ", INTERVAL '10' MINUTES" if _DURATIONS[kind] == 2 else ""
        raise SqlError(
            f"{kind} is not written as it is understood here",
            hint=f"write {kind}(TABLE t, DESCRIPTOR(c), INTERVAL '5' MINUTES{more}).",
        )
    table, column, *times = arguments
    if not (table[0].is_("TABLE") and matches(column, 0, "DESCRIPTOR", "(")):
        raise SqlError(
            f"{kind} is about a table and a column of event times",
            hint=f"write {kind}(TABLE t, DESCRIPTOR(c), ...).",
        )
    # Spark has the size of a window before its slide.
    spelled = [_duration(kind, time) for time in reversed(times)]
    _check_lengths(kind, [_seconds(time) for time in times])
    named = _text(statement, column[2:-1])
    if kind == "SESSION":
        source, keys = _partitioned(table)
        by = "".join(f"{key}, " for key in _listed(statement, keys))
        order = f"PARTITION BY {by[:-2]} ORDER BY {named}" if by else f"ORDER BY {named}"
        gap, rows = _text(statement, times[0]), _text(statement, source)
        return _SESSIONS.format(column=named, keys=by, order=order, gap=gap, table=rows)
    rows = _text(statement, table[1:])
    if kind == "CUMULATE":
        step = _text(statement, times[0])
        return _CUMULATED.format(column=named, step=step, size=spelled[0], table=rows)
    return _WINDOW.format(column=named, durations=", ".join(spelled), table=rows)


def _partitioned(table: Sequence[Word]) -> tuple[Sequence[Word], Sequence[Word]]:
    """Return the table after ``TABLE``, and the columns after ``PARTITION BY``."""
    for place in range(len(table)):
        if matches(table, place, "PARTITION", "BY"):
            return table[1:place], table[place + 2 :]
    return table[1:], ()


def _listed(statement: str, words: Sequence[Word]) -> list[str]:
    """Parse names separated by commas, in parentheses or not."""
    text = _text(statement, words).strip()
    text = text[1:-1] if text.startswith("(") else text
    return [name.strip() for name in text.split(",") if name.strip()]


def _arguments(words: Sequence[Word], opening: int) -> list[list[Word]]:
    """Return the arguments between a parenthesis and its closing one."""
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


def _seconds(words: Sequence[Word]) -> Fraction | None:
    """Return the length of an interval; None if Spark is to say what it is."""
    number = words[1].value if words[1].kind == "text" else words[1].text
    unit = _UNITS.get(words[2].text.lower().removesuffix("s"))
    return Fraction(number.strip()) * unit if unit is not None and _NUMBER.fullmatch(number.strip()) else None


def _check_lengths(kind: str, lengths: Sequence[Fraction | None]) -> None:
    """Raise `SqlError` for intervals that make no windows, or windows that do not hold all rows."""
    if any(length is not None and length <= 0 for length in lengths):
        raise SqlError(f"the intervals of {kind} are to be above zero", hint="write INTERVAL '10' MINUTES.")
    if kind == "CUMULATE" and lengths[0] and lengths[1] and lengths[1] % lengths[0]:
        raise SqlError(
            "the size of CUMULATE is no multiple of its step",
            hint="write CUMULATE(TABLE t, DESCRIPTOR(c), INTERVAL '10' MINUTES, INTERVAL '30' MINUTES): the step comes first.",
        )


def _text(statement: str, words: Sequence[Word]) -> str:
    return statement[words[0].start : words[-1].end] if words else ""


def _is_property_list(words: Sequence[Word], place: int) -> bool:
    """Whether ``('key'`` stands at that index, and not a query."""
    return matches(words, place, "(") and place + 1 < len(words) and words[place + 1].kind == "text"


# Lets plain `spark.sql` understand hints such as `FROM lake.db.t /*+ OPTIONS('k' = 'v') */`.
#
# Spark's parser is replaced by one of ours that rewrites them first. Where that is not possible, or another extension has put its
# own parser there, such a hint stays a syntax error of Spark's, and `lake.sql` understands it.

_LOG = logging.getLogger(__name__)
_OF_SPARK: Final = "org.apache.spark.sql.execution.SparkSqlParser"


def understand_hints(spark: SparkSession) -> None:
    """Let a classic session understand hints with options. Does nothing where that is not possible."""
    jvm = Jvm(spark)
    try:
        state = jvm.session.sessionState()
        if str(state.sqlParser().getClass().getName()) != _OF_SPARK:
            return
        parser = made_by(jvm, driver_class(jvm, "HintParser", part="parser").getConstructors()[0])
        field = state.getClass().getDeclaredField("sqlParser")
        field.setAccessible(True)
        field.set(state, parser)
    except (NotCompiledError, Py4JError) as error:
        _LOG.info("hints are for lake.sql only: %s", error)

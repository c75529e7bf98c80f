"""Kinds of jobs: what each does in Spark, and what a batch engine makes of all rows of its sources.

A table is like the events (`id, k, v, ts`) wherever that is possible, so that jobs can follow each other in any order.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

from anabranch.jobs.job import job
from anabranch.jobs.source import static
from tests.pipelines.events import EVENTS, FACTORS

SLACK = 10
"""Seconds that a watermark stays behind what the order of the rows asks for."""


_ROW = ("id", "k", "v", "ts")
"""What makes two rows the same: with the time, for two windows may well have the same number and the same sum."""


@dataclass(frozen=True)
class Kind:
    """A kind of jobs."""

    rows: Callable
    """Makes the rows of DataFrames, given the watermark's delay of each that has one."""
    answer: str
    """The same as a query; ``{0}``, ``{1}`` are the sources."""
    sources: int = 1
    columns: str = EVENTS
    mode: str = "append"
    lag: Callable | None = None
    """How much older than earlier rows its rows may be, given that of its sources; None if nothing timed may follow."""
    is_timed: bool = False
    """Whether it has a watermark, and so wants sources in order and drops rows that are late."""
    looks_up: bool = False
    """Whether its last source is the table of factors, as it is."""
    is_batch: bool = False
    exact: tuple[str, ...] | None = None
    """The columns that are the same each time it is run; all if None."""
    is_some: bool = False
    """Whether it is not said which of the rows come out, only how many."""
    closed: int | None = None
    """Its rows come out once the watermark is so many seconds after their ``ts``; None if at once."""
    waits: bool = False
    """Whether its rows may come out only after the last events of all."""

    @property
    def is_events(self):
        return self.columns == EVENTS and self.mode == "append"


def declare(name, kind, sources, sink, delays, change=None):
    """The job of a kind; `change` spoils or mends its rows, before or after (see `bugs`)."""
    names = {f"s{number}": table for number, table in enumerate(sources)}
    if kind.is_batch:
        names = {key: static(table) for key, table in names.items()}
    elif kind.looks_up:
        last = f"s{len(sources) - 1}"
        names[last] = static(names[last])

    def transform(**frames):
        given = [frames[key] for key in names]
        if change is not None and change.before is not None:
            given[0] = change.before(given[0])
        rows = kind.rows(*given, delays=delays) if kind.is_timed else kind.rows(*given)
        return rows if change is None or change.after is None else change.after(rows)

    return job(name, sources=names, sink=sink, mode=kind.mode)(transform)


def _timed(frame, delay):
    return frame.withWatermark("ts", f"{delay} seconds")


def _filter(s):
    return s.where("v % 5 <> 3").selectExpr("id", "k", "v + 1 AS v", "ts")


def _union(a, b):
    return a.select("id", "k", "v", "ts").unionByName(b.select("id", "k", "v", "ts"))


def _lookup(s, factors):
    both = s.join(F.broadcast(factors), F.expr("g = CAST(floor(id / 100) AS BIGINT)"))
    return both.selectExpr("id", "k", "v * f AS v", "ts")


def _random(s):
    return s.selectExpr("id", "k", "CAST(floor(rand() * 50) AS BIGINT) AS v", "ts")


def _totals(s):
    return s.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("v"))


def _distinct(s):
    return s.select("id", "k", "v", "ts").dropDuplicates(list(_ROW))


def _recent(s, delays):
    return _timed(s, delays[0]).select("id", "k", "v", "ts").dropDuplicatesWithinWatermark(list(_ROW))


def _windows(s, delays):
    groups = _timed(s, delays[0]).groupBy(F.window("ts", "10 seconds").alias("w"), "k")
    return _of_groups(groups, "w.start")


def _sliding(s, delays):
    groups = _timed(s, delays[0]).groupBy(F.window("ts", "20 seconds", "10 seconds").alias("w"), "k")
    return _of_groups(groups, "w.start")


def _sessions(s, delays):
    groups = _timed(s, delays[0]).groupBy(F.session_window("ts", "7500 milliseconds").alias("w"), "k")
    return _of_groups(groups, "w.end")


def _of_groups(groups, at):
    rows = groups.agg(F.count("*").alias("id"), F.sum("v").alias("v"))
    return rows.selectExpr("id", "k", "v", f"{at} AS ts")


def _both(a, b, delays, how):
    left = _timed(a.select("id", "k", "v", "ts"), delays[0]).alias("l")
    right = _timed(b.select("id", "k", "v", "ts"), delays[1]).alias("r")
    near = "l.k = r.k AND l.id % 3 = r.id % 3 AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 20 SECONDS"
    return left.join(right, F.expr(near), how)


def _pairs(a, b, delays):
    return _both(a, b, delays, "inner").selectExpr("l.id AS id", "l.k AS k", "l.v + r.v AS v", "r.ts AS ts")


def _outer(a, b, delays):
    rows = _both(a, b, delays, "leftOuter")
    return rows.selectExpr("l.id AS id", "l.k AS k", "l.v AS v", "r.v AS w", "l.ts AS ts")


def _sums(a, b, delays):
    both = _both(a, b, delays, "inner").selectExpr("l.k AS k", "l.v + r.v AS v", "l.ts AS ts")
    groups = both.groupBy(F.window("ts", "10 seconds").alias("w"), "k")
    return _of_groups(groups, "w.start")


def _twice(s, delays):
    once = _timed(s, delays[0]).select("id", "k", "v", "ts").dropDuplicatesWithinWatermark(list(_ROW))
    return _of_groups(once.groupBy(F.window("ts", "10 seconds").alias("w"), "k"), "w.start")


def _threes(s):
    def count(key, frames, state):
        number = state.get[0] if state.exists else 0
        number += sum(len(frame) for frame in frames)
        state.update((number % 3,))
        yield pd.DataFrame({"k": [key[0]] * (number // 3), "n": [3] * (number // 3)})

    grouped = s.select("k", "v").groupBy("k")
    return grouped.applyInPandasWithState(count, "k STRING, n BIGINT", "n BIGINT", "append", "NoTimeout")


def _some(s):
    return s.select("id", "k").limit(9)


def _report(s):
    return s.groupBy("k").agg(F.sum("v").alias("v"))


def _top(s):
    return s.select("id", "k", "v").orderBy("v", "id", "k").limit(7)


_BUCKET = "time_bucket(INTERVAL 10 SECONDS, ts)"
_NEAR = "l.k = r.k AND l.id % 3 = r.id % 3 AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 20 SECONDS"
_OF_WINDOWS = f"SELECT count(*) AS id, k, sum(v) AS v, {_BUCKET} AS ts"

KINDS = {
    "factors": Kind(lambda s: s.select("g", "f"), "SELECT g, f FROM {0}", columns=FACTORS),
    "filter": Kind(
        _filter, "SELECT id, k, v + 1 AS v, ts FROM {0} WHERE v % 5 <> 3", lag=lambda lags: lags[0]
    ),
    "union": Kind(_union, "SELECT id, k, v, ts FROM {0} UNION ALL SELECT id, k, v, ts FROM {1}", 2),
    "lookup": Kind(
        _lookup,
        "SELECT id, k, v * f AS v, ts FROM {0} JOIN {1} ON g = id // 100",
        lag=lambda lags: lags[0],
        looks_up=True,
    ),
    "random": Kind(
        _random, "SELECT id, k, 0 AS v, ts FROM {0}", lag=lambda lags: lags[0], exact=("id", "k", "ts")
    ),
    "totals": Kind(
        _totals,
        "SELECT k, count(*) AS n, sum(v) AS v FROM {0} GROUP BY k",
        columns="k STRING, n BIGINT, v BIGINT",
        mode="complete",
    ),
    "distinct": Kind(_distinct, "SELECT DISTINCT id, k, v, ts FROM {0}", lag=lambda lags: lags[0]),
    "recent": Kind(_recent, "SELECT DISTINCT id, k, v, ts FROM {0}", lag=lambda lags: lags[0], is_timed=True),
    "windows": Kind(
        _windows,
        f"{_OF_WINDOWS} FROM {{0}} GROUP BY {_BUCKET}, k",
        lag=lambda _: 10,
        is_timed=True,
        closed=10,
    ),
    "sliding": Kind(
        _sliding,
        "SELECT count(*) AS id, k, sum(v) AS v, a AS ts FROM"
        f" (SELECT *, {_BUCKET} AS a FROM {{0}} UNION ALL SELECT *, {_BUCKET} - INTERVAL 10 SECONDS FROM {{0}})"
        " GROUP BY a, k",
        lag=lambda _: 20,
        is_timed=True,
        closed=20,
    ),
    "sessions": Kind(
        _sessions,
        "SELECT count(*) AS id, k, sum(v) AS v, max(ts) + INTERVAL 7500 MILLISECONDS AS ts FROM"
        " (SELECT *, sum(fresh) OVER (PARTITION BY k ORDER BY ts RANGE UNBOUNDED PRECEDING) AS g FROM"
        " (SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) <= INTERVAL 7500 MILLISECONDS"
        " THEN 0 ELSE 1 END AS fresh FROM {0})) GROUP BY k, g",
        lag=lambda _: 0,
        is_timed=True,
        closed=0,
    ),
    "pairs": Kind(
        _pairs,
        f"SELECT l.id, l.k, l.v + r.v AS v, r.ts FROM {{0}} l JOIN {{1}} r ON {_NEAR}",
        2,
        lag=lambda lags: max(lags) + 20,
        is_timed=True,
    ),
    "outer": Kind(
        _outer,
        f"SELECT l.id, l.k, l.v, r.v AS w, l.ts FROM {{0}} l LEFT JOIN {{1}} r ON {_NEAR}",
        2,
        columns="id BIGINT, k STRING, v BIGINT, w BIGINT, ts TIMESTAMP_LTZ(6)",
        is_timed=True,
        waits=True,
    ),
    "sums": Kind(
        _sums,
        f"{_OF_WINDOWS} FROM (SELECT l.k, l.v + r.v AS v, l.ts FROM {{0}} l JOIN {{1}} r ON {_NEAR})"
        f" GROUP BY {_BUCKET}, k",
        2,
        lag=lambda _: 10,
        is_timed=True,
        waits=True,
    ),
    "twice": Kind(
        _twice,
        f"{_OF_WINDOWS} FROM (SELECT DISTINCT id, k, v, ts FROM {{0}}) GROUP BY {_BUCKET}, k",
        lag=lambda _: 10,
        is_timed=True,
        closed=10,
    ),
    "threes": Kind(
        _threes,
        "SELECT k, 3 AS n FROM (SELECT k, unnest(range(count(*) // 3)) FROM {0} GROUP BY k)",
        columns="k STRING, n BIGINT",
    ),
    "some": Kind(_some, "SELECT id, k FROM {0} LIMIT 9", columns="id BIGINT, k STRING", is_some=True),
    "report": Kind(
        _report,
        "SELECT k, sum(v) AS v FROM {0} GROUP BY k",
        columns="k STRING, v BIGINT",
        mode="overwrite",
        is_batch=True,
    ),
    "top": Kind(
        _top,
        "SELECT id, k, v FROM {0} ORDER BY v, id, k LIMIT 7",
        columns="id BIGINT, k STRING, v BIGINT",
        mode="overwrite",
        is_batch=True,
    ),
}


STATELESS = ("filter", "union", "lookup", "random", "report", "top")
"""Kinds whose every batch is what the query makes of its new rows, or which are made as a whole."""


def columns_of(ddl):
    """Names and types of the columns of a table."""
    types = {"BIGINT": pa.int64(), "STRING": pa.string(), "TIMESTAMP_LTZ(6)": pa.timestamp("us", "UTC")}
    return pa.schema([(c.split()[0], types[c.split()[1]]) for c in ddl.split(",")])


@dataclass(frozen=True)
class Change:
    """What makes a job wrong: done to the rows of its first source, or to those it makes."""

    before: Callable | None = None
    after: Callable | None = None


_WRONG = {
    "factor": "SELECT * REPLACE (v * 1000 + 7 AS v) FROM {0}",
    "drop": "SELECT * FROM {0} WHERE v % 2 = 0",
    "keys": "SELECT * REPLACE (k || 'x' AS k) FROM {0}",
}
SQL_BUGS = {
    "factor after": ("", _WRONG["factor"]),
    "factor before": (_WRONG["factor"], ""),
    "drop after": ("", _WRONG["drop"]),
    "drop before": (_WRONG["drop"], ""),
    "wrong keys": (_WRONG["keys"], ""),
    "wrong factors": ("", "SELECT * REPLACE (f * 1000 AS f) FROM {0}"),
    "column": ("", "SELECT *, v * 2 AS w FROM {0}"),
}
"""What `BUGS` are in a batch engine: done before and after."""

BUGS = {
    "factor after": Change(after=lambda rows: rows.withColumn("v", F.expr("v * 1000 + 7"))),
    "factor before": Change(before=lambda rows: rows.withColumn("v", F.expr("v * 1000 + 7"))),
    "drop after": Change(after=lambda rows: rows.where("v % 2 = 0")),
    "drop before": Change(before=lambda rows: rows.where("v % 2 = 0")),
    "wrong keys": Change(before=lambda rows: rows.withColumn("k", F.expr("concat(k, 'x')"))),
    "wrong factors": Change(after=lambda rows: rows.withColumn("f", F.expr("f * 1000"))),
    "column": Change(after=lambda rows: rows.withColumn("w", F.expr("v * 2"))),
}

"""What every table must hold: computed by DuckDB from the events, and compared with what is there."""

from collections import Counter
from datetime import UTC, datetime

import duckdb
import pyarrow as pa

from tests.pipelines.events import COLUMNS, LATE, is_closing
from tests.pipelines.kinds import KINDS
from tests.pipelines.pipeline import RAW, RAW_FACTORS

EVENT_SCHEMA = pa.schema(
    [("id", pa.int64()), ("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
)
FACTOR_SCHEMA = pa.schema([("g", pa.int64()), ("f", pa.int64())])


class Wrong(AssertionError):
    """A table does not hold what it must."""


class Oracle:
    """The answers for a pipeline, from all events that there were."""

    def __init__(self, pipeline, events, factors, extra=None):
        self.pipeline = pipeline
        self.given = {
            RAW: pa.Table.from_pylist(events, EVENT_SCHEMA),
            RAW_FACTORS: pa.Table.from_pylist(factors, FACTOR_SCHEMA),
        }
        self.extra = extra or {}
        """Rows that were added to tables by hand."""

    def check(self, found, *, at_end, but=()):
        """Raise `Wrong` with all differences; returns the tables that were compared.

        Args:
            found: rows of each table, as `rows_of` gives them.
            at_end: whether the last events of all have come through.
            but: tables that need not be up to date; what is made from them is made from what they hold.
        """
        compared, late, differences = [], {RAW: "in", RAW_FACTORS: "in"}, []
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            for table, rows in self.given.items():
                db.register(_name(table), rows)
            for sink in self.pipeline.sinks:
                steps = [step for step in self.pipeline.steps if step.sink == sink]
                sources = {source for step in steps for source in step.sources}
                is_unsure = any(KINDS[step.kind].is_timed for step in steps) or any(
                    late[source] != "in" for source in sources
                )
                late[sink] = "unsure" if is_unsure else "in"
                if sink in but or any(self._is_open(db, step, at_end) for step in steps):
                    _create(db, sink, steps[0], found[sink])
                    continue
                compared.append(sink)
                wanted = self._wanted(db, sink, steps)
                # Where several jobs write a table, one whose values are by chance decides what is compared.
                step = next((step for step in steps if KINDS[step.kind].exact), steps[0])
                waits = any(KINDS[one.kind].waits for one in steps)
                told = _difference(step, wanted, found[sink], late[sink], waits=waits)
                if told:
                    differences.append(f"{sink} ({', '.join(step.kind for step in steps)}): {told}")
                kept = found[sink] if is_unsure or KINDS[step.kind].exact or step.kind == "some" else wanted
                _create(db, sink, steps[0], kept)
        if differences:
            raise Wrong("\n".join(differences))
        return compared

    def _is_open(self, db, step, at_end):
        """Whether rows may still be to come that it cannot be said of when."""
        if not KINDS[step.kind].waits:
            return False
        if not at_end:
            return True
        newest = [db.execute(f"SELECT max(ts) FROM {_name(source)}").fetchone()[0] for source in step.sources]
        return not all(is_closing(_utc(ts)) for ts in newest)

    def _wanted(self, db, sink, steps):
        rows = []
        for step in steps:
            kind = KINDS[step.kind]
            query = kind.answer.format(*(_name(source) for source in step.sources))
            if kind.closed is not None:
                source, seconds = _name(step.sources[0]), step.delays[0] + kind.closed
                query = f"SELECT * FROM ({query}) WHERE ts + INTERVAL {seconds} SECONDS <= (SELECT max(ts) FROM {source})"
            columns = ", ".join(_columns(kind))
            found = db.execute(f"SELECT {columns} FROM ({query})").fetchall()
            if kind.waits:
                place = _columns(kind).index("ts")
                found = [row for row in found if not is_closing(_utc(row[place]))]
            rows += [tuple(_plain(value) for value in row) for row in found]
        return rows + self.extra.get(sink, [])


def rows_of(table, step):
    """The rows of a job's table, with the columns that its kind has."""
    found = table.scan().to_arrow().to_pylist()
    return [tuple(_plain(row[column]) for column in _columns(KINDS[step.kind])) for row in found]


def _difference(step, wanted, found, late, *, waits):
    """What differs; `waits`: one of the table's jobs may give rows of the last events, or not."""
    kind = KINDS[step.kind]
    if kind.is_some:
        return "" if len(wanted) == len(found) else f"{len(found)} rows instead of {len(wanted)}"
    columns = _columns(kind)
    if "k" in columns and late == "unsure":
        place = columns.index("k")
        wanted = [row for row in wanted if row[place] != LATE]
        found = [row for row in found if row[place] != LATE]
    if waits:
        place = columns.index("ts")
        wanted, found = ([row for row in rows if not is_closing(row[place])] for rows in (wanted, found))
    if kind.exact is not None:
        places = [columns.index(column) for column in kind.exact]
        wanted, found = ([tuple(row[p] for p in places) for row in rows] for rows in (wanted, found))
    missing, more = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if not missing and not more:
        return ""
    return f"lacks {_told(missing)}; has too much {_told(more)}"


def _told(rows):
    shown = ", ".join(str(tuple(_short(v) for v in row)) for row in sorted(rows.elements(), key=repr)[:6])
    return f"{rows.total()} ({shown})" if rows else "nothing"


def _short(value):
    return value.strftime("%H:%M:%S.%f").rstrip("0").rstrip(".") if isinstance(value, datetime) else value


def _create(db, sink, step, rows):
    kind = KINDS[step.kind]
    types = [column.strip().split(" ") for column in kind.columns.split(",")]
    arrow = {"BIGINT": pa.int64(), "STRING": pa.string(), "TIMESTAMP_LTZ(6)": pa.timestamp("us", "UTC")}
    schema = pa.schema([(name, arrow[kind]) for name, kind in types])
    given = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    db.register(_name(sink), given)


def _columns(kind):
    return [column.strip().split(" ")[0] for column in kind.columns.split(",")]


def _name(table):
    return table.replace(".", "_")


def _utc(value):
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _plain(value):
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else _utc(value)


__all__ = ["COLUMNS", "Oracle", "Wrong", "rows_of"]

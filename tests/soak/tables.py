"""The tables of the soak, the rows that arrive in them, and what must be in them in the end."""

import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import anabranch
from anabranch.errors import AnabranchError

BASE = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(milliseconds=5)
"""Between the event times of two rows: so many that 200 rows a second are in real time."""
SPAN = timedelta(seconds=10)
OPTIONS = {"snapshot.time-retained": "2 min", "snapshot.num-retained.min": "5"}


def create(warehouse):
    """Make the tables, and the names to look up."""
    lake = anabranch.connect(warehouse)
    lake.create_table(
        "db.raw",
        "id BIGINT, v BIGINT, at TIMESTAMP_LTZ(3), WATERMARK FOR at AS at - INTERVAL '2' SECOND",
        options=OPTIONS,
    )
    lake.create_table("db.kept", "id BIGINT, v BIGINT, at TIMESTAMP_LTZ(3)", options=OPTIONS)
    lake.create_table("db.marked", "id BIGINT, v BIGINT", options=OPTIONS)
    lake.create_table("db.once", "id BIGINT, v BIGINT", options=OPTIONS)
    lake.create_table("db.counted", "at TIMESTAMP_LTZ(3), n BIGINT, v BIGINT", options=OPTIONS)
    lake.create_table("db.named", "id BIGINT, name STRING", options=OPTIONS)
    lake.create_table("db.names", "k BIGINT, name STRING")
    lake.table("db.names").append([{"k": k, "name": f"name {k}"} for k in range(7)])
    return lake


def row(number, v=None):
    """The row of a number."""
    return {"id": number, "v": number * 31 % 1000 if v is None else v, "at": BASE + number * STEP}


class Feeder(threading.Thread):
    """Appends rows at a steady pace, each once and every hundredth twice, whatever the disk does meanwhile."""

    def __init__(self, warehouse, rate, every=1.0):
        super().__init__(daemon=True)
        self.warehouse, self.rate, self.every = warehouse, rate, every
        self.given = []
        """Every row whose commit was acknowledged or found."""
        self.next, self.ended, self.extra = 0, threading.Event(), []

    def run(self):
        due = time.monotonic()
        while not self.ended.is_set():
            count = max(1, int(self.rate * self.every))
            batch = [row(n) for n in range(self.next, self.next + count)]
            batch += [one for one in batch if one["id"] % 100 == 0]
            extra, self.extra = self.extra, []
            batch += [row(self.next, v) for v in extra]
            self.append(batch)
            self.next += count
            due = max(due + self.every, time.monotonic() - 10)
            self.ended.wait(max(0.0, due - time.monotonic()))

    def append(self, batch):
        first = batch[0]["id"]
        while True:
            try:
                table = anabranch.connect(self.warehouse).table("db.raw")
                if not table.scan(filter=f"id = {first}").count():
                    table.append(batch)
                break
            except AnabranchError:  # the disk is full, read-only or away: the harness knows
                time.sleep(0.5)
        self.given += batch

    def finish(self):
        """End, and append a row so late in event time that every span of the others is over."""
        self.ended.set()
        self.join()
        self.append([row(self.next + 10_000)])


def expected(given):
    """What every table must hold, as bags of tuples."""
    spans = {}
    for one in given:
        start = BASE + (one["at"] - BASE) // SPAN * SPAN
        n, v = spans.get(start, (0, 0))
        spans[start] = n + 1, v + one["v"]
    spans.pop(max(spans))  # the last row's, which is not over
    kept = [one for one in given if one["v"] % 10 != 3]
    # The function returns twice the value; the poisoned row has none, once the code takes it.
    marked = Counter((one["id"], one["v"] * 2 if one["v"] >= 0 else None) for one in given)
    return {
        "db.raw": Counter((one["id"], one["v"], one["at"]) for one in given),
        "db.kept": Counter((one["id"], one["v"], one["at"]) for one in kept),
        "db.marked": marked,
        "db.once": Counter(dict.fromkeys({(one["id"], one["at"]) for one in given}, 1)),
        "db.counted": Counter((start, n, v) for start, (n, v) in spans.items()),
        "db.named": Counter((one["id"], f"name {one['v'] % 7}") for one in kept if one["v"] >= 0),
    }


def found(warehouse):
    """What the tables hold."""
    lake = anabranch.connect(warehouse)
    bags = {}
    for name in ("db.raw", "db.kept", "db.marked", "db.once", "db.counted", "db.named"):
        rows = lake.table(name).scan().to_arrow().to_pylist()
        if name == "db.once":  # which of two equal ids stays is nobody's promise, and their time is the same
            bags[name] = Counter((one["id"], BASE + one["id"] * STEP) for one in rows)
        else:
            bags[name] = Counter(tuple(one.values()) for one in rows)
    return bags


def differences(given, warehouse):
    """Return what is missing or there too often, by table; empty if every row is there as often as it must be."""
    wanted, there = expected(given), found(warehouse)
    told = {}
    for name, bag in wanted.items():
        missing, more = bag - there[name], there[name] - bag
        if missing or more:
            told[name] = (
                f"{missing.total()} missing {list(missing.items())[:3]}; {more.total()} too many {list(more.items())[:3]}"
            )
    return told

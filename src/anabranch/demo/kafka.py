"""The demo's flights through Kafka: how late they leave, hour by hour, in event time.

Only if ``KAFKA_BOOTSTRAP`` names a broker. Each airport has a partition of its own. Within a day flights come in any
order, and the airports need not keep step; the watermark of `demo.arrivals` is a day behind the slowest of them.
The jobs are those of `kafka_jobs.py`.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import polars as pl
import pyarrow as pa

from anabranch.demo import source
from anabranch.errors import AnabranchError, NotFoundError, StorageError
from anabranch.runtime import SYSTEM

if TYPE_CHECKING:
    from anabranch.lake import Lake
    from anabranch.table import Table

BOOTSTRAP = "KAFKA_BOOTSTRAP"
TOPIC = "ANABRANCH_DEMO_TOPIC"
AIRPORTS = ("EWR", "JFK", "LGA")
ARRIVALS = """flight_id BIGINT NOT NULL, origin STRING, dep_delay DOUBLE, time_hour TIMESTAMP_LTZ(3),
    WATERMARK FOR time_hour AS time_hour - INTERVAL '1' DAY"""
HOURS = "hour TIMESTAMP_LTZ(6), flights BIGINT, minutes_late DOUBLE"
_DAY_MILLIS = 86_400_000
_HOUR_MILLIS = 3_600_000
_CALL_SECONDS = 30


@dataclass(frozen=True)
class Airports:
    """A topic of this run of the demo, with a partition for each airport."""

    bootstrap: str
    topic: str

    @classmethod
    def of_environment(cls) -> Self | None:
        """Create a topic name on the broker that ``KAFKA_BOOTSTRAP`` names; None if that is not set."""
        bootstrap = os.environ.get(BOOTSTRAP)
        return cls(bootstrap, f"anabranch-demo-{SYSTEM.ids.uuid()}") if bootstrap else None

    def prepare(self, lake: Lake) -> None:
        """Create the topic and the tables. Raises `StorageError` if the broker fails."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        try:
            for made in admin.create_topics([NewTopic(self.topic, len(AIRPORTS))]).values():
                made.result(_CALL_SECONDS)
        except KafkaException as error:
            raise StorageError(
                f"the Kafka broker at {self.bootstrap} did not make topic '{self.topic}': {error.args[0].str()}",
                hint=f"check {BOOTSTRAP}, or unset it: the demo does without Kafka.",
            ) from error
        lake.create_table("demo.arrivals", ARRIVALS)
        lake.create_table("demo.hours", HOURS)

    def send(self, rows: pa.Table) -> None:
        """Send flights as JSON records, acknowledged when this returns."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        columns = rows.select(["flight_id", "origin", "dep_delay"])
        columns = columns.append_column("millis", _millis(rows))
        for row in columns.to_pylist():
            producer.produce(self.topic, json.dumps(row), partition=AIRPORTS.index(row["origin"]))
        left = producer.flush(_CALL_SECONDS)
        if left:
            raise StorageError(f"the Kafka broker at {self.bootstrap} did not take {left} flights")


def complete_hours(flights: pa.Table) -> pl.DataFrame:
    """Return the final content of `demo.hours`, computed in one pass: the hours before the last watermark.

    Returns:
        Columns `hour` (epoch milliseconds), `flights` and `minutes_late`, in the order of the hours.
    """
    columns = flights.select(["origin", "dep_delay"]).append_column("hour", _millis(flights))
    rows = pl.from_arrow(columns)
    assert isinstance(rows, pl.DataFrame)
    furthest = rows.group_by("origin").agg(pl.col("hour").max())["hour"]
    lowest = furthest.min()
    if not isinstance(lowest, int):
        raise NotFoundError("there are no flights to count")
    complete = rows.filter(pl.col("hour") + _HOUR_MILLIS <= lowest - _DAY_MILLIS)
    counted = complete.group_by("hour").agg(
        pl.len().cast(pl.Int64).alias("flights"), pl.col("dep_delay").sum().alias("minutes_late")
    )
    return counted.sort("hour")


def found_hours(table: Table) -> pl.DataFrame:
    """Return the rows of `demo.hours`, in the shape of `complete_hours`."""
    found = table.scan().to_polars().with_columns(pl.col("hour").dt.epoch("ms"))
    return found.sort("hour")


def _millis(flights: pa.Table) -> pa.ChunkedArray:
    return flights["time_hour"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())


_FAST_SECONDS = 0.03
_SLOW_SECONDS = 1.0


class FlightFeed:
    """Delivers the days of a year, one after the other."""

    def __init__(self, days: list[tuple[str, pa.Table]], landing: Path, airports: Airports | None) -> None:
        """Nothing arrives yet.

        Args:
            days: name and flights of each.
            landing: folder for the files.
            airports: the topic, if there is one.
        """
        self._days = days
        self._landing = landing
        self._airports = airports
        self._limit = 0
        self._arrived = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._failure: BaseException | None = None

    @property
    def arrived(self) -> int:
        """Number of days delivered. Raises `AnabranchError` if no more can be."""
        if self._failure is not None:
            raise AnabranchError(f"the demo's flights do not arrive: {self._failure}") from self._failure
        return self._arrived

    def start(self) -> None:
        """Begin to deliver, a little at a time as long as nobody asks for more."""
        self._thread.start()

    def hurry_to(self, share: float) -> int:
        """Deliver this part of all days quickly; return the number of flights in it."""
        self._limit = min(len(self._days), max(2, round(share * len(self._days))))
        return sum(rows.num_rows for _, rows in self._days[: self._limit])

    def close(self) -> None:
        """Stop delivering."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            for number, (name, rows) in enumerate(self._days):
                slow = 0.0
                while number >= self._limit and slow < _SLOW_SECONDS and not self._ended.is_set():
                    SYSTEM.sleeper.sleep(_FAST_SECONDS)
                    slow += _FAST_SECONDS
                if self._ended.wait(_FAST_SECONDS):
                    return
                source.drop(self._landing, name, rows)
                if self._airports is not None:
                    self._airports.send(rows)
                self._arrived = number + 1
        except (AnabranchError, OSError) as error:
            self._failure = error

"""The demo, step by step: feed, stream, kill, restart, ask in SQL, check."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as TextTable

from anabranch.demo import source
from anabranch.demo.kafka import Airports, complete_hours, found_hours
from anabranch.demo.questions import (
    COMMITS,
    COMPACT,
    KEEP,
    KILLED,
    LATE_IN_WIND,
    THERE_WHEN_KILLED,
    WINDY,
    Answer,
    ask,
)
from anabranch.errors import AnabranchError
from anabranch.kernel.health import Health
from anabranch.lake import Lake, connect
from anabranch.table import Table

TIMEOUT_SECONDS = 600
KILL_AT = 0.4
"""Part of the flights after which the job is killed."""
SECONDS_BETWEEN_DAYS = 0.06
STREAMED = ("flights", "delays")

FLIGHTS = """flight_id BIGINT NOT NULL, month INT NOT NULL, day INT, carrier STRING, flight INT, tailnum STRING,
    origin STRING, dest STRING, sched_dep_time INT, dep_delay DOUBLE, arr_delay DOUBLE, distance INT,
    time_hour TIMESTAMP_LTZ(6)"""
OPTIONS = {"compaction.max.file-num": "5"}
"""A year of flights is little: compact it as early as if it were much."""
WEATHER = """origin STRING, time_hour TIMESTAMP_LTZ(6), temp DOUBLE, wind_speed DOUBLE, visib DOUBLE,
    precip DOUBLE"""
PLANES = "tailnum STRING, year INT, manufacturer STRING, model STRING, seats INT"
DELAYS = """flight_id BIGINT NOT NULL, month INT NOT NULL, origin STRING, dest STRING, carrier STRING,
    dep_delay DOUBLE, arr_delay DOUBLE, distance INT, temp DOUBLE, wind_speed DOUBLE, visib DOUBLE,
    plane_year INT, manufacturer STRING, seats INT"""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is checked against the source."""

    what: str
    expected: float
    found: float

    @property
    def holds(self) -> bool:
        return abs(self.expected - self.found) <= 1e-9 * max(1.0, abs(self.expected))


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo found."""

    facts: tuple[Fact, ...]
    snapshots: dict[str, int]
    """Commits by kind of snapshot, over both tables that were streamed into."""
    health: dict[str, Health]
    """Of demo.flights, by when."""
    seconds: float
    warehouse: str
    answers: tuple[Answer, ...]
    """What was asked in SQL, and what it gave."""

    @property
    def correct(self) -> bool:
        return all(fact.holds for fact in self.facts)


def run_demo(*, days: int = 365, folder: str | None = None, quiet: bool = False) -> DemoResult:
    """Run the whole story in `folder` (a fresh temporary one if None) and check every row of it.

    Raises:
        AnabranchError: the job failed or did not finish in time; the message tells where its log is.
    """
    console = Console(stderr=quiet, quiet=quiet)
    root = Path(folder) if folder else Path(tempfile.mkdtemp(prefix="anabranch-demo-"))
    started = time.monotonic()
    console.print(f"[bold]Anabranch demo[/bold]: flights out of New York in 2013, in {root}")
    demo = _Demo(root, days, console)
    demo.prepare()
    demo.stream()
    demo.ask()
    result = demo.check(time.monotonic() - started)
    _show(result, demo, console)
    return result


class _Demo:
    """The places and sizes of one run."""

    def __init__(self, root: Path, days: int, console: Console) -> None:
        self.root = root
        self.warehouse = str(root / "warehouse")
        self.landing = root / "landing"
        self.log = root / "pipeline.log"
        self.stop_file = root / "stop"
        self.console = console
        self.days = source.days_of(source.flights())[:days]
        self.flights = pa.concat_tables([rows for _, rows in self.days])
        self.lake: Lake = connect(self.warehouse)
        self.health: dict[str, Health] = {}
        self.answers: tuple[Answer, ...] = ()
        self.flights_when_killed = 0
        self.airports = Airports.of_environment()
        self.hours = None if self.airports is None else complete_hours(self.flights)

    def table(self, name: str) -> Table:
        return self.lake.table(f"demo.{name}")

    @property
    def expected(self) -> dict[str, int]:
        """How many rows the tables that are streamed into have in the end."""
        total = self.flights.num_rows
        through_kafka = {} if self.hours is None else {"arrivals": total, "hours": self.hours.height}
        return {**dict.fromkeys(STREAMED, total), **through_kafka}

    def prepare(self) -> None:
        """Create the tables; weather and planes are there from the start."""
        self.landing.mkdir(parents=True)
        for name, ddl in (("flights", FLIGHTS), ("delays", DELAYS)):
            self.lake.create_table(f"demo.{name}", ddl, partition_by=["month"], options=OPTIONS)
        for name, ddl, rows in (("weather", WEATHER, source.weather()), ("planes", PLANES, source.planes())):
            snapshot = self.lake.create_table(f"demo.{name}", ddl).append(rows)
            self.console.print(f"  demo.{name}: {snapshot.total_record_count:,} rows")
        if self.airports is not None:
            self.airports.prepare(self.lake)
            self.console.print(f"  topic {self.airports.topic}: the flights of each airport in a partition")

    def stream(self) -> None:
        """Feed the landing folder and keep the job running until everything has arrived, with one kill."""
        total = self.flights.num_rows
        feeder = threading.Thread(target=self._feed, daemon=True)
        columns = (
            TextColumn("  {task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            bars = {
                "days": progress.add_task("days arrived as files", total=len(self.days)),
                **{
                    name: progress.add_task(f"rows in demo.{name}", total=rows)
                    for name, rows in self.expected.items()
                },
            }

            def update() -> dict[str, int]:
                arrived = sum(1 for _ in self.landing.glob("*.parquet"))
                progress.update(bars["days"], completed=arrived)
                counts = {name: self._count(name) for name in self.expected}
                for name, count in counts.items():
                    progress.update(bars[name], completed=count)
                return counts

            job = self._start()
            feeder.start()
            try:
                self._wait(job, lambda: update()["flights"] >= KILL_AT * total)
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
                self.health["when the job was killed"] = self.table("flights").health()
                self.flights_when_killed = self._count("flights")
                self.table("flights").create_tag(KILLED)
                self.console.print(
                    f"  [red]killed[/red] the job (SIGKILL) with {self.flights_when_killed:,} flights committed, "
                    f"tagged '{KILLED}'; starting it again"
                )
                job = self._start()
                self._wait(job, lambda: update() == self.expected)
                self.stop_file.touch()
                job.wait(60)
            finally:
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)
                    job.wait()

    def _feed(self) -> None:
        for name, rows in self.days:
            source.drop(self.landing, name, rows)
            if self.airports is not None:
                self.airports.send(rows)
            time.sleep(SECONDS_BETWEEN_DAYS)

    def _start(self) -> subprocess.Popen[bytes]:
        arguments = [self.warehouse, str(self.landing), str(self.root / "checkpoints"), str(self.stop_file)]
        if self.airports is not None:
            arguments += [self.airports.bootstrap, self.airports.topic]
        with self.log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "anabranch.demo.pipeline", *arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, job: subprocess.Popen[bytes], done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not done():
            if job.poll() is not None or time.monotonic() > deadline:
                reason = f"ended with {job.returncode}" if job.poll() is not None else "took too long"
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
                raise AnabranchError(
                    f"the demo's streaming job {reason}:\n{tail}", hint=f"its whole log is {self.log}."
                )
            time.sleep(0.2)

    def _count(self, name: str) -> int:
        snapshot = self.table(name).snapshot
        return 0 if snapshot is None else snapshot.total_record_count or 0

    def ask(self) -> None:
        """Compact what the stream left small, by SQL, and ask what there is to know."""
        self.health["when the stream ended"] = self.table("flights").health()
        compactions = [COMPACT.format(name) for name in STREAMED]
        statements = [*compactions, LATE_IN_WIND, THERE_WHEN_KILLED, COMMITS, KEEP]
        self.answers = tuple(ask(self.warehouse, statements, self.root / "questions.log"))
        self.health["after CALL lake.sys.compact"] = self.table("flights").health()

    def answer(self, statement: str) -> Answer:
        """What a statement gave."""
        return next(answer for answer in self.answers if answer.statement == statement)

    def check(self, seconds: float) -> DemoResult:
        """Compare both tables with the source, row by row where a row has an identity."""
        flights = self.table("flights").scan().to_arrow()
        delays = self.table("delays").scan(columns=["flight_id", "distance", "arr_delay"]).to_arrow()
        windy = sum(self.answer(LATE_IN_WIND).column("flights"))
        (when_killed,) = self.answer(THERE_WHEN_KILLED).column("flights")
        facts: tuple[Fact, ...] = (
            Fact("flights: rows", self.flights.num_rows, flights.num_rows),
            Fact("flights: different rows", self.flights.num_rows, len(pc.unique(flights["flight_id"]))),
            Fact(
                "flights: rows that equal the source",
                self.flights.num_rows,
                _equal_rows(self.flights, flights),
            ),
            Fact("delays: rows", self.flights.num_rows, delays.num_rows),
            Fact("delays: different rows", self.flights.num_rows, len(pc.unique(delays["flight_id"]))),
            Fact("delays: miles flown", _sum(self.flights["distance"]), _sum(delays["distance"])),
            Fact(
                "delays: minutes late on arrival", _sum(self.flights["arr_delay"]), _sum(delays["arr_delay"])
            ),
            Fact("delays in strong wind: rows", _windy_in_source(self.flights), windy),
            Fact(f"flights at the tag '{KILLED}': rows", self.flights_when_killed, when_killed),
        )
        facts += self._kafka_facts()
        kinds = Counter(str(s.commit_kind) for name in STREAMED for s in self.table(name).snapshots())
        return DemoResult(facts, dict(kinds), self.health, seconds, self.warehouse, self.answers)

    def _kafka_facts(self) -> tuple[Fact, ...]:
        """What came through Kafka, if it did: every flight once, and every complete hour as counted at once."""
        if self.hours is None:
            return ()
        arrivals = self.table("arrivals").scan(columns=["flight_id"]).to_arrow()
        hours = found_hours(self.table("hours"))
        same = hours.join(self.hours, on=self.hours.columns, how="semi")
        return (
            Fact("arrivals through Kafka: rows", self.flights.num_rows, arrivals.num_rows),
            Fact(
                "arrivals through Kafka: different rows",
                self.flights.num_rows,
                len(pc.unique(arrivals["flight_id"])),
            ),
            Fact("hours of event time: rows", self.hours.height, hours.height),
            Fact("hours that equal the source", self.hours.height, same.height),
        )


def _windy_in_source(flights: pa.Table) -> int:
    weather = source.weather().select(["origin", "time_hour", "wind_speed"])
    joined = flights.select(["origin", "time_hour"]).join(weather, ["origin", "time_hour"])
    return int(_sum(pc.greater_equal(joined["wind_speed"], 25.0)))


def _equal_rows(expected: pa.Table, found: pa.Table) -> int:
    """Rows that are the same in both, nulls equal to nulls."""
    names = expected.schema.names
    left = pl.from_arrow(expected.sort_by("flight_id"))
    right = pl.from_arrow(found.select(names).sort_by("flight_id"))
    assert isinstance(left, pl.DataFrame)
    assert isinstance(right, pl.DataFrame)
    if left.height != right.height:
        return left.join(right, on=names, how="semi", nulls_equal=True).height
    same = pl.Series([True]).new_from_index(0, left.height)
    for name in names:
        same &= left[name].eq_missing(right[name].cast(left[name].dtype))
    return int(same.sum())


def _sum(column: pa.ChunkedArray) -> float:
    return float(pc.sum(column).as_py() or 0)


def _health_table(result: DemoResult) -> TextTable:
    shown = TextTable(title="anabranch health demo.flights", title_justify="left", box=None)
    for heading in ("", "score", "files", "of them small", "rows", "compaction would leave"):
        shown.add_column(heading, justify="right" if heading else "left")
    for when, health in result.health.items():
        numbers = (health.score, health.files, health.small_files, health.rows, health.files_compacted)
        shown.add_row(when, *(f"{number:,}" for number in numbers))
    return shown


def _hours_table(demo: _Demo) -> TextTable:
    shown = TextTable(title="demo.hours: the worst of them", title_justify="left", box=None)
    for heading in ("hour", "flights", "minutes late"):
        shown.add_column(heading, justify="left" if heading == "hour" else "right")
    worst = demo.table("hours").scan().to_polars().sort("minutes_late", descending=True).head(3)
    for hour, flights, minutes in worst.iter_rows():
        shown.add_row(f"{hour:%Y-%m-%d %H:%M}", f"{flights:,}", f"{minutes:,.0f}")
    return shown


def _answer_table(answer: Answer) -> TextTable:
    shown = TextTable(box=None)
    for name in answer.columns:
        shown.add_column(name)
    for row in answer.rows:
        shown.add_row(*("" if value is None else str(value) for value in row))
    return shown


def _show(result: DemoResult, demo: _Demo, console: Console) -> None:
    facts = TextTable(title="checked against the source", title_justify="left", box=None)
    for heading in ("fact", "expected", "found", ""):
        facts.add_column(heading, justify="left" if heading in ("fact", "") else "right")
    for fact in result.facts:
        mark = "[green]equal[/green]" if fact.holds else "[red]WRONG[/red]"
        facts.add_row(fact.what, f"{fact.expected:,.0f}", f"{fact.found:,.0f}", mark)
    console.print()
    console.print(facts)
    console.print()
    for answer in result.answers:
        # Above a narrow table, not as its title, which would be broken into lines as narrow.
        console.print(answer.statement, style="bold", markup=False, highlight=False)
        console.print(_answer_table(answer))
        console.print()
    if demo.hours is not None:
        console.print(_hours_table(demo))
        console.print()
    console.print(_health_table(result))
    console.print()
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(result.snapshots.items()))
    console.print(f"snapshots of both tables: {kinds}; no compaction held a batch back")
    verdict = "[green]every row is there exactly once[/green]" if result.correct else "[red]rows differ[/red]"
    console.print(f"\n{verdict}, in {result.seconds:.0f} s. Look further:")
    for command in (
        "health demo.flights",
        "snapshots demo.delays",
        f'explain demo.delays --filter "{WINDY}"',
        'sql "SELECT month, count(*) FROM demo.flights GROUP BY month"',
    ):
        console.print(f"  anabranch -w {result.warehouse} {command}", soft_wrap=True)

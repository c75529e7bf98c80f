"""Expected final content of the demo's tables, computed from the source in one pass, and their actual content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table as TextTable

from anabranch.demo import source
from anabranch.demo.jobs import DAYS_LATE, KM_PER_MILE, LONG_KM
from anabranch.demo.kafka import complete_hours, found_hours
from anabranch.demo.questions import STRONG_WIND, WINDY, QuestionRows
from anabranch.lake import Lake

if TYPE_CHECKING:
    from anabranch.demo.story import DemoResult


@dataclass(frozen=True, slots=True)
class Fact:
    """One value that is checked against the source."""

    what: str
    expected: float
    found: float

    @property
    def holds(self) -> bool:
        """Whether both are the same, up to float rounding."""
        return abs(self.expected - self.found) <= 1e-9 * max(1.0, abs(self.expected))


def kilometres(lake: Lake, flights: pa.Table) -> list[Fact]:
    """Check the distances in `demo.delays` and its long hauls, as they are now."""
    km = _km(flights)
    delays = lake.table("demo.delays").scan(columns=["distance_km"]).to_arrow()
    long_hauls = lake.table("demo.long_hauls").scan(columns=["flight_id"]).to_arrow()
    return [
        Fact("delays: kilometres flown", _sum(km), _sum(delays["distance_km"])),
        Fact("delays: the longest flight, km", _max(km), _max(delays["distance_km"])),
        Fact("long hauls: rows", _sum(pc.greater_equal(km, LONG_KM)), long_hauls.num_rows),
    ]


def rows(lake: Lake, flights: pa.Table, windy: float) -> list[Fact]:
    """Check every row of the four tables, by identity where it has one.

    Args:
        flights: all that have arrived.
        windy: number of delays in strong wind that a query found.
    """
    total = flights.num_rows
    found = lake.table("demo.flights").scan().to_arrow()
    delays = lake.table("demo.delays").scan(columns=["flight_id", "arr_delay", "distance_km"]).to_arrow()
    long_hauls = lake.table("demo.long_hauls").scan(columns=["flight_id"]).to_arrow()
    long_ids = flights["flight_id"].filter(pc.greater_equal(_km(flights), LONG_KM))
    return [
        Fact("flights: rows that equal the source", total, equal_rows(flights, found)),
        Fact("flights: rows", total, found.num_rows),
        Fact("delays: rows", total, delays.num_rows),
        Fact("delays: different flights", total, len(pc.unique(delays["flight_id"]))),
        Fact("delays: minutes late on arrival", _sum(flights["arr_delay"]), _sum(delays["arr_delay"])),
        Fact("delays in strong wind", _windy(flights), windy),
        Fact("long hauls: flights of the source", len(long_ids), _common(long_ids, long_hauls["flight_id"])),
        *kilometres(lake, flights),
        *_days(lake, flights),
    ]


def complete_days(flights: pa.Table) -> pl.DataFrame:
    """Return the final content of `demo.days`: `day` (timestamp, UTC), `carrier`, `name`, `flights`, `km`."""
    columns = flights.select(["time_hour", "carrier"]).append_column("km", _km(flights))
    rows, names = pl.from_arrow(columns), pl.from_arrow(source.airlines())
    assert isinstance(rows, pl.DataFrame)
    assert isinstance(names, pl.DataFrame)
    day, late = pl.col("time_hour").dt.truncate("1d").alias("day"), pl.duration(days=DAYS_LATE)
    counted = rows.group_by(day, "carrier").agg(
        pl.len().cast(pl.Int64).alias("flights"),
        pl.col("km").sum(),
        pl.lit(rows["time_hour"].max()).alias("newest"),
    )
    complete = counted.filter(pl.col("day") + pl.duration(days=1) <= pl.col("newest") - late)
    return complete.join(names, on="carrier").select("day", "carrier", "name", "flights", "km")


def _days(lake: Lake, flights: pa.Table) -> list[Fact]:
    days, found = complete_days(flights), lake.table("demo.days").scan().to_polars()
    keys = ["day", "carrier", "name", "flights"]
    same = found.with_columns(pl.col("day").cast(days.schema["day"])).join(days, on=keys)
    equal = same.filter((pl.col("km") - pl.col("km_right")).abs() <= 1e-9 * pl.col("km_right"))
    return [
        Fact("days of airlines: rows", days.height, found.height),
        Fact("days of airlines: rows that equal the source", days.height, equal.height),
    ]


def through_kafka(lake: Lake, flights: pa.Table) -> list[Fact]:
    """Check what came through a topic: every flight once, and every complete hour."""
    arrivals = lake.table("demo.arrivals").scan(columns=["flight_id"]).to_arrow()
    hours, found = complete_hours(flights), found_hours(lake.table("demo.hours"))
    same = found.join(hours, on=hours.columns, how="semi")
    total, different = flights.num_rows, len(pc.unique(arrivals["flight_id"]))
    return [
        Fact("arrivals through Kafka: rows", total, arrivals.num_rows),
        Fact("arrivals through Kafka: different flights", total, different),
        Fact("hours of event time: rows", hours.height, found.height),
        Fact("hours that equal the source", hours.height, same.height),
    ]


def all_hold(facts: Sequence[Fact]) -> bool:
    """Whether every fact holds."""
    return all(fact.holds for fact in facts)


def equal_rows(expected: pa.Table, found: pa.Table) -> int:
    """Return the number of rows that are the same in both, by `flight_id`; nulls are equal to nulls."""
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


def _km(flights: pa.Table) -> pa.ChunkedArray:
    return pc.multiply(flights["distance"].cast(pa.float64()), KM_PER_MILE)


def _windy(flights: pa.Table) -> int:
    weather = source.weather().select(["origin", "time_hour", "wind_speed"])
    joined = flights.select(["origin", "time_hour"]).join(weather, ["origin", "time_hour"])
    return int(_sum(pc.greater_equal(joined["wind_speed"], STRONG_WIND)))


def _common(ids: pa.ChunkedArray, found: pa.ChunkedArray) -> int:
    return len(set(ids.to_pylist()) & set(found.to_pylist()))


def _sum(column: pa.ChunkedArray) -> float:
    return float(pc.sum(column).as_py() or 0)


def _max(column: pa.ChunkedArray) -> float:
    return float(pc.max(column).as_py() or 0)


def show(result: DemoResult, console: Console) -> None:
    """Print answers, facts, and where to look further."""
    console.print("\n[bold]6. Ask, in Spark SQL[/bold]")
    for answer in result.answers:
        # Above a narrow table, not as its title, which would be broken into lines as narrow.
        console.print(f"\n{answer.statement}", style="cyan", markup=False, highlight=False, soft_wrap=True)
        console.print(_answer_table(answer))
    console.print()
    console.print(_fact_table("when the mistake was there", result.wrong, "[yellow]wrong[/yellow]"))
    console.print()
    console.print(_fact_table("checked against the source, in the end", result.facts, "[red]WRONG[/red]"))
    verdict = (
        "[green]corrected under a running stream: every row is right and there exactly once[/green]"
        if result.correct
        else "[red]rows differ[/red]"
    )
    console.print(f"\n{verdict}, in {result.seconds:.0f} s. Look further:", soft_wrap=True)
    for command in (
        "lineage jobs --format tree",
        "branches demo.delays",
        f'explain demo.delays --filter "{WINDY}"',
        'sql "SELECT month, count(*) FROM demo.long_hauls GROUP BY month"',
    ):
        console.print(f"  anabranch -w {result.warehouse} {command}", soft_wrap=True)


def _fact_table(title: str, facts: tuple[Fact, ...], otherwise: str) -> TextTable:
    shown = TextTable(title=title, title_justify="left", box=None)
    for heading in ("fact", "expected", "found", ""):
        shown.add_column(heading, justify="left" if heading in ("fact", "") else "right")
    for fact in facts:
        mark = "[green]equal[/green]" if fact.holds else otherwise
        shown.add_row(fact.what, f"{fact.expected:,.0f}", f"{fact.found:,.0f}", mark)
    return shown


def _answer_table(answer: QuestionRows) -> TextTable:
    shown = TextTable(box=None)
    for name in answer.columns:
        shown.add_column(name)
    for row in answer.rows:
        shown.add_row(*("" if value is None else str(value) for value in row))
    return shown

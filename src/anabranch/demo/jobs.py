"""The jobs of the demo: flights as they arrive, each with its weather and plane, the long ones, and what is flown a day.

    anabranch -w WAREHOUSE run jobs.py

keeps them running. Kill it whenever you like and start it again: every row comes once.
"""

from pathlib import Path
from typing import Any

import anabranch

HERE = Path(__file__).parent
KM_PER_MILE = 1.609344
LONG_KM = 4_000
DAYS_LATE = 3
"""A day is complete once flights have arrived that left so long after it."""

ARRIVING = """flight_id BIGINT, month INT, day INT, carrier STRING, flight INT, tailnum STRING, origin STRING,
    dest STRING, sched_dep_time INT, dep_delay DOUBLE, arr_delay DOUBLE, distance INT, time_hour TIMESTAMP"""


@anabranch.job(
    "ingest-flights",
    sources={
        "arriving": anabranch.files(
            str(HERE / "landing"), schema=ARRIVING, options={"maxFilesPerTrigger": 10}
        )
    },
    sink="demo.flights",
)
def ingest_flights(arriving: Any) -> Any:
    """A file of flights for every day."""
    return arriving


@anabranch.job(
    "enrich-flights",
    sources={
        "flights": "demo.flights",
        "weather": anabranch.static("demo.weather"),
        "planes": anabranch.static("demo.planes"),
    },
    sink="demo.delays",
)
def enrich_flights(flights: Any, weather: Any, planes: Any) -> Any:
    """Each flight with the weather of its hour and its plane."""
    planes = planes.withColumnRenamed("year", "plane_year")
    joined = flights.join(weather, ["origin", "time_hour"], "left").join(planes, ["tailnum"], "left")
    return joined.withColumn("distance_km", joined["distance"] * KM_PER_MILE).select(
        "flight_id", "month", "time_hour", "origin", "dest", "carrier", "dep_delay", "arr_delay", "distance_km",
        "temp", "wind_speed", "visib", "plane_year", "manufacturer", "seats",
    )  # fmt: skip


@anabranch.job(
    "pick-long-hauls",
    sources={"delays": anabranch.stream("demo.delays", {"scan.on-replace": "continue"})},
    sink="demo.long_hauls",
)
def pick_long_hauls(delays: Any) -> Any:
    """The flights of more than 4,000 km."""
    return delays.where(delays["distance_km"] >= LONG_KM).select(
        "flight_id", "month", "carrier", "origin", "dest", "distance_km"
    )


@anabranch.job(
    "sum-days",
    sources={
        "delays": anabranch.stream("demo.delays", {"scan.on-replace": "continue"}),
        "airlines": anabranch.static("demo.airlines"),
    },
    sink="demo.days",
)
def sum_days(delays: Any, airlines: Any) -> Any:
    """What each airline flew on each day, once the day is complete."""
    from pyspark.sql import functions as sql

    day = sql.window("time_hour", "1 day").alias("window")
    flown = (
        delays.withWatermark("time_hour", f"{DAYS_LATE} days")
        .groupBy(day, "carrier")
        .agg(sql.count("*").alias("flights"), sql.sum("distance_km").alias("km"))
    )
    return flown.join(airlines, "carrier").select(
        sql.col("window.start").alias("day"), "carrier", "name", "flights", "km"
    )

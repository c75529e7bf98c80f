"""The tables of the demo."""

from __future__ import annotations

from anabranch.demo import source
from anabranch.lake import Lake

STREAMED = ("flights", "delays", "long_hauls")
"""Each with the month as its partition."""
OPTIONS = {"compaction.max.file-num": "5"}
"""A year of flights is small: compact it as early as a big table."""

_FLIGHTS = """flight_id BIGINT NOT NULL, month INT NOT NULL, day INT, carrier STRING, flight INT, tailnum STRING,
    origin STRING, dest STRING, sched_dep_time INT, dep_delay DOUBLE, arr_delay DOUBLE, distance INT,
    time_hour TIMESTAMP_LTZ(6)"""
_DELAYS = """flight_id BIGINT NOT NULL, month INT NOT NULL, time_hour TIMESTAMP_LTZ(6), origin STRING, dest STRING, carrier STRING,
    dep_delay DOUBLE, arr_delay DOUBLE, distance_km DOUBLE, temp DOUBLE, wind_speed DOUBLE, visib DOUBLE,
    plane_year INT, manufacturer STRING, seats INT"""
_LONG_HAULS = """flight_id BIGINT NOT NULL, month INT NOT NULL, carrier STRING, origin STRING, dest STRING,
    distance_km DOUBLE"""
_DAYS = "day TIMESTAMP_LTZ(6), carrier STRING, name STRING, flights BIGINT, km DOUBLE"
_WEATHER = """origin STRING, time_hour TIMESTAMP_LTZ(6), temp DOUBLE, wind_speed DOUBLE, visib DOUBLE,
    precip DOUBLE"""
_AIRLINES = "carrier STRING, name STRING"
_PLANES = "tailnum STRING, year INT, manufacturer STRING, model STRING, seats INT"


def prepare(lake: Lake) -> dict[str, int]:
    """Create the tables, filling weather, planes and airlines. Return their row counts by table name."""
    for name, ddl in zip(STREAMED, (_FLIGHTS, _DELAYS, _LONG_HAULS), strict=True):
        lake.create_table(f"demo.{name}", ddl, partition_by=["month"], options=OPTIONS)
    lake.create_table("demo.days", _DAYS)
    there = {}
    lookups = (
        ("weather", _WEATHER, source.weather()),
        ("planes", _PLANES, source.planes()),
        ("airlines", _AIRLINES, source.airlines()),
    )
    for name, ddl, rows in lookups:
        snapshot = lake.create_table(f"demo.{name}", ddl).append(rows)
        there[f"demo.{name}"] = snapshot.total_record_count or 0
    return there

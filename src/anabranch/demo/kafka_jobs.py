"""The jobs of the demo that need a broker: flights through a topic, and how late they leave in each hour of event time.

The environment says where: ``KAFKA_BOOTSTRAP`` names the broker, ``ANABRANCH_DEMO_TOPIC`` the topic.
"""

import os
from typing import Any

import anabranch

RECORD = "flight_id BIGINT, origin STRING, dep_delay DOUBLE, millis BIGINT"


@anabranch.job(
    "arrive-flights",
    sources={
        "records": anabranch.topic(
            os.environ["ANABRANCH_DEMO_TOPIC"],
            os.environ["KAFKA_BOOTSTRAP"],
            {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 20_000},
        )
    },
    sink="demo.arrivals",
    # Each airport has a partition, and the slowest of them says how far event time has come.
    options={"sink.watermark.source-column": "_source"},
)
def arrive_flights(records: Any) -> Any:
    """The records of the topic."""
    from pyspark.sql import functions as sql

    flight = sql.from_json(sql.col("value").cast("string"), RECORD).alias("flight")
    source = sql.concat_ws("-", "topic", "partition").alias("_source")
    return records.select(flight, source).select(
        "flight.flight_id",
        "flight.origin",
        "flight.dep_delay",
        sql.timestamp_millis("flight.millis").alias("time_hour"),
        "_source",
    )


@anabranch.job("count-hours", sources={"arrivals": "demo.arrivals"}, sink="demo.hours")
def count_hours(arrivals: Any) -> Any:
    """One row for each hour of departure, once it is complete."""
    from pyspark.sql import functions as sql

    return (
        arrivals.groupBy(sql.window("time_hour", "1 hour").alias("window"))
        .agg(
            sql.count("*").alias("flights"),
            sql.coalesce(sql.sum("dep_delay"), sql.lit(0.0)).alias("minutes_late"),
        )
        .select(sql.col("window.start").alias("hour"), "flights", "minutes_late")
    )

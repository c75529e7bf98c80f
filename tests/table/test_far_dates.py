"""Dates outside of the years 1 to 9999, which Python does not have, where rows become Python objects."""

import pyarrow as pa
import pytest

import anabranch
from anabranch.audit import Checks
from anabranch.errors import SchemaError, UnsupportedFeatureError

FAR = pa.table(
    {"id": pa.array([1, 1], pa.int32()), "d": pa.array([2_932_897] * 2, pa.int32()).cast(pa.date32())}
)


def test_extremes_say_which_column_has_one(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id INT, d DATE")
    table.append(FAR)
    for scan in (table.scan(), table.scan("id = 1")):
        for ask in (scan.min, scan.max):
            with pytest.raises(UnsupportedFeatureError, match="column 'd' has 10000-01-01"):
                ask("d")


def test_pandas_says_which_column_has_one(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id INT, d DATE")
    table.append(FAR.set_column(1, "d", pa.array([-719_529] * 2, pa.int32()).cast(pa.date32())))
    with pytest.raises(UnsupportedFeatureError, match="column 'd', with values from -"):
        table.scan().to_pandas()


def test_a_violated_check_shows_it(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", "id INT, d DATE, CONSTRAINT early CHECK (d < DATE '2030-01-01')")
    with pytest.raises(SchemaError, match="10000-01-01"):
        table.append(FAR)


def test_audits_show_it(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id INT, d DATE")
    table.append(FAR.set_column(1, "d", pa.array([0, 0], pa.int32()).cast(pa.date32())))
    table.create_tag("good")
    table.create_branch("fix", "good")
    table.branch("fix").append(FAR)
    found = table.branch("fix").audit(
        Checks.parse(
            "checks:\n  - unique: [d]\n  - condition: d < DATE '2030-01-01'\n  - freshness: {column: d, within: 2 h}\n",
            name="c",
        )
    )
    assert "10000-01-01" in str(list(found.checks))

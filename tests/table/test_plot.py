"""Charts of a table."""

import datetime as dt
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

import anabranch
from anabranch.lake import Lake
from anabranch.runtime import SYSTEM
from anabranch.storage.memory import MemoryStorage
from tests.support.clock import HOUR, START, Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lake(clock):
    runtime = replace(SYSTEM, clock=clock)
    return Lake(MemoryStorage(runtime=runtime), runtime=runtime)


def lengths(chart):
    """Lengths of the bars in the picture, with their tooltips."""
    svg = "{http://www.w3.org/2000/svg}"
    groups = ET.fromstring(chart.svg()).iter(f"{svg}g")
    return [(g.find(f"{svg}title").text, int(g.find(f"{svg}rect").get("width"))) for g in groups]


def test_sizes(lake):
    table = lake.create_table("db.t", "id BIGINT, p STRING", partition_by="p")
    table.append([{"id": i, "p": "large"} for i in range(20_000)] + [{"id": 1, "p": "<b>&\x1b\u202e"}])
    chart = table.plot("sizes")
    assert chart == table.plot()
    (large, long), (small, short) = lengths(chart)
    assert (large.split(":")[0], small.split(":")[0]) == ("p=large", "p=<b>&%1B\\u202e")
    by_name = {row["partition"]: row["file_size_in_bytes"] for row in table.system("partitions").to_pylist()}
    assert [value for _, value, _ in chart.bars] == [by_name["p=large"], by_name["p=<b>&%1B\u202e"]]
    assert long > 10 * short
    assert repr(chart).splitlines()[1].count("█") == 30
    assert chart._repr_svg_() == chart.svg()


def test_many_partitions_are_summed_up(lake):
    table = lake.create_table("db.t", "id BIGINT, p INT", partition_by="p")
    table.append([{"id": 1, "p": number} for number in range(100)])
    bars = table.plot("sizes").bars
    assert len(bars) == 30
    assert bars[-1][0] == "(71 smaller)"
    whole = sum(row["file_size_in_bytes"] for row in table.system("partitions").to_pylist())
    assert sum(value for _, value, _ in bars) == whole


def test_commits_over_time(lake, clock):
    table = lake.create_table("db.t", "id BIGINT")
    for count, hours in ((5, 0), (7, 0), (1, 40), (2, 41)):
        clock.now = START + hours * HOUR
        table.append([{"id": i} for i in range(count)])
    table.compact(full=True)
    bars = table.plot("commits").bars
    assert len(bars) <= 31
    assert sum(value for _, value, _ in bars) == 15
    assert bars[0][2] == "12 rows, 2 commits"
    assert {value for _, value, _ in bars[1:-1]} <= {0.0, 1.0, 2.0}
    begin = dt.datetime.fromtimestamp(START / 1000, dt.UTC)
    assert bars[0][0].startswith(f"{begin:%Y-%m-%d}")


def test_lag(lake, clock):
    table = lake.create_table(
        "db.t", "id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    )
    for behind in (60, 10):
        time = dt.datetime.fromtimestamp(clock.now / 1000, dt.UTC).replace(tzinfo=None)
        table.append([{"id": 1, "ts": time - dt.timedelta(seconds=behind)}])
        clock.now += HOUR
    assert [shown for _, _, shown in table.plot("lag").bars] == ["65.0 s", "15.0 s"]


def test_an_empty_table_and_a_chart_that_is_none(lake, tmp_path):
    table = lake.create_table("db.t", "id BIGINT")
    for what in ("sizes", "commits", "lag"):
        assert "nothing yet" in repr(table.plot(what))
        ET.fromstring(table.plot(what).svg())
    table.plot("sizes").save(tmp_path / "sizes.svg")
    assert (tmp_path / "sizes.svg").read_text() == table.plot("sizes").svg()
    with pytest.raises(anabranch.InvalidInputError, match="no chart 'size'"):
        table.plot("size")

"""Snapshots that say they were committed at no time that there is: every answer is given, and every tab is drawn."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.properties import PARENT_PROPERTY
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows
from tests.ui.browser import accessibility, browsing, show, visiting
from tests.ui.client import OF_TABLE, Client
from tests.ui.conftest import serving

T = "db.t"
TIMES = {
    "far to come": {6: 10**18},
    "long past": {6: -(10**18)},
    "in the middle": {2: 10**18, 4: -(10**15)},
    "before the epoch": {1: -5, 2: -62_135_596_800_001},
    "the last ones": {3: 253_402_300_799_999, 4: 253_402_300_800_000, 5: 8_640_000_000_000_001},
    "the largest": {5: 2**63 - 1, 6: -(2**63)},
    "all": dict.fromkeys(range(1, 7), 10**18),
    "zero": {1: 0, 6: 0},
}


def wrong_clocks(url, times):
    table = make_table(url)
    for number in range(6):
        table.append(rows(number * 3, 3))
    for number in range(1, 7):
        file = url / f"db.db/t/snapshot/snapshot-{number}"
        made = Snapshot.from_json(file.read_bytes(), path=file.name)
        # As other engines write them: they do not name what they are built on.
        properties = {key: value for key, value in made.properties.items() if key != PARENT_PROPERTY}
        millis = times.get(number, made.time_millis)
        file.write_bytes(replace(made, time_millis=millis, properties=properties).to_json())
    table = anabranch.connect(str(url)).table(T)
    for number in range(1, 7):
        table.create_tag(f"at-{number}", number)
    table.create_savepoint()


@pytest.mark.parametrize("name", first_short(TIMES))
def test_every_answer_is_given(tmp_path, name):
    wrong_clocks(tmp_path / "w", TIMES[name])
    with serving(tmp_path / "w") as server:
        client = Client(server)
        found = {what: client.get(what, table=T) for what in OF_TABLE if what not in ("lags", "producer")}
        facts = client.get("facts", name=[T])[1][T]
        assert client.get("snapshot", table=T, id=6)[0] == 200
    assert {what: value for what, (status, value) in found.items() if status != 200} == {}
    assert facts["snapshots"] == 6
    assert [line[0] for line in found["history"][1]["rows"]] == [6, 5, 4, 3, 2, 1]
    assert {int(tag["millis"]) for tag in found["table"][1]["tags"]} >= {*TIMES[name].values()}


@pytest.mark.long
@pytest.mark.parametrize("name", TIMES)
def test_every_tab_is_drawn(tmp_path, name):
    wrong_clocks(tmp_path / "w", TIMES[name])
    with browsing() as browser, serving(tmp_path / "w") as server, visiting(browser, server) as seen:
        seen.get_by_role("link", name=T).wait_for()
        show(seen, f"#/table/{T}")
        seen.get_by_text("About the table").wait_for()
        assert seen.locator("svg.trend").count() == 2
        for path in seen.locator("svg.trend path").all():
            assert "NaN" not in path.get_attribute("d")
        show(seen, f"#/table/{T}?tab=branches")
        seen.get_by_text("#1").first.wait_for()
        for number in (6, 1):
            show(seen, f"#/table/{T}?tab=history&snapshot={number}")
            seen.get_by_role("heading", name=f"Snapshot {number}").wait_for()
            places = [float(dot.get_attribute("cx")) for dot in seen.locator("svg.timeline circle").all()]
            assert len(places) == 6
            assert all(0 < place < 1280 for place in places)
            assert places == sorted(places, reverse=True) or name == "zero" or "last" in name
        seen.get_by_role("button", name="Zoom in").click()
        seen.get_by_role("button", name="All", exact=True).click()
        assert accessibility(seen) == []

"""A correction done wholly by the page: killed, gone on with, published, and taken back."""

import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import anabranch
from tests.support.tables import rows
from tests.ui.browser import accessibility, browsing, need_browser, settle, show, visiting
from tests.ui.client import Client, post
from tests.ui.conftest import serving

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

JOBS = """
import anabranch

@anabranch.job("orders", sources={"raw": "db.raw"}, sink="db.orders")
def orders(raw):
    return raw.selectExpr("id", "concat(v, '%s') AS v")

@anabranch.job("clean", sources={"orders": "db.orders"}, sink="db.clean")
def clean(orders):
    return orders.selectExpr("id", "upper(v) AS v")
"""


@pytest.fixture
def spoilt(tmp_path):
    """Two jobs, which were right up to a tag, and wrong since."""
    lake = anabranch.connect(str(tmp_path / "w"))
    for name in ("db.raw", "db.orders", "db.clean"):
        lake.create_table(name, "id BIGINT NOT NULL, v STRING")
    for kind in ("right", "wrong"):
        (tmp_path / f"{kind}.py").write_text(JOBS % f"-{kind}", encoding="utf-8")
        lake.table("db.raw").append(rows(0 if kind == "right" else 3, 3))
        run(tmp_path, f"{kind}.py")
        if kind == "right":
            lake.table("db.orders").create_tag("good")
    return tmp_path


def run(folder, file):
    words = ["-m", "anabranch", "-w", str(folder / "w"), "run", str(folder / file), "--available-now"]
    done = subprocess.run([sys.executable, *words], check=False, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def values(folder, table="db.clean"):
    lake = anabranch.connect(str(folder / "w"))
    found = lake.table(table).scan(columns=["id", "v"]).to_arrow().to_pylist()
    return sorted((row["id"], row["v"]) for row in found)


def branch_of(folder, table):
    """The branch that the correction writes to, which is the only one."""
    (name,) = anabranch.connect(str(folder / "w")).table(table).branches()
    return f"{table}$branch_{name}"


def test_a_correction_is_killed_gone_on_with_and_taken_back(spoilt):
    need_browser()
    wrong = values(spoilt)
    assert wrong[-1] == (5, "V5-WRONG")
    with (
        browsing() as browser,
        serving(spoilt / "w", allow_actions=True, jobs=[str(spoilt / "right.py")]) as server,
        visiting(browser, server) as seen,
    ):
        seen.get_by_role("link", name="Correct").click()
        seen.get_by_label("Table").fill("db.orders")
        seen.keyboard.press("Enter")
        seen.get_by_label("Right up to the tag").select_option("good")
        settle(seen)
        start = seen.get_by_role("button", name="Correct and publish")
        assert start.is_disabled()
        assert accessibility(seen) == []
        seen.get_by_label("Yes, change main of 2 tables: db.orders, db.clean").check()
        start.click()
        seen.get_by_role("status").filter(has_text="running").wait_for()
        said = seen.get_by_label("What it says")
        said.filter(has_text="db.clean: running clean").wait_for(timeout=900_000)
        # One table is made again by now, of the other nothing.
        os.kill(server.site.actions.process_id, signal.SIGKILL)
        seen.get_by_role("status").filter(has_text="ended with -9").wait_for()
        seen.get_by_text("Start it again").wait_for()
        assert said.inner_text().count("begins with snapshot") == 2
        assert values(spoilt) == wrong, "no main changes before all of them"
        seen.locator(".steps .badge", has_text="begun").nth(1).wait_for()
        assert values(spoilt, branch_of(spoilt, "db.orders")) == [(i, f"v{i}-right") for i in range(6)]
        assert accessibility(seen) == []

        seen.get_by_label("Yes, change main of 2 tables: db.orders, db.clean").check()
        start.click()
        seen.get_by_role("status").filter(has_text="running").wait_for()
        seen.get_by_role("status").filter(has_text="done").wait_for(timeout=900_000)
        assert "begins with snapshot" not in said.inner_text(), "it went on where it was"
        assert values(spoilt) == [(i, f"V{i}-RIGHT") for i in range(6)]

        seen.get_by_role("heading", name="4. Published").wait_for()
        assert accessibility(seen) == []
        seen.get_by_label("Yes, change main of 2 tables").check()
        seen.get_by_role("button", name="Take it back").click()
        seen.get_by_text("Taking back db.orders").wait_for()
        seen.get_by_role("status").filter(has_text="done").wait_for(timeout=400_000)
        assert values(spoilt) == wrong
        show(seen, "#/table/db.orders?tab=branches")
        seen.get_by_text("replaced main, undone").first.wait_for()


def told_first(client):
    """How the first correction that a page knows stands; None if it knows none."""
    found = client.get("progress")[1]
    return found[0] if found else None


def wait_for(client, what, seconds=600):
    """How a command stands, once something is so of it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = told_first(client)
        if what(found):
            return found
        time.sleep(0.5)
    raise AssertionError(found)


def test_a_correction_outlives_its_page_and_the_next_page_sees_it(spoilt):
    """The server is killed, not the command: a new one says so, starts no second one, and goes on once the first has ended."""
    jobs = str(spoilt / "right.py")
    words = ["-w", str(spoilt / "w"), "ui", "--no-browser", "--port", "0", "--allow-actions", "--jobs", jobs]
    body = {"what": "run", "table": "db.orders", "tag": "good", "tables": ["db.orders", "db.clean"]}
    with subprocess.Popen(
        [sys.executable, "-m", "anabranch", *words], stdout=subprocess.PIPE, text=True
    ) as page:
        url, port = re.search(r"(http://127\.0\.0\.1:(\d+)/\S+)", page.stdout.readline()).groups()
        client = Client(SimpleNamespace(url=url, port=int(port)))
        assert post(client, body)[0] == 200
        with serving(spoilt / "w", allow_actions=True, jobs=[jobs]) as server:
            other = Client(server)
            found = wait_for(other, lambda told: told is not None)
            assert (found["table"], found["tag"]) == ("db.orders", "good")
            page.kill()
            page.wait()
            found = told_first(other)
            assert found is None or found["elsewhere"]
            if found is not None:
                status, said = post(other, body)
                assert (status, "is carried out by process" in said["message"]) == (409, True)
            wait_for(other, lambda told: told is None)
            if values(spoilt)[-1] == (5, "V5-WRONG"):
                assert post(other, body)[0] == 200
                assert wait_for(other, lambda told: told["exit"] is not None)["exit"] == 0
    assert values(spoilt) == [(i, f"V{i}-RIGHT") for i in range(6)]

"""A lake of 2,000 tables, a table of 10,000 snapshots, lineage of 1,000 jobs: quick to look at, in little memory."""

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import anabranch
from tests.ui.browser import browsing, need_browser, visiting

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

TABLES, SNAPSHOTS, JOBS = 2_000, 10_000, 1_000
MOST_WORK = 2.0
"""Seconds of processor time that the server and the browser together may need for a step: what two cores give in one second. The
time on the clock, which is printed too, grows with what else the machine does."""
MOST_MEGABYTES = 300
"""Of the server at its most, with the pages of library files, though the system shares those and can drop them."""
BACKGROUND = ("whole history", "size over time")
"""What fills in while the page is in use already."""
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})


def name_of(number):
    return f"d{number % 20:02}.t{number:04}"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The lake; one that was made before may be named by `ANABRANCH_LARGE`."""
    if "ANABRANCH_LARGE" in os.environ:
        return os.environ["ANABRANCH_LARGE"]
    url = str(tmp_path_factory.mktemp("large") / "w")
    lake = anabranch.connect(url)
    for number in range(JOBS):
        with lake.job(f"job-{number:04}") as job:
            if number % 10 == 0:
                job.read_from(f"inbox/{number}", kind="files")
                rows = ROWS
            else:
                rows = lake.table(name_of(number - 1)).scan().to_arrow()
            lake.create_table(name_of(number), "id BIGINT, v STRING").append(rows)
    for number in range(JOBS, TABLES - 1):
        lake.create_table(name_of(number), "id BIGINT, v STRING")
    kept = {"write-only": "true", "snapshot.num-retained.min": "20000", "snapshot.num-retained.max": "20000"}
    table = lake.create_table("long.history", "id BIGINT, v STRING", options=kept)
    for number in range(SNAPSHOTS):
        table.append(pa.table({"id": [number], "v": ["x"]}))
        if number == 2_000:
            table.create_tag("early")
    table.create_branch("fix", tag="early")
    table.branch("fix").append(ROWS)
    lake.lineage.jobs()
    return url


@contextmanager
def process(url):
    """The server as people start it."""
    words = [sys.executable, "-m", "anabranch", "-w", url, "ui", "--no-browser", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            address = server.stdout.readline().split()[-1]
            port = int(re.search(r":(\d+)/", address)[1])
            yield SimpleNamespace(url=address, port=port, pid=server.pid)
        finally:
            server.terminate()


def test_it_is_quick_and_small(large, capsys):
    need_browser()
    took = {}

    def clock(what, do, ready):
        begun, worked, served = time.monotonic(), _worked(), _worked_by(server.pid)
        do()
        ready.wait_for()
        spent = time.monotonic() - begun
        took[what] = spent, _worked() - worked, _worked_by(server.pid) - served, _resident(server.pid)

    with process(large) as server, browsing() as browser, visiting(browser, server) as seen:

        def go(address):
            seen.evaluate("address => { location.hash = address }", address)

        clock("reload of 2,000 tables", seen.reload, seen.locator("a.row").nth(5))
        clock("facts of the first screen", lambda: None, seen.locator(".row .health").nth(5))
        clock("search", lambda: seen.locator("#search").fill("t0777"), seen.get_by_role("link", name="t0777"))
        clock("all again", lambda: seen.locator("#search").fill(""), seen.locator("a.row").nth(9))
        clock(
            "scroll",
            lambda: seen.evaluate("scrollTo(0, 64 * 1900)"),
            seen.locator('[data-index="1899"] .row'),
        )
        clock(
            "history", lambda: go("#/table/long.history?tab=history"), seen.locator(".timeline .mark").first
        )
        clock("whole history", lambda: None, seen.get_by_text("10,000 snapshots", exact=True))
        clock("zoom", seen.get_by_role("button", name="Zoom in").click, seen.get_by_text("of 10,000"))
        clock("a snapshot", seen.locator(".many .row").nth(3).click, seen.get_by_text("Everything it says"))
        clock("graph", lambda: go("#/table/long.history?tab=branches"), seen.locator(".badge.branch").first)
        clock("overview", lambda: go("#/table/long.history"), seen.locator(".trend").first)
        clock("size over time", lambda: None, seen.locator(".trend").nth(1))
        clock("lineage of 1,000 jobs", lambda: go("#/lineage"), seen.get_by_text("too many to draw"))
        clock(
            "one node's closure",
            lambda: go("#/lineage?table=d05.t0005"),
            seen.locator(".drawing .node").first,
        )
        megabytes, shared = _resident(server.pid), _resident(server.pid, "RssFile")
    with capsys.disabled():
        print(
            "".join(
                f"\n{what:28} {1000 * a:6.0f} ms, work {1000 * b:6.0f} ms, the server's {1000 * c:5.0f} ms and {d:4.0f} MB"
                for what, (a, b, c, d) in took.items()
            )
        )
        print(f"{'memory of the server':28} {megabytes:6.0f} MB, of which library files {shared:.0f}")
    heavy = {
        what: work for what, (_, work, *_) in took.items() if work > MOST_WORK and what not in BACKGROUND
    }
    assert heavy == {}
    assert megabytes < MOST_MEGABYTES


def _worked():
    """Seconds of processor time that the processes below this one have used: the server, and all of the browser."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("only Linux says how much work processes have done")
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        ticks[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= grown
    return sum(ticks[pid] for pid in ours - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


def _worked_by(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid, which="VmHWM"):
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("only Linux says how much memory a process has")
    return int(re.search(rf"{which}:\s+(\d+)", status.read_text())[1]) / 1024

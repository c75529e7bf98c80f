"""Correcting from the page: nothing without leave, nothing that was not confirmed, and by the same command as in a terminal."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from anabranch.ui.actions import command
from tests.ui.browser import browsing, show, visiting
from tests.ui.client import Client, post
from tests.ui.conftest import serving

CLEANING = """
import anabranch

@anabranch.job("clean", sources={"orders": "shop.orders"}, sink="shop.clean_orders")
def clean(orders):
    return orders.select("id", "customer", "price")
"""


@pytest.fixture(scope="module")
def acting(warehouse, tmp_path_factory):
    jobs = tmp_path_factory.mktemp("jobs") / "jobs.py"
    jobs.write_text(CLEANING, encoding="utf-8")
    with serving(warehouse, allow_actions=True, jobs=[str(jobs)]) as server:
        yield Client(server)


def test_the_plan_names_every_table_that_changes(acting):
    status, found = acting.get("correction", table="shop.orders", tag="good")
    assert status == 200, found
    assert found["tables"][0] == "shop.orders"
    assert found["plan"]["steps"][0]["fork"] == 8
    assert found["undo"] is None
    assert found["command"].startswith("anabranch correct shop.orders --from-tag good --run --jobs ")


def test_the_last_right_snapshot_gets_a_tag_only_with_leave(acting, page, warehouse):
    """Of main as it is now: its snapshot 10 is another one than that of the main before."""
    import anabranch

    body = {"what": "tag", "table": "shop.orders", "tag": "before-11", "snapshot": 10}
    assert post(Client(page), body)[0] == 400
    assert post(acting, body) == (200, {"name": "before-11", "snapshot": 10})
    table = anabranch.connect(str(warehouse)).table("shop.orders")
    try:
        assert set(table.at("before-11").scan("id > 79").to_arrow()["note"].to_pylist()) == {"corrected"}
        assert post(acting, body)[0] == 409
        for wrong in (
            {"snapshot": 99},
            {"snapshot": True},
            {"snapshot": "10"},
            {"tag": 5},
            {"table": "no.such"},
        ):
            assert post(acting, {**body, "tag": "other", **wrong})[0] in (400, 404), wrong
    finally:
        table.delete_tag("before-11")
    assert table.tags() == ["good"]


def test_a_page_that_only_shows_acts_on_nothing(page):
    client = Client(page)
    status, said = post(
        client, {"what": "run", "table": "shop.orders", "tag": "good", "tables": ["shop.orders"]}
    )
    assert (status, said["message"]) == (400, "this page only shows")
    assert client.get("progress") == (200, [])


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://example.org"},
        {"cookie": ""},
        {"content_type": "text/plain"},
        {"sec_fetch_site": "cross-site"},
    ],
)
def test_other_sites_act_on_nothing(acting, headers):
    body = {"what": "run", "table": "shop.orders", "tag": "good", "tables": ["shop.orders"]}
    assert post(acting, body, **headers)[0] in (401, 403, 415)
    assert acting.get("progress") == (200, [])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ([], 400),
        ({"what": "run"}, 400),
        ({"what": "drop", "table": "shop.orders", "tag": "good"}, 400),
        ({"what": "run", "table": ["shop.orders"], "tag": "good"}, 400),
        ({"what": "run", "table": "shop.orders", "tag": "good"}, 409),
        (
            {"what": "run", "table": "shop.orders", "tag": "good", "tables": ["shop.orders", "shop.other"]},
            409,
        ),
        ({"what": "run", "table": "shop.orders", "tag": "--run", "tables": []}, 404),
        ({"what": "run", "table": "--help", "tag": "good", "tables": []}, 400),
        ({"what": "undo", "table": "shop.orders", "tag": "good", "tables": []}, 400),
    ],
)
def test_what_was_not_confirmed_is_not_done(acting, body, status):
    found, said = post(acting, body)
    assert found == status, said
    assert acting.get("progress") == (200, [])


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 90_000, b'{"a":' * 15_000, b"null", b"\xff", b"x" * 200_000]
)
def test_what_is_no_request_is_said(acting, body):
    own = {"origin": f"http://127.0.0.1:{acting.port}", "content_type": "application/json"}
    status, _, answer = acting.raw("/api/act", "POST", body, cookie=acting.cookie, **own)
    assert status == 400
    assert "does not say what to do" in json.loads(answer)["message"]


def test_what_the_page_sends_is_no_option_of_the_command():
    words = command("w", "run", "--undo", "--yes", jobs=["a b.py"], checks=[], tables=["db.t"])
    assert words[3:] == [
        "--warehouse=w",
        "correct",
        "--from-tag=--yes",
        "--run",
        "--yes",
        "--jobs=a b.py",
        "--only=db.t",
        "--",
        "--undo",
    ]


HOLDING = """
import sys, time
import anabranch
from anabranch.jobs.underway import CorrectionScope, carried_out

what = CorrectionScope("correct-shop.orders-good", "shop.orders", "good", ("shop.orders", "shop.clean_orders"))
with carried_out(anabranch.connect(sys.argv[1]), what, print) as tell:
    tell("shop.orders: running ingest-orders")
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def corrected_elsewhere(warehouse):
    """A correction that goes on in a process that outlived its page."""
    words = [sys.executable, "-c", HOLDING, str(warehouse)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            while process.stdout.readline() not in ("held\n", ""):
                pass
            yield process
        finally:
            process.kill()


def progress_of(client, is_there):
    """How a command stands; the page may know it as it was two seconds ago."""
    for _ in range(100):
        status, found = client.get("progress")
        assert status == 200, found
        if bool(found) == is_there:
            return found[0] if found else None
        time.sleep(0.1)
    raise AssertionError(f"progress stays {found}")


def test_a_new_page_sees_a_correction_that_outlived_its_page(warehouse, tmp_path):
    (tmp_path / "jobs.py").write_text(CLEANING, encoding="utf-8")
    with serving(warehouse, allow_actions=True, jobs=[str(tmp_path / "jobs.py")]) as server:
        client = Client(server)
        _, plan = client.get("correction", table="shop.orders", tag="good")
        body = {"what": "run", "table": "shop.orders", "tag": "good", "tables": plan["tables"]}
        with corrected_elsewhere(warehouse) as process:
            found = progress_of(client, is_there=True)
            assert (found["table"], found["tag"], found["exit"]) == ("shop.orders", "good", None)
            assert found["tables"] == ["shop.orders", "shop.clean_orders"]
            assert f"process {process.pid} on " in found["elsewhere"]
            status, said = post(client, body)
            assert status == 409
            assert f" is carried out by process {process.pid} on " in said["message"]
            assert said["hint"]
            second = subprocess.run(
                [sys.executable, "-c", HOLDING, str(warehouse)], check=False, capture_output=True, text=True
            )
            assert second.returncode == 1
            assert f"is carried out by process {process.pid} on " in second.stderr
            process.kill()
            process.wait()
            assert progress_of(client, is_there=False) is None
        with corrected_elsewhere(warehouse):  # whoever comes after one that was killed need not wait
            assert progress_of(client, is_there=True)["elsewhere"]
    assert server.site.actions.process_id is None


@pytest.mark.long
def test_the_command_is_refused_too_before_it_starts_anything(warehouse, tmp_path):
    (tmp_path / "jobs.py").write_text(CLEANING, encoding="utf-8")
    words = [
        "correct",
        "shop.orders",
        "--from-tag",
        "good",
        "--jobs",
        str(tmp_path / "jobs.py"),
        "--run",
        "--yes",
    ]
    with corrected_elsewhere(warehouse) as process:
        done = subprocess.run(
            [sys.executable, "-m", "anabranch", "-w", str(warehouse), *words],
            check=False,
            capture_output=True,
            text=True,
        )
    assert f"this correction of shop.orders is carried out by process {process.pid} on " in done.stderr
    assert "run again it goes on where that was" in done.stderr
    assert done.returncode == 4


@pytest.mark.long
def test_a_correction_elsewhere_hides_neither_others_nor_how_the_last_one_here_ended(warehouse):
    with serving(warehouse, allow_actions=True, jobs=["jobs.py"]) as server, corrected_elsewhere(warehouse):
        words = [sys.executable, "-c", "print('db.x: no')"]
        server.site.actions.start(words, "run", "db.x", "good", tables=["db.x"], millis=1)
        for _ in range(100):
            status, found = Client(server).get("progress")
            if [one["exit"] for one in found] == [0, None]:
                break
            time.sleep(0.1)
        assert status == 200
        assert [(one["table"], one["exit"], one["elsewhere"] is None) for one in found] == [
            ("db.x", 0, True),
            ("shop.orders", None, False),
        ]


def test_a_damaged_record_of_a_correction_stops_nobody(warehouse):
    record = warehouse / "_corrections" / "correct-shop.x-good" / "run-1"
    record.parent.mkdir(parents=True)
    record.write_bytes(b"{")
    try:
        with serving(warehouse) as server:
            found = progress_of(Client(server), is_there=True)
        assert found["elsewhere"] == "an unknown process"
        assert "damaged" in found["lines"][0]
    finally:
        record.unlink()
        record.parent.rmdir()


def elsewhere(*tables):
    """What the server tells of a correction in another process."""
    about = {"what": "run", "table": tables[0], "tag": "good", "millis": 1, "tables": tables, "lines": []}
    return {**about, "exit": None, "stopped": False, "elsewhere": "process 7 on other-host"}


def test_the_page_waits_only_for_corrections_of_its_tables_and_looks_again_after_a_failure(
    warehouse, tmp_path
):
    (tmp_path / "jobs.py").write_text(CLEANING, encoding="utf-8")
    other, same = elsewhere("shop.other"), elsewhere("shop.other", "shop.clean_orders")
    told, away = [other], []

    def answer(route):
        if away:
            route.fulfill(json={"message": away.pop()}, status=500)
        else:
            route.fulfill(json=told)

    with (
        serving(warehouse, allow_actions=True, jobs=[str(tmp_path / "jobs.py")]) as server,
        browsing() as browser,
        visiting(browser, server, excused="500") as seen,
    ):
        from playwright.sync_api import expect

        seen.route("**/api/progress*", answer)
        show(seen, "#/correct?table=shop.orders&tag=good")
        sure, runs = seen.get_by_label("Yes, change main of"), seen.locator("main .log")
        expect(runs).to_have_count(1, timeout=30_000)
        expect(sure).to_be_enabled(timeout=30_000)
        away.append("away")
        told.append(same)
        expect(runs).to_have_count(2, timeout=30_000)
        expect(sure).to_be_disabled(timeout=30_000)
        assert not away, "it looked again after a failure"
        told.remove(same)
        expect(sure).to_be_enabled(timeout=30_000)

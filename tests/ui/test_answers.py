"""What the page is told of a lake."""

import datetime as dt
import errno
import json
import os
import shutil
import socket
import threading
import time
from decimal import Decimal

import pytest

import anabranch
from anabranch.ui.answers import ANSWERS
from anabranch.ui.cells import to_json
from tests.ui import shop
from tests.ui.client import Client, caught_up

T = "shop.orders"


@pytest.fixture(scope="module")
def client(page):
    return Client(page)


@pytest.fixture(scope="module")
def ask(client):
    def answer(what, **arguments):
        status, value = client.get(what, **arguments)
        assert status == 200, value
        return value

    return answer


def test_the_lake_names_its_tables(ask, warehouse):
    found = ask("lake")
    assert found["tables"] == [
        *("archive.empty", "shop.clean_orders", "shop.customers", "shop.orders", "shop.revenue")
    ]
    assert ask("about")["actions"] is False


def test_facts_of_tables_agree_with_the_tables(ask, warehouse):
    table = anabranch.connect(str(warehouse)).table(T)
    found = ask("facts", name=[T, "archive.empty", "no.such"])
    assert found[T]["rows"] == table.scan().count()
    assert found[T]["score"] == table.health().score
    assert found[T]["head"]["id"] == table.snapshot.id
    assert (found["archive.empty"]["rows"], found["archive.empty"]["head"]) == (0, None)
    assert "no.such" in found["no.such"]["problem"]
    assert "databases there are" in found["no.such"]["problem"]
    assert found[T]["branches"] == ["late", "what-if"], "the branch that became main is main"
    assert ask("table", table=T)["branches"] == ["main", "late", "what-if"]


def test_a_table_at_any_ref(ask):
    assert ask("table", table=T)["snapshot"]["rows"] == 125
    assert ask("table", table=T, at="good")["snapshot"]["rows"] == 80
    assert ask("table", table=T, branch="late")["snapshot"]["rows"] == 85
    assert ask("table", table=T, branch="main@1", at="savepoint.1")["snapshot"]["rows"] == 110
    assert [tag["name"] for tag in ask("table", table=T)["tags"]] == ["good"]


def test_rows_at_any_ref_are_text(ask):
    found = ask("rows", table="shop.customers")
    assert [row for row in found["rows"] if row[0] == "c1"] == [["c1", shop.HOSTILE]]
    assert [row for row in found["rows"] if row[0] == "c3"] == [["c3", None]]
    some = ask("rows", table=T, branch="main@1", filter="price > 100", limit=5)
    assert len(some["rows"]) == 5
    assert some["more"]
    assert {row[4] for row in some["rows"]} == {"in cents"}


def test_history_comes_in_pages(ask, warehouse):
    table = anabranch.connect(str(warehouse)).table(T)
    first = ask("history", table=T, limit=5)
    rest = ask("history", table=T, before=first["rows"][-1][0], limit=500)
    ids = [row[0] for row in [*first["rows"], *rest["rows"]]]
    assert ids == [snapshot.id for snapshot in table.snapshots()]
    assert (first["more"], rest["more"]) == (True, False)
    newest = dict(zip(first["columns"], first["rows"][0], strict=True))
    assert (newest["job"], newest["code"], newest["kind"]) == ("ingest-orders", "600dc0de", "append")


def test_the_history_grows_with_the_table(tmp_path):
    from anabranch.ui.site import Site
    from tests.support.tables import make_table, rows

    table = make_table(tmp_path / "w")
    table.append(rows(0, 1))
    site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w")
    history = site.histories.of(table)
    assert [line.id for line in history.page(table, None, 10)[0]] == [1]
    table.append(rows(1, 1))
    table.append(rows(2, 1))
    assert [line.id for line in history.page(table, None, 10)[0]] == [3, 2, 1]
    table.rollback("snapshot.1", destructive=True)
    table.append(rows(9, 5))
    assert [(line.id, line.added) for line in history.page(table, None, 10)[0]] == [(2, 5), (1, 1)]


def test_what_has_expired_is_not_shown(tmp_path):
    from anabranch.ui.site import Site
    from tests.support.tables import make_table, rows

    table = make_table(tmp_path / "w")
    for number in range(6):
        table.append(rows(number, 1))
    site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w")
    history = site.histories.of(table)
    assert [line.id for line in history.page(table, None, 4)[0]] == [6, 5, 4, 3]
    table.expire_snapshots(retain_max=2, retain_min=2)
    assert ([line.id for line in history.page(table, None, 4)[0]], history.page(table, None, 4)[1]) == (
        [6, 5],
        False,
    )
    table.append(rows(9, 1))
    assert [line.id for line in history.down_to(table, 1)] == [7, 6, 5]


def test_what_changes_without_a_new_snapshot_is_looked_at_again(tmp_path):
    from anabranch.runtime import Runtime
    from anabranch.ui.answers import ANSWERS
    from anabranch.ui.asked import Asked
    from anabranch.ui.site import LATELY_SECONDS, Site
    from tests.jobs.supervising import Time
    from tests.support.tables import make_table, rows

    table, clock = make_table(tmp_path / "w"), Time()
    for number in range(6):
        table.append(rows(number, 1))
    runtime = Runtime(clock=clock, ids=clock, sleeper=clock)
    site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w", runtime=runtime)

    def seen():
        facts = ANSWERS["facts"](site, Asked([("name", "db.t")]))["db.t"]
        health = ANSWERS["health"](site, Asked([("table", "db.t")]))
        return facts["snapshots"], facts["branches"], health["snapshots"]

    assert seen() == (6, [], 6)
    table.expire_snapshots(retain_max=2, retain_min=2)
    table.create_tag("good")
    table.create_branch("fix", "good")
    clock.now += LATELY_SECONDS
    assert seen() == (2, ["fix"], 2)
    (file,) = table.scan().plan().splits[0].files[:1]
    (tmp_path / "w/db.db/t" / file.path).unlink()
    clock.now += LATELY_SECONDS
    assert "is missing" in ANSWERS["health"](site, Asked([("table", "db.t")]))["findings"][0]["why"]


@pytest.mark.parametrize("far", [False, True])
def test_damage_done_after_a_history_was_read_shows_in_it(tmp_path, far):
    from anabranch.runtime import Runtime
    from anabranch.ui.asked import Asked
    from anabranch.ui.site import LATELY_SECONDS, Site
    from tests.jobs.supervising import Time
    from tests.support.tables import make_table, rows

    table, clock = make_table(tmp_path / "w"), Time()
    for number in range(6):
        table.append(rows(number, 1))
    runtime = Runtime(clock=clock, ids=clock, sleeper=clock)
    site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w", runtime=runtime)

    def kinds():
        found = ANSWERS["history"](site, Asked([("table", "db.t"), *([("limit", "4")] if far else [])]))
        return {line.id: line.kind for line in found["rows"]}

    whole = kinds()
    assert {*whole.values()} == {"append"}
    table.append(rows(9, 1))
    assert kinds()[7] == "append"
    file = tmp_path / "w/db.db/t/snapshot/snapshot-5"
    stored = file.read_bytes()
    for number in (5, 6):
        damaged = file.with_name(f"snapshot-{number}")
        was = damaged.read_bytes()
        damaged.write_bytes(b"")
        clock.now += LATELY_SECONDS
        assert {n for n, kind in kinds().items() if kind == "damaged"} == {number}
        assert [problem.path for problem in table.verify().problems if "snapshot-" in problem.path]
        damaged.write_bytes(was)
        assert "damaged" not in kinds().values(), "what was mended is looked at each time"
    assert file.read_bytes() == stored
    file.with_name("snapshot-4").unlink()
    clock.now += LATELY_SECONDS
    assert min(kinds()) == 5, "as any other reader, which ends at the gap"


def test_the_graph_forks_merges_and_replaces(ask):
    graph = ask("graph", table=T)
    lanes = {lane["name"]: lane for lane in graph["lanes"]}
    assert {name: lane["role"] for name, lane in lanes.items()} == {
        "main": "main",
        "late": "branch",
        "what-if": "branch",
        "main@1": "former",
    }
    names = [lane["name"] for lane in graph["lanes"]]
    nodes = graph["nodes"]
    links = {link["kind"]: (nodes[link["from"]], nodes[link["to"]]) for link in graph["links"]}
    assert [names[node["lane"]] for node in links["merge"]] == ["late", "main@1"]
    assert [names[node["lane"]] for node in links["replaced_main"]] == ["main@1", "main"]
    good = next(node for node in nodes if {"kind": "tag", "name": "good"} in node["labels"])
    roots = {names[node["lane"]]: nodes[node["root"]] for node in nodes if node["root"] is not None}
    assert roots == {"late": good, "main@1": good}
    assert {"kind": "branch", "name": "what-if"} in good["labels"]
    folded = [node for node in nodes if node["from"] != node["to"]]
    assert [(node["from"], node["to"], node["kinds"]) for node in folded] == [(2, 7, {"append": 6})]
    for place, node in enumerate(nodes):  # newest first, and each above what it is built on
        assert node["root"] is None or node["root"] > place


def test_the_graph_says_what_was_undone(tmp_path):
    from anabranch.ui.asked import Asked
    from anabranch.ui.graph import graph
    from anabranch.ui.site import Site
    from tests.support.tables import make_table, rows

    table = make_table(tmp_path / "w")
    table.append(rows(0, 1))
    table.create_tag("good")
    table.append(rows(1, 1))
    table.create_branch("fix", tag="good")
    table.branch("fix").append(rows(2, 1))
    table.replace_main_branch("fix", force=True)
    table.undo_replace()
    table.append(rows(3, 1))
    site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w")
    found = graph(site, Asked([("table", "db.t")]))
    names = [lane["name"] for lane in found["lanes"]]
    assert names == ["main", "fix"]
    told = [
        (link["kind"], *(names[found["nodes"][link[end]]["lane"]] for end in ("from", "to")), link["undone"])
        for link in found["links"]
    ]
    assert sorted(told) == [("replaced_main", "main", "fix", True), ("undone", "fix", "main", False)]
    seals = [node for node in found["nodes"] if "seal" in node["kinds"]]
    assert [names[node["lane"]] for node in seals] == ["fix", "main"]


def test_the_graph_shows_a_replacement_that_was_a_commit(tmp_path):
    from anabranch.ui.asked import Asked
    from anabranch.ui.graph import graph
    from anabranch.ui.site import Site
    from tests.support.tables import make_table, rows

    table = make_table(tmp_path / "w")
    table.append(rows(0, 1))
    table.create_tag("good")
    table.append(rows(1, 1))
    table.create_branch("fix", tag="good")
    table.branch("fix").append(rows(2, 1))
    table.replace_main_branch("fix", mode="commit", force=True, by="ada", reason="wrong")
    site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w")
    found = graph(site, Asked([("table", "db.t")]))
    (link,) = found["links"]
    source, sink = (found["nodes"][link[end]] for end in ("from", "to"))
    assert (source["lane"], sink["lane"], sink["kinds"]) == (1, 0, {"replace": 1})
    assert found["operations"][0]["what"] == "replaced_main"
    assert (found["operations"][0]["by"], found["operations"][0]["details"]["reason"]) == ("ada", "wrong")


def test_a_difference_puts_rows_side_by_side(ask):
    found = ask("diff", table=T, left="main@1", right="main", rows=1, filter="dt = '2026-01-05'")
    assert found["counts"] == {"inserted": 10, "deleted": 10}
    assert found["rows"]["key"] == "id"
    columns = found["rows"]["columns"]
    for left, right in found["rows"]["pairs"]:
        changed = {name for name, a, b in zip(columns, left, right, strict=True) if a != b}
        assert changed == {"price", "note"}
    assert ask("diff", table=T, left="main@1", right="main")["rows"] is None
    step = ask("diff", table=T, left="main@main.snapshot.12", right="main@main.snapshot.13")
    assert (step["files"]["added"], step["files"]["removed"]) == (1, 0)
    ((change, name, count, size),) = step["files"]["list"]
    assert (change, count) == ("added", 10)
    assert name.endswith(".parquet")
    assert size == step["files"]["bytes_added"]


def test_many_rows_that_differ_still_stand_side_by_side(tmp_path):
    """All removed rows may come before the first added one, and a key may be a nanosecond or be missing."""
    import pyarrow as pa

    from anabranch.ui.asked import Asked
    from anabranch.ui.site import Site

    lake = anabranch.connect(str(tmp_path / "w"))
    table = lake.create_table(
        "db.t", "day INT, at TIMESTAMP(9), price DOUBLE, tags ARRAY<INT>", partition_by=["day"]
    )
    count = 3_000

    def rows(price, skip=None):
        at = [1_700_000_000_000_000_000 + i for i in range(count)]
        columns = {
            "day": pa.array([i % 2 for i in range(count)], pa.int32()),
            "at": pa.array([None if i == skip else v for i, v in enumerate(at)], pa.timestamp("ns")),
            "price": pa.array([price + i for i in range(count)], pa.float64()),
            "tags": pa.array([[i] for i in range(count)], pa.list_(pa.int32())),
        }
        return pa.table(columns)

    table.append(rows(0.0))
    table.create_tag("before")
    table.overwrite(rows(0.5, skip=7))
    site = Site(lake, warehouse="w")
    given = {"table": "db.t", "left": "main@before", "right": "main", "rows": "1"}
    found = ANSWERS["diff"](site, Asked(given.items()))["rows"]
    assert found["key"] == "at"
    assert len(found["pairs"]) == 100
    for left, right in found["pairs"]:
        assert (left[1], left[0], left[3]) == (right[1], right[0], right[3])
        assert float(right[2]) - float(left[2]) == 0.5
    some = ANSWERS["diff"](site, Asked([*given.items(), ("filter", "price >= 7 AND price < 12")]))["rows"]
    alone = [(left and left[2], right and right[2]) for left, right in some["pairs"] if not left or not right]
    assert len(some["pairs"]) == 6
    assert alone == [("7.0", None), (None, "7.5")], "without a key it pairs with nothing"


def test_partitions_count_their_small_files(ask, warehouse):
    found = ask("partitions", table=T)
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    table = anabranch.connect(str(warehouse)).table(T)
    assert sum(row["small"] for row in rows) == table.health().small_files
    assert sum(row["rows"] for row in rows) == 125
    assert sum(found["sizes"]["files"]) == table.health().files


def test_what_a_file_does_not_say_is_not_known_of_the_table(ask, warehouse):
    lake = anabranch.connect(str(warehouse))
    table = lake.create_table("shop.bounds", "d DOUBLE, s STRING, n DOUBLE")
    table.append([{"d": 1.0, "s": "a", "n": None}])
    table.append([{"d": float("inf"), "s": "\U0010ffff" * 20, "n": 2.0}])
    try:
        found = {column["name"]: column for column in ask("statistics", table="shop.bounds")["columns"]}
        assert found["d"]["max"] is None
        assert found["s"]["max"] is None
        assert found["n"]["max"] is not None, "a file of nulls has no bound to say"
    finally:
        lake.drop_table("shop.bounds")


def test_bounds_of_long_texts_are_said_to_be_shortened(ask, warehouse):
    """Files keep the first 16 characters: the least value is no value then, nor is the greatest."""
    lake = anabranch.connect(str(warehouse))
    columns, options = (
        "short STRING, long STRING, whole STRING, n DOUBLE, late STRING",
        {"fields.whole.stats-mode": "full"},
    )
    table = lake.create_table("shop.texts", columns, options=options)
    table.alter().set_option("fields.late.stats-mode", "full").apply()
    long = [f"a long text, of which there is more: {i}" for i in range(3)]
    table = lake.table("shop.texts")
    table.append([{"short": "Ada", "long": one, "whole": one, "late": one, "n": 1.5} for one in long])
    try:
        found = {column["name"]: column for column in ask("statistics", table="shop.texts")["columns"]}
        assert found["short"]["shortened"] == {"min": False, "max": False}
        assert found["n"]["shortened"] == {"min": False, "max": False}
        assert found["long"]["shortened"] == {"min": True, "max": True}
        assert found["long"]["min"] == long[0][:16]
        assert found["long"]["max"] > long[-1]
        assert (found["whole"]["min"], found["whole"]["max"]) == (long[0], long[-1])
        assert found["whole"]["shortened"] == {"min": False, "max": False}
        assert found["late"]["shortened"] == {"min": True, "max": True}, (
            "files of the version before may be there"
        )
    finally:
        lake.drop_table("shop.texts")


def test_statistics_are_those_of_the_rows(ask):
    found = {column["name"]: column for column in ask("statistics", table=T)["columns"]}
    assert (found["id"]["min"], found["id"]["max"], found["id"]["nulls"]) == ("0", "504", 0)
    assert (found["dt"]["min"], found["dt"]["max"]) == ("2026-01-01", "2026-01-07")


def test_lineage_leads_through_the_jobs(ask):
    whole = caught_up(ask, "lineage")
    assert {flow["job"] for flow in whole["flows"]} >= {"ingest-orders", "clean", "revenue"}
    impact = ask("trace", question="impact", table=T, branch="main@1", snapshots="10")
    assert "shop.revenue" in impact["tables"]
    assert ask("producer", table=T, snapshot="main.snapshot.13")["entry"]["code"] == "600dc0de"
    assert ask("lags", table="shop.revenue")[0]["sources"][0]["behind"] == 0
    assert caught_up(ask, "jobs")["jobs"][0]["name"] == "ingest-orders"


def test_a_snapshot_is_named_also_where_a_former_main_had_another_of_its_id(ask):
    assert ask("snapshot", table=T, id=13)["properties"]["anabranch.lineage"]["code"] == "600dc0de"
    assert ask("snapshot", table=T, branch="main@1", id=13)["properties"]["anabranch.merge"]["name"] == "late"


def test_schemas_say_what_they_changed(ask):
    assert ask("schemas", table=T)[0]["changes"] == ["added 'channel'"]


@pytest.mark.parametrize(
    ("what", "arguments", "status"),
    [
        ("table", {}, 400),
        ("table", {"table": "shop.nothing"}, 404),
        ("table", {"table": "../../etc/passwd"}, 400),
        ("table", {"table": "shop.orders$files"}, 400),
        ("table", {"table": T, "branch": "../../x"}, 400),
        ("table", {"table": T, "at": "no such tag"}, 404),
        ("table", {"table": T, "at": "\x00"}, 400),
        ("table", {"table": "a" * 5_000}, 400),
        ("rows", {"table": T, "filter": "price > ("}, 400),
        ("rows", {"table": T, "limit": "-1"}, 400),
        ("rows", {"table": T, "limit": "0"}, 400),
        ("rows", {"table": T, "offset": "-5"}, 400),
        ("history", {"table": T, "limit": "0"}, 400),
        ("history", {"table": T, "at": "good"}, 400),
        ("lake", {"table": T}, 400),
        ("rows", {"table": T, "limit": "١"}, 400),
        ("snapshot", {"table": T, "id": "99999"}, 404),
        ("diff", {"table": T, "left": shop.HOSTILE}, 404),
        ("trace", {"table": T, "question": "__init__"}, 400),
        ("trace", {"table": T, "question": "impact", "snapshots": "9..2"}, 400),
        ("nothing", {}, 404),
        ("rows", {"table": T, "filter": "$"}, 400),
        ("rows", {"table": T, "filter": "2026-01-01"}, 400),
        ("producer", {"table": "archive.empty"}, 404),
        ("producer", {"table": T, "snapshot": "99999"}, 404),
        *(("table", {"table": T, name: "x" * 2_000}, 404) for name in ("branch", "at")),
        *(
            ("trace", {"table": T, "question": "upstream", name: "ü" * 300}, 404)
            for name in ("branch", "snapshots")
        ),
        *(
            ("table", {"table": text}, 400)
            for text in ("x" * 2_000, f"shop.{'x' * 300}", f"{'x' * 300}.orders")
        ),
        ("table", {"table": f"shop.orders$branch_{'x' * 1_900}"}, 400),
        ("diff", {"table": T, "left": f"main@{'x' * 300}", "right": "x" * 300}, 404),
        ("correction", {"table": T, "tag": "x" * 2_000}, 404),
    ],
)
def test_what_cannot_be_answered_is_said_with_what_to_do_next(client, what, arguments, status):
    found, value = client.get(what, **arguments)
    assert found == status, value
    assert value["message"]
    assert value["hint"]


def test_what_nobody_waits_for_any_more_is_not_made(page, client, monkeypatch):
    made, go_on = [], threading.Event()

    def slow(site, asked):
        made.append(asked.optional("number"))
        assert go_on.wait(20)
        return {}

    monkeypatch.setitem(ANSWERS, "about", slow)
    left = []
    for number in range(30):
        asking = socket.create_connection(("127.0.0.1", page.port))
        asking.sendall(
            f"GET /api/about?number={number} HTTP/1.1\r\nhost: 127.0.0.1:{page.port}\r\ncookie: {client.cookie}\r\n\r\n".encode()
        )
        left.append(asking)
    while len(made) < 4:
        time.sleep(0.01)
    for asking in left:
        asking.close()
    time.sleep(0.2)
    go_on.set()
    assert client.get("about", number="last") == (200, {})
    assert made[-1] == "last"
    assert len(made) == 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": (1, 2.5), "b": [None, True]}, '{"a":[1,2.5],"b":[null,true]}'),
        (2**53 - 1, "9007199254740991"),
        ([2**53, -(2**53)], '["9007199254740992","-9007199254740992"]'),
        ({"x": float("nan"), "y": [float("-inf")]}, '{"x":"nan","y":["-inf"]}'),
        (["1234567890123456", 1], '["1234567890123456",1]'),
        ({"at": dt.date(2026, 1, 2), "raw": b"\x01"}, '{"at":"2026-01-02","raw":"0x01"}'),
        ([Decimal("1.50"), 0.1234567890123456789], '["1.50",0.12345678901234568]'),
        ("</script>\u2028é\ud800", '"\\u003c/script>\\u2028\\u00e9\\ud800"'),
        ({1: {2**60}}, '{"1":["1152921504606846976"]}'),
    ],
)
def test_answers_hold_what_a_browser_reads_as_it_was(value, text):
    assert to_json(value) == text.encode()


def test_hostile_text_cannot_end_a_script(client):
    _, _, body = client.raw("/api/rows?table=shop.customers", cookie=client.cookie)
    assert b"<" not in body
    assert shop.HOSTILE in json.dumps(json.loads(body))


def test_changes_are_told_while_one_looks(tmp_path):
    import http.client

    from tests.support.tables import make_table, rows
    from tests.ui.conftest import serving

    table = make_table(tmp_path / "w")
    with serving(tmp_path / "w") as server:
        client = Client(server)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/api/events?table=db.t", headers={"cookie": client.cookie})
        stream = connection.getresponse()
        assert json.loads(stream.readline().removeprefix(b"data: "))["changed"] == ["db.t"]
        table.append(rows(0, 3))
        lines = iter(stream.readline, b"")
        told = next(line for line in lines if line.startswith(b"data: "))
        assert json.loads(told.removeprefix(b"data: "))["changed"] == ["db.t"]
        connection.close()


def test_a_running_job_tells_its_state_and_how_far_it_is_behind(tmp_path):
    from anabranch.jobs.board import Board
    from anabranch.jobs.lease import Wanted
    from anabranch.jobs.status import Activity, JobStatus, State
    from anabranch.jobs.taking import take
    from anabranch.storage.open import open_storage
    from anabranch.ui.asked import Asked
    from anabranch.ui.site import Site
    from tests.support.tables import make_table, rows

    table = make_table(tmp_path / "w")
    for number in range(5):
        table.append(rows(number, 1))
    site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w")
    leases = take(Board(open_storage(site.lake.url)), [Wanted("clean", "clean", "db.clean")])
    status = JobStatus("clean", "db.clean", State.RUNNING, batch=7, activity=Activity.IDLE, read={"db.t": 2})
    leases.note([status])
    leases.beat()
    try:
        [told] = json.loads(to_json(ANSWERS["running"](site, Asked(()))))
    finally:
        leases.release()
    assert (told["job"], told["state"], told["batch"]) == ("clean", "idle", 7)
    assert told["behind"]["db.t"]["snapshots"] == 3


def test_a_database_or_a_table_that_cannot_be_read_takes_no_other_away(tmp_path, monkeypatch):
    from anabranch.ui.asked import Asked
    from anabranch.ui.site import Site

    lake = anabranch.connect(str(tmp_path / "w"))
    for name in ("a.t", "b.t", "c.t", "c.u", "c.v"):
        lake.create_table(name, "id BIGINT")
    for schema in (tmp_path / "w/c.db/t/schema/schema-0", tmp_path / "w/c.db/u/schema"):
        shutil.rmtree(schema) if schema.is_dir() else schema.unlink()
        schema.symlink_to(schema)
    scandir = os.scandir

    def without_rights(folder):
        if str(folder).endswith("b.db"):
            raise PermissionError(errno.EACCES, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", without_rights)
    site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w")
    found = ANSWERS["lake"](site, Asked([]))
    assert found["tables"] == ["a.t", "c.t", "c.u", "c.v"]
    (damage,) = found["damaged"]
    assert (damage.what, damage.hint[:13]) == ("database b", "Check who own"), damage
    facts = ANSWERS["facts"](site, Asked([("name", name) for name in found["tables"]]))
    assert {name for name, fact in facts.items() if "problem" in fact} == {"c.t", "c.u"}
    assert "The link leads in a circle" in facts["c.u"]["problem"]

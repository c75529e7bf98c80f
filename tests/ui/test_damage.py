"""Damaged files: each is named with the next step, and takes away nothing that can be read without it."""

import json
import os
import shutil
from dataclasses import dataclass, field

import pytest

import anabranch
from anabranch.audit import Checks
from anabranch.jobs.board import Board
from anabranch.jobs.lease import Wanted
from anabranch.jobs.status import Activity, JobStatus, State
from anabranch.jobs.taking import take
from anabranch.storage.open import open_storage
from tests.support.lengths import first_short
from tests.ui import shop
from tests.ui.browser import accessibility, browsing, fits, settle, show, visiting
from tests.ui.client import OF_TABLE, Client
from tests.ui.conftest import serving

T, GROUPED = "shop.orders", "shop.clean_orders"
ORDERS, CLEAN = "shop.db/orders", "shop.db/clean_orders"
MAIN = f"{ORDERS}/branch/branch-fix"
"""The branch that is main of the orders."""
ROWS = frozenset({"rows", "statistics", "diff", "health", "facts"})
"""What needs all that rows are read with."""
ORIGIN = frozenset({"lags", "producer"})
"""What lineage knows of one table, which it reads whole."""
NEWEST = ROWS | {"partitions", "lags", "producer", "trace", "correction"}
"""What is about the newest snapshot."""
WAYS = {"garbage": b"\x00{", "empty": b"", "array": b"[1]", "object": b"{}", "gone": None}


@dataclass(frozen=True)
class Case:
    file: str
    """What is damaged, in the warehouse."""
    refused: frozenset[str] = frozenset()
    """What cannot be answered without it, and says so."""
    told_by: tuple[str, ...] = ()
    """Answers that name it beside all else that they give."""
    old: bool = field(default=False)
    """Whether it was last written long ago."""


CASES = {
    "group": Case("groups/GROUP-1", told_by=("lake", "correction")),
    "decision of a group": Case("groups/GROUP-1.decided", told_by=("lake", "correction")),
    "copy of a decision": Case(f"{CLEAN}/branch/GROUP-1"),
    "tag": Case(f"{MAIN}/tag/tag-later", told_by=("table", "graph")),
    "tag of a correction": Case(
        f"{MAIN}/tag/tag-good", frozenset({"diff", "correction"}), ("table", "graph")
    ),
    "tag of a branch": Case(f"{ORDERS}/branch/branch-what-if/tag/tag-good", told_by=("graph",)),
    "tag of a former main": Case(f"{ORDERS}/tag/tag-good", told_by=("graph",)),
    "savepoint": Case(f"{ORDERS}/savepoint/savepoint-1", told_by=("table", "graph")),
    "record of a branch": Case(f"{ORDERS}/branch/branch-late/FORK", ORIGIN, ("graph",)),
    "schema of a branch": Case(f"{ORDERS}/branch/branch-late/schema/schema-1"),
    "merge": Case(f"{ORDERS}/branch/branch-late/MERGE-1", told_by=("graph",)),
    "end of a merge": Case(f"{ORDERS}/branch/branch-late/MERGE-1.done", told_by=("graph",)),
    "audit": Case(f"{ORDERS}/branch/branch-what-if/AUDIT-1", told_by=("graph",)),
    "record of a deleted branch": Case(f"{ORDERS}/branch/DELETED-", told_by=("graph",)),
    "replacement of main": Case(f"{ORDERS}/branch/MAIN-1"),
    "seal": Case(f"{ORDERS}/branch/SEAL-1", told_by=("table", "graph")),
    "copy of a replacement": Case(f"{ORDERS}/lineage/main-1"),
    "ids of fields": Case(f"{ORDERS}/branch/FIELD-IDS-1"),
    "first snapshot": Case(f"{MAIN}/snapshot/snapshot-1", told_by=("history", "graph", "health")),
    "snapshot in the middle": Case(f"{MAIN}/snapshot/snapshot-10", ORIGIN, ("history", "graph", "health")),
    "snapshot a branch began at": Case(
        f"{MAIN}/snapshot/snapshot-8", frozenset({"correction"}), ("history", "health")
    ),
    "snapshot of a former main": Case(f"{ORDERS}/snapshot/snapshot-11", ORIGIN, ("graph",)),
    "head of a former main": Case(f"{ORDERS}/snapshot/snapshot-14", ORIGIN, ("graph",)),
    "snapshot of a branch": Case(f"{ORDERS}/branch/branch-late/snapshot/snapshot-9", ORIGIN, ("graph",)),
    "newest snapshot": Case(f"{MAIN}/snapshot/snapshot-13", NEWEST, ("table", "history", "graph")),
    "schema in the past": Case(f"{MAIN}/schema/schema-1", ROWS, ("table", "schemas")),
    "newest schema": Case(f"{MAIN}/schema/schema-2", ROWS | {"partitions"}, ("table", "schemas")),
    "consumer": Case(f"{MAIN}/consumer/consumer-reader", told_by=("table", "graph", "health"), old=True),
    "job": Case("_jobs/clean/run-1", told_by=("running",)),
    "hint": Case(f"{MAIN}/snapshot/LATEST"),
    "database": Case("shop.db/.database"),
    "data file": Case(f"{ORDERS}/dt=2026-01-05/bucket-0/data-", frozenset({"rows"}), ("health", "facts")),
    "manifest": Case(f"{ORDERS}/manifest/", NEWEST - {"lags", "producer", "trace", "correction"}, ("table",)),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    url = tmp_path_factory.mktemp("damage") / "w"
    lake = shop.build(url)
    table = lake.table(T)
    table.create_tag("later")
    (url / MAIN / "consumer").mkdir(exist_ok=True)
    (url / MAIN / "consumer" / "consumer-reader").write_text('{"nextSnapshot": 3}')
    table.branch("what-if").audit(Checks.parse("checks:\n  - row_count: {min: 1}\n", name="some"))
    table.create_branch("gone", tag="good")
    table.delete_branch("gone")
    for name in (GROUPED, "shop.customers"):
        one = lake.table(name)
        if "checked" not in one.tags():
            one.create_tag("checked")
        one.create_branch("mend", tag="checked")
    lake.replace_group({GROUPED: "mend", "shop.customers": "mend"}, force=True, by="ada", reason="again")
    leases = take(Board(open_storage(lake.url)), [Wanted("clean", "clean", GROUPED)])
    status = JobStatus("clean", GROUPED, State.RUNNING, batch=7, activity=Activity.IDLE, read={T: 2})
    leases.note([status])
    leases.beat()
    yield url
    leases.release()


def damaged(whole, folder, case, content):
    """A copy of the lake in which one file is not as it was; the file."""
    shutil.copytree(whole, folder / "w")
    (file, *_) = sorted(folder.glob(f"w/{case.file}*"), key=lambda path: (len(path.name), path.name))
    if "manifest/" in case.file:  # the one that holds the files of the newest
        file = newest_manifest(folder / "w")
    elif "data-" in case.file:  # one of the newest, whose names are random
        live = [*anabranch.connect(str(folder / "w")).table(T).scan().plan().files["file_name"]]
        file = next(path for path in sorted(folder.glob(f"w/{case.file}*")) if path.name in live)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    if case.old and content is not None:
        os.utime(file, (1_000_000_000, 1_000_000_000))
    return file


def newest_manifest(url):
    table = anabranch.connect(str(url)).table(T)
    name = table.context.manifests.of_snapshot(table.snapshot)[-1].file_name
    return url / ORDERS / "manifest" / name


def answers(client):
    """Everything that the page asks for, by name: status and answer."""
    found = {what: client.get(what, table=T) for what in OF_TABLE}
    for what in ("lake", "running", "jobs", "lineage", "about", "progress"):
        found[what] = client.get(what)
    found["facts"] = client.get("facts", name=[T, GROUPED, "shop.revenue"])
    found["trace"] = client.get("trace", table=T, question="downstream")
    found["diff"] = client.get("diff", table=T, left="main@good", right="main")
    found["correction"] = client.get("correction", table=T, tag="good")
    found["table of a group"] = client.get("table", table=GROUPED)
    found["graph of a group"] = client.get("graph", table=GROUPED)
    return found


def check(found, case, file):
    refused = {what for what, (status, _) in found.items() if status != 200}
    assert refused <= case.refused, {what: found[what][1] for what in refused - case.refused}
    for what in refused:
        assert file.name in found[what][1]["message"], found[what]
        assert found[what][1]["hint"], found[what]
    for table, facts in found["facts"][1].items():
        assert "problem" not in facts or (table == T and "facts" in case.refused), facts


SHORT = ("group", "tag", "data file")


@pytest.mark.parametrize("name", first_short(sorted(CASES, key=lambda name: name not in SHORT), len(SHORT)))
def test_one_damaged_file_takes_away_only_what_needs_it(whole, tmp_path, name):
    case = CASES[name]
    file = damaged(whole, tmp_path, case, WAYS["garbage"])
    with serving(tmp_path / "w") as server:
        found = answers(Client(server))
    check(found, case, file)
    for what in case.told_by:
        assert names(found[what][1], file), (what, found[what])
    for one in [*found["table"][1]["damaged"], *found["graph"][1]["damaged"]]:
        assert one["command"] == f"anabranch verify {T}"
    for one in found["lake"][1]["damaged"]:
        assert "copy of the warehouse" in one["hint"]


@pytest.mark.long
@pytest.mark.parametrize("way", [way for way in WAYS if way != "garbage"])
@pytest.mark.parametrize("name", CASES)
def test_in_whatever_way_it_is_damaged(whole, tmp_path, name, way):
    case = CASES[name]
    file = damaged(whole, tmp_path, case, WAYS[way])
    with serving(tmp_path / "w") as server:
        found = answers(Client(server))
    if way != "gone":
        check(found, case, file)
        return
    for what, (status, value) in found.items():  # of what is gone not all is known: nothing may break
        assert status == 200 or value["error"] in ("CorruptTableError", "NotFoundError"), (what, value)
    assert {what for what, (status, _) in found.items() if status != 200} <= case.refused | NEWEST | {
        "table"
    } - {"facts"}


def names(answer, file):
    """Whether an answer says which file it is about."""
    text = json.dumps(answer)
    if file.name.startswith("snapshot-"):
        number = int(file.name.rpartition("-")[2])
        rows = answer.get("rows") if isinstance(answer, dict) else None
        is_line = any(row[0] == number and row[1] == "damaged" for row in rows or () if isinstance(row, list))
        nodes = answer.get("nodes", ()) if isinstance(answer, dict) else ()
        is_node = any(node["from"] == number and node["kinds"] == {"damaged": 1} for node in nodes)
        return is_line or is_node or file.name in text
    return (
        file.name in text
        or (file.parent.name == "consumer" and "reader" in text)
        or "record is damaged" in text
    )


@pytest.mark.long
def test_what_was_mended_is_whole_again(whole, tmp_path):
    """A page that has shown the damage goes on: nothing of it is kept."""
    case = CASES["snapshot in the middle"]
    file = damaged(whole, tmp_path, case, b"")
    head, tag = file.with_name("snapshot-13"), file.parents[1] / "tag" / "tag-later"
    stored = {path: path.read_bytes() for path in (head, tag)}
    with serving(tmp_path / "w") as server:
        client = Client(server)
        kinds = lambda: {row[0]: row[1] for row in client.get("history", table=T)[1]["rows"]}  # noqa: E731
        was = kinds()
        assert (len(was), was[10], was[11]) == (13, "damaged", "append")
        for path in stored:
            path.write_bytes(b"")
        assert kinds()[13] == "damaged"
        assert client.get("table", table=T)[1]["files"] is None
        for path, content in stored.items():
            path.write_bytes(content)
        file.write_bytes((whole / file.relative_to(tmp_path / "w")).read_bytes())
        assert "damaged" not in kinds().values()
        now = client.get("table", table=T)[1]
        assert (now["damaged"], [tag["name"] for tag in now["tags"]]) == ([], ["good", "later"])
        assert now["snapshot"]["id"] == 13


TABS = {
    "overview": "About the table",
    "history": "In this span",
    "branches": "What was done with branches",
    "columns": "Columns",
    "compare": "Compare",
}


@pytest.mark.long
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_the_page_names_what_is_damaged_and_goes_on(whole, tmp_path, width, dark):
    url = tmp_path / "w"
    shutil.copytree(whole, url)
    for file in (
        "groups/GROUP-1",
        f"{MAIN}/tag/tag-later",
        f"{MAIN}/snapshot/snapshot-10",
        f"{MAIN}/snapshot/snapshot-13",
    ):
        (url / file).write_bytes(b"")
    with (
        browsing() as browser,
        serving(url) as server,
        visiting(browser, server, width=width, dark=dark, excused="status of 500") as seen,
    ):
        alert = seen.get_by_role("alert")
        alert.filter(has_text="GROUP-1").wait_for()
        seen.get_by_role("link", name="shop.orders").wait_for()
        assert accessibility(seen) == []
        for tab, told in TABS.items():
            show(seen, f"#/table/{T}?tab={tab}")
            seen.get_by_text(told).first.wait_for()
            alert.filter(has_text="tag 'later'").first.wait_for()
            assert seen.get_by_text("tag 'later'").count() == 1, tab
            assert fits(seen), tab
            assert accessibility(seen) == [], tab
        words = alert.locator(".command code").first.inner_text()
        assert words.endswith(f"verify {T}")
        show(seen, f"#/table/{T}?tab=history&snapshot=10")
        seen.get_by_text("Its file cannot be read").wait_for()
        show(seen, f"#/table/{T}?tab=rows")
        alert.filter(has_text="snapshot-13").first.wait_for()
        seen.get_by_role("combobox", name="At").fill("good")
        seen.keyboard.press("Enter")
        settle(seen)
        seen.get_by_text("50 rows shown").wait_for()

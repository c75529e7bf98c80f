"""Files that are there and cannot be opened at all: links in a circle, folders in their place, folders that cannot be listed."""

import json
import os
import re
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
from anabranch.storage.local import LocalStorage
from anabranch.ui.answers import ANSWERS
from anabranch.ui.asked import Asked
from anabranch.ui.site import Site
from tests.support.lengths import first_short
from tests.ui.client import Client, caught_up
from tests.ui.conftest import serving

T = "d.t"
TABLE = "d.db/t"
BRANCH = f"{TABLE}/branch"
MAIN = f"{BRANCH}/branch-two"
"""The branch that is main."""
TABS = (
    *("table", "health", "schemas", "history", "rows", "partitions", "statistics", "sizes", "trend", "graph"),
    "snapshot",
)


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """A warehouse with a table whose main was replaced twice."""
    url = tmp_path_factory.mktemp("unreadable") / "w"
    lake = anabranch.connect(str(url))
    table = lake.create_table(T, "id BIGINT, v STRING")
    for number in range(3):
        table.append(rows(number).append_column("v", pa.array(["a"])))
    table.create_tag("good")
    for name in ("one", "two"):
        table.create_branch(name, tag="good")
        table.branch(name).append(rows(10).append_column("v", pa.array([name])))
        table.replace_main_branch(name, force=True)
    table.create_branch("mend", tag="good")
    table.create_savepoint()
    consumers = url / MAIN / "consumer"
    consumers.mkdir()
    (consumers / "consumer-reader").write_text('{"nextSnapshot": 3}')
    return url


@pytest.fixture
def hurt(twice, tmp_path):
    """Return a function that copies the warehouse, puts something in the place of files of it, and serves it."""

    def hurt(way, *files):
        shutil.copytree(twice, tmp_path / "w")
        for name in files:
            file = tmp_path / "w" / name
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink(missing_ok=True)
            if way == "circle":
                file.symlink_to(file.name)
            elif way == "folder":
                file.mkdir()
            else:
                file.write_bytes(b"\x00{")
        return serving(tmp_path / "w")

    return hurt


def tabs(client):
    found = {what: client.get(what, table=T, **({"id": 4} if what == "snapshot" else {})) for what in TABS}
    return {what: status for what, (status, _) in found.items()}, {
        w: value for w, (_, value) in found.items()
    }


@pytest.mark.parametrize("way", first_short(["circle", "folder", "garbage"]))
@pytest.mark.parametrize("files", [["MAIN-1"], ["MAIN-1", "../lineage/main-1"]])
def test_a_former_decision_about_main_stops_nothing_of_what_is_now(hurt, way, files):
    with hurt(way, *(f"{BRANCH}/{file}" for file in files)) as server:
        status, found = tabs(Client(server))
    assert {*status.values()} == {200}, found
    assert [row[:2] for row in found["history"]["rows"]] == [[number, "append"] for number in (4, 3, 2, 1)]
    assert sorted(row[0] for row in found["rows"]["rows"]) == ["0", "1", "10", "2"]
    assert ["10", "two"] in found["rows"]["rows"], "what the newest decision made main"
    if len(files) > 1:
        (told,) = [one for one in found["graph"]["damaged"] if "MAIN-1" in one["message"]]
        assert told["hint"]
        assert told["command"] == f"anabranch verify {T}"
        assert any("nothing expires" in finding["why"] for finding in found["health"]["findings"])


@pytest.mark.parametrize("way", first_short(["circle", "garbage"]))
def test_a_history_of_which_nothing_can_be_read_is_shown_as_damaged(hurt, twice, way):
    folders = {1: TABLE, 2: TABLE, 3: MAIN, 4: MAIN}
    snapshots = [f"{folder}/snapshot/snapshot-{number}" for number, folder in folders.items()]
    with hurt(way, *snapshots) as server:
        client = Client(server)
        status, found = tabs(client)
        assert [row[:2] for row in found["history"]["rows"]] == [[n, "damaged"] for n in (4, 3, 2, 1)]
        stored = [row[2] for row in found["history"]["rows"]]
        assert all(millis > 1_600_000_000_000 for millis in stored), "at the time of their files"
        assert not found["history"]["more"]
        assert {w for w, code in status.items() if code != 200} == {
            "health",
            "rows",
            "partitions",
            "statistics",
            "snapshot",
        }
        for what in ("health", "rows", "partitions", "statistics", "snapshot"):
            assert "snapshot-4" in found[what]["message"], found[what]
            assert found[what]["hint"]
        lanes = {lane["name"]: lane["own"] for lane in found["graph"]["lanes"]}
        assert lanes["main"] == 4
        assert {"main@1", "mend"} <= lanes.keys(), "the others are read"
        assert any("snapshot-4" in one["message"] for one in found["table"]["damaged"])
        for one in snapshots:
            file = Path(server.site.warehouse) / one
            file.unlink()
            shutil.copy2(twice / one, file)
        status, found = tabs(client)
        assert {*status.values()} == {200}
        assert [row[1] for row in found["history"]["rows"]] == ["append"] * 4


@pytest.mark.parametrize(
    ("way", "file", "where"),
    first_short(
        [
            ("circle", f"{BRANCH}/SEAL-1", ("table", "graph")),
            ("garbage", f"{BRANCH}/SEAL-2", ("table", "graph")),
            ("circle", f"{BRANCH}/RELEASE-1", ("table", "graph")),
            ("garbage", f"{BRANCH}/RELEASE-2", ("table", "graph")),
            ("garbage", f"{MAIN}/consumer/consumer-reader", ("table", "graph")),
            ("circle", f"{MAIN}/consumer/consumer-reader", ("table", "graph")),
            ("circle", f"{MAIN}/consumer", ("table", "graph", "health")),
            ("circle", f"{MAIN}/tag", ("table", "graph")),
            ("circle", f"{MAIN}/tag/tag-good", ("table", "graph")),
            ("circle", f"{TABLE}/savepoint", ("table", "graph")),
            ("circle", f"{TABLE}/savepoint/savepoint-1", ("table", "graph")),
            ("circle", f"{BRANCH}/branch-mend/FORK", ("graph",)),
            ("folder", f"{BRANCH}/branch-mend/FORK", ("graph",)),
            ("circle", f"{BRANCH}/branch-one/FORK", ("graph",)),
        ],
        4,
    ),
)
def test_what_cannot_be_opened_is_in_the_list_of_damage(hurt, way, file, where):
    with hurt(way, file) as server:
        status, found = tabs(Client(server))
    assert {what for what, code in status.items() if code != 200} <= {"health", "snapshot"} - {*where}, found
    for what in [what for what, code in status.items() if code != 200]:
        assert file in found[what]["message"]
        assert found[what]["hint"]
    for what in where:
        told = json.dumps(found[what]["findings" if what == "health" else "damaged"])
        assert file.rpartition("/")[2] in told or "consumer 'reader'" in told, (what, told)


@pytest.mark.long
def test_verify_goes_on_after_what_cannot_be_opened_and_repair_makes_it_again(hurt):
    """Of the record of the branch that is main too: it says who main is, so verifying and repairing had stopped at it."""
    with hurt("circle", f"{BRANCH}/branch-two/FORK", f"{BRANCH}/RELEASE-2", f"{MAIN}/tag/tag-good") as server:
        _, refused = Client(server).get("history", table=T)
        assert "branch-two/FORK" in refused["message"]
        assert "`repair`" in refused["hint"]
        assert "delete-branch" not in refused["hint"], "which refuses the branch that is main"
        table = anabranch.connect(server.site.warehouse).table(T)
        found = table.verify()
        named = {problem.path for problem in found.problems}
        assert {"branch/branch-two/FORK", "branch/RELEASE-2", "branch/branch-two/tag/tag-good"} <= named
        table.repair()
        assert sorted(
            anabranch.connect(server.site.warehouse).table(T).scan().to_arrow()["id"].to_pylist()
        ) == [*(0, 1, 2, 10)]
        status, _ = Client(server).get("history", table=T)
        assert status == 200
        left = {problem.path for problem in table.verify().problems}
        assert left == {"branch/branch-two/tag/tag-good"}, "which only somebody can give up"


def test_the_hint_about_a_branch_that_was_never_main_removes_it(hurt):
    with hurt("garbage", f"{BRANCH}/branch-mend/FORK") as server:
        _, found = Client(server).get("graph", table=T)
        (told,) = found["damaged"]
        assert f"delete-branch {T} --name mend`" in told["hint"]
        table = anabranch.connect(server.site.warehouse).table(T)
        table.delete_branch("mend")
        _, found = Client(server).get("graph", table=T)
        assert found["damaged"] == []


@pytest.mark.long
def test_lineage_goes_on_where_its_index_is_cut_or_overwritten_under_the_page(tmp_path):
    lake = anabranch.connect(str(tmp_path / "w"))
    for name in ("d.a", "d.b"):
        lake.create_table(name, "id BIGINT")
    with lake.job("first"):
        lake.table("d.a").append(rows(1))
    with lake.job("copy"):
        lake.table("d.b").append(lake.table("d.a").scan().to_arrow())
    index = tmp_path / "w/lineage/index.db"
    with serving(tmp_path / "w") as server:
        client = Client(server)

        def ask(what):
            status, found = client.get(what)
            assert status == 200, found
            return found

        wanted = caught_up(ask, "jobs")["jobs"]
        assert {job["name"] for job in wanted} == {"first", "copy"}
        _, trace = client.get("trace", table="d.b", question="upstream")
        size = index.stat().st_size
        for content in (b"", bytes(size), index.read_bytes()[: size // 2], b"no database" * 1_000):
            for what in ("jobs", "lineage", "trace"):
                with index.open("r+b") as file:
                    file.truncate(0)
                    file.write(content)
                if what == "trace":
                    assert client.get("trace", table="d.b", question="upstream") == (200, trace)
                else:
                    caught_up(ask, what)
                assert caught_up(ask, "jobs")["jobs"] == wanted, (what, len(content))


@pytest.mark.parametrize("what", first_short(["facts", "history", "table"]))
def test_a_table_that_is_moved_away_for_a_moment_is_not_said_to_be_damaged(
    twice, tmp_path, monkeypatch, what
):
    """At each request that an answer makes: there is no file of the table at that one, and all are at the next."""
    shutil.copytree(twice, tmp_path / "w")
    home, away = tmp_path / "w" / TABLE, tmp_path / "w/d.db/away"
    asked, moment, turn = 0, 10**9, threading.Lock()

    def at_each_request(method):
        def watched(self, path):
            nonlocal asked
            with turn:
                asked += 1
                if asked == moment:
                    home.rename(away)
                elif asked == moment + 1:
                    away.rename(home)
            return method(self, path)

        return watched

    for name in ("_target", "_folder"):
        monkeypatch.setattr(LocalStorage, name, at_each_request(getattr(LocalStorage, name)))

    def answer():
        nonlocal asked
        asked = 0
        site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w")
        try:
            return ANSWERS[what](site, Asked([("name" if what == "facts" else "table", T)]))
        except anabranch.NotFoundError as error:
            return error
        finally:
            if away.exists():
                away.rename(home)

    wanted = answer()
    for moment in range(1, asked + 1):
        found = answer()
        told = str(found.get("damaged", "") if what == "table" and isinstance(found, dict) else found)
        assert "verify" not in told, (moment, told)
        assert "repair" not in told, (moment, told)
        if what == "history" and isinstance(found, dict):
            assert [row[0] for row in found["rows"]] == [row[0] for row in wanted["rows"]], moment


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a link look like somebody else's")
def test_a_link_that_somebody_planted_in_a_table_shows_no_rows_and_takes_no_writes(tmp_path):
    lake = anabranch.connect(str(tmp_path / "w"))
    for name in ("d.private", "d.shared"):
        lake.create_table(name, "id BIGINT, p STRING", partition_by=["p"]).append(
            rows(42).append_column("p", pa.array(["a"]))
        )
    theirs, shared = tmp_path / "w/d.db/private", tmp_path / "w/d.db/shared"
    private = {file: file.read_bytes() for file in theirs.rglob("*") if file.is_file()}
    (planted,) = (shared / "p=a").rglob("*.parquet")
    (secret,) = (theirs / "p=a").rglob("*.parquet")
    planted.unlink()
    planted.symlink_to(secret)
    (shared / "p=b").symlink_to(theirs / "p=a")
    for link in (planted, shared / "p=b"):
        os.chown(link, 4321, 4321, follow_symlinks=False)
    with serving(tmp_path / "w") as server:
        status, found = Client(server).get("rows", table="d.shared")
        assert status == 500
        assert "that user 4321 made: it is not followed" in found["message"]
        assert found["hint"]
        assert not re.search(r"\b42\b", found["message"].replace(str(tmp_path), "")), (
            "an id of the table that it leads to"
        )
    table = anabranch.connect(str(tmp_path / "w")).table("d.shared")
    with pytest.raises(anabranch.StorageError, match="not followed"):
        table.append(rows(7).append_column("p", pa.array(["b"])))
    assert {file: file.read_bytes() for file in theirs.rglob("*") if file.is_file()} == private

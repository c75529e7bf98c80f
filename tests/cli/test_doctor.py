"""What `doctor` finds, in warehouses that are as they must be and in those that are not; it leaves nothing behind."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.doctor.machine import Examination, examine
from anabranch.runtime import SYSTEM, SystemClock
from anabranch.storage import open_storage
from tests.support.lengths import first_short
from tests.support.s3 import running_s3
from tests.support.s3_proxy import proxy_before


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def place(server, monkeypatch, tmp_path):
    """A warehouse with a table, and no settings but those that a test gives; what is in it is as before afterwards."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "ANABRANCH_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANABRANCH_CHECKPOINTS", str(tmp_path / "checkpoints"))
    url = server.new_url()
    anabranch.connect(url, options=server.options).create_table("db.t", "id INT")
    before = names_in(url, server.options)
    yield url
    assert names_in(url, server.options) == before
    assert not (tmp_path / "checkpoints").exists()


@pytest.fixture
def doctor(capsys):
    def call(warehouse, *words, code=0, options=None):
        given = [word for key, value in (options or {}).items() for word in ("--option", f"{key}={value}")]
        with mock.patch.dict(os.environ):  # which --option changes
            began = time.monotonic()
            assert run(["-w", str(warehouse), *given, "doctor", "--json", *words]) == code
            assert time.monotonic() - began < 10
        said = capsys.readouterr()
        assert said.err == ""
        assert "test-secret" not in said.out
        found = {one["name"]: one for one in json.loads(said.out)}
        assert all(one["remedy"] for one in found.values() if one["status"] != "ok")
        return found

    return call


def names_in(url, options):
    return sorted(
        info.path for info in open_storage(url, options).list(recursive=True, include_temporary=True)
    )


def statuses(found):
    """Of what concerns the warehouse."""
    return {
        name.partition(": ")[2]: one["status"]
        for name, one in found.items()
        if name.startswith("warehouse: ")
    }


def test_a_folder(doctor, tmp_path):
    lake = tmp_path / "lake"
    anabranch.connect(lake).create_table("db.t", "id INT")
    before = names_in(str(lake), {})
    found = doctor(lake)
    assert statuses(found) == dict.fromkeys(["list", "write", "read", "clock", "commit", "delete"], "ok")
    assert {"Python", "pyarrow", "warehouse", "checkpoints"} <= found.keys()
    assert names_in(str(lake), {}) == before


def test_a_folder_that_is_not_there_yet_is_not_made(doctor, tmp_path):
    found = doctor(tmp_path / "a" / "lake")
    assert statuses(found) == {"list": "missing"}
    assert list(tmp_path.iterdir()) == []
    assert statuses(doctor(tmp_path / "lake", "--read-only", code=1)) == {"list": "failed"}


def test_a_table_is_no_warehouse(doctor, tmp_path):
    anabranch.connect(tmp_path / "lake").create_table("db.t", "id INT")
    found = doctor(tmp_path / "lake" / "db.db" / "t", code=1)
    assert "is a table, not a warehouse" in found["warehouse: list"]["found"]


def test_checkpoints_that_cannot_be_kept(doctor, place, server, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setenv("ANABRANCH_CHECKPOINTS", str(tmp_path / "file" / "checkpoints"))
        found = doctor(place, options=server.options, code=1)
    assert "is no folder" in found["checkpoints"]["found"]
    assert "ANABRANCH_CHECKPOINTS" in found["checkpoints"]["remedy"]


@pytest.mark.s3
def test_an_object_store(doctor, place, server):
    found = doctor(place, options=server.options)
    assert statuses(found) == dict.fromkeys(["list", "write", "read", "clock", "commit", "delete"], "ok")
    assert f"s3.endpoint={server.endpoint}" in found["warehouse"]["found"]
    assert "s3.secret-key is given" in found["warehouse"]["found"]
    assert found["Hadoop's connector"]["status"] == "missing"
    assert "hadoop-aws" in found["Hadoop's connector"]["remedy"]


@pytest.mark.s3
@pytest.mark.parametrize(
    ("change", "cause", "remedy"),
    first_short(
        [
            ({"s3.secret-key": "other"}, "the secret key does not belong to the access key", "s3.secret-key"),
            ({"s3.access-key": "nobody"}, "the store does not know the access key", "s3.access-key"),
            ({"s3.endpoint": "http://127.0.0.1:1"}, "nobody listens at 127.0.0.1:1", "s3.endpoint"),
            ({"s3.endpoint": "http://no-such-host.invalid"}, "there is no host of the name", "s3.endpoint"),
        ]
    ),
)
def test_a_store_that_is_not_reached(doctor, place, server, change, cause, remedy):
    found = doctor(place, options={**server.options, **change}, code=1)
    assert statuses(found) == {"list": "failed"}
    assert cause in found["warehouse: list"]["found"]
    assert remedy in found["warehouse: list"]["remedy"]


def test_settings_that_are_none(doctor, tmp_path, monkeypatch):
    monkeypatch.setenv("ANABRANCH_S3_TIMEOUT", "soon")
    found = doctor("s3://bucket/lake", code=1)
    assert "s3.timeout is 'soon'" in found["warehouse"]["found"]


@pytest.mark.s3
def test_keys_that_may_only_read(doctor, place, server):
    options = {**server.options, "s3.access-key": server.reader_key}
    found = doctor(place, options=options, code=1)
    assert statuses(found) == {"list": "ok", "write": "failed", "read": "ok"}
    assert "the store does not allow it" in found["warehouse: write"]["found"]
    assert "doctor --read-only" in found["warehouse: write"]["remedy"]
    with proxy_before(server.endpoint) as proxy:
        found = doctor(place, "--read-only", options={**options, "s3.endpoint": proxy.endpoint})
        assert {method for method, _ in proxy.requests} <= {"GET", "HEAD"}
    assert statuses(found) == {"list": "ok", "read": "ok"}


@pytest.mark.s3
def test_a_store_that_lets_all_writers_win(doctor, place, server):
    with proxy_before(server.endpoint) as proxy:
        proxy.arrange("PUT", "-contested", times=9, instead=lambda path, body: None)
        found = doctor(place, options=server.options_through(proxy.endpoint), code=1)
    assert statuses(found)["commit"] == "failed"
    assert "If-None-Match" in found["warehouse: commit"]["remedy"]


@pytest.mark.s3
def test_a_store_that_removes_nothing(doctor, server, place):
    with proxy_before(server.endpoint) as proxy:
        for method in ("DELETE", "POST"):
            proxy.arrange(method, times=99, answer=403)
        found = doctor(place, options=server.options_through(proxy.endpoint), code=1)
    assert statuses(found)["delete"] == "failed"
    assert ".anabranch-doctor-" in found["warehouse: delete"]["remedy"]
    store = open_storage(place, server.options)
    store.delete_many([info.path for info in store.list() if ".anabranch-doctor-" in info.path])


class Late(SystemClock):
    """A clock that is 20 minutes behind."""

    def now_millis(self):
        return super().now_millis() - 20 * 60_000


def test_a_clock_that_is_wrong(tmp_path):
    anabranch.connect(tmp_path / "lake").create_table("db.t", "id INT")
    found = {
        c.name: c for c in examine(Examination(str(tmp_path / "lake")), runtime=replace(SYSTEM, clock=Late()))
    }
    assert found["warehouse: clock"].status == "warning"
    assert "1,200 s ahead of this machine's" in found["warehouse: clock"].found


def test_a_development_version_names_the_commit_that_runs(tmp_path):
    here = Path(__file__).parent
    said = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=here, check=False)
    found = {check.name: check for check in examine(Examination(str(tmp_path)))}["anabranch"].found
    known = ".dev" in anabranch.__version__ and said.returncode == 0
    assert found == anabranch.__version__ + (f" (commit {said.stdout[:12]})" if known else "")


def test_it_can_say_that_the_client_of_object_stores_is_missing():
    without = "import sys; sys.modules['obstore'] = None; import anabranch.doctor.machine"
    subprocess.run([sys.executable, "-c", without], check=True)

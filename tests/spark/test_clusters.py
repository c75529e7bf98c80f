"""Clusters of several processes: what is set up wrongly is told with its cause and the next step, before any task runs."""

import http.server
import json
import shutil
import subprocess
import sys
import threading
import time

import pytest

import anabranch.spark
from anabranch.cli.main import run as cli
from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.spark.deploy.start import check_local_folders
from tests.soak.soak import load
from tests.spark.elsewhere import ROOT, run
from tests.support.interpreters import can_be_blind, of_another_version, without_anabranch

TOLD = {
    "package": ("has no anabranch (", "--py-files"),
    "version": ("run anabranch 0.0.9 (", "PYTHONPATH"),
    "warehouse": ("do not see it", "s3://"),
    "state": ("job 'firsts' keeps state", "--checkpoint"),
    "size": ("has given no executor: none may be free", "web page"),
}
IN_TIME = 10
"""Seconds, times the load of the machine: by itself it takes 3 to 6, and 8 where no executor comes."""


def _running(folder, setting):
    """The words that run the jobs of a folder under a setting of Spark."""
    return ["-w", str(folder / "lake"), "run", str(folder / "jobs.py"), "--conf", setting]


@pytest.mark.parametrize(
    ("master", "cause"),
    [
        ("spark://127.0.0.1:1", "nobody listens at 127.0.0.1:1"),
        ("spark://no-such-host.invalid:7077", "there is no host of the name no-such-host.invalid"),
        ("spark://127.0.0.1", "'127.0.0.1' is not HOST:PORT"),
        ("spark://127.0.0.1:1,127.0.0.1:2", "nobody listens at 127.0.0.1:1; nobody listens at 127.0.0.1:2"),
    ],
)
def test_a_master_that_is_not_there(tmp_path, master, cause, capsys):
    began = time.monotonic()
    with pytest.raises(NotFoundError) as raised:
        anabranch.spark.session(str(tmp_path), master=master)
    assert cause in raised.value.message
    assert "spark://HOST:PORT" in raised.value.hint
    assert cli(["-w", str(tmp_path), "doctor", "--master", master, "--json"]) == 1
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert cause in found["Spark"]["found"]
    assert time.monotonic() - began < 10


def test_the_web_page_is_not_the_master(tmp_path, monkeypatch):
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    monkeypatch.setattr("anabranch.spark.deploy.start._WEB_PORTS", (server.server_address[1],))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.raises(NotFoundError, match="is a web page, the master listens at another port"):
            anabranch.spark.session(str(tmp_path), master=f"spark://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()


JOB = """
import anabranch

@anabranch.job("copies", sources={"events": "db.events"}, sink="db.copies")
def copies(events):
    return events
"""


@pytest.mark.parametrize("kind", ["absent", "another version", "without the package"])
def test_a_python_that_cannot_do_it_is_told_before_spark_starts(tmp_path, capsys, kind):
    match kind:
        case "absent":
            python, cause = (
                "/no/such/python",
                "Spark cannot start /no/such/python on this machine (No such file",
            )
        case "another version":
            python, cause = of_another_version(), f"and this is Python 3.{sys.version_info.minor}"
        case _:
            python, cause = without_anabranch(tmp_path / "bare"), "has no anabranch ("
    if python is None:
        pytest.skip("there is no other version of Python on this machine")
    (tmp_path / "jobs.py").write_text(JOB)
    began = time.monotonic()
    assert cli(_running(tmp_path, f"spark.pyspark.python={python}")) == 1
    said = capsys.readouterr().err
    assert cause in said
    assert "hint: " in said
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        (
            "spark.local.dir={file}/below",
            "Spark has no place for its files on this machine: spark.local.dir is {file}/below",
        ),
        pytest.param(
            "spark.driver.memory=much",
            "Spark's JVM did not start: Invalid maximum heap size",
            marks=[pytest.mark.spark, pytest.mark.long],
        ),
        pytest.param(
            "spark.executor.memory=much",
            "Spark's JVM did not start: Executor memory must be a positive number",
            marks=[pytest.mark.spark, pytest.mark.long],
        ),
    ],
)
def test_a_spark_that_does_not_start_tells_why(tmp_path, setting, cause, capfd, monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    (tmp_path / "jobs.py").write_text(JOB)
    file = str(tmp_path / "file")
    (tmp_path / "file").touch()
    # In a process of its own: this one may have a JVM already.
    words = _running(tmp_path, setting.format(file=file))
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 2, done.stderr
    assert cause.format(file=file) in done.stderr
    assert "--conf" in done.stderr


def test_one_place_of_several_is_enough(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'file' / 'below'},{tmp_path / 'made'}")
    check_local_folders({})
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "file"))
    with pytest.raises(InvalidInputError, match="SPARK_LOCAL_DIRS is"):
        check_local_folders({"spark.local.dir": str(tmp_path)})  # the variable counts


def troubles(folder, *names):
    """What was told of clusters that are set up so."""
    lines = run("tests.spark.cluster_troubles", folder, *names, log=folder / "log").splitlines()
    found = {
        one["name"]: one for one in map(json.loads, (line for line in lines if line.startswith('{"name"')))
    }
    assert found.keys() == {*names}
    return found


@pytest.mark.long
@pytest.mark.spark
def test_executors_without_the_package(tmp_path):
    told = troubles(tmp_path, "package")["package"]
    cause, hint = TOLD["package"]
    assert cause in told["message"]
    assert hint in told["hint"]


@pytest.mark.spark
@pytest.mark.long
def test_each_trouble_is_told_in_time(tmp_path):
    names = ["package", "version", "size"]
    if shutil.which("unshare") and can_be_blind():
        names += ["warehouse", "state"]
    found = troubles(tmp_path, *names)
    for name in names:
        told, (cause, hint) = found[name], TOLD[name]
        print(name, round(told["seconds"], 1), told["message"], told["hint"], told["log"])
        assert told["seconds"] < IN_TIME * load(), told
        assert cause in (told["message"] or ""), told
        assert hint in told["hint"], told
    assert "spark.executor.cores=2" in found["size"]["message"]

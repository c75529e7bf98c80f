"""Older code opens what this code wrote, goes on with it, and this code goes on after it.

The code is that of the commit which kept a release's warehouse, taken from the history of the repository; it runs in processes of
its own, and says what it finds by its own means.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch
from tests.compatibility.kept import FIRST, SECOND, rows_of, truth, unpack
from tests.compatibility.releases import RELEASES

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
JOBS = """
import anabranch


@anabranch.job("firsts", sources={"events": "db.events"}, sink="db.firsts")
def firsts(events):
    return events.dropDuplicates(["k"])


@anabranch.job("copies", sources={"events": "db.events"}, sink="db.copies")
def copies(events):
    return events
"""
READ = """
import json, sys, anabranch
from tests.compatibility.kept import truth
lake = anabranch.connect(sys.argv[1])
problems = [table for table in lake.tables("db") if not lake.table(f"db.{table}").verify().ok]
print(json.dumps([truth(lake), problems]))
"""
WORK = """
import sys, anabranch
lake = anabranch.connect(sys.argv[1])
table = lake.table("db.t")
with lake.job("load", code="older"):
    table.append([{"id": 6, "name": "d", "note": "older"}])
table.branch("side").append([{"id": 11, "name": "c", "note": None}])
table.merge_branch("side")
table.create_branch("next", "good")
table.branch("next").append([{"id": 12, "name": "a", "note": None}])
table.create_tag("by-older")
table.maintain()
"""


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, check=True).stdout


@pytest.fixture(params=RELEASES, ids=lambda archive: archive.name)
def older(request, tmp_path):
    """Runs Python with the code, and the tests, of the commit that kept a release."""
    try:
        words = ("log", "-1", "--diff-filter=A", "--format=%H", "--", str(request.param))
        commit = git(*words).decode().strip()
        packed = git("archive", commit, "src", "tests")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the history of the repository, which has the older code, is not there: {error}")
    tree = tmp_path / "older"
    tree.mkdir()
    subprocess.run(["tar", "-x", "-C", tree], input=packed, check=True)
    return lambda *words: python(tree, *words)


def python(tree, *words):
    """Run Python with the code of a tree; what it printed."""
    path = os.pathsep.join((str(tree / "src"), str(tree)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def of_this(*words):
    return python(ROOT, *words)


def run(by, place, jobs):
    """Let the jobs take what is there, as the command does: with leases, consumers and states."""
    confs = [
        word
        for conf in ("spark.ui.enabled=false", "spark.sql.shuffle.partitions=2")
        for word in ("--conf", conf)
    ]
    by("-m", "anabranch", "-w", place, "run", str(jobs), "--available-now", "--master", "local[2]", *confs)


def arrive(lake, rows):
    lake.table("db.events").append([{"k": k, "v": v} for k, v in rows])


def test_older_code_reads_what_newer_code_wrote_and_both_go_on(older, tmp_path):
    archive, jobs = tmp_path / "newer.tar.gz", tmp_path / "jobs.py"
    jobs.write_text(JOBS)
    of_this("-m", "tests.compatibility.kept", str(archive))
    folder, expected = unpack(archive, tmp_path / "newer")
    del expected["version"]
    place = str(folder)
    assert json.loads(older("-c", READ, place)) == [expected, []]

    lake = anabranch.connect(place)
    arrive(lake, [(4, 7)])
    run(of_this, place, jobs)
    arrive(lake, SECOND)
    run(older, place, jobs)
    older("-c", WORK, place)
    arrive(lake, [(6, 9), (1, 10)])
    run(of_this, place, jobs)

    given = [*FIRST, (4, 7), *SECOND, (6, 9), (1, 10)]
    assert sorted(k for k, _ in rows_of(lake.table("db.firsts"))) == sorted({k for k, _ in given})
    assert rows_of(lake.table("db.copies")) == sorted(map(list, given), key=repr)
    new = [[6, "d", "older"], [10, "c", "side"], [11, "c", None]]
    assert rows_of(lake.table("db.t")) == sorted([*expected["t"], *new], key=repr)
    assert rows_of(lake.table("db.t").at("good")) == expected["good"]
    assert rows_of(lake.table("db.t").branch("next")) == sorted(
        [*expected["good"], [12, "a", None]], key=repr
    )
    assert [table for table in lake.tables("db") if not lake.table(f"db.{table}").verify().ok] == []
    lake.lineage.rebuild()
    assert ["load", "older"] in [found[:2] for found in truth(lake)["lineage"][0]]
    assert json.loads(older("-c", READ, place)) == [json.loads(json.dumps(truth(lake))), []]

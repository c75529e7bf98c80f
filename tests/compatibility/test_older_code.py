"""Older code opens what this code wrote, goes on with it, and this code goes on after it.

The code is that of the commit which kept a release's warehouse, taken from the history of the repository; it runs in processes of
its own, and says what it finds by its own means.
"""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch
from tests.compatibility.kept import FIRST, SECOND, after, arrive, go_on, rows_of, truth, unpack
from tests.compatibility.releases import RELEASES

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
READ = """
import json, sys, anabranch
from tests.compatibility.kept import truth
lake = anabranch.connect(sys.argv[1])
problems = [table for table in lake.tables("db") if not lake.table(f"db.{table}").verify().ok]
print(json.dumps([truth(lake), problems]))
"""
WORK = f"""
import sys, anabranch

{inspect.getsource(go_on)}
go_on(anabranch.connect(sys.argv[1]), "older")
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


def run(by, place):
    """Let the kept jobs take what is there, as the command does: with leases, consumers and states."""
    confs = [
        word
        for conf in ("spark.ui.enabled=false", "spark.sql.shuffle.partitions=2")
        for word in ("--conf", conf)
    ]
    by(
        "-m",
        "anabranch",
        "-w",
        place,
        "run",
        "tests/compatibility/kept.py",
        "--available-now",
        "--master",
        "local[2]",
        *confs,
    )


def test_older_code_reads_what_newer_code_wrote_and_both_go_on(older, tmp_path):
    archive = tmp_path / "newer.tar.gz"
    of_this("-m", "tests.compatibility.kept", str(archive))
    folder, expected = unpack(archive, tmp_path / "newer")
    del expected["version"]
    place = str(folder)
    assert json.loads(older("-c", READ, place)) == [expected, []]

    lake = anabranch.connect(place)
    arrive(lake, [(4, 7)])
    run(of_this, place)
    arrive(lake, SECOND)
    run(older, place)
    older("-c", WORK, place)
    arrive(lake, [(6, 9), (1, 10)])
    run(of_this, place)

    given = [*FIRST, (4, 7), *SECOND, (6, 9), (1, 10)]
    assert sorted(k for k, _ in rows_of(lake.table("db.firsts"))) == sorted({k for k, _ in given})
    assert rows_of(lake.table("db.copies")) == sorted(map(list, given), key=repr)
    main, branch = after(expected, "older")
    assert rows_of(lake.table("db.t")) == main
    assert rows_of(lake.table("db.t").at("good")) == expected["good"]
    assert rows_of(lake.table("db.t").branch("next")) == branch
    assert [table for table in lake.tables("db") if not lake.table(f"db.{table}").verify().ok] == []
    lake.lineage.rebuild()
    assert ["load", "older"] in [found[:2] for found in truth(lake)["lineage"][0]]
    assert json.loads(older("-c", READ, place)) == [json.loads(json.dumps(truth(lake))), []]

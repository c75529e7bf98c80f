"""The demo, as a person runs it."""

import json
import os
import subprocess
import sys

import pytest

import anabranch
from anabranch.demo.story import run_demo
from anabranch.errors import InvalidInputError
from tests.support.clusters import standalone
from tests.support.s3 import running_s3


def test_a_folder_in_which_something_is_is_not_used(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(InvalidInputError, match="is not empty") as error:
        run_demo(keep=str(tmp_path), quiet=True)
    assert "--keep" in (error.value.hint or "")
    with pytest.raises(InvalidInputError, match="is no folder"):
        run_demo(keep=str(tmp_path / "mine.txt"), quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_warehouse_in_which_tables_are_is_not_used(tmp_path):
    place = (tmp_path / "w").as_uri()
    anabranch.connect(place).create_table("db.t", "id BIGINT")
    with pytest.raises(InvalidInputError, match="begins without"):
        run_demo(keep=place, quiet=True)


def told(*words, **environment):
    """The whole story in forty days; every fact holds in the end, and did not while the mistake was there."""
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", *words, "--days", "40", "--json"],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    for fact in found["facts"]:
        assert fact["found"] == pytest.approx(fact["expected"], rel=1e-9), fact["what"]
    assert found["wrong"]
    assert all(fact["found"] > 1.01 * fact["expected"] for fact in found["wrong"]), (
        "miles were taken for nautical ones"
    )
    assert found["answers"]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_whole_story_ends_well(tmp_path):
    told("demo", "--keep", str(tmp_path / "kept"))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.timeout(1800)
def test_the_whole_story_on_an_object_store_and_a_cluster(tmp_path):
    """On a real S3 server that Spark has no connector for; each program has two executors, which are on two hosts."""
    for folder in ("s3", "cluster", "tmp"):
        (tmp_path / folder).mkdir()
    with running_s3(tmp_path / "s3") as server, standalone(
        tmp_path / "cluster", ("127.0.0.1", "127.0.0.2"), cores=4, memory="4g"
    ) as master:  # fmt: skip
        url = server.new_url()
        options = [word for pair in server.options.items() for word in ("--option", "=".join(pair))]
        told(
            *options,
            "demo",
            "--keep",
            url,
            "--master",
            master,
            "--conf",
            "spark.driver.memory=900m",
            TMPDIR=str(tmp_path / "tmp"),
        )
        again = subprocess.run(
            [sys.executable, "-m", "anabranch", *options, "demo", "--keep", url], capture_output=True, text=True, check=False
        )  # fmt: skip
        assert again.returncode == 2, again.stderr
        assert "begins without" in again.stderr
        assert len(list((tmp_path / "cluster" / "work").glob("app-*/[01]"))) >= 8

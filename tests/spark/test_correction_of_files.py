"""Jobs that read files as they arrive, corrected from a tag: each file once, by the log of their former checkpoint."""

import json
import shutil
from pathlib import Path

import pytest

import anabranch
from anabranch.cascade import on_spark, plan_correction, run_correction
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.source import files
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule

COLUMNS = "id BIGINT NOT NULL, v BIGINT"
POLICY = Policy(most=0)


class Story:
    """Rows arrive in files of one row each; one job copies them, one sums them up, and one reads what the first made."""

    def __init__(self, spark, warehouse, folder):
        self.lake = anabranch.connect(warehouse, spark=spark)
        self.folder, self.arrived = Path(folder), 0
        self.folder.mkdir()
        self.checkpoints = Path(warehouse) / "_checkpoints"
        for table in ("db.out", "db.sums", "db.more"):
            self.lake.create_table(table, COLUMNS)

    def jobs(self, factor):
        arriving = files(str(self.folder), "json", schema=COLUMNS)

        def copy(arriving):
            return arriving.selectExpr("id", f"v * {factor} AS v")

        def firsts(arriving):
            return arriving.dropDuplicates(["id"]).selectExpr("id", f"v * {factor} AS v")

        def more(out):
            return out.selectExpr("id", "v + 1 AS v")

        return (
            job("copy", sources={"arriving": arriving}, sink="db.out")(copy),
            job("firsts", sources={"arriving": arriving}, sink="db.sums")(firsts),
            job("more", sources={"out": "db.out"}, sink="db.more")(more),
        )

    def feed(self, batches, factor):
        for _ in range(batches):
            self.arrived += 1
            # The second row comes with every file: only state tells that it is not new.
            lines = [{"id": self.arrived, "v": self.arrived}, {"id": 0, "v": 7}]
            (self.folder / f"f {self.arrived}.json").write_text("\n".join(map(json.dumps, lines)))
            statuses = run_jobs(self.jobs(factor), self.lake, Run(), Schedule(AVAILABLE_NOW, POLICY))
            assert {status.state.value for status in statuses} == {"ended"}, statuses

    def correct(self, table):
        return run_correction(self.lake, table, "good", self.jobs(1), runner=on_spark(policy=POLICY))

    def values(self, table):
        return sorted((row["id"], row["v"]) for row in self.lake.table(table).scan().to_arrow().to_pylist())

    def tag(self):
        for table in ("db.out", "db.sums"):
            self.lake.table(table).create_tag("good")


@pytest.fixture
def story(spark, warehouse, tmp_path):
    return Story(spark, warehouse, tmp_path / "in %20")


@pytest.mark.long
def test_each_file_is_read_once_after_a_log_that_was_compacted_since(story):
    """Twelve batches: Spark has joined the first ten entries of its log, and removed them some minutes later."""
    story.feed(3, 1)
    story.tag()
    story.feed(9, 900)
    for name in ("copy", "firsts"):
        log = story.checkpoints / name / "sources" / "0"
        assert (log / "9.compact").exists()
        for number in range(9):
            (log / str(number)).unlink()
    (step, below) = plan_correction(story.lake, "db.out", "good", story.jobs(1)).steps
    assert (step.problems, below.problems) == ((), ())
    assert [source.begins for source in step.jobs[0].sources] == ["after the files that it had read"]
    assert story.correct("db.out").group is not None
    found = story.correct("db.sums")
    assert found.group is not None
    assert found.statuses[0].begun.startswith("carried")
    story.feed(1, 1)  # the jobs go on with the new mains
    ids = range(1, 14)
    assert story.values("db.out") == sorted([(i, i) for i in ids] + [(0, 7)] * 13)
    assert story.values("db.more") == sorted([(i, i + 1) for i in ids] + [(0, 8)] * 13)
    assert story.values("db.sums") == [(0, 7), *((i, i) for i in ids)]


@pytest.mark.long
def test_it_is_refused_where_a_file_is_gone_or_nobody_knows_which_were_read(story):
    story.feed(2, 1)
    story.tag()
    story.feed(1, 900)
    wrong = story.values("db.out")
    read = story.folder / "f 3.json"
    read.rename(read.with_suffix(".gone"))
    (failed,) = story.correct("db.out").failed
    assert "files that it has read are not there to be read again: file:" in failed.message
    assert failed.message.rstrip(".").endswith(("f%203.json", "f 3.json"))
    read.with_suffix(".gone").rename(read)
    for number in (0, 1):
        (story.checkpoints / "copy" / "offsets" / str(number)).unlink()
    shutil.rmtree(story.checkpoints / "copy" / "anabranch" / "kept", ignore_errors=True)
    result = story.correct("db.out")
    assert result.waiting.table == "db.out"
    assert "which files it had read is not known any more" in result.waiting.problems[0]
    shutil.rmtree(story.checkpoints / "copy")
    (lost,) = run_jobs(story.jobs(1)[:1], story.lake, Run(), Schedule(AVAILABLE_NOW, POLICY))
    assert "which files it had read was in the checkpoint alone" in lost.message
    (failed,) = story.correct("db.out").failed
    assert "cannot go on after those that it had read at the point: the checkpoint" in failed.message
    assert story.values("db.out") == wrong
    assert story.lake.groups() == []


def test_files_that_are_gone_stop_a_job_that_reads_all_of_them_again(story):
    story.lake.table("db.out").append([{"id": 100, "v": 1}])
    story.lake.table("db.out").create_tag("good")
    story.feed(2, 900)
    (story.folder / "f 1.json").unlink()
    (failed,) = story.correct("db.out").failed
    assert "files that it has read are not there to be read again" in failed.message


@pytest.mark.long
def test_two_sources_of_files_in_one_job_are_not_told_apart(story, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.json").write_text('{"id": 50, "v": 50}')

    def both(factor):
        def union(a, b):
            return a.union(b).selectExpr("id", f"v * {factor} AS v")

        sources = {
            "a": files(str(story.folder), "json", schema=COLUMNS),
            "b": files(str(other), "json", schema=COLUMNS),
        }
        return job("both", sources=sources, sink="db.out")(union)

    story.feed(1, 1)
    for name in ("good", None):
        run_jobs([both(1 if name else 900)], story.lake, Run(), Schedule(AVAILABLE_NOW, POLICY))
        if name:
            story.lake.table("db.out").create_tag(name)
        (other / f"{name}.json").write_text('{"id": 51, "v": 51}')
    result = run_correction(story.lake, "db.out", "good", [both(1)], runner=on_spark(policy=POLICY))
    assert result.group is None
    assert "which of the sources a, b had read which files cannot be told" in result.waiting.problems[0]

"""Corrections of jobs that read files: each that was read for what is made again must be there to be read again."""

import json
import shutil

import pytest

from anabranch.cascade import CascadeOptions, run_correction
from anabranch.errors import InvalidInputError
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run, prepare
from anabranch.jobs.source import files
from anabranch.jobs.state.settle import settle
from anabranch.jobs.status import JobStatus, State
from anabranch.lineage.model import SourceInput
from tests.jobs.world import World
from tests.support.lengths import first_short

MAIN, OTHER, ASIDE = "load", "load@other", "load@@1"


class Story:
    """A job that reads files; its commits come after a tag that holds none of its rows."""

    def __init__(self, folder):
        self.world = World(folder / "wh", job="load")
        self.landing, self.checkpoints = folder / "in", folder / "wh" / "_checkpoints"
        self.landing.mkdir()
        self.world.orders.append([{"id": 100, "v": "by hand"}])
        self.world.orders.create_tag("good")
        self.logs = {}
        arriving = files(str(self.landing), "json", schema="id BIGINT")
        self.job = job("load", sources={"raw": arriving}, sink="db.orders")(lambda raw: raw)

    def read(self, query, *names, start=None):
        """Batches of a query, each of a new file."""
        for name in names:
            (self.landing / name).write_text("{}")
            self.logs.setdefault(query, []).append(name)
            end = {"logOffset": len(self.logs[query]) - 1}
            self.world.commit(
                SourceInput("files", "source 0", start, end, f"file:{self.landing}"), query=query
            )
            start = end

    def leave(self, query, place=MAIN, *, batches=None):
        """The checkpoint of a query, after all of its batches or the first ones."""
        folder = self.checkpoints / place
        for name in ("offsets", "commits", "sources/0"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": query}))
        for batch, name in list(enumerate(self.logs.get(query, [])))[:batches]:
            entry = {"path": f"file://{self.landing}/{name}", "timestamp": 1, "batchId": batch}
            (folder / f"sources/0/{batch}").write_text(f"v1\n{json.dumps(entry)}")
            about = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}}
            lines = ["v1", json.dumps(about), json.dumps({"logOffset": batch})]
            (folder / f"offsets/{batch}").write_text("\n".join(lines))
            (folder / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')

    def correct(self, **how):
        options = CascadeOptions(**how)
        return run_correction(self.world.lake, "db.orders", "good", [self.job], options, runner=as_started)


def as_started(load, lake, how):
    """What is settled before the query begins; no rows."""
    prepared = prepare(load, lake, how, None, is_batch=False)
    settle(prepared, None, None, None, lake, run=how)
    return [JobStatus(load.name, prepared.sink, State.ENDED)]


@pytest.fixture
def story(tmp_path):
    return Story(tmp_path)


@pytest.mark.parametrize("place", first_short([MAIN, ASIDE, "@copies/load/q1"]))
def test_the_log_of_the_query_that_wrote_says_whether_all_files_are_there(story, place):
    story.read("q1", "a", "b")
    story.leave("q1", place)
    (story.landing / "a").rename(story.landing / "c")
    with pytest.raises(InvalidInputError, match="not there to be read again: file:.*/a") as found:
        story.correct()
    assert "run the job on the branch yourself" in found.value.hint
    (story.landing / "c").rename(story.landing / "a")
    assert story.correct().group is not None


@pytest.mark.parametrize("batches", [None, 1], ids=["gone", "older"])
def test_where_that_log_is_gone_it_is_done_by_hand(story, batches):
    story.read("q1", "a", "b")
    if batches is not None:
        story.leave("q1", "@copies/load/q1", batches=batches)
    waiting = story.correct().waiting
    assert waiting.table == "db.orders"
    assert (
        "which files it had read is not known any more: there is no checkpoint with batch 1"
        in waiting.problems[0]
    )
    assert story.correct(by_hand=["db.orders"]).group is not None


def test_a_job_that_somebody_has_begun_on_the_branch_goes_on_there(story):
    story.read("q1", "a")
    story.leave("q1")
    (story.landing / "a").unlink()
    with pytest.raises(InvalidInputError, match="not there to be read again"):
        story.correct()
    (branch,) = story.world.orders.branches()
    as_started(story.job, story.world.lake, Run(branch))
    (story.checkpoints / f"load@{branch}" / "metadata").write_text('{"id": "q2"}')
    assert story.correct().group is not None


def test_a_log_that_is_lost_between_the_plan_and_the_start_stops_it(story):
    story.read("q1", "a")
    story.leave("q1")

    def late(load, lake, how):
        shutil.rmtree(story.checkpoints / MAIN)
        return as_started(load, lake, how)

    with pytest.raises(InvalidInputError, match="cannot be run again: which files it had read is not known"):
        run_correction(story.world.lake, "db.orders", "good", [story.job], runner=late)


def test_what_queries_read_that_wrote_nothing_there_does_not_matter(story):
    story.read("q1", "a")
    story.leave("q1")
    story.logs["q9"] = ["gone"]
    story.leave("q9", OTHER)
    assert story.correct().group is not None


@pytest.mark.parametrize(("start", "is_known"), [({"logOffset": 0}, True), (None, False)], ids=["on", "anew"])
def test_a_query_that_goes_on_after_another_one_has_its_log(story, start, is_known):
    story.read("q1", "a")
    story.read("q2", "b", start=start)
    story.leave("q2")
    assert (story.correct().group is not None) == is_known
    if not is_known:
        story.leave("q1", ASIDE)
        assert story.correct().group is not None


def test_what_another_query_read_after_the_tag_must_be_there_too(story):
    """The query that the tag has was lost, and another one went on with its log."""
    story.read("q1", "a")
    story.world.orders.replace_tag("good", snapshot=2)
    story.logs["q2"] = ["a"]
    story.read("q2", "b", start={"logOffset": 0})
    story.leave("q1", ASIDE)
    assert "there is no checkpoint with batch 0 of its query q2" in story.correct().waiting.problems[0]
    story.leave("q2")
    (story.landing / "a").unlink()  # its rows stay
    (story.landing / "b").rename(story.landing / "c")
    with pytest.raises(
        InvalidInputError,
        match="cannot go on after those that it had read.*not there to be read again: file:.*/b",
    ):
        story.correct()
    (story.landing / "c").rename(story.landing / "b")
    assert story.correct().group is not None

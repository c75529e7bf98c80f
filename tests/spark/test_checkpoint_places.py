"""Jobs and their corrections with the folder of checkpoints that is named for all three: run, correct and cascade."""

from pathlib import Path

import pytest

import anabranch
from anabranch.cascade import CascadeOptions, run_cascade, run_correction
from anabranch.errors import InvalidInputError
from anabranch.jobs.job import job
from anabranch.jobs.load import load
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from tests.support.lengths import first_short


@job("firsts", sources={"events": "db.events"}, sink="db.firsts")
def firsts(events):
    return events.dropDuplicates(["k"])


@job("counted", sources={"copies": anabranch.static("db.copies")}, sink="db.counts", mode="overwrite")
def counted(copies):
    return copies.selectExpr("count(*) AS k")


def copied(change="k"):
    @job("copies", sources={"firsts": "db.firsts"}, sink="db.copies")
    def copies(firsts):
        return firsts.selectExpr(f"{change} AS k")

    return copies


@pytest.fixture
def lake(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    for table in ("events", "firsts", "copies", "counts"):
        lake.create_table(f"db.{table}", "k BIGINT")
    return lake


@pytest.fixture
def job_file(tmp_path):
    """A file that declares the job `copies`, each time with another factor."""

    def declared(factor):
        file = tmp_path / "jobs.py"
        file.write_text(
            "import anabranch\n"
            f'anabranch.sql_job("copies", "SELECT k * {factor} AS k FROM firsts", '
            'sources={"firsts": "db.firsts"}, sink="db.copies")\n'
        )
        return load(file).jobs

    return declared


def run(lake, *jobs, **how):
    statuses = run_jobs(jobs, lake, Run(**how), Schedule(AVAILABLE_NOW))
    assert {status.state.value for status in statuses} == {"ended"}, statuses
    return {status.job: status.begun for status in statuses}


def keys(lake, table):
    return sorted(row["k"] for row in lake.table(table).scan().to_arrow().to_pylist())


@pytest.mark.parametrize(
    "named", first_short([{"checkpoints": "all"}, {"checkpoint": "all/firsts"}]), ids=["all", "one"]
)
def test_state_goes_from_main_to_a_correction_and_on_with_main_in_one_folder(lake, tmp_path, named):
    events, place = lake.table("db.events"), tmp_path / "all"
    named = {key: str(tmp_path / folder) for key, folder in named.items()}
    for number, ks in enumerate(([1, 2], [900])):
        events.append([{"k": k} for k in ks])
        run(lake, firsts, **named)
        if number == 0:
            lake.table("db.firsts").create_tag("good")
    made = lake.correct("db.firsts", from_tag="good", jobs=[firsts], **named, run=True)
    assert made.group is not None, made.failed or made.waiting
    (how,) = [status.begun for status in made.statuses if status.begun is not None][:1]
    assert how.startswith("carried"), how
    assert {"firsts", "firsts@correct-db.firsts-good"} <= {one.name for one in place.iterdir()}
    events.append([{"k": k} for k in (1, 2, 900, 3)])
    run(lake, firsts, **named)  # goes on where the correction was, with its state
    assert keys(lake, "db.firsts") == [1, 2, 3, 900]
    assert not (Path(lake.url.removeprefix("file://")) / "_checkpoints").exists()


@pytest.mark.long
@pytest.mark.parametrize("right", first_short(["mine", "new"]))
def test_a_single_checkpoint_is_named_for_a_correction_and_the_run_after_it(lake, tmp_path, right):
    """The one of main's job, whose code is corrected, or one that is named for the correction first."""
    copy, mine, place = copied("k * 900"), str(tmp_path / "mine"), str(tmp_path / right)
    lake.table("db.firsts").append([{"k": 1}])
    run(lake, copy, checkpoint=mine)
    lake.table("db.copies").create_tag("good")
    lake.table("db.firsts").append([{"k": 2}])
    run(lake, copy, counted, checkpoint=mine)  # a batch job has no checkpoint, so it is named for one
    right = copied("k * 2")
    made = lake.correct("db.copies", from_tag="good", jobs=[right, counted], checkpoint=place, run=True)
    assert made.group is not None, made.failed or made.waiting
    lake.table("db.firsts").append([{"k": 3}])
    run(lake, right, checkpoint=place)
    assert keys(lake, "db.copies") == [4, 6, 900]
    assert keys(lake, "db.counts") == [2]


def test_one_checkpoint_for_two_streams_is_refused(lake):
    with pytest.raises(InvalidInputError, match="one checkpoint is named for 2 jobs") as refused:
        run(lake, firsts, copied(), checkpoint="one")
    assert refused.value.hint.endswith("or choose one job with --job.")


@pytest.mark.long
def test_checkpoints_that_are_named_no_more_do_not_mix_the_rows_of_two_codes(lake, tmp_path, job_file):
    """The second run of a correction does not find the first one's checkpoints: its commits tell by which code they are."""
    lake.table("db.firsts").append([{"k": 1}])
    run(lake, *job_file(1))
    lake.table("db.copies").create_tag("good")
    lake.table("db.firsts").append([{"k": 2}])
    run(lake, *job_file(1))
    held = CascadeOptions(publish=False, checkpoints=str(tmp_path / "all"))
    assert run_correction(lake, "db.copies", "good", job_file(3), held).done == ("db.copies",)
    with pytest.raises(InvalidInputError, match="the code of job 'copies' is not that by which"):
        run_correction(lake, "db.copies", "good", job_file(2))
    lake.table("db.firsts").append([{"k": 4}])
    made = run_correction(
        lake, "db.copies", "good", job_file(3)
    )  # the same code goes on after its last commit
    assert made.group is not None, made.failed or made.waiting
    assert keys(lake, "db.copies") == [1, 6, 12]


@pytest.mark.long
def test_a_cascade_looks_for_the_state_of_main_there(lake, tmp_path):
    """Nothing holds the state of the fork, so it is caught up from the newest, which is where main's job has it."""
    events, place = lake.table("db.events"), str(tmp_path / "all")
    events.append([{"k": 1}])
    run(lake, firsts, checkpoints=place)
    events.create_tag("good")
    events.append([{"k": 900}])
    run(lake, firsts, checkpoints=place)
    events.create_branch("fix", "good")
    events.branch("fix").append([{"k": 2}])
    events.replace_main_branch("fix")
    made = run_cascade(lake, "db.events", [firsts], CascadeOptions(checkpoints=place))
    assert made.group is not None, made.failed or made.waiting
    (how,) = [status.begun for status in made.statuses]
    assert how.startswith("carried"), how
    events.append([{"k": 1}, {"k": 3}])
    run(lake, firsts, checkpoints=place)
    assert keys(lake, "db.firsts") == [1, 2, 3]

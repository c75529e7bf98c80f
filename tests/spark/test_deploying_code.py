"""New code of a job: what changed is told before anything starts, and a checkpoint that does not fit is refused with the way on."""

import json
import sys
from pathlib import Path

import pytest

import anabranch
from anabranch.cli.main import run as command
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from tests.support.lengths import first_short


@pytest.fixture
def lake(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark)
    for table in ("events", "others"):
        lake.create_table(f"db.{table}", "k BIGINT, v BIGINT")
    lake.create_table("db.sink", "k BIGINT, v BIGINT")
    return lake


def arrive(lake, *rows, table="events"):
    lake.table(f"db.{table}").append([{"k": k, "v": v} for k, v in rows])


def started(lake, declared, **how):
    """Run a job over what is there; how it ended, and all that was said of it."""
    told = []
    (status,) = run_jobs(
        [declared], lake, Run(**how), Schedule(AVAILABLE_NOW, Policy(most=0)), on_status=told.extend
    )
    return status, "; ".join(dict.fromkeys(one.message for one in told if one.message))


def rows_of(lake):
    return sorted((one["k"], one["v"]) for one in lake.table("db.sink").scan().to_arrow().to_pylist())


def declare(function, **sources):
    return job("j", sources=sources or {"events": "db.events"}, sink="db.sink")(function)


def plain(events):
    return events


def filtered(events):
    return events.where("v > 0")


def firsts(events):
    return events.dropDuplicates(["k"])


def firsts_filtered(events):
    return events.where("v > 0").dropDuplicates(["k"]).selectExpr("k", "v + 100 AS v")


def firsts_of_both(events):
    return events.dropDuplicates(["k", "v"])


def both(events, others):
    return events.union(others)


def test_code_that_fits_goes_on_and_the_change_is_told(lake):
    arrive(lake, (1, 1), (2, -1))
    started(lake, declare(plain))
    assert started(lake, declare(plain))[1] == ""
    arrive(lake, (3, 3), (4, -4))
    status, said = started(lake, declare(filtered))
    assert status.state.value == "ended", status
    assert said == "what the job does has changed"
    assert rows_of(lake) == [(1, 1), (2, -1), (3, 3)]
    assert started(lake, declare(filtered))[1] == ""


@pytest.mark.long
def test_a_filter_below_an_operator_with_state_keeps_the_state(lake):
    arrive(lake, (1, 1))
    started(lake, declare(firsts))
    arrive(lake, (1, 5), (2, -2), (3, 3))
    status, said = started(lake, declare(firsts_filtered))
    assert status.state.value == "ended", status
    assert "what the job does has changed" in said
    assert rows_of(lake) == [(1, 1), (3, 103)]


@pytest.mark.parametrize(
    ("before", "after", "sources", "said"),
    first_short(
        [
            (firsts, firsts_of_both, {}, "its operators with state (Deduplicate) have other keys or results"),
            (plain, firsts, {}, "its operators with state are Deduplicate, were none"),
            (firsts, plain, {}, "its operators with state are none, were Deduplicate"),
            (
                plain,
                both,
                {"events": "db.events", "others": "db.others"},
                "source 'others' (table db.others) is new",
            ),
        ]
    ),
)
def test_what_does_not_fit_is_refused_and_renewed(lake, before, after, sources, said):
    arrive(lake, (1, 1), (2, 2))
    started(lake, declare(before))
    written = rows_of(lake)
    arrive(lake, (1, 7), (3, 3))
    arrive(lake, (8, 8), table="others")
    status, _ = started(lake, declare(after, **sources))
    assert status.state.value == "failed"
    assert said in status.message
    assert "--renew j" in status.hint
    assert rows_of(lake) == written
    status, _ = started(lake, declare(before))
    assert status.state.value == "ended", "the old code still goes on"
    held = rows_of(lake)
    status, told = started(lake, declare(after, **sources), renew=["j"])
    assert status.state.value == "ended", status
    assert "goes on after its last commit" in told
    added = [(8, 8)] if sources else []
    assert rows_of(lake) == sorted([*held, *added])
    aside = Path(lake.url.removeprefix("file://")) / "_checkpoints" / "j@@1"
    assert (aside / "metadata").exists()
    arrive(lake, (9, 9))
    assert started(lake, declare(after, **sources))[0].state.value == "ended"
    assert (9, 9) in rows_of(lake)


@pytest.mark.long
def test_a_source_in_place_of_another_is_read_from_its_beginning_on_purpose_only(lake):
    arrive(lake, (1, 1))
    started(lake, declare(plain))
    arrive(lake, (8, 8), table="others")
    other = declare(plain, events="db.others")
    status, _ = started(lake, other)
    assert "source 'events' is table db.others, was table db.events" in status.message
    status, _ = started(lake, other, renew=["j"])
    assert "--start-anew j" in status.hint
    arrive(lake, (2, 2))
    assert started(lake, declare(plain))[1] == "", "its checkpoint is where it was"
    assert started(lake, other, renew=["j"], start_anew=["j"])[0].state.value == "ended"
    assert rows_of(lake) == [(1, 1), (2, 2), (8, 8)]


@pytest.mark.long
def test_a_lost_place_is_made_good_as_the_hint_says(lake):
    arrive(lake, (1, 1))
    started(lake, declare(filtered))
    for number in range(2, 9):
        arrive(lake, (number, number))
    lake.table("db.events").expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    status, _ = started(lake, declare(filtered))
    assert status.state.value == "failed"
    assert "has expired" in status.message
    command = status.hint.partition("(in Python: ")[2].partition(") and")[0]
    eval(command, {"lake": lake})
    assert "--renew j: it makes all rows again" in status.hint
    assert started(lake, declare(filtered), renew=["j"])[0].state.value == "ended"
    assert rows_of(lake) == [(n, n) for n in range(1, 9)]


FILE = """
import anabranch

@anabranch.job("j", sources={"events": "db.events"}, sink="db.sink")
def j(events):
    return events.BODY
"""


@pytest.mark.long
def test_a_dry_run_tells_it_and_writes_nothing(lake, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    from anabranch.jobs import command as service

    class Session:
        def __enter__(self):
            return lake.spark

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(service, "local_spark", lambda *_, **__: Session())
    file = tmp_path / "jobs.py"

    def dry(body, *words):
        file.write_text(FILE.replace("BODY", body))
        code = command(["-w", lake.url, "run", str(file), "--dry-run", "--json", *words])
        (found,) = json.loads(capsys.readouterr().out)
        return code, found

    arrive(lake, (1, 1))
    assert dry('dropDuplicates(["k"])')[1]["changes"] == ["it begins as it is declared"]
    from anabranch.jobs.load import load

    (declared,) = load(file).jobs
    started(lake, declared)
    before = files(tmp_path)
    assert dry('dropDuplicates(["k"])')[:1] == (0,)
    code, found = dry('where("v > 1").dropDuplicates(["k"])')
    assert (code, found["fits"]) == (0, True)
    assert "what the job does has changed" in found["changes"]
    code, found = dry('dropDuplicates(["v"])')
    assert (code, found["fits"]) == (1, False)
    assert "its operators with state (Deduplicate) have other keys or results" in found["changes"]
    assert "--renew j" in found["hint"]
    assert dry('dropDuplicates(["v"])', "--renew", "j")[0] == 0
    assert files(tmp_path) == before


def files(folder):
    return {str(one) for one in folder.rglob("*") if "__pycache__" not in one.parts}

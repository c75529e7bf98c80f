"""What only main has: listed job by job by `branches`, `diff`, a dry run of the replacement, and a system table."""

import itertools
import json

import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.errors import CommitConflictError
from tests.branches.replace_streams import caught_up, commit
from tests.support.tables import ids_of, rows

_names = itertools.count()


@pytest.fixture
def lake(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    lake.create_database("db", if_not_exists=True)
    for name in ("raw", "other", "t"):
        lake.create_table(f"db.{name}", "id BIGINT NOT NULL, v STRING").append(rows(0, 2))
    return lake


def follow(lake, job, source, branch="main", consumer=None):
    """A run of a Python job that reads on in a table and appends what is new to a branch of `db.t`."""
    sink = lake.table("db.t").branch(branch)
    with lake.job(job):
        for batch in lake.table(source).tail(consumer or f"{job}-{branch}", idle=0):
            sink.append(batch)


def backfill(lake, branch="main"):
    with lake.job("nightly"):
        lake.table("db.t").branch(branch).append(lake.table("db.other").scan().to_arrow())


@pytest.fixture
def table(lake):
    """Main and `fix` parted after `clean` had read `raw` once; then each kind of commit came to main, `clean` to both."""
    table = lake.table("db.t")
    follow(lake, "clean", "db.raw")
    table.create_tag("good")
    table.create_branch("fix", "good")
    lake.table("db.raw").append(rows(10, 1))
    follow(lake, "clean", "db.raw")
    follow(lake, "clean", "db.raw", "fix")
    backfill(lake)
    table.append(rows(500, 3))
    follow(lake, "second", "db.other")
    backfill(lake)
    table.compact(full=True)
    return table


def listed(jobs):
    return [
        (job.job, [c.snapshot for c in job.commits], job.rows, [c.why for c in job.commits]) for job in jobs
    ]


def test_everybody_who_asks_is_told_the_same_job_by_job(table):
    fork = table.branch_infos()[1].fork_snapshot
    expected = [
        ("nightly", [fork + 2, fork + 5], 4, ["job", "job"]),
        (None, [fork + 3], 3, ["origin"]),
        ("second", [fork + 4], 2, ["source"]),
    ]
    assert listed(table.only_on_main("fix")) == expected
    assert listed(table.branch_infos()[1].only_on_main) == expected
    assert listed(table.diff("main", "fix").only_on_main) == expected
    assert listed(table.diff("fix", "main").only_on_main) == expected
    assert listed(table.replace_main_branch("fix", dry_run=True).jobs_only_on_main) == expected
    told = table.system("only_on_main").to_pylist()
    assert [(o["branch_name"], o["job"], o["snapshot_id"], o["record_count"]) for o in told] == [
        ("fix", "nightly", fork + 2, 2),
        ("fix", "nightly", fork + 5, 2),
        ("fix", None, fork + 3, 3),
        ("fix", "second", fork + 4, 2),
    ]
    assert told[0]["bring"].endswith("`anabranch run FILE --branch fix`")
    assert table.system("branches").column("only_on_main").to_pylist() == [4]
    with pytest.raises(CommitConflictError) as refused:
        table.replace_main_branch("fix", wait=True)
    assert [c.kind for c in refused.value.conflicts] == ["ONLY_ON_MAIN", "POSITIONS_UNKNOWN", "ONLY_ON_MAIN"]
    assert "of which the branch reads nothing" in refused.value.conflicts[2].message
    assert "db.other" in refused.value.conflicts[2].message


@pytest.mark.parametrize(
    "verb", [["branches"], ["diff", "main..fix"], ["replace-main-branch", "-n", "fix", "--dry-run"]]
)
def test_the_command_line_says_it(table, tmp_path, capsys, verb):
    def call(*more):
        assert run(["-w", str(tmp_path), verb[0], "db.t", *verb[1:], *more]) == 0
        return capsys.readouterr().out

    said = " ".join(call().split())
    assert "only main has snapshots 4, 7 by job 'nightly', +4 rows: the branch does not run that job" in said
    assert "only main has snapshot 5, +3 rows: it does not say what it read" in said
    assert verb[0] == "branches" or f"`anabranch -w {tmp_path} append db.t FILE --branch fix`" in said
    told = json.loads(call("--json"))
    found = told[1] if isinstance(told, list) else told
    jobs = found.get("jobs_only_on_main", found["only_on_main"])
    assert [(j["job"], [c["snapshot"] for c in j["commits"]]) for j in jobs] == [
        ("nightly", [4, 7]),
        (None, [5]),
        ("second", [6]),
    ]


def test_it_goes_off_the_list_when_the_branch_has_it(lake, table):
    backfill(lake, "fix")
    follow(lake, "second", "db.other", "fix")
    assert [job.job for job in table.only_on_main("fix")] == [None]


def test_what_was_taken_back_is_not_there(table):
    table.rollback(f"snapshot.{table.branch_infos()[1].fork_snapshot + 2}")
    assert [job.job for job in table.only_on_main("fix")] == ["nightly"]
    assert [len(job.commits) for job in table.only_on_main("fix")] == [1]


def test_expired_commits_are_still_named(lake, table):
    before = listed(table.only_on_main("fix"))
    table.expire_snapshots(retain_max=2, retain_min=1, older_than="9999-01-01")
    assert len(list(table.snapshots())) <= 3
    assert listed(lake.table("db.t").only_on_main("fix")) == before


def test_what_main_has_from_the_branch_is_not_missing_there(lake, table):
    table.branch("fix").append(rows(900, 1))
    table.merge_branch("fix", allow_source_overlap=True)
    jobs = table.only_on_main("fix")
    assert [job.job for job in jobs] == ["nightly", None, "second"]
    table.replace_main_branch("fix", mode="commit")
    assert lake.table("db.t").only_on_main("fix") == ()


def test_what_came_from_another_branch_is_merged_rather_than_dropped(lake, table):
    table.create_branch("more", "good")
    backfill(lake, "more")
    table.merge_branch("more")
    (found,) = [job for job in table.only_on_main("fix") if job.job == "merge-branch more"]
    assert "merge-branch db.t --name fix" in found.bring


def test_a_stream_that_the_branch_reads_as_well_is_only_behind():
    assert caught_up([25]).only_on_main("fix") == ()
    assert caught_up([]).only_on_main("fix") == (), "its job may have yet to make a commit"


def test_rows_that_a_rollback_took_from_the_branch_have_not_been_read():
    """Today's waiting took them as read, and put a branch in place that lacks them."""
    table = caught_up([30, 40])
    fix = table.branch("fix")
    fix.rollback("snapshot.3")
    with pytest.raises(CommitConflictError, match="1 commits behind main"):
        table.replace_main_branch("fix", wait="1 s")


def test_rows_that_a_rollback_took_from_main_are_not_waited_for():
    table = caught_up([30], main_ends=(30, 40, 50))
    table.rollback("snapshot.3")
    table.replace_main_branch("fix", wait="1 s")
    assert ids_of(table) == [0, 1, 2, 3, 4, 5, 2030]


def test_a_stream_of_main_that_does_not_run_on_the_branch_is_named():
    table = caught_up([25, 40])
    commit(table, 3000, 1, None, 7, topic="returns")
    (found,) = table.only_on_main("fix")
    assert (found.job, found.commits[0].source) == ("job", "topic returns")

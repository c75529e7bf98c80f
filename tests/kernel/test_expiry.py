"""Expiring snapshots: which go, which files go with them, and what keeps either."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import (
    CorruptTableError,
    InvalidInputError,
    UnsupportedFeatureError,
)
from anabranch.format.records.refs import Consumer
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.actions.append import Append
from anabranch.kernel.expiry.retention import Retention
from anabranch.kernel.provenance.job_states import JobState, KeptState, record_job_state
from tests.kernel.expiring import fill, ids, new_table, through
from tests.support.canonical import canonical_rows, digest
from tests.support.clock import DAY, HOUR, MINUTE, START, Clock
from tests.support.faults import run
from tests.support.lengths import first_short
from tests.support.reached import reached_paths, stored_paths
from tests.support.tables import ids_of, make_table


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(clock):
    return new_table(clock)


# Which snapshots go


def snapshots(*times):
    """Snapshots 1, 2, ... that were made at these times."""
    return [
        Snapshot(
            id=number,
            schema_id=0,
            base_manifest_list="b",
            delta_manifest_list="d",
            commit_user="u",
            commit_identifier=1,
            commit_kind=CommitKind.APPEND,
            time_millis=time,
        )
        for number, time in enumerate(times, 1)
    ]


@pytest.mark.parametrize(
    ("times", "retention", "unread", "expected"),
    [
        ((), {}, None, 0),
        ((1,), {}, None, 0),
        # A snapshot is as old as the one after it is young.
        ((1, 2, 3, 4, 5), {"replaced_before": 3}, None, 2),
        ((1, 2, 3, 4, 5), {"replaced_before": 0}, None, 0),
        ((1, 9, 9, 9, 9), {"replaced_before": 8}, None, 0),
        # Two stay in any case.
        ((1, 2, 3, 4, 5), {"replaced_before": 9}, None, 3),
        ((1, 2, 3, 4, 5), {"replaced_before": 9, "at_least": 4}, None, 1),
        ((1, 2, 3, 4, 5), {"at_most": 3}, None, 2),
        ((1, 2, 3, 4, 5), {"at_most": 1}, None, 3),
        ((1, 2, 3, 4, 5), {"at_most": 9}, None, 0),
        # Too many go whatever their age, unless they are in their grace.
        ((1, 2, 3, 4, 5), {"at_most": 2, "in_grace_since": 2}, None, 1),
        ((1, 2, 3, 4, 5), {"replaced_before": 9, "in_grace_since": 2}, None, 1),
        ((1, 2, 3, 4, 5), {"at_most": 4, "replaced_before": 3}, None, 2),
        # Clocks that went backwards: the first that is too young ends it.
        ((1, 9, 2, 3, 4), {"replaced_before": 5}, None, 0),
        ((1, 2, 3, 4, 5), {"replaced_before": 9, "limit": 2}, None, 2),
        ((1, 2, 3, 4, 5), {"replaced_before": 9, "limit": 0}, None, 0),
        ((1, 2, 3, 4, 5), {"replaced_before": 9}, 3, 2),
        ((1, 2, 3, 4, 5), {"replaced_before": 9}, 1, 0),
        ((1, 2, 3, 4, 5), {"at_most": 2}, 2, 1),
        ((1, 2, 3, 4, 5), {"replaced_before": 9}, 77, 3),
    ],
)
def test_what_is_due(times, retention, unread, expected):
    chosen = Retention(**{"at_least": 1, "at_most": 10**6, "replaced_before": 0, **retention})
    due = chosen.due(snapshots(*times), unread)
    assert [snapshot.id for snapshot in due] == [*range(1, expected + 1)]


def test_the_newest_ten_stay_and_what_is_younger_than_an_hour(table, clock):
    fill(table, 30, clock=clock)
    clock.now = START + 75 * MINUTE
    done = table.expire_snapshots()
    # Snapshot n + 1, which replaced snapshot n, was made n minutes after the start.
    assert done.snapshots == tuple(range(1, 16))
    assert ids(table) == [*range(16, 31)] == [*range(31 - done.left, 31)]
    clock.now += DAY
    assert table.expire_snapshots().snapshots == tuple(range(16, 21))
    assert ids_of(table) == [*range(1, 31)]


@pytest.mark.parametrize(
    ("options", "how", "left"),
    [
        ({}, {}, 20),
        ({}, {"retain_max": 5}, 5),
        ({}, {"retain_max": 1}, 2),
        ({}, {"retain_max": 5, "retain_min": 3}, 5),
        ({}, {"older_than": "10 min"}, 11),
        ({}, {"older_than": "2 min"}, 10),
        ({}, {"older_than": "2 min", "retain_min": 4}, 4),
        ({}, {"older_than": START + 9 * MINUTE}, 11),
        ({}, {"older_than": "2023-11-14 22:22:20"}, 11),
        ({}, {"older_than": "2 min", "retain_max": 15}, 10),
        ({"snapshot.num-retained.max": "7"}, {}, 7),
        ({"snapshot.num-retained.max": "7", "snapshot.num-retained.min": "3"}, {"older_than": "2 min"}, 3),
        ({"snapshot.num-retained.max": "7"}, {"retain_min": 12}, 12),
        ({"snapshot.time-retained": "5 min"}, {}, 10),
        ({"snapshot.time-retained": "5 min", "snapshot.num-retained.min": "2"}, {}, 6),
        ({"snapshot.num-retained.max": "7", "anabranch.expire-grace": "15 min"}, {}, 16),
        ({"anabranch.expire-grace": "15 min"}, {"retain_max": 2}, 16),
    ],
)
def test_options_and_arguments(clock, options, how, left):
    table = new_table(clock, **options)
    fill(table, 20, clock=clock)
    clock.now -= MINUTE  # when the newest was made
    dry = table.expire_snapshots(**how, dry_run=True)
    assert ids(table) == [*range(1, 21)]
    done = table.expire_snapshots(**how)
    assert ids(table) == [*range(21 - left, 21)]
    assert done.left == left
    assert dry == replace(done, dry_run=True, files=dry.files)
    assert dry.files.equals(done.files)


@pytest.mark.parametrize(
    "how", [{"retain_max": 0}, {"retain_min": 0}, {"retain_max": 3, "retain_min": 5}, {"older_than": "soon"}]
)
def test_arguments_that_mean_nothing(table, how):
    fill(table, 8)
    with pytest.raises(InvalidInputError):
        table.expire_snapshots(**how)
    assert ids(table) == [*range(1, 9)]


def test_a_table_without_snapshots_has_none_to_expire(table):
    assert table.expire_snapshots(retain_max=1).snapshots == ()


# What goes with them


def test_files_that_were_replaced_go_and_nothing_else(table):
    fill(table, 12, overwrite=True)
    fill(table, 3)
    before = stored_paths(table)
    dry = table.expire_snapshots(retain_max=3, dry_run=True)
    assert stored_paths(table) == before
    done = table.expire_snapshots(retain_max=3)
    assert stored_paths(table) == before - set(done.files["path"]) == reached_paths(table)
    assert done.removed["data"].files == 11
    assert done.removed["manifest-list"].files == 2 * 12
    assert done.removed == dry.removed
    assert done.held == {}
    assert ids_of(table) == [12, 13, 14, 15]
    assert done.removed["data"].bytes > 11 * 100


def test_a_file_is_told_once(table):
    fill(table, 8, overwrite=True)
    told = []
    for kept in (6, 5, 2):
        before = stored_paths(table)
        dry = table.expire_snapshots(retain_max=kept, dry_run=True)
        done = table.expire_snapshots(retain_max=kept)
        assert set(done.files["path"]) == set(dry.files["path"]) <= before
        told += done.files["path"].to_list()
    assert len(told) == len(set(told))


def test_tags_and_savepoints_keep_their_files_but_not_their_snapshots(table):
    fill(table, 3, overwrite=True)
    table.create_tag("good", 2)
    fill(table, 3, overwrite=True)
    table.create_savepoint(5)
    fill(table, 6, overwrite=True)
    done = table.expire_snapshots(retain_max=2)
    assert ids(table) == [11, 12]
    assert ids_of(table.at("good")) == [2]
    assert ids_of(table.at("savepoint.1")) == [5]
    assert done.removed["data"].files == 8
    assert done.held.keys() == {"tag 'good'", "savepoint 1", "tag 'anabranch-savepoint-1'"}
    assert done.held["tag 'good'"].files >= 2
    assert stored_paths(table) == reached_paths(table)
    table.delete_tag("good")
    assert table.expire_snapshots(retain_max=2).snapshots == ()
    moved = table.remove_orphan_files(older_than="0 s").moved
    assert moved["data"].files == 1
    assert stored_paths(table) == reached_paths(table)
    assert ids_of(table.at("savepoint.1")) == [5]


def test_the_state_that_jobs_keep_for_a_tag_is_told_when_it_goes(table, clock):
    fill(table, 2)
    table.create_tag("short", 1, retained="1 h")
    table.create_tag("long", 2, retained="1 d")
    kept = (KeptState(3, 7, 2048, ("short",)), KeptState(4, 1, 10, ("long", "short")))
    record_job_state(table.context, JobState("totals", "/there", kept))
    assert table.expire_snapshots(dry_run=True).states == ()
    clock.now += 2 * HOUR
    dry, done = table.expire_snapshots(dry_run=True), table.expire_snapshots()
    assert dry.states == done.states == ("job 'totals' after batch 3, kept for short: 7 files, 2.0 KB",)
    assert table.expire_snapshots().states == ()
    assert [state.bytes for state in table.health().states] == [2058]


def test_a_dry_run_counts_what_only_tags_hold_that_would_go_with_it(table, clock):
    fill(table, 3, overwrite=True)
    table.create_tag("short", 1, retained="1 h")
    table.create_tag("long", 2, retained="1 d")
    fill(table, 5, overwrite=True)
    clock.now += 2 * HOUR
    dry = table.expire_snapshots(retain_max=2, dry_run=True)
    assert table.tags() == ["long", "short"]
    done = table.expire_snapshots(retain_max=2)
    assert table.tags() == ["long"]
    assert dry.tags == done.tags == ("short",)
    assert dry.removed == done.removed
    assert dry.removed["data"].files == 5
    assert set(dry.files["path"]) == set(done.files["path"])
    assert dry.held == done.held
    assert dry.held.keys() == {"tag 'long'"}


def branch_from(table, name, tag):
    """A branch as other engines make it: metadata is copied, files are shared."""
    storage, snapshot = table.context.storage, table.tag(tag).snapshot
    for path in (f"tag/tag-{tag}", "schema/schema-0"):
        storage.put(f"branch/branch-{name}/{path}", storage.get(path))
    storage.put(f"branch/branch-{name}/snapshot/snapshot-{snapshot.id}", snapshot.to_json())
    return table.branch(name)


def test_branches_keep_what_they_share_in_both_directions(table):
    fill(table, 5, overwrite=True)
    table.create_tag("fork", 3)
    fix = branch_from(table, "fix", "fork")
    table.delete_tag("fork")  # other engines would now delete the branch's files
    fix.delete_tag("fork")
    fill(fix, 2)
    fill(table, 5)
    done = table.expire_snapshots(retain_max=2)
    assert ids_of(fix) == [3, 4, 5]
    assert done.held.keys() == {"snapshot 3 of branch 'fix'", "snapshot 4 of branch 'fix'"} & done.held.keys()
    assert done.held
    fill(fix, 4, overwrite=True)
    gone = fix.expire_snapshots(retain_max=2)
    assert gone.snapshots == (3, 4, 5, 6, 7)
    assert ids(fix) == [8, 9]
    assert ids_of(table) == [5, 6, 7, 8, 9, 10]
    assert stored_paths(table) == reached_paths(table)


def test_a_consumer_keeps_what_it_has_not_read_on_its_own_branch(table, clock):
    fill(table, 10)
    table.create_tag("fork", 5)
    fix = branch_from(table, "fix", "fork")
    fill(fix, 4)
    storage, path = table.context.storage, table.context.layout.consumer_path("a name, of others!")
    storage.put(path, Consumer(4).to_json())
    assert table.expire_snapshots(retain_max=2).snapshots == (1, 2, 3)
    assert fix.expire_snapshots(retain_max=2).snapshots == (5, 6, 7)
    storage.put(path, Consumer(8).to_json())
    assert table.expire_snapshots(retain_max=2).snapshots == (4, 5, 6, 7)
    storage.delete(path)
    assert table.expire_snapshots(retain_max=2).snapshots == (8,)


def test_consumers_that_stand_still_expire(clock):
    table = new_table(clock, **{"consumer.expiration-time": "1 h"})
    storage, layout = table.context.storage, table.context.layout
    fill(table, 6)
    storage.put(layout.consumer_path("old"), Consumer(2).to_json())
    clock.now += HOUR
    storage.put(layout.consumer_path("young"), Consumer(4).to_json())
    clock.now += 1
    dry = table.expire_snapshots(retain_max=2, dry_run=True)
    assert (dry.consumers, dry.snapshots) == (("old",), (1, 2, 3))
    assert storage.exists(layout.consumer_path("old"))
    done = table.expire_snapshots(retain_max=2)
    assert (done.consumers, done.snapshots) == (("old",), (1, 2, 3))
    assert not storage.exists(layout.consumer_path("old"))
    assert storage.exists(layout.consumer_path("young"))


def test_a_consumer_that_is_being_written_is_waited_for(table):
    fill(table, 6)
    storage, path = table.context.storage, table.context.layout.consumer_path("c")
    storage.put(path, b"")

    def finish(_):
        storage.put(path, Consumer(3).to_json())

    slow = through(table, run("before", "get", finish, where="consumer/*", nth=3))
    assert slow.expire_snapshots(retain_max=2).snapshots == (1, 2)
    storage.put(path, b"")
    with pytest.raises(CorruptTableError, match="consumer"):
        table.expire_snapshots(retain_max=2)
    assert ids(table) == [3, 4, 5, 6]


def test_emptied_folders_go_unless_somebody_writes_there(tmp_path):
    whole = {"dynamic-partition-overwrite": "false"}
    table = make_table(tmp_path, schema="id BIGINT, p STRING", partition_by=["p"], options=whole)
    for p in "abc":
        table.append(pa.table({"id": [1], "p": [p]}))
    pending = table.writer().write(pa.table({"id": [2], "p": ["c"]}).to_batches())
    table.overwrite(pa.table({"id": [3], "p": ["d"]}))
    table.append(pa.table({"id": [4], "p": ["d"]}))
    table.append(pa.table({"id": [5], "p": ["d"]}))
    folder = Path(tmp_path) / "db.db/t"
    assert {path.name for path in folder.glob("p=*")} == {"p=a", "p=b", "p=c", "p=d"}
    table.expire_snapshots(retain_max=2)
    assert {path.name for path in folder.glob("p=*")} == {"p=c", "p=d"}
    table.commit(Append(pending))
    table.append(pa.table({"id": [6], "p": ["a"]}))
    assert ids_of(table) == [2, 3, 4, 5, 6]


# Tables of other engines

DATA = Path(__file__).parent.parent / "data" / "paimon"


@pytest.mark.parametrize(
    "path", first_short(sorted(DATA.glob("*/*/expected/case.json")), 10), ids=lambda p: p.parent.parent.name
)
def test_tables_of_other_engines_keep_everything_that_stays_readable(path, tmp_path):
    case = json.loads(path.read_text())
    shutil.copytree(path.parent.parent / "warehouse", tmp_path / "warehouse")
    table = anabranch.connect(str(tmp_path / "warehouse")).table(case["table"])
    for view in (table, *map(table.branch, table.branches())):
        try:
            view.expire_snapshots(retain_max=2)
        except UnsupportedFeatureError:
            return
    table.remove_orphan_files(older_than="0 s")
    checked = 0
    for state in case["states"]:
        select = state["select"]
        view = table.branch(select["branch"]) if "branch" in select else table
        if "snapshot" in select and not view.context.snapshots.find(select["snapshot"]):
            continue
        if "snapshot" in select:
            view = view.at(select["snapshot"])
        if "tag" in select:
            view = view.with_options({"scan.tag-name": select["tag"]})
        found = canonical_rows(view.scan().to_arrow(), view.schema.fields)
        assert digest([f.name for f in view.schema.fields], found) == state["sha256"]
        checked += 1
    assert checked
    assert stored_paths(table) == reached_paths(table)
    for view in (table, *map(table.branch, table.branches())):
        assert len([*view.snapshots()]) <= 2

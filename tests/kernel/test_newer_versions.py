"""What a newer version of Anabranch wrote is refused by name, and what it added to known files is kept."""

import json

import pytest
import zstandard

import anabranch
from anabranch.errors import UnsupportedFeatureError
from anabranch.format.records.snapshot import CommitIdentity, SnapshotRef
from anabranch.jobs.checkpoint import Beginning
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.archive import archive, forget_after
from anabranch.kernel.log.archive import tidy as tidy_archive
from anabranch.kernel.log.field_ids import block_owner
from anabranch.kernel.log.ledger import hand_over, tidy
from anabranch.kernel.provenance.job_states import JobState, KeptState, job_states, record_job_state
from anabranch.lineage.model import LineageEntry
from anabranch.lineage.openlineage.transport import load_cursor
from anabranch.streaming.sink_identity import BegunState, SinkIdentity
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows, written

NEWER = "written by a newer version of Anabranch"


@pytest.fixture
def table(tmp_path):
    """A table whose main was replaced once, with a branch that was merged."""
    made = make_table(tmp_path)
    for start in range(3):
        made.append(rows(start, 1))
    made.create_tag("good")
    for name in ("fix", "side"):
        made.create_branch(name, "good")
        made.branch(name).append(rows(50 + len(name), 1))
    made.merge_branch("side")
    made.replace_main_branch("fix", force=True)
    return fresh(made)


def fresh(table):
    return anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")


def bump(table, path, **fields):
    storage = table.context.storage
    before = json.loads(storage.get(path))
    storage.put(path, json.dumps({**before, **(fields or {"version": 99})}).encode())


def append(table):
    table.append(rows(90, 1))


@pytest.mark.parametrize(
    ("path", "work"),
    [
        ("branch/MAIN-1", append),
        ("branch/branch-side/FORK", lambda table: table.branch("side").append(rows(91, 1))),
        ("branch/branch-side/MERGE-1", lambda table: table.merge_branch("side")),
        ("branch/branch-side/MERGE-1.done", lambda table: table.merge_branch("side")),
    ],
)
def test_a_record_of_a_newer_version_is_refused_by_name(table, path, work):
    bump(table, path)
    with pytest.raises(UnsupportedFeatureError, match=NEWER) as refused:
        work(fresh(table))
    assert path in refused.value.message
    assert "upgrade Anabranch" in refused.value.hint


def test_a_column_is_not_numbered_by_a_reservation_of_a_newer_version(table):
    for path in [one.path for one in table.context.storage.list("branch") if "FIELD-IDS" in one.path]:
        bump(table, path)
    with pytest.raises(UnsupportedFeatureError, match=NEWER):
        fresh(table).branch("fix").alter().add_column("more", "STRING").apply()
    with pytest.raises(UnsupportedFeatureError, match=NEWER):
        block_owner(b'{"version": 2, "branchUuid": "u"}', path)
    assert block_owner(b'{"branchUuid": "u"}', path) == "u"


def commit(table, user, batch, floor=None):
    messages = written(table, batch, 1)
    return table.commit(Append(messages), identity=CommitIdentity(user, batch), floor=floor)


def paged(tmp_path, count=20):
    """A table with a ledger page for each of its snapshots but the last."""
    made = make_table(tmp_path)
    for number in range(count + 1):
        commit(made, f"job-{number % 2}", number // 2)
    for snapshot in sorted(made.snapshots(), key=lambda one: one.id)[:-1]:
        hand_over(made.context, [snapshot])
        made.context.storage.delete(made.context.layout.snapshot_path(snapshot.id))
    return made


def test_a_ledger_of_a_newer_version_answers_nothing_and_stays_as_it_is(tmp_path):
    table = paged(tmp_path)
    bump(table, "ledger/expired-7-7")
    before = table.context.storage.get("ledger/expired-7-7")
    with pytest.raises(UnsupportedFeatureError, match=NEWER):
        commit(table, "job-2", 0, SnapshotRef(table.branch_uuid, 0, ""))
    tidy(table.context, 0)
    assert table.context.storage.get("ledger/expired-7-7") == before
    assert len([*table.context.storage.list("ledger")]) == 3, "those before it and those after it are joined"


def test_what_a_newer_version_added_to_the_ledger_survives_joining(tmp_path):
    table = paged(tmp_path)
    page = json.loads(table.context.storage.get("ledger/expired-20-20"))
    page["users"]["job-1"]["rows"] = 7
    bump(table, "ledger/expired-20-20", users=page["users"], region="eu")
    tidy(table.context, 0)
    joined = json.loads(table.context.storage.get("ledger/expired-1-20"))
    assert joined["region"] == "eu"
    assert joined["users"]["job-1"]["rows"] == 7
    assert joined["version"] == 1


def repacked(table, path, change):
    storage = table.context.storage
    lines = [json.loads(line) for line in zstandard.decompress(storage.get(path)).splitlines()]
    change(lines)
    storage.put(path, zstandard.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


def lines_of(table, path):
    return [json.loads(line) for line in zstandard.decompress(table.context.storage.get(path)).splitlines()]


def test_what_a_newer_version_added_to_the_archive_survives_joining_and_cutting(tmp_path):
    table = make_table(tmp_path)
    for number in range(20):
        table.append(rows(number, 1))
        archive(table.context, [table.snapshot])
    folder = table.context.layout.history_path("x").removesuffix("/x")
    paths = sorted(info.path for info in table.context.storage.list(folder))
    for path in paths:
        repacked(table, path, lambda lines: (lines[0].update(region="eu"), lines[1].update(cost=3)))
    tidy_archive(table.context)
    (path,) = [info.path for info in table.context.storage.list(folder)]
    head, *snapshots = lines_of(table, path)
    assert head["region"] == "eu"
    assert [one["cost"] for one in snapshots] == [3] * 20
    forget_after(table.context, 5)
    (path,) = [info.path for info in table.context.storage.list(folder)]
    head, *snapshots = lines_of(table, path)
    assert (head["region"], [one["cost"] for one in snapshots]) == ("eu", [3] * 5)
    repacked(table, path, lambda lines: lines[0].update(version=2))
    before = table.context.storage.get(path)
    with pytest.raises(UnsupportedFeatureError, match=NEWER):
        forget_after(table.context, 2)
    assert table.context.storage.get(path) == before


def test_records_of_kept_state_keep_what_is_new_and_are_not_overwritten(tmp_path):
    table = make_table(tmp_path)
    path = table.context.layout.branch_file_path("STATE-clean")
    record_job_state(table.context, JobState("clean", "/c", ()))
    bump(table, path, region="eu")
    record_job_state(table.context, JobState("clean", "/c", (KeptState(3, 1, 10, ("good",)),)))
    assert json.loads(table.context.storage.get(path))["region"] == "eu"
    assert job_states(table.context)[0].tags == ("good",)
    bump(table, path)
    for work in (
        lambda: job_states(table.context),
        lambda: record_job_state(table.context, JobState("clean", "/c", ())),
    ):
        with pytest.raises(UnsupportedFeatureError, match=NEWER):
            work()


def test_a_cursor_keeps_what_is_new(tmp_path):
    storage = make_table(tmp_path).context.storage
    storage.put(
        "cursor", b'{"version": 1, "branches": {"b": {"snapshot": 1, "stamp": "s", "schema": 0}}, "new": 5}'
    )
    cursor = load_cursor(storage, "cursor")
    cursor.forget("b")
    cursor.save()
    assert json.loads(storage.get("cursor")) == {"version": 1, "branches": {}, "new": 5}
    storage.put("cursor", b'{"version": 2, "branches": {}}')
    with pytest.raises(UnsupportedFeatureError, match=NEWER):
        load_cursor(storage, "cursor")


@pytest.mark.parametrize("read", [Beginning, SinkIdentity, BegunState])
def test_checkpoints_of_a_newer_version_are_refused_by_name(read):
    with pytest.raises(UnsupportedFeatureError, match=NEWER):
        read.from_json(b'{"version": 2, "job": "j"}', path="checkpoint/file")


def test_lineage_of_a_newer_version_is_refused_by_name():
    with pytest.raises(UnsupportedFeatureError, match=NEWER):
        LineageEntry.from_json('{"version": 2, "job": "x"}', where="snapshot 3")


@pytest.mark.parametrize(
    "path", first_short(["branch/branch-side/FORK", "branch/branch-side/MERGE-1", "branch/SEAL-1"])
)
def test_verify_names_what_is_newer_and_repair_leaves_it_alone(table, path):
    bump(table, path)
    before = table.context.storage.get(path)
    (problem,) = [one for one in fresh(table).verify().problems if one.path == path]
    assert NEWER in problem.message
    assert "upgrade" in problem.hint
    fresh(table).repair()
    assert table.context.storage.get(path) == before

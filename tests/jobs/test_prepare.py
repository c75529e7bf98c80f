"""What is settled before a job starts: its branch, its checkpoint, and where its sources begin; and only once."""

import json
import shutil

import pytest

import anabranch
from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError
from anabranch.jobs.prepare import Run, prepare
from anabranch.jobs.starts import reads_files_on
from anabranch.jobs.state.settle import settle as get_state
from anabranch.lineage.model import SourceInput
from anabranch.streaming.sink_identity import SinkIdentity, SinkRecord
from tests.jobs.world import World
from tests.support.tables import make_table, rows

CLEAN = anabranch.job("clean", sources={"raw": "db.raw"}, sink="db.orders")(lambda raw: raw)
BATCH = anabranch.job("batch", sources={"raw": anabranch.static("db.raw")}, sink="db.orders")(lambda raw: raw)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "wh")
    world.arrive(9)
    world.commit(world.read(0, 3))
    world.orders.create_tag("good")
    world.commit(world.read(3, 6))
    return world


@pytest.fixture
def settle(world):
    def settle(job=CLEAN, *, is_batch=False, **how):
        return prepare(job, world.lake, Run(**how), "v1", is_batch=is_batch)

    return settle


def start_of(prepared):
    return json.loads(prepared.starts["raw"]["scan.start-offset"])["snapshot"]


def left_of(folder, query, batch):
    """What a query has left after one of its batches."""
    for path, text in {"metadata": f'{{"id": "{query}"}}', f"commits/{batch}": "v1\n{}"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for number in range(batch + 1):
        (folder / "offsets").mkdir(exist_ok=True)
        (folder / f"offsets/{number}").write_text(
            'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n-'
        )


def begin(prepared):
    """As the sink does when its query starts: it fixes who it is."""
    record = SinkRecord(prepared.checkpoint.storage, prepared.table.branch_uuid)
    record.identity(
        lambda: SinkIdentity.of_job(prepared.job.name, record.branch_uuid, prepared.table.snapshot)
    )


def test_on_main_a_new_job_begins_as_it_is_declared(settle, world):
    other = anabranch.job("other", sources={"raw": "db.raw"}, sink="db.orders")(lambda raw: raw)
    prepared = settle(other)
    assert (prepared.starts, prepared.notices, prepared.point) == ({}, (), None)
    assert prepared.checkpoint.location.endswith("/wh/_checkpoints/other")


def test_without_its_checkpoint_a_job_goes_on_after_its_last_commit(settle, world):
    prepared = settle()
    assert start_of(prepared) == 6
    assert (prepared.point.query, prepared.point.batch) == ("q1", 1)
    (notice,) = prepared.notices
    assert "no checkpoint at" in notice
    assert "goes on after its last commit, snapshot 2" in notice
    world.commit(world.read(0, 9), job="other")
    assert settle().starts == prepared.starts


def test_a_rolled_back_commit_does_not_count(settle, world):
    world.orders.rollback("good")
    assert start_of(settle()) == 3


def test_commits_that_expired_count(settle, world):
    world.commit(world.read(0, 2), job="other")
    world.commit(world.read(2, 3), job="other")
    world.orders.expire_snapshots(retain_max=2, retain_min=1, older_than="0 ms")
    assert start_of(settle()) == 6


def test_who_wants_its_rows_again_says_so_or_empties_the_table(settle, world):
    assert settle(start_anew=["clean"], checkpoint=str(world.folder / "one")).starts == {}
    world.orders.overwrite(rows(0, 0))
    assert settle(checkpoint=str(world.folder / "two")).starts == {}


def test_where_its_positions_are_not_certain_it_does_not_begin(settle, world):
    world.commit(world.read(6, 7), problems=("a source is not known",))
    with pytest.raises(
        InvalidInputError, match=r"written to 'db.orders' before, up to snapshot 3.*no checkpoint"
    ) as found:
        settle()
    assert "--start-anew clean" in found.value.hint
    assert settle(start_anew=["clean"]).starts == {}


@pytest.mark.parametrize(
    ("how", "former"),
    [("checkpoints", "at/clean@@1"), ("checkpoint", "at@@1"), ("checkpoints", "at/clean@fix")],
)
def test_which_files_it_had_read_is_looked_for_where_checkpoints_are_named(
    settle, world, tmp_path, how, former
):
    arriving = {"raw": anabranch.files("/landing", "json", schema="id BIGINT")}
    job = anabranch.job("clean", sources=arriving, sink="db.orders")(lambda raw: raw)
    world.commit(SourceInput("files", "source 0", None, {"logOffset": 3}, "file:/landing"), query="q2")
    named = {how: str(tmp_path / "at")}
    with pytest.raises(InvalidInputError, match="which files it had read was in the checkpoint alone"):
        settle(job, **named)
    left_of(tmp_path / former, "q2", 0)
    assert reads_files_on(settle(job, **named).starts)


@pytest.fixture
def load(world):
    """A job that reads files, with two batches; the copy of its checkpoint is of the first one."""
    for log in (3, 4):
        world.commit(SourceInput("files", "source 0", None, {"logOffset": log}, "file:/in"), job="load")
    left_of(world.folder / "_checkpoints/@copies/load/q1", "q1", 0)
    arriving = {"raw": anabranch.files("/in", "json", schema="id BIGINT")}
    return anabranch.job("load", sources=arriving, sink="db.orders")(lambda raw: raw)


def test_which_files_it_had_read_is_not_taken_from_an_older_copy(settle, world, load):
    with pytest.raises(InvalidInputError, match="does not have batch 1 any more") as found:
        settle(load)
    assert "--start-anew load" in found.value.hint
    assert not (world.folder / "_checkpoints/load").exists(), "nothing was begun"
    assert settle(load, start_anew=["load"]).starts == {}


def test_who_wants_its_rows_again_gets_over_a_beginning_that_cannot_be_carried(settle, world, load):
    copy = world.folder / "_checkpoints/@copies/load/q1"
    left_of(copy, "q1", 1)
    begun = settle(load)
    assert reads_files_on(begun.starts)
    begun.checkpoint.storage.put("sources/0/0", b"v1")  # a start that was killed
    shutil.rmtree(copy)
    with pytest.raises(InvalidInputError, match="cannot go on after those that it had read") as found:
        get_state(settle(load), None, None, None, world.lake, run=Run())
    assert "--start-anew load" in found.value.hint
    assert "--by-hand" not in found.value.hint, "it is an option of corrections"
    assert settle(load, start_anew=["load"]).starts == {}
    assert not begun.checkpoint.storage.exists("sources/0/0")
    begun.checkpoint.storage.put("metadata", b'{"id": "q2"}')
    begun.checkpoint.storage.put("offsets/0", b"v1")
    settle(load, start_anew=["load"])
    assert begun.checkpoint.storage.exists("offsets/0"), "a query that has begun goes on"


def test_a_checkpoint_of_which_only_a_part_is_left_counts_as_lost(settle, world):
    begun = settle(start_anew=["clean"])
    assert settle().starts == {}  # its query was not started yet
    begun.checkpoint.storage.put("metadata", b'{"id": "q1"}')
    begin(begun)
    begun.checkpoint.storage.put("offsets/0", b"v1")
    assert settle().starts == {}
    begun.checkpoint.storage.delete("metadata")
    assert start_of(settle()) == 6
    assert not begun.checkpoint.storage.exists("offsets/0")


def test_on_a_branch_it_goes_on_from_what_the_branch_begins_with(settle, world):
    world.orders.create_branch("fix", "good")
    assert start_of(settle(branch="fix")) == 3
    assert settle(branch="fix", makes_branch=True, checkpoint=str(world.folder / "one")).starts == {}


def test_on_main_a_job_begins_and_that_is_recorded(settle, world):
    prepared = settle(start_anew=["clean"])
    assert (prepared.sink, prepared.starts, prepared.code) == ("db.orders", {}, "v1")
    assert prepared.checkpoint.location.endswith("/wh/_checkpoints/clean")
    known = json.loads(prepared.checkpoint.storage.get("anabranch/job.json"))
    assert (known["job"], known["branch"], known["tag"]) == ("clean", world.orders.branch_uuid, None)


def test_from_a_tag_it_begins_at_its_positions_on_a_branch(settle, world):
    prepared = settle(branch="fix", from_tag="good", create_branch=True)
    assert prepared.sink == "db.orders$branch_fix"
    assert prepared.checkpoint.location.endswith("/_checkpoints/clean@fix")
    assert start_of(prepared) == 3
    assert world.orders.branches() == ["fix"]


def test_where_commits_expired_and_lineage_may_lack_some_it_does_not_begin(settle, world):
    world.commit(world.read(6, 7))
    world.orders.create_tag("later")
    world.orders.create_branch("fix", "later")
    world.orders.create_branch("broken", "later")
    world.commit(world.read(7, 8))
    world.orders.expire_snapshots(retain_max=2, retain_min=1, older_than="0 ms")
    layout = world.orders.branch("broken").context.layout
    storage = world.orders.context.storage
    whole = storage.get(layout.branch_file_path("FORK"))
    storage.put(layout.branch_file_path("FORK"), b"{")
    with pytest.raises(CorruptTableError, match=r"db.orders: branch/branch-broken/FORK"):
        settle(branch="fix", from_tag="later")
    storage.put(layout.branch_file_path("FORK"), whole)
    assert start_of(settle(branch="fix", from_tag="later")) == 7


def test_a_job_all_of_whose_commits_have_expired_begins_where_lineage_says(settle, world):
    world.commit(world.read(0, 2), job="other")
    world.commit(world.read(2, 3), job="other")
    world.orders.create_tag("later")
    world.orders.expire_snapshots(retain_max=2, retain_min=1, older_than="0 ms")
    assert start_of(settle(branch="fix", from_tag="later", create_branch=True)) == 6
    unknown = anabranch.job("unknown", sources={"raw": "db.raw"}, sink="db.orders")(lambda raw: raw)
    with pytest.raises(NotFoundError, match="holds no commit of job 'unknown'"):
        settle(unknown, branch="fix", from_tag="later")


def test_what_cannot_be_found_out_of_expired_commits_is_said(settle, world):
    world.commit(world.read(6, 7), problems=("a source is not known",))
    world.commit(world.read(0, 2), job="other")
    world.commit(world.read(2, 3), job="other")
    world.orders.create_tag("later")
    world.orders.expire_snapshots(retain_max=2, retain_min=1, older_than="0 ms")
    with pytest.raises(CorruptTableError, match=r"up to snapshot 5 .* have expired.*: a source is not known"):
        settle(branch="fix", from_tag="later", create_branch=True)


def test_what_was_settled_stays_whatever_becomes_of_the_tag(settle, world):
    first = settle(branch="fix", from_tag="good", create_branch=True)
    world.commit(world.read(3, 9), branch="fix")  # as its first batch
    assert settle(branch="fix", from_tag="good").starts == first.starts
    assert settle(branch="fix").starts == first.starts
    world.orders.replace_tag("good", snapshot=2)
    with pytest.raises(
        InvalidInputError, match=r"was begun from tag 'good' \(snapshot 1\); that tag names snapshot 2 now"
    ):
        settle(branch="fix", from_tag="good")
    world.orders.delete_tag("good")
    assert settle(branch="fix", from_tag="good").starts == first.starts


def test_another_tag_on_restart_is_refused(settle, world):
    world.orders.create_tag("other")
    settle(branch="fix", from_tag="good", create_branch=True)
    with pytest.raises(
        InvalidInputError, match=r"to begin from tag 'other', but .* was begun from tag 'good'"
    ):
        settle(branch="fix", from_tag="other")
    settle()
    with pytest.raises(
        InvalidInputError, match=r"to begin from tag 'good', but .* was begun as it is declared"
    ):
        settle(from_tag="good")


def test_the_branch_must_begin_with_the_tag(settle, world):
    world.orders.create_branch("late", snapshot=2)
    with pytest.raises(
        InvalidInputError, match=r"begins with tag 'late' \(snapshot 2\), not with tag 'good'"
    ):
        settle(branch="late", from_tag="good")
    world.orders.create_tag("same", snapshot=1)
    world.orders.create_branch("fix", tag="same")
    assert start_of(settle(branch="fix", from_tag="good")) == 3


def test_the_branch_must_be_there(settle):
    with pytest.raises(
        NotFoundError, match=r"'db.orders', but branch 'fix' does not exist .*\n.*--create-branch"
    ):
        settle(branch="fix", from_tag="good")
    with pytest.raises(NotFoundError, match="tag 'no' does not exist"):
        settle(from_tag="no")
    with pytest.raises(InvalidInputError, match="not said which, or from which tag"):
        settle(branch="fix", create_branch=True)


def test_a_branch_that_has_the_jobs_rows_is_not_written_again(settle, world):
    first = settle(branch="fix", from_tag="good", create_branch=True)
    world.commit(world.read(3, 9), branch="fix")
    with pytest.raises(InvalidInputError, match="has 1 commits of job 'clean' already"):
        settle(branch="fix", from_tag="good", checkpoint=first.checkpoint.location + "-2")


def test_on_main_nothing_may_have_been_committed_since_the_tag(settle, world, tmp_path):
    with pytest.raises(InvalidInputError, match=r"'db.orders' has gone on since tag 'good' \(snapshot 1\)"):
        settle(from_tag="good")
    world.orders.rollback("good")
    assert start_of(settle(from_tag="good")) == 3


def test_compactions_since_the_tag_do_not_matter(settle, world):
    world.orders.create_tag("now")
    world.orders.compact(full=True)
    assert world.orders.snapshot.commit_kind == "COMPACT"
    assert start_of(settle(from_tag="now")) == 6


def test_a_branch_of_that_name_that_was_made_anew_needs_a_new_checkpoint(settle, world):
    settle(branch="fix", from_tag="good", create_branch=True)
    world.orders.delete_branch("fix")
    world.orders.create_branch("fix", tag="good")
    with pytest.raises(
        InvalidInputError, match=r"was begun for another branch; 'db.orders\$branch_fix' was created since"
    ):
        settle(branch="fix")


def test_a_table_that_was_made_anew_needs_a_new_checkpoint(settle, world):
    settle()
    world.lake.drop_table("db.orders")
    make_table(world.folder, "db.orders")
    with pytest.raises(InvalidInputError, match="was begun for another table"):
        settle()


def test_a_checkpoint_belongs_to_one_job(settle, world, tmp_path):
    place = str(tmp_path / "mine")
    settle(checkpoint=place)
    other = anabranch.job("other", sources={"raw": "db.raw"}, sink="db.orders")(lambda raw: raw)
    with pytest.raises(InvalidInputError, match="was begun by job 'clean', and this is 'other'"):
        settle(other, checkpoint=place)
    (tmp_path / "mine" / "anabranch" / "job.json").write_text("{")
    with pytest.raises(CorruptTableError, match=r"job\.json"):
        settle(checkpoint=place)


def test_a_query_that_another_program_began_goes_on(settle, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "metadata").write_text('{"id": "q"}')
    with pytest.raises(InvalidInputError, match="is in use: it goes on where it stands"):
        settle(checkpoint=str(tmp_path / "mine"), from_tag="good")
    assert settle(checkpoint=str(tmp_path / "mine")).starts == {}


def test_after_a_replacement_the_corrected_job_is_the_one_of_main(settle, world):
    begin(settle())
    begin(settle(branch="fix", from_tag="good", create_branch=True))
    world.commit(world.read(3, 9), branch="fix")
    world.orders.replace_main_branch("fix", force=True)
    on_main = settle()
    assert (on_main.sink, on_main.checkpoint.location.rpartition("/")[2]) == ("db.orders", "clean@fix")
    assert on_main.table.branch_uuid == settle(branch="fix").table.branch_uuid
    # A job that did not correct it keeps its own checkpoint, whose sink says that it is fenced.
    other = anabranch.job("other", sources={"raw": "db.raw"}, sink="db.orders")(lambda raw: raw)
    assert settle(other).checkpoint.location.endswith("/_checkpoints/other")
    world.orders.undo_replace()
    assert settle().checkpoint.location.endswith("/_checkpoints/clean")


def test_a_job_of_a_former_main_is_left_to_its_sink(settle, world):
    settle()
    world.orders.create_branch("fix", tag="good")
    world.orders.branch("fix").append(rows(900, 1))
    world.orders.replace_main_branch("fix", force=True)
    assert settle().checkpoint.location.endswith("/_checkpoints/clean")


def test_batch_jobs_have_no_checkpoint_and_no_positions(settle, world):
    world.orders.create_branch("fix", tag="good")
    prepared = settle(BATCH, is_batch=True, branch="fix")
    assert (prepared.sink, prepared.checkpoint) == ("db.orders$branch_fix", None)
    with pytest.raises(InvalidInputError, match="anabranch.static"):
        settle(BATCH, is_batch=True, from_tag="good")


def test_starts_that_are_given_take_the_place_of_those_of_the_tag(settle, world):
    given = {"raw": {"scan.mode": "latest"}}
    prepared = settle(branch="fix", from_tag="good", create_branch=True, starts=given)
    assert prepared.starts == given
    assert settle(branch="fix").starts == given


def test_a_branch_whose_creation_died_is_brought_to_its_end(settle, world):
    world.orders.create_branch("fix", "good")
    storage = world.orders.context.storage
    storage.delete_many([info.path for info in storage.list("branch/branch-fix/snapshot")])
    with pytest.raises(NotFoundError, match="branch 'fix' of 'db.orders' is being created"):
        settle(branch="fix", from_tag="good")
    assert start_of(settle(branch="fix", from_tag="good", create_branch=True)) == 3

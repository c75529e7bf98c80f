"""A correction is told of the same checkpoint as `run`: main's stays as it is, and the branch's lies beside it."""

import pytest

from anabranch.cascade import CascadeOptions, plan_correction, run_correction
from anabranch.errors import InvalidInputError
from anabranch.jobs.definition import definition_of
from anabranch.jobs.prepare import Run, prepare
from anabranch.lake import connect
from tests.cascade.correcting import plus
from tests.cascade.embedded import SCHEMA, run, streaming
from tests.cascade.story import rows, values

GOOD, BAD, OTHER = (streaming("orders", ["db.raw"], "db.orders", plus(added)) for added in (0, 900, 7))
NAME = "correct-db.orders-good"


@pytest.fixture
def lake(tmp_path):
    lake = connect(str(tmp_path / "wh"))
    for table in ("db.raw", "db.orders"):
        lake.create_table(table, SCHEMA)
    for first, made_by in ((0, GOOD), (2, BAD)):
        lake.table("db.raw").append(rows(first, 2))
        run(made_by, lake)
        if not first:
            lake.table("db.orders").create_tag("good")
    return lake


@pytest.fixture
def places():
    """Where the jobs of a correction were started, in order."""
    return []


@pytest.fixture
def correct(lake, places):
    def started(job, lake, how):
        prepared = prepare(job, lake, how, "v", is_batch=False)
        prepared.checkpoint.note_definition(definition_of(job))
        places.append(prepared.checkpoint.location)
        return run(job, lake, how)

    def correct(job, **options):
        how = CascadeOptions(**options)
        return run_correction(lake, "db.orders", "good", [job], how, runner=started)

    return correct


def begun_on_main(lake, place, *, batches=()):
    """The checkpoint with which the wrong job runs on main."""
    checkpoint = prepare(
        BAD, lake, Run(checkpoint=place, start_anew=["orders"]), "v", is_batch=False
    ).checkpoint
    checkpoint.note_definition(definition_of(BAD))
    query = f"orders@{lake.table('db.orders').branch_uuid}"
    checkpoint.storage.put("metadata", f'{{"id": "{query}"}}'.encode())
    for batch in batches:
        checkpoint.storage.put(f"commits/{batch}", b"v1\n{}")
    return checkpoint


@pytest.mark.parametrize("batches", [(), (0, 1)], ids=["before its first batch", "after two"])
@pytest.mark.parametrize("end", ["", "/"])
def test_mains_checkpoint_is_not_touched_and_the_branchs_is_gone_on_with(
    lake, correct, places, tmp_path, batches, end
):
    place = f"{tmp_path / 'mine'}"
    main = begun_on_main(lake, place, batches=batches)
    before = {info.path: main.storage.get(info.path) for info in main.storage.list(recursive=True)}
    assert correct(GOOD, checkpoint=place + end).group is not None
    assert set(places) == {f"{place}@{NAME}"}
    assert {info.path: main.storage.get(info.path) for info in main.storage.list(recursive=True)} == before
    assert values(lake, "db.orders") == [(i, i) for i in range(4)]
    again = prepare(GOOD, lake, Run(checkpoint=place + end), "v", is_batch=False)
    assert again.checkpoint.location == f"{place}@{NAME}", "where `run` goes on, told of the same folder"
    lake.undo_group(1)
    assert prepare(BAD, lake, Run(checkpoint=place), "v", is_batch=False).checkpoint.location == place


def test_a_held_branch_is_run_by_hand_with_the_same_folder(lake, correct, places, tmp_path):
    place = str(tmp_path / "mine")
    begun_on_main(lake, place)
    correct(GOOD, checkpoint=place, publish=False)
    by_hand = prepare(GOOD, lake, Run(NAME, checkpoint=place), "v", is_batch=False)
    assert by_hand.checkpoint.location == places[0]
    lake.table("db.orders").create_branch("fix", "good")
    new = str(tmp_path / "new")
    assert prepare(GOOD, lake, Run("fix", checkpoint=new), "v", is_batch=False).checkpoint.location == new


def test_the_plan_finds_former_state_there(lake, tmp_path):
    begun_on_main(lake, str(tmp_path / "mine"), batches=(0, 1))

    def state(**how):
        (step,) = plan_correction(lake, "db.orders", "good", [GOOD], **how).steps
        return step.jobs[0].state

    assert "its former checkpoint is not there" in state()
    assert state(checkpoint=str(tmp_path / "mine")) is None, "it is there, and no operator keeps state"
    (tmp_path / "mine").rename(tmp_path / "mine@@1")
    assert state(checkpoint=str(tmp_path / "mine")) is None, "it was set aside"


def test_the_code_of_the_branch_is_compared_as_ever(lake, correct, tmp_path):
    place = str(tmp_path / "mine")
    begun_on_main(lake, place, batches=(0, 1))
    correct(GOOD, checkpoint=place, publish=False)
    with pytest.raises(
        InvalidInputError, match="the code of job 'orders' is not that by which it has made rows of"
    ):
        correct(OTHER, checkpoint=place)


@pytest.mark.parametrize("batches", [0, 1])
def test_a_checkpoint_of_a_branch_that_was_deleted_is_named_as_that(lake, correct, places, batches):
    """Not as other code, and what it knows of its own branch is not forgotten."""
    correct(GOOD, publish=False)
    first = prepare(GOOD, lake, Run(NAME, makes_branch=True), "v", is_batch=False).checkpoint
    for batch in range(batches):
        first.storage.put(f"commits/{batch}", b"v1\n{}")
    lake.table("db.orders").delete_branch(NAME)
    with pytest.raises(InvalidInputError, match="was begun for another branch"):
        correct(OTHER)
    assert first.definitions == {definition_of(GOOD)}

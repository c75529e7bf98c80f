"""Creating branches: what a new one is, from what it can be made, and that dying or competing does no harm."""

from contextlib import suppress
from dataclasses import replace

import pytest

from anabranch.errors import (
    AlreadyExistsError,
    AnabranchError,
    InvalidInputError,
    InvalidNameError,
    NotFoundError,
    StorageError,
)
from tests.branches.creating import FORK_PIN, again, later, paths, pins, tagged
from tests.support.deaths import Died, calls_of, through
from tests.support.dying import deaths
from tests.support.faults import lose_answer, run
from tests.support.lengths import first_short
from tests.support.moments import copied_history
from tests.support.tables import ids_of, rows

# What a branch is


def test_it_begins_as_the_tag_is_and_goes_its_own_way():
    table = tagged()
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    assert ids_of(fix) == [0, 1, 2]
    assert (fix.name, fix.tags(), fix.snapshot.id) == ("db.t$branch_fix", ["good"], 3)
    assert (fix.schema.fields, fix.schema.options) == (table.schema.fields, table.schema.options)
    fix.append(rows(100, 2))
    table.append(rows(6, 1))
    assert ids_of(table.branch("fix")) == [0, 1, 2, 100, 101]
    assert ids_of(table) == [0, 1, 2, 3, 4, 5, 6]
    assert fix.branch_uuid != table.branch_uuid
    assert table.branches() == ["fix"]


def test_no_data_is_copied():
    table = tagged()
    before = paths(table)
    table.create_branch("fix", "good")
    new = {path for path in paths(table) - before if not path.startswith("branch/branch-fix/")}
    assert new == {"branch/FIELD-IDS-1", f"tag/tag-{pins(table)[0]}"}


def test_cost_does_not_depend_on_how_much_there_is():
    """Nothing of manifests or data is read."""
    table = through(tagged())
    table.create_branch("fix", "good")
    calls = table.context.storage.calls
    assert not [call for call in calls if call.path.startswith(("manifest", "bucket"))]
    assert len(calls) <= 60


def test_the_schema_is_that_of_the_tag():
    table = copied_history()
    table.create_tag("before", 6)
    table.alter().add_column("later", "INT").apply()
    table.create_branch("fix", "before")
    fix = table.branch("fix")
    assert [f.name for f in fix.schema.fields] == ["id", "v"]
    assert [schema.id for schema in fix.schemas()] == [0, 1]


def test_columns_added_on_two_branches_have_different_ids():
    table = tagged()
    for name in ("a", "b"):
        table.create_branch(name, "good")
    ids = {
        view.alter().add_column("n", "INT").apply().field("n").id
        for view in (table, table.branch("a"), table.branch("b"))
    }
    assert ids == {2, 4096, 8192}


def test_a_creation_says_when_by_whom_and_for_how_long():
    table = tagged()
    table.create_branch("fix", "good", created_by="anna", retained="7 d")
    main, fix = table.branch_infos()
    assert (main.name, main.is_main, main.head, main.rows) == ("main", True, 6, 6)
    assert (fix.name, fix.tag, fix.fork_snapshot, fix.created_by) == ("fix", "good", 3, "anna")
    assert fix.expires - fix.created == 7 * 86_400_000
    table.branch("fix").append(rows(100, 2))
    fix = table.branch_infos()[1]
    assert (fix.snapshots_ahead, fix.rows_ahead) == (1, 2)
    assert (fix.snapshots_behind, fix.rows_behind) == (3, 3)


# From what


def test_from_a_snapshot_or_savepoint_of_main_which_makes_the_tag():
    table = tagged()
    table.create_branch("a", snapshot=2)
    number = table.create_savepoint(4).id
    table.create_branch("b", "kept", savepoint=number)
    table.create_branch("c", snapshot="savepoint.1", tag="kept")
    assert table.tags() == ["a", "good", "kept"]
    assert [ids_of(table.branch(name)) for name in "abc"] == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3]]
    with pytest.raises(AlreadyExistsError, match="tag 'good' of 'db.t' names snapshot 3, not 2"):
        table.create_branch("d", "good", snapshot=2)
    assert table.branches() == ["a", "b", "c"]


def test_it_has_to_be_said_what_to_begin_with():
    table = tagged()
    with pytest.raises(InvalidInputError, match="what branch 'fix' of 'db.t' is to begin with"):
        table.create_branch("fix")
    with pytest.raises(InvalidInputError, match="either"):
        table.create_branch("fix", snapshot=1, savepoint=1)


def test_tags_of_other_branches_are_refused_with_the_reason():
    table = tagged()
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    fix.create_tag("own")
    with pytest.raises(NotFoundError, match="tag 'own' is of branch 'fix', not of main") as error:
        table.create_branch("more", "own")
    assert "merge 'fix' into main first" in error.value.hint
    with pytest.raises(
        InvalidInputError, match="can only be created from a tag of main, not from branch 'fix'"
    ):
        fix.create_branch("more", "own")
    with pytest.raises(NotFoundError, match="tag 'nowhere' does not exist") as error:
        table.create_branch("more", "nowhere")
    assert "good" in error.value.hint
    assert table.branches() == ["fix"]


@pytest.mark.parametrize("name", ["main", "MAIN", "17", "a/b", "", ".", "a b", "main@1", "x" * 129])
def test_names_that_no_branch_may_have(name):
    table = tagged()
    with pytest.raises(InvalidNameError):
        table.create_branch(name, "good")
    assert table.branches() == []


def test_tags_of_the_table_itself_begin_no_branch():
    table = tagged()
    table.create_savepoint(2)
    with pytest.raises(InvalidNameError, match="belongs to the table itself"):
        table.create_branch("fix", "anabranch-savepoint-1")


def test_a_name_is_taken_once():
    table = tagged()
    table.create_branch("fix", "good")
    with pytest.raises(AlreadyExistsError, match="branch 'fix' exists already"):
        table.create_branch("fix", "good")
    assert len(pins(table)) == 1


# Dying and competing


@pytest.mark.parametrize("how", first_short([{"tag": "good"}, {"snapshot": 2}]), ids=["tag", "snapshot"])
def test_a_creation_that_died_is_finished_by_the_next(how):
    whole = {"fix", "fork pin", "readable"}
    died = 0
    for left in deaths(tagged(), lambda table: table.create_branch("fix", **how)):
        table = again(left)
        begun = "branch/branch-fix/FORK" in paths(table)
        uuid = None if not begun else table.context.on_branch("fix").fork.branch_uuid
        try:
            table.branch("fix")
        except NotFoundError:
            died += 1
            table.create_branch("fix", **how)
        else:
            with pytest.raises(AlreadyExistsError):
                table.create_branch("fix", **how)
        fix = table.branch("fix")
        assert uuid in (None, fix.branch_uuid), "it is the branch that was begun"
        assert ids_of(fix) == list(range(fix.snapshot.id))
        assert f"{FORK_PIN}{fix.branch_uuid}" in pins(table)
        fix.append(rows(100, 1))
        block = fix.alter().add_column("n", "INT").apply().field("n").id
        assert block == 4096 * fix.context.fork.field_id_block
        assert table.maintain(dry_run=True).branches.pins.lost == ()
    assert died > 5, whole


def test_a_half_made_branch_is_none():
    for left in deaths(tagged(), lambda table: table.create_branch("fix", "good")):
        table = again(left)
        has_snapshot = "branch/branch-fix/snapshot/snapshot-3" in paths(table)
        if has_snapshot:
            assert ids_of(table.branch("fix")) == [0, 1, 2]
            continue
        with pytest.raises(NotFoundError):
            table.branch("fix")
        table.expire_snapshots(retain_max=2, retain_min=2)  # what is half made does not stand in the way
        if table.branches():
            table.create_branch("fix", "good")
            assert ids_of(table.branch("fix")) == [0, 1, 2], "its pin held it"


def test_nothing_is_written_to_a_branch_that_lost_what_it_began_with():
    """It would begin a history of its own, without the rows of main."""
    table = tagged()
    table.create_branch("fix", "good")
    fix = again(table).branch("fix")
    table.context.storage.delete_many([path for path in paths(table) if "branch-fix/snapshot/" in path])
    before = paths(table)
    with pytest.raises(NotFoundError, match="deleted since it was opened"):
        fix.append(rows(100, 1))
    assert paths(table) - before == set()


def _die(path):
    raise Died(path)


@pytest.mark.long
def test_who_opens_a_branch_while_it_is_made_finds_all_of_it_or_none():
    """The opener stands still before one of its calls, while the creation gets as far as one of its own."""

    def create(table):
        table.create_branch("fix", "good")

    def append(table):
        table.branch("fix").append(rows(100, 1))

    made = tagged()
    create(made)
    appended = 0
    for name, nth in [*calls_of(made, append)][:8]:
        for made_before, nth_made in [*calls_of(tagged(), create)][12:]:
            table = tagged()

            def creation_dies(_, table=table, call=made_before, nth=nth_made):
                with suppress(Died):
                    create(through(again(table), run("before", call, _die, nth=nth)))

            try:
                append(through(again(table), run("before", name, creation_dies, nth=nth)))
                expected = [0, 1, 2, 100]
                appended += 1
            except NotFoundError:
                expected = [0, 1, 2]
            with suppress(AlreadyExistsError):
                create(again(table))
            assert ids_of(again(table).branch("fix")) == expected, (name, nth, made_before, nth_made)
    assert appended


def test_a_begun_branch_is_finished_when_the_tag_is_gone_meanwhile():
    for left in deaths(tagged(), lambda table: table.create_branch("fix", "good")):
        table = again(left)
        table.delete_tag("good")
        if "branch/branch-fix/FORK" not in paths(table):
            with pytest.raises(NotFoundError):
                table.create_branch("fix", "good")
        elif "branch/branch-fix/snapshot/snapshot-3" not in paths(table):
            table.create_branch("fix", "good")
            assert ids_of(table.branch("fix")) == [0, 1, 2]


def test_a_begun_branch_is_not_made_from_another_tag():
    table = tagged()
    table.create_tag("other", 5)
    with pytest.raises(StorageError):
        through(table, lose_answer("put_if_absent", where="branch/branch-fix/schema/*")).create_branch(
            "fix", "good"
        )
    for tag in ("other", "new"):
        with pytest.raises(AlreadyExistsError, match="is being created from tag 'good'"):
            table.create_branch("fix", tag, snapshot=5)
    table.replace_tag("good", 5)
    with pytest.raises(AlreadyExistsError, match="which named snapshot 3"):
        table.create_branch("fix", "good")
    with pytest.raises(NotFoundError, match="is being created"):
        table.branch("fix")
    table.delete_branch("fix")
    table.create_branch("fix", "good")
    assert ids_of(table.branch("fix")) == [0, 1, 2, 3, 4]
    assert len(pins(table)) == 1


def test_of_two_creators_of_one_name_one_makes_it():
    """The other comes in before any call of this one."""
    calls = [*calls_of(tagged(), lambda table: table.create_branch("fix", "good"))]
    for name, nth in calls:
        table = tagged()
        other, met = again(table), []

        def come_between(path, other=other, met=met):
            met.append(path)
            other.create_branch("fix", "good", created_by="other")

        mine = through(table, run("before", name, come_between, nth=nth))
        try:
            mine.create_branch("fix", "good", created_by="mine")
        except AlreadyExistsError:
            assert met, "only because of the other"
        assert len(met) == 1
        fix = table.branch("fix")
        assert ids_of(fix) == [0, 1, 2]
        assert pins(table) == [f"{FORK_PIN}{fix.branch_uuid}"]
        fix.append(rows(100, 1))


def test_a_tag_that_expires_while_it_is_used():
    """The pin is put, and then it is looked whether what it pins is there still."""
    table = tagged()

    def expire(path):
        table.delete_tag("good")
        table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")

    racing = through(table, run("before", "put", expire, where=f"tag/tag-{FORK_PIN}*"))
    with pytest.raises(NotFoundError, match="was removed while"):
        racing.create_branch("fix", "good")
    assert table.branches() == []
    assert pins(table) == []

    table = tagged()
    held = through(table, run("after", "put", lambda path: _expire_all(table), where=f"tag/tag-{FORK_PIN}*"))
    held.create_branch("fix", "good")
    assert ids_of(table.branch("fix")) == [0, 1, 2]


@pytest.mark.parametrize("when", first_short(["before", "after"]))
def test_days_pass_between_any_two_calls_of_a_creation(when):
    """The pin is taken for one of a killed creation, the tag is deleted, and all it held expires."""
    outcomes = set()
    for name, nth in calls_of(tagged(), lambda table: table.create_branch("fix", "good")):
        table = tagged()

        def days_pass(path, table=table):
            if table.branches():
                return  # from here on pins are not taken for others'
            for pin in pins(table):
                table.context.storage.delete(table.context.layout.tag_path(pin))
            table.delete_tag("good")
            _expire_all(table)

        try:
            through(table, run(when, name, days_pass, nth=nth)).create_branch("fix", "good")
        except NotFoundError:
            assert table.branches() == []
            outcomes.add("refused")
        else:
            _expire_all(table)
            assert ids_of(again(table).branch("fix")) == [0, 1, 2]
            outcomes.add("made")
        assert again(table).verify().ok
    assert outcomes == {"made", "refused"}


def test_who_holds_a_branch_that_was_deleted_and_is_just_being_made_again_is_told():
    """Its fork is there, and its schemas are not yet. Seed 910239 of the simulated branches."""
    table = tagged()
    table.create_branch("fix", "good")
    held = again(table).branch("fix")
    for info in list(table.context.storage.list(held.context.layout.schema_folder)):
        table.context.storage.delete(info.path)
    with pytest.raises(NotFoundError, match="has no schema"):
        held.append(rows(100, 1))


def _expire_all(table):
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")


def test_a_branch_that_is_deleted_while_it_is_created():
    for at in range(1, 20):
        table, deleted = tagged(), []

        def delete(path, table=table, deleted=deleted):
            if table.branches() and not deleted:
                deleted.append(path)
                table.delete_branch("fix")

        hooked = through(table, run("after", "put_if_absent", delete, nth=at, where="branch/branch-fix/*"))
        try:
            hooked.create_branch("fix", "good")
        except AnabranchError as error:
            assert deleted, error
            assert "deleted while it was created" in error.message
            assert table.branches() == []
            assert pins(table) == []
            table.create_branch("fix", "good")
        assert ids_of(table.branch("fix")) == [0, 1, 2]
        if not deleted:
            break
    assert at > 4


def test_leavings_under_the_name_are_not_taken_for_a_branch():
    """A writer to a deleted branch may die right after it put its snapshot."""
    table = tagged()
    snapshot = table.context.storage.get("snapshot/snapshot-4")
    table.context.storage.put("branch/branch-fix/snapshot/snapshot-4", snapshot)
    with pytest.raises(NotFoundError, match="does not exist"):
        table.branch("fix")
    with pytest.raises(AlreadyExistsError, match="in the way"):
        table.create_branch("fix", "good")
    table.delete_branch("fix")
    table.create_branch("fix", "good")
    assert table.branch("fix").snapshot.id == 3


def test_what_dead_creators_pinned_goes_after_a_day():
    for left in deaths(tagged(), lambda table: table.create_branch("fix", "good")):
        table = later(again(left), 2 * 86_400_000)
        made = "branch/branch-fix/snapshot/snapshot-3" in paths(table)
        table.maintain()
        assert len(pins(table)) == made
        assert table.branches() == ["fix"] * made


# Numbers of columns


def test_tables_with_more_columns_than_a_block():
    """Ids beyond the first block that nobody reserved: the table is older, or was made with so many columns."""
    table = tagged()
    late = replace(table.schema.field("v"), id=4200, name="late")
    fields = (*table.schema.fields, late)
    wide = replace(table.schema, id=1, fields=fields, highest_field_id=4201)
    table.context.storage.put(table.context.layout.schema_path(1), wide.to_json())
    table.append(rows(6, 1))
    table.create_branch("fix", snapshot=7)
    fix = table.branch("fix")
    assert fix.alter().add_column("n", "INT").apply().field("n").id == 2 * 4096
    assert table.alter().add_column("n", "INT").apply().field("n").id == 4202
    assert ids_of(fix) == ids_of(table) == [0, 1, 2, 3, 4, 5, 6]


def test_main_leaves_the_blocks_of_branches_out():
    table = tagged()
    schema = table.schema
    layout, storage = table.context.layout, table.context.storage
    storage.put(layout.schema_path(1), replace(schema, id=1, highest_field_id=4094).to_json())
    table.create_branch("fix", "good")
    assert table.alter().add_column("last", "INT").apply().field("last").id == 4095
    # One column with two fields does not fit before the branch's block.
    added = table.alter().add_column("s", "ROW<x INT, y INT>").apply().field("s")
    assert [added.id, *(f.id for f in added.type.fields)] == [8192, 8193, 8194]
    assert table.branch("fix").alter().add_column("n", "INT").apply().field("n").id == 4096
    assert table.alter().add_column("next", "INT").apply().field("next").id == 8195
    table.create_branch("more", "good")
    assert table.branch("more").alter().add_column("n", "INT").apply().field("n").id == 3 * 4096


def test_a_branch_counts_on_beyond_its_block():
    table = tagged()
    for name in ("a", "b"):
        table.create_branch(name, "good")
    a = table.branch("a")
    newest = a.schema
    full = replace(newest, id=newest.id + 1, highest_field_id=8191)
    a.context.storage.put(a.context.layout.schema_path(full.id), full.to_json())
    assert again(a).alter().add_column("n", "INT").apply().field("n").id == 3 * 4096

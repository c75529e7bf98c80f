"""Schema changes by several at a time: none is lost, none is half there, and rows keep their meaning."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from threading import Barrier

import pyarrow as pa
import pytest

import anabranch
from anabranch.kernel.actions.append import Append
from tests.support.faults import FaultyStorage, lose_answer, lose_request, run
from tests.support.lengths import first_short
from tests.support.processes import forking
from tests.support.tables import ids_of, make_table, rows, written


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path)


QUEUE = {"bucket": "2", "bucket-key": "id"}


def _check_versions(table, count):
    """So many versions without a gap, each new column under an id that was never used."""
    schemas = table.schemas()
    assert [schema.id for schema in schemas] == list(range(count))
    for before, after in pairwise(schemas):
        assert len({f.id for f in after.fields}) == len(after.fields)
        added = {f.id for f in after.fields} - {f.id for f in before.fields}
        assert all(before.highest_field_id < i <= after.highest_field_id for i in added)
    return schemas


def test_columns_added_by_many_at_once_are_all_there(table, tmp_path):
    def add(number):
        return anabranch.connect(str(tmp_path)).table("db.t").alter().add_column(f"c{number}", "INT").apply()

    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(add, range(16))]
    assert sorted(schema.id for schema in made) == list(range(1, 17))
    newest = _check_versions(table, 17)[-1]
    assert {f.name for f in newest.fields} == {"id", "v", *(f"c{i}" for i in range(16))}


def _add_columns(url, number, times):
    table = anabranch.connect(url).table("db.t")
    for i in range(times):
        table.alter().add_column(f"c{number}_{i}", "INT").apply()
        table.append(rows(100 * number + i, 1))


@pytest.mark.long
def test_processes_change_the_schema_and_append(table, tmp_path):
    with forking(__name__).Pool(3) as pool:
        pool.starmap(_add_columns, [(str(tmp_path), number, 3) for number in range(3)])
    newest = _check_versions(table, 10)[-1]
    assert len(newest.fields) == 11
    assert ids_of(table) == [100 * number + i for number in range(3) for i in range(3)]
    assert table.snapshot.schema_id == max(s.schema_id for s in table.snapshots())


def test_of_changes_that_exclude_each_other_one_is_made(table, tmp_path):
    together = Barrier(4)

    def rename(number):
        mine = anabranch.connect(str(tmp_path)).table("db.t")
        together.wait()
        try:
            return mine.alter().rename_column("v", f"v{number}").apply()
        except (anabranch.CommitConflictError, anabranch.SchemaError) as error:
            assert "'v'" in str(error)
            return None

    with ThreadPoolExecutor(4) as pool:
        made = [schema for schema in pool.map(rename, range(4)) if schema is not None]
    assert len(made) == 1
    assert _check_versions(anabranch.connect(str(tmp_path)).table("db.t"), 2)[-1] == made[0]


def _between(table, act):
    """The table as one sees it who is overtaken right before putting a schema."""
    fault = run("before", "put_if_absent", lambda path: act(), where="schema/*")
    return anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, [fault])))


def test_a_change_is_applied_to_what_another_made_of_the_schema_meanwhile(table):
    other = _between(table, lambda: table.alter().rename_column("v", "w").apply())
    changed = other.alter().add_column("n", "INT").apply()
    assert [f.name for f in changed.fields] == ["id", "w", "n"]
    assert changed.id == 2


def test_a_change_is_refused_if_another_took_its_column_away_meanwhile(table):
    other = _between(table, lambda: table.alter().drop_column("v").apply())
    with pytest.raises(anabranch.CommitConflictError, match="dropped 'v'.*'v' does not exist") as caught:
        other.alter().rename_column("v", "w").apply()
    assert caught.value.conflicts[0].kind == "SCHEMA_CHANGED"
    assert [f.name for f in table.schema.fields] == ["id"]


CROSSING = {
    "add, added": (lambda a: a.add_column("n", "INT"), lambda a: a.add_column("n", "STRING"), "added 'n'"),
    "drop, renamed": (
        lambda a: a.drop_column("v"),
        lambda a: a.rename_column("v", "w"),
        "renamed 'v' to 'w'",
    ),
    "drop, came back": (
        lambda a: a.drop_column("v"),
        lambda a: a.drop_column("v").add_column("v", "STRING"),
        "'v' is another column",
    ),
    "rename, came back": (
        lambda a: a.add_column("n", "INT").rename_column("v", "w"),
        lambda a: a.drop_column("v").add_column("v", "STRING"),
        "'v' is another column",
    ),
    "add inside, came back": (
        lambda a: a.add_column("r.z", "INT"),
        lambda a: a.drop_column("r").add_column("r", "ROW<x INT>"),
        "'r.z' is another column",
    ),
    "widen, widened": (
        lambda a: a.widen_column("r.x", "BIGINT"),
        lambda a: a.widen_column("r.x", "DOUBLE"),
        "changed 'r.x' from INT to DOUBLE",
    ),
    "drop the last, dropped": (
        lambda a: a.drop_column("r.x"),
        lambda a: a.drop_column("r.y"),
        "dropped 'r.y'",
    ),
    "set option, key renamed": (
        lambda a: a.set_option("bucket", "2").set_option("bucket-key", "v"),
        lambda a: a.rename_column("v", "w"),
        "renamed 'v' to 'w'",
    ),
}
COMPATIBLE = {
    "rename, widened": (
        lambda a: a.rename_column("r.x", "z"),
        lambda a: a.widen_column("r.x", "BIGINT"),
        "id BIGINT NOT NULL, v STRING, r ROW<z BIGINT, y INT>",
    ),
    "add after, moved": (
        lambda a: a.add_column("n", "INT", after="v"),
        lambda a: a.move_column("v", first=True),
        "v STRING, n INT, id BIGINT NOT NULL, r ROW<x INT, y INT>",
    ),
    "add and use, added": (
        lambda a: a.add_column("n", "INT").rename_column("n", "m"),
        lambda a: a.add_column("o", "INT"),
        "id BIGINT NOT NULL, v STRING, r ROW<x INT, y INT>, o INT, m INT",
    ),
    "allow nulls, renamed": (
        lambda a: a.drop_not_null("id"),
        lambda a: a.rename_column("v", "w"),
        "id BIGINT, w STRING, r ROW<x INT, y INT>",
    ),
}


@pytest.fixture
def nested(tmp_path):
    return make_table(tmp_path, schema="id BIGINT NOT NULL, v STRING, r ROW<x INT, y INT>")


@pytest.mark.parametrize("name", CROSSING)
@pytest.mark.parametrize("when", ["before applying", "while applying"])
def test_of_changes_that_cross_the_later_is_told_what_the_other_did(nested, name, when):
    mine, theirs, told = CROSSING[name]
    if when == "before applying":
        begun = mine(nested.alter())
        theirs(nested.alter()).apply()
    else:
        begun = mine(_between(nested, lambda: theirs(nested.alter()).apply()).alter())
    with pytest.raises(anabranch.CommitConflictError, match="SCHEMA_CHANGED") as caught:
        begun.apply()
    assert told in str(caught.value)
    assert nested.schema.id == 1


@pytest.mark.parametrize("name", COMPATIBLE)
def test_changes_that_go_together_are_both_made(nested, name):
    mine, theirs, columns = COMPATIBLE[name]
    begun = mine(nested.alter())
    theirs(nested.alter()).apply()
    made = begun.apply()
    assert ", ".join(f"{f.name} {f.type}" for f in made.fields) == columns
    assert made.id == nested.schema.id == 2


def test_a_change_that_changes_nothing_makes_no_version(nested):
    change = nested.alter().set_option("owner", "me").add_column("n", "INT")
    first = change.apply()
    assert nested.alter().set_option("owner", "me").widen_column("n", "INT").apply() == first
    assert nested.alter().move_column("n", last=True).remove_option("none").apply() == first
    assert [schema.id for schema in nested.schemas()] == [0, 1]


def test_a_preview_checks_everything_and_writes_nothing(nested):
    change = nested.alter().add_column("r.z", "INT", first=True)
    preview = change.preview()
    assert str(preview.field("r").type) == "ROW<z INT, x INT, y INT>"
    assert [schema.id for schema in nested.schemas()] == [0]
    assert change.apply().fields == preview.fields
    with pytest.raises(anabranch.SchemaError, match="exists already"):
        nested.alter().add_column("v", "INT").preview()


def test_every_change_is_a_value(nested):
    begun = nested.alter().add_column("n", pa.int32(), comment="a number", before="v")
    left, right = begun.drop_column("v"), begun.set_comment("all of it").set_comment("its id", column="id")
    schema = right.apply()
    assert [f.name for f in schema.fields] == ["id", "n", "v", "r"]
    assert (schema.comment, schema.field("id").description) == ("all of it", "its id")
    with pytest.raises(anabranch.CommitConflictError, match="added 'n'"):
        left.apply()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda a: a.set_nullable("v", False), "cannot become NOT NULL"),
        (lambda a: a.set_nullable("r.x", False), "cannot become NOT NULL"),
        (lambda a: a.add_column("r.x", "INT"), "'r.x' exists already"),
        (lambda a: a.add_column("gone.x", "INT"), "'gone' does not exist"),
        (lambda a: a.add_column("r.", "INT"), "no path"),
        (lambda a: a.add_column("n", "INT NOT NULL"), "NOT NULL"),
        (lambda a: a.rename_column("r.x", "v.x"), "stays in its row"),
        (lambda a: a.rename_column("r.x", "r.y"), "'r.y' exists already"),
        (lambda a: a.widen_column("id", "INT"), "does not hold all its values"),
        (lambda a: a.move_column("v"), "nothing says where"),
        (lambda a: a.move_column("v", first=True, after="id"), "several are given"),
        (lambda a: a.add_column("n", 7), "cannot read a type from int"),
        (lambda a: a, "nothing to change"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(nested, change, told):
    with pytest.raises(anabranch.SchemaError, match=told):
        change(
            nested.alter().set_option("owner", "me") if told != "nothing to change" else nested.alter()
        ).apply()
    assert [schema.id for schema in nested.schemas()] == [0]


def test_names_with_dots_stand_between_back_ticks_or_are_tuples(nested):
    nested.alter().add_column(("a.b",), "ROW<`c.d` INT>").add_column("`e.f`", "INT").apply()
    assert [f.name for f in nested.schema.fields][-2:] == ["a.b", "e.f"]
    change = nested.alter().rename_column("`a.b`.`c.d`", "c").widen_column("e.f", "BIGINT")
    change.drop_not_null("`a.b`.c").apply()
    assert str(nested.schema.field("a.b").type) == "ROW<c INT>"
    assert str(nested.schema.field("e.f").type) == "BIGINT"


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "recreated"])
def test_a_change_to_a_table_dropped_meanwhile_leaves_nothing(table, tmp_path, again):
    lake = anabranch.connect(str(tmp_path))

    def drop():
        lake.drop_table("db.t")
        if again:
            make_table(tmp_path, schema="a STRING, b INT")

    with pytest.raises(anabranch.NotFoundError):
        _between(table, drop).alter().add_column("n", "INT").apply()
    assert lake.tables("db") == (["t"] if again else [])
    if again:
        assert [s.id for s in lake.table("db.t").schemas()] == [0]
    else:
        make_table(tmp_path)


@pytest.mark.parametrize("fault", [lose_answer, lose_request], ids=lambda f: f.__name__)
def test_a_change_whose_answer_is_lost_is_made_once(table, fault):
    storage = FaultyStorage(table.context.storage, [fault("put_if_absent")])
    other = anabranch.Table(replace(table.context, storage=storage))
    assert other.alter().add_column("n", "INT").apply().id == 1
    assert [schema.id for schema in table.schemas()] == [0, 1]


@pytest.mark.parametrize("fault", [lose_answer, lose_request], ids=lambda f: f.__name__)
def test_a_store_that_answers_no_more_leaves_the_outcome_open(table, fault):
    storage = FaultyStorage(table.context.storage, [fault("put_if_absent", times=9)])
    other = anabranch.Table(replace(table.context, storage=storage))
    with pytest.raises(anabranch.CommitOutcomeUnknownError, match="version 1"):
        other.alter().set_option("target-file-size", "1 mb").apply()
    assert table.alter().set_option("target-file-size", "1 mb").apply().id == 1
    _check_versions(table, 2)


class _Died(BaseException):
    """The process ends here; nothing it would do in response happens."""


def _change_all(table, faults=()):
    """Change columns and the key of a queue through a store with faults; returns its calls."""
    storage = FaultyStorage(table.context.storage, faults)
    anabranch.Table(replace(table.context, storage=storage)).alter().add_column("n", "INT").set_option(
        "bucket-key", "v"
    ).apply()
    return [call.name for call in storage.calls]


@pytest.mark.parametrize("when", first_short(["before", "after"]))
def test_a_writer_that_dies_at_any_call_leaves_a_whole_schema(tmp_path, when):
    def die(path):
        raise _Died

    calls = _change_all(make_table(tmp_path, options=QUEUE))
    assert "put_if_absent" in calls
    for at, name in enumerate(calls):
        table = make_table(tmp_path, f"db.t{at}", options=QUEUE)
        died = False
        try:
            _change_all(table, [run(when, name, die, nth=calls[: at + 1].count(name))])
        except _Died:
            died = True
        changed = table.schema.id == 1
        assert died or (changed and when == "after")  # a call that found nothing has no after
        assert [f.name for f in table.schema.fields] == (["id", "v", "n"] if changed else ["id", "v"])
        assert table.schema.bucket_keys == (("v",) if changed else ("id",))
        table.append(rows(0, 5))
        assert ids_of(table, filter="id = 3 AND v = 'v3'") == [3]
        assert table.alter().add_column("m", "INT").apply() == table.schema


# Where rows lie may change until the first are there


PLACEMENTS = {
    "bucket-key": ({"options": QUEUE}, {"bucket-key": "v"}),
    "bucket": ({}, {"bucket": "2", "bucket-key": "id"}),
    "partition.legacy-name": ({"partition_by": ["v"]}, {"partition.legacy-name": "false"}),
}


def _placed(tmp_path, name):
    how, options = PLACEMENTS[name]
    table = make_table(tmp_path, **how)

    def change(other):
        changes = other.alter()
        for key, value in options.items():
            changes = changes.set_option(key, value)
        return changes.apply()

    return table, change


@pytest.mark.parametrize("name", PLACEMENTS)
def test_rows_written_for_another_placement_are_not_committed(tmp_path, name):
    table, change = _placed(tmp_path, name)
    messages = written(table, 0, 3)
    change(table)
    with pytest.raises(anabranch.CommitConflictError, match="PLACEMENT_CHANGED|BUCKET_COUNT_CHANGED"):
        table.commit(Append(messages))
    table.append(rows(0, 3))
    assert ids_of(table, filter="id = 1") == [1]
    other = make_table(tmp_path, "db.other", **PLACEMENTS[name][0])
    other.append(rows(0, 1))
    with pytest.raises(anabranch.OptionError, match="has snapshots"):
        change(other)


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_first_commit_that_crosses_a_change_of_placement_gives_way(tmp_path, name, when):
    """The commit looked at the schema before it changed, the change at the snapshots before there were any."""
    table, change = _placed(tmp_path, name)
    fault = run(when, "put_if_absent", lambda path: change(table), where="snapshot/*")
    other = anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, [fault])))
    if when == "before":
        with pytest.raises(anabranch.CommitConflictError, match="PLACEMENT_CHANGED|BUCKET_COUNT_CHANGED"):
            other.append(rows(0, 3))
        assert table.snapshot is None
    else:
        with pytest.raises(anabranch.OptionError, match="has snapshots"):
            other.append(rows(0, 3))


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_change_of_placement_that_crosses_the_first_commit_is_taken_back(tmp_path, name):
    table, change = _placed(tmp_path, name)
    fault = run("before", "put_if_absent", lambda path: table.append(rows(0, 3)), where="schema/*")
    other = anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, [fault])))
    with pytest.raises(anabranch.CommitConflictError, match="PLACEMENT_CHANGED"):
        change(other)
    assert (table.schema.id, table.schema.options) == (2, table.schemas()[0].options)
    table.append(rows(3, 1))
    assert ids_of(table) == [0, 1, 2, 3]
    assert [ids_of(table, filter=f"id = {i}") for i in range(4)] == [[0], [1], [2], [3]]


def test_a_handle_sees_what_others_changed(table, tmp_path):
    table.append(rows(0, 1))
    other = anabranch.connect(str(tmp_path)).table("db.t")
    other.alter().add_column("n", "INT").apply()
    other.append(pa.table({"id": [1], "v": ["x"], "n": pa.array([7], pa.int32())}))
    assert table.schema.id == 1
    assert table.scan("n = 7").to_arrow().to_pylist() == [{"id": 1, "v": "x", "n": 7}]
    assert table.at(1).schema.id == 0

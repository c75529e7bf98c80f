"""Commits of unknown origin that may belong to an answer are listed by it, and what a stream held in state is in it."""

import json

import anabranch
from anabranch.kernel.actions.append import Append
from anabranch.lineage.joining import made_of, spanning
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, SourceInput, TableInput
from anabranch.streaming.offsets import BEGINNING, Position
from tests.support.tables import SCHEMA, rows, written


def state(table, snapshot):
    end = Position(snapshot, None, full=True)
    return TableInput(table.name, table.table_uuid, table.branch_uuid, BEGINNING, end)


def changes(table, after, through):
    ends = Position(after, None), Position(through, None)
    return TableInput(table.name, table.table_uuid, table.branch_uuid, *ends)


def commit(table, batch, inputs, **more):
    entry = LineageEntry("j", "run", None, Engine("spark", query="q", batch=batch), inputs, **more)
    number = 0 if table.snapshot is None else table.snapshot.id
    return table.commit(
        Append(written(table, 100 + number, 1)), properties={LINEAGE_PROPERTY: entry.to_json()}
    )


def test_impact_lists_the_commits_of_other_tables_that_nobody_said_the_origin_of(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    orders, report, other = (lake.create_table(f"db.{n}", SCHEMA) for n in ("orders", "report", "other"))
    orders.append(rows(1, 2))
    report.append(rows(1, 1))
    report.append(rows(2, 1))
    commit(other, 0, (changes(orders, 0, 1),), problems=("a source of the rows is not known: X",))
    commit(other, 1, (), problems=("a source of the rows is not known: X",))
    found = orders.lineage.impact(1)
    assert found.tables == ("db.orders", "db.other")
    assert [(u.table, u.snapshots) for u in found.unknown] == [
        ("db.other", ((2, 2),)),
        ("db.report", ((1, 2),)),
    ]
    assert found.problems[-1] == (
        "db.report, snapshots 1..2, may belong here: not said where the rows come from"
    )
    assert json.loads(json.dumps(found.to_dict()))["unknown"][0]["table"] == "db.other"
    # Upstream they are no question: what is asked about was there before.
    assert orders.lineage.upstream(1).unknown == ()


def test_rows_made_of_state_belong_to_all_that_was_held(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    orders, names, out = (lake.create_table(f"db.{n}", SCHEMA) for n in ("orders", "names", "out"))
    for start in (1, 3, 5):
        orders.append(rows(start, 2))
        names.append(rows(start, 2))
    held = (changes(orders, 0, 3), spanning(state(names, 1), state(names, 3)))
    commit(out, 0, (changes(orders, 0, 1), state(names, 1)))
    commit(out, 1, (changes(orders, 1, 3), state(names, 3)), held=held)
    assert orders.lineage.impact(1).snapshots("db.out") == ((1, 2),)
    assert orders.lineage.impact(2).snapshots("db.out") == ((2, 2),)
    assert names.lineage.impact(2).snapshots("db.out") == ((2, 2),)
    assert out.lineage.upstream(2).snapshots("db.orders") == ((1, 3),)
    assert out.lineage.upstream(2).snapshots("db.names") == ((1, 3),)
    (at,) = out.lineage.positions()
    assert [(s.name, s.position["snapshot"]) for s in at.sources] == [("db.orders", 3)]
    rebuilt = lake.lineage.rebuild()
    assert not rebuilt.problems
    assert orders.lineage.impact(1).snapshots("db.out") == ((1, 2),)


def test_entries_keep_what_is_held_and_whether_positions_are_known(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", SCHEMA)
    files = SourceInput("files", "/data", None, None)
    of_stream = SourceInput("files", "source 0", None, {"logOffset": 1}, "/in")
    entry = LineageEntry(
        "j",
        None,
        None,
        Engine("spark", batch=3),
        (of_stream, state(table, 2), files),
        ("what was looked up is not known",),
        held=(changes(table, 0, 4),),
        is_positioned=True,
    )
    again = LineageEntry.from_json(entry.to_json(), where="test")
    assert again == entry
    assert again.consumed == (of_stream,)
    assert again.knows_positions
    assert made_of(again) == (changes(table, 0, 4), of_stream, state(table, 2), files)
    older = LineageEntry.from_json(LineageEntry("j", None, None, Engine("s")).to_json(), where="test")
    assert older.knows_positions
    assert not LineageEntry("j", None, None, Engine("s"), problems=("?",)).knows_positions


def test_one_input_spans_two():
    def at(number, **how):
        return Position(number, "x", **how)

    def given(start, end):
        return TableInput("db.t", "t", "t", start, end)

    two, five = given(BEGINNING, at(2, full=True)), given(BEGINNING, at(5, full=True))
    assert spanning(two, two) == two
    both = given(at(2, files=0, full=True), at(5))
    assert (spanning(two, five), spanning(five, two), spanning(both, five)) == (both, both, both)
    assert spanning(given(at(1), at(2)), given(at(4), at(6))) == given(at(1), at(6))
    assert spanning(given(at(1), at(3)), five) == given(at(1, files=0, full=True), at(5))

"""Merging two schemas: every rule by example, and laws that hold whatever was changed."""

import random
from dataclasses import replace

import pytest

from anabranch.errors import AnabranchError
from anabranch.format.schema.change import (
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SetColumnComment,
    SetComment,
    SetNullable,
    SetOption,
)
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.types.field_tree import After, First
from anabranch.kernel.merge.schema import merge_schemas
from tests.branches.merge_schemas import add, changed, on_branch, schema, widen

WATERMARK = {
    "schema.watermark.0.rowtime": "ts",
    "schema.watermark.0.strategy.expr": "`ts` - INTERVAL '5' SECOND",
}


def merged(ours=(), theirs=(), base=None):
    base = base or schema()
    result = merge_schemas(base, changed(base, *ours), on_branch(base, *theirs))
    assert not isinstance(result, list), [str(c) for c in result]
    return result.schema


def conflicts(ours=(), theirs=(), base=None):
    base = base or schema()
    result = merge_schemas(base, changed(base, *ours), on_branch(base, *theirs))
    assert isinstance(result, list), "nothing stands against it"
    assert all(c.message and c.hint for c in result)
    return [c.kind for c in result]


def names(found):
    return [f.name for f in found.fields]


def type_of(found, *path):
    data_type = found.field(path[0]).type
    for step in path[1:]:
        data_type = (
            next(f.type for f in data_type.fields if f.name == step)
            if hasattr(data_type, "fields")
            else getattr(data_type, step)
        )
    return str(data_type)


# What goes together


def test_nothing_changed_is_mains_schema():
    base = schema()
    result = merge_schemas(base, base, on_branch(base))
    assert result.schema is base
    assert result.changes == []
    assert not result.needs_block


def test_columns_added_on_both_sides_are_taken_in():
    found = merged([add("mine", "INT", First()), add("last")], [add("theirs", "INT", After("b")), add("end")])
    assert names(found) == ["mine", "a", "b", "theirs", "c", "ts", "s", "l", "m", "last", "end"]


def test_main_counts_on_in_a_block_of_its_own_after_taking_ids_of_the_branch():
    base = schema()
    result = merge_schemas(base, changed(base, add("mine")), on_branch(base, add("theirs")))
    assert result.changes == ["added 'theirs'"]
    assert result.needs_block
    put = result.numbered(2, time_millis=7)
    assert (put.id, put.time_millis, put.highest_field_id) == (2, 7, 2 * 4096 - 1)
    assert changed(put, add("next")).field("next").id == 2 * 4096


def test_no_block_is_needed_where_no_ids_are_taken_in():
    base = schema()
    result = merge_schemas(base, changed(base, add("mine")), on_branch(base, DropColumn("c")))
    assert not result.needs_block
    assert result.numbered(None, time_millis=0).highest_field_id == base.highest_field_id + 1


def test_columns_dropped_on_either_side_are_dropped():
    assert names(merged([DropColumn("b")], [DropColumn("c"), DropColumn("l")])) == ["a", "ts", "s", "m"]
    assert "b" not in names(merged([DropColumn("b")], [DropColumn("b")]))


def test_a_column_renamed_on_one_side_and_widened_on_the_other():
    found = merged([RenameColumn("c", "count")], [widen("c", "BIGINT")])
    assert type_of(found, "count") == "BIGINT"
    found = merged([widen("c", "BIGINT")], [RenameColumn("c", "count")])
    assert type_of(found, "count") == "BIGINT"
    assert names(merged([RenameColumn("c", "d")], [RenameColumn("c", "d")]))[2] == "d"


def test_names_may_be_exchanged_by_one_side():
    found = merged([], [RenameColumn("b", "x"), RenameColumn("c", "b"), RenameColumn("x", "c")])
    assert [(f.id, f.name) for f in found.fields[1:3]] == [(1, "c"), (2, "b")]


def test_the_wider_type_is_taken():
    base = schema("a TINYINT, d DECIMAL(5, 2), v VARCHAR(5)")
    found = merged(
        [widen("a", "INT"), widen("d", "DECIMAL(8, 2)"), widen("v", "VARCHAR(9)")],
        [widen("a", "SMALLINT"), widen("d", "DECIMAL(9, 3)"), widen("v", "STRING")],
        base,
    )
    assert [str(f.type) for f in found.fields] == ["INT", "DECIMAL(9, 3)", "STRING"]


def test_nulls_allowed_on_one_side_are_allowed():
    assert type_of(merged([SetNullable("a")], []), "a") == "INT"
    assert type_of(merged([widen("a", "BIGINT")], [SetNullable("a")]), "a") == "BIGINT"


def test_fields_inside_rows_arrays_and_maps_are_merged_alike():
    found = merged(
        [add("s.z"), widen(("l", "element", "p"), "BIGINT"), DropColumn("s.x")],
        [add("s.w"), RenameColumn("s.y", "v"), add(("m", "value", "r"))],
    )
    assert type_of(found, "s") == "ROW<v INT, z INT, w INT>"
    assert type_of(found, "l") == "ARRAY<ROW<p BIGINT>>"
    assert type_of(found, "m") == "MAP<STRING, ROW<q INT, r INT>>"


def test_the_branch_orders_columns_where_main_did_not():
    assert names(merged([], [MoveColumn("c", First())]))[:2] == ["c", "a"]
    assert names(merged([MoveColumn("b", First())], [MoveColumn("c", First())]))[:3] == ["b", "a", "c"]
    assert names(merged([add("mine", "INT", After("a"))], [MoveColumn("c", First())]))[:3] == [
        "c",
        "a",
        "mine",
    ]


def test_options_are_merged_key_by_key():
    base = schema("a INT", options={"x": "1", "y": "1", "z": "1"})
    found = merged(
        [SetOption("x", "2"), RemoveOption("z"), SetOption("same", "1")],
        [SetOption("y", "2"), RemoveOption("z"), SetOption("same", "1"), SetOption("new", "1")],
        base,
    )
    assert found.options == {"x": "2", "y": "2", "same": "1", "new": "1"}


def test_options_about_columns_follow_them():
    base = schema(
        "a INT, b INT, c INT", options={"fields.a.stats-mode": "none", "fields.c.stats-mode": "full"}
    )
    found = merged(
        [RenameColumn("a", "z"), DropColumn("c"), SetOption("fields.b.stats-mode", "none")],
        [SetOption("fields.a.stats-mode", "full"), RenameColumn("b", "y")],
        base,
    )
    assert found.options == {"fields.z.stats-mode": "full", "fields.y.stats-mode": "none"}


def test_the_identity_of_the_table_is_mains():
    uuid = "00000000-0000-0000-0000-000000000001"
    base = schema("a INT", options={"anabranch.table-uuid": uuid})
    theirs = on_branch(base)
    theirs = replace(theirs, options={**theirs.options, "anabranch.table-uuid": uuid.replace("1", "2")})
    assert merge_schemas(base, base, theirs).schema.options["anabranch.table-uuid"] == uuid


def test_the_watermark_follows_its_column():
    base = schema(options=WATERMARK)
    found = merged([RenameColumn("ts", "at")], [SetOption("schema.watermark.0.strategy.expr", "`ts`")], base)
    assert found.options["schema.watermark.0.rowtime"] == "at"
    assert found.options["schema.watermark.0.strategy.expr"] == "`at`"
    found = merged([], [SetOption(key, value) for key, value in WATERMARK.items()])
    assert WATERMARK.items() <= found.options.items()
    found = merged([RemoveOption(key) for key in WATERMARK], [add("theirs")], base)
    assert not [key for key in found.options if "watermark" in key]


def test_a_bucket_key_follows_its_column():
    base = schema("a INT, b INT", options={"bucket": "4", "bucket-key": "a,b"})
    assert merged([add("mine")], [RenameColumn("b", "y")], base).options["bucket-key"] == "a,y"


def test_an_assigned_bucket_key_decides_nothing():
    base = schema("a INT, b INT", options={"bucket": "1"})
    assert base.options["bucket-key"] == "a"
    assert merged([], [DropColumn("a")], base).options["bucket-key"] == "b"
    assert merged([DropColumn("a")], [RenameColumn("b", "y")], base).options["bucket-key"] == "y"


def test_comments_never_conflict():
    found = merged(
        [SetComment("main"), SetColumnComment("a", "main")],
        [SetComment("branch"), SetColumnComment("a", "branch"), SetColumnComment("b", "branch")],
    )
    assert (found.comment, found.field("a").description, found.field("b").description) == (
        "main",
        "main",
        "branch",
    )
    assert merged([], [SetComment("branch")]).comment == "branch"


def test_what_main_dropped_before_an_earlier_merge_stays_dropped():
    """The base of a later merge is the branch's schema then, which still had it."""
    base = schema()
    theirs = on_branch(base, add("theirs"))
    first = merge_schemas(base, changed(base, DropColumn("b")), theirs).numbered(2, time_millis=0)
    later = changed(theirs, add("more"))
    second = merge_schemas(theirs, first, later).schema
    assert names(second) == ["a", "c", "ts", "s", "l", "m", "theirs", "more"]


# What does not


@pytest.mark.parametrize(
    ("ours", "theirs", "kinds"),
    [
        ([add("n")], [add("n")], ["NAME_CLASH"]),
        ([add("n")], [RenameColumn("b", "n")], ["NAME_CLASH"]),
        ([add("s.n")], [add("s.n")], ["NAME_CLASH"]),
        ([RenameColumn("b", "x")], [RenameColumn("b", "y")], ["RENAME_CLASH"]),
        ([DropColumn("b")], [RenameColumn("b", "y")], ["DROP_VS_CHANGE"]),
        ([widen("c", "BIGINT")], [DropColumn("c")], ["DROP_VS_CHANGE"]),
        ([DropColumn("s")], [add("s.n")], ["DROP_VS_CHANGE"]),
        ([DropColumn("s.x")], [widen("s.x", "BIGINT")], ["DROP_VS_CHANGE"]),
        ([widen("c", "BIGINT")], [widen("c", "DOUBLE")], ["TYPE_CLASH"]),
        ([SetOption("x", "1")], [SetOption("x", "2")], ["OPTION_CLASH"]),
        ([DropColumn("s.x")], [DropColumn("s.y")], ["SCHEMA_CLASH"]),
        (
            [SetOption("snapshot.num-retained.max", "5")],
            [SetOption("snapshot.num-retained.min", "8")],
            ["SCHEMA_CLASH"],
        ),
        ([DropColumn("ts")], [SetOption(k, v) for k, v in WATERMARK.items()], ["DROP_VS_CHANGE"]),
        (
            [RenameColumn("b", "x"), widen("c", "BIGINT"), SetOption("o", "1")],
            [RenameColumn("b", "y"), DropColumn("c"), SetOption("o", "2")],
            ["RENAME_CLASH", "DROP_VS_CHANGE", "OPTION_CLASH"],
        ),
    ],
)  # fmt: skip
def test_what_both_changed_differently_is_a_conflict(ours, theirs, kinds):
    assert conflicts(ours, theirs) == kinds


def test_two_watermarks_are_one_conflict():
    delay = "schema.watermark.0.strategy.expr"
    ours, theirs = ([SetOption(delay, f"`ts` - INTERVAL '{n}' SECOND")] for n in (6, 7))
    assert conflicts(ours, theirs, schema(options=WATERMARK)) == ["OPTION_CLASH"]
    # In other words it is the same.
    assert merged([SetOption(delay, "ts - INTERVAL '60' SECOND")], [SetOption(delay, "`ts` - INTERVAL '1' MINUTE")],
                  schema(options=WATERMARK))  # fmt: skip


def test_buckets_must_agree():
    base = schema("a INT, b INT", options={"bucket": "2", "bucket-key": "a"})
    assert conflicts([SetOption("bucket", "4")], [], base) == ["BUCKET_CLASH"]
    assert conflicts([], [SetOption("bucket", "4")], base) == ["BUCKET_CLASH"]
    other = schema("a INT, b INT", options={"bucket": "2", "bucket-key": "b"})
    assert [c.kind for c in merge_schemas(base, base, other)][:1] == ["BUCKET_CLASH"]


def test_partition_keys_must_agree():
    base = schema("a INT, b INT, c INT", partition_keys=("a",))
    other = replace(on_branch(base), partition_keys=("b",))
    assert [c.kind for c in merge_schemas(base, base, other)] == ["PARTITION_CLASH"]


def test_not_null_is_not_taken_in():
    """Only other engines add such columns, or forbid nulls."""
    base = schema()
    field = replace(parse_columns("n INT NOT NULL")[0], id=4096)
    theirs = replace(on_branch(base), fields=(*base.fields, field), highest_field_id=4096)
    assert [c.kind for c in merge_schemas(base, base, theirs)] == ["NOT_NULL_CLASH"]
    assert [c.kind for c in merge_schemas(base, replace(theirs, id=1), on_branch(base))] == ["NOT_NULL_CLASH"]
    tight = tuple(replace(f, type=f.type.with_nullable(False)) if f.name == "c" else f for f in base.fields)
    assert [c.kind for c in merge_schemas(base, base, replace(base, fields=tight))] == ["NOT_NULL_CLASH"]


def test_equal_ids_of_different_columns_are_a_conflict():
    """A branch that another engine made has no block."""
    base = schema()
    ours, theirs = changed(base, add("mine")), changed(base, add("theirs"))
    assert [c.kind for c in merge_schemas(base, ours, theirs)] == ["FIELD_ID_CLASH"]
    nested = changed(base, add("s.theirs"))
    assert [c.kind for c in merge_schemas(base, ours, nested)] == ["FIELD_ID_CLASH"]
    # The same column on both, by the same engine, is the same.
    assert merge_schemas(base, ours, changed(base, add("mine"))).schema is ours


# Laws


def random_changes(rng, start, count):
    """Some changes that the schema takes, one after the other."""
    now = start
    for n in range(count):
        columns = names(now)
        some = rng.choice(columns)
        paths = [some, "s.x", "s.y", "l.element.p", "m.value.q"]
        change = rng.choice([
            add(f"{rng.choice(['', 's.'])}{rng.choice('abcdefgh')}{n}"),
            DropColumn(rng.choice(paths)),
            RenameColumn(some, rng.choice([*"uvwxyz"])),
            widen(rng.choice(paths), rng.choice(["SMALLINT", "BIGINT", "DOUBLE", "STRING"])),
            SetNullable(some),
            MoveColumn(some, rng.choice([First(), After(rng.choice(columns))])),
            SetOption(rng.choice("klm"), rng.choice("12")),
            SetComment(rng.choice("xy")),
        ])  # fmt: skip
        try:
            now = changed(now, change)
        except AnabranchError:
            continue
    return now


def state(found):
    return found.fields, dict(found.options), found.comment


@pytest.mark.parametrize("seed", range(150))
def test_laws(seed):
    rng = random.Random(seed)
    base = schema()
    ours = random_changes(rng, base, rng.randrange(5))
    theirs = random_changes(rng, on_branch(base), rng.randrange(5))
    # What only one side did is what there is then.
    assert merge_schemas(base, ours, on_branch(base)).schema is ours
    assert state(merge_schemas(base, base, theirs).schema) == state(theirs)
    assert merge_schemas(base, ours, ours).schema is ours
    result = merge_schemas(base, ours, theirs)
    mirrored = merge_schemas(base, theirs, ours)
    if isinstance(result, list):
        assert isinstance(mirrored, list), [str(c) for c in result]
        return
    both = result.schema
    # Apart from order and comments it does not matter who merges whom.
    tops = {f.id: f.name for f in both.fields}
    assert tops == {f.id: f.name for f in mirrored.schema.fields}
    assert dict(both.options) == dict(mirrored.schema.options)
    was, mine, other = ({f.id: f for f in side.fields} for side in (base, ours, theirs))
    # A column is there if somebody added it, or nobody dropped it.
    assert tops.keys() == (mine.keys() & other.keys()) | ((mine.keys() | other.keys()) - was.keys())
    # Merging it again finds nothing.
    put = result.numbered(2, time_millis=0) if result.needs_block else both
    assert merge_schemas(theirs, put, theirs).schema is put
    # Whoever held a place in one side's order holds it still.
    order = [f.id for f in both.fields]
    leading = (
        theirs
        if [i for i in mine if i in other and i in was] == [i for i in was if i in mine and i in other]
        else ours
    )
    assert [i for i in order if leading.field_by_id(i)] == [f.id for f in leading.fields if f.id in tops]

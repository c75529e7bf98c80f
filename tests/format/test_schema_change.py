"""Changes of a schema."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import (
    InvalidInputError,
    InvalidNameError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)
from anabranch.format.schema.change import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SetColumnComment,
    SetComment,
    SetNullable,
    SetOption,
    WidenColumn,
    apply_changes,
    meant_ids,
)
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types import data_types as t
from anabranch.format.types.field_tree import After, Before, First, Last
from anabranch.format.types.grammar import parse_sql_type
from anabranch.format.types.widening import is_wider

from .schema_values import ATOMIC_TYPES, TYPES, attempt

INT = t.IntType()
STRING = t.VarCharType()
COLUMNS = """
    id BIGINT NOT NULL, dt STRING, name VARCHAR(5), n INT,
    a ARRAY<ROW<b INT, c STRING>>, m MAP<STRING, ROW<d FLOAT>>, l ARRAY<INT NOT NULL>, r ROW<e INT>
"""
TABLE = TableSchema.create(
    parse_columns(COLUMNS),
    partition_keys=["dt"],
    options={"bucket": "4", "bucket-key": "id, name", "fields.n.stats-mode": "none", "owner": "me"},
    comment="before",
    time_millis=1,
)
PLAIN = TableSchema.create(parse_columns("x INT, y INT, z INT"), time_millis=1)


def change(*changes, schema=TABLE, has_snapshots=True):
    return apply_changes(schema, changes, time_millis=99, has_snapshots=has_snapshots)


def names(schema):
    return [f.name for f in schema.fields]


def inner(schema):
    """Every field by name, nested ones too."""
    return {f.name: f for f in t.walk_fields(schema.fields)}


def test_a_change_is_the_next_version():
    old = replace(TABLE, id=6, version=2)
    changed = change(SetComment("after"), schema=old)
    assert changed == replace(old, id=7, version=3, time_millis=99, comment="after")
    assert change(SetComment(None)).comment is None
    assert TableSchema.from_json(changed.to_json(), path="schema/schema-7") == changed


def test_nothing_to_change_is_an_error():
    with pytest.raises(SchemaError, match="nothing"):
        change()


# Adding


def test_a_column_is_added_with_fresh_ids():
    changed = change(AddColumn("new", parse_sql_type("ROW<p INT, q ROW<s INT>>"), "why"))
    highest = TABLE.highest_field_id
    assert changed.fields[:-1] == TABLE.fields
    assert changed.fields[-1].description == "why"
    ids = {name: f.id - highest for name, f in inner(changed).items() if f.id > highest}
    assert ids == {"new": 1, "p": 2, "s": 3, "q": 4}
    assert changed.highest_field_id == highest + 4


def test_an_id_is_never_used_again():
    changed = change(DropColumn("z"), AddColumn("z", INT), schema=PLAIN)
    assert changed.fields[-1] == t.Field(3, "z", INT)
    once = change(DropColumn("z"), schema=PLAIN)
    assert once.highest_field_id == 2
    assert change(AddColumn("z", INT), schema=once).fields[-1].id == 3


@pytest.mark.parametrize(
    ("position", "expected"),
    [(First(), "wxyz"), (Last(), "xyzw"), (Before("y"), "xwyz"), (After("y"), "xywz"), (After("z"), "xyzw")],
)
def test_a_column_is_added_at_its_place(position, expected):
    assert "".join(names(change(AddColumn("w", INT, position=position), schema=PLAIN))) == expected


def test_fields_are_added_inside_arrays_maps_and_rows():
    changed = change(
        AddColumn(("a", "element", "new1"), INT, position=First()),
        AddColumn(("m", "value", "new2"), parse_sql_type("ROW<f INT>")),
        AddColumn(("r", "new3"), INT, position=After("e")),
    )
    highest = TABLE.highest_field_id
    assert [f.name for f in changed.field("a").type.element.fields] == ["new1", "b", "c"]
    assert [f.name for f in changed.field("m").type.value.fields] == ["d", "new2"]
    assert [f.name for f in changed.field("r").type.fields] == ["e", "new3"]
    assert [inner(changed)[name].id - highest for name in ("new1", "new2", "f", "new3")] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("added", "named"),
    [
        (AddColumn("n", INT), "exists already"),
        (AddColumn(("a", "element", "b"), INT), r"'a\.element\.b' exists already"),
        (AddColumn("new", t.IntType(nullable=False)), "NOT NULL"),
        (AddColumn("new", INT, position=After("gone")), "'gone' does not exist"),
        (AddColumn(("gone", "b"), INT), "'gone' does not exist"),
        (AddColumn(("n", "b"), INT), "has no fields"),
        (AddColumn(("a", "b"), INT), "has no fields"),
        (AddColumn(("m", "key", "b"), INT), "does not exist or cannot change"),
        (AddColumn(("a", "element", "c", "x"), INT), "has no fields"),
        (AddColumn((), INT), "empty"),
        (AddColumn("new", t.RowType(())), "without fields"),
        (AddColumn("_ROW_ID", INT), "reserved"),
        (AddColumn("a/b", INT), "separator"),
    ],
)
def test_a_column_that_cannot_be_added(added, named):
    with pytest.raises(InvalidInputError, match=named):
        change(added)


def test_a_path_may_not_make_types_deeper_than_the_limit():
    deep = parse_sql_type("ARRAY<" * 99 + "INT" + ">" * 99)
    change(AddColumn("new", deep))
    with pytest.raises(SchemaError, match="deep"):
        change(AddColumn(("r", "new"), deep))


# Dropping


def test_columns_are_dropped():
    changed = change(DropColumn("n"), DropColumn(("a", "element", "b")))
    assert "n" not in names(changed)
    assert [f.name for f in changed.field("a").type.element.fields] == ["c"]
    assert changed.highest_field_id == TABLE.highest_field_id


@pytest.mark.parametrize(
    ("dropped", "named"),
    [
        (DropColumn("gone"), "'gone' does not exist"),
        (DropColumn("dt"), "partition key"),
        (DropColumn("id"), "bucket"),
        (DropColumn("name"), "bucket"),
        (DropColumn(("r", "e")), "last one"),
        (DropColumn(("l", "element")), "has no fields"),
    ],
)
def test_a_column_that_cannot_be_dropped(dropped, named):
    with pytest.raises(SchemaError, match=named):
        change(dropped)


def test_the_last_column_stays():
    with pytest.raises(SchemaError, match="last one"):
        change(DropColumn("x"), DropColumn("y"), DropColumn("z"), schema=PLAIN)
    partitioned = TableSchema.create(parse_columns("p INT, v INT"), partition_keys=["p"], time_millis=0)
    with pytest.raises(SchemaError, match="every column"):
        change(DropColumn("v"), schema=partitioned)


# Renaming


def test_a_renamed_column_keeps_all_but_its_name():
    changed = change(RenameColumn("n", "count"), RenameColumn(("m", "value", "d"), "e"))
    assert changed.field("count") == replace(TABLE.field("n"), name="count")
    assert changed.field("m").type.value.fields[0].name == "e"
    assert changed.options["fields.count.stats-mode"] == "none"
    assert "fields.n.stats-mode" not in changed.options
    assert "".join(names(change(RenameColumn("y", "y"), schema=PLAIN))) == "xyz"


def test_the_bucket_key_follows_a_renamed_column():
    changed = change(RenameColumn("name", "title"))
    assert changed.options["bucket-key"] == "id,title"
    assert changed.bucket_keys == ("id", "title")
    swapped = change(RenameColumn("name", "tmp"), RenameColumn("n", "name"), RenameColumn("tmp", "n"))
    assert swapped.options["bucket-key"] == "id,n"


@pytest.mark.parametrize(
    ("renamed", "error"),
    [
        (RenameColumn("gone", "x"), SchemaError),
        (RenameColumn("n", "id"), SchemaError),
        (RenameColumn("dt", "day"), SchemaError),
        (RenameColumn("n", ""), InvalidNameError),
        (RenameColumn("n", "rowkind"), InvalidNameError),
        (RenameColumn("name", "a,b"), SchemaError),
        (RenameColumn(("a", "element", "b"), "c"), SchemaError),
    ],
)
def test_a_column_that_cannot_be_renamed(renamed, error):
    with pytest.raises(error):
        change(renamed)


# Types


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TINYINT", "SMALLINT"), ("TINYINT", "BIGINT"), ("SMALLINT", "INT"), ("INT", "BIGINT"), ("TINYINT", "FLOAT"),
        ("SMALLINT", "FLOAT"), ("SMALLINT", "DOUBLE"), ("INT", "DOUBLE"), ("FLOAT", "DOUBLE"),
        ("DECIMAL(5, 2)", "DECIMAL(7, 2)"), ("DECIMAL(5, 2)", "DECIMAL(7, 4)"), ("DECIMAL(5, 2)", "DECIMAL(38, 2)"),
        ("VARCHAR(3)", "VARCHAR(4)"), ("VARCHAR(3)", "STRING"), ("DATE", "DATE"), ("ARRAY<INT>", "ARRAY<INT>"),
    ],
)  # fmt: skip
def test_types_that_hold_all_values_of_another(old, new):
    old, new = parse_sql_type(old), parse_sql_type(new)
    assert is_wider(old, new)
    assert old == new or not is_wider(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "FLOAT"), ("BIGINT", "FLOAT"), ("BIGINT", "DOUBLE"), ("DECIMAL(5, 2)", "DECIMAL(6, 4)"),
        ("DECIMAL(5, 2)", "DECIMAL(9, 1)"), ("DECIMAL(5, 2)", "DOUBLE"), ("INT", "DECIMAL(20, 0)"), ("INT", "STRING"),
        ("STRING", "INT"), ("CHAR(3)", "CHAR(4)"), ("DATE", "TIMESTAMP"), ("TIMESTAMP(3)", "TIMESTAMP(6)"),
        ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"), ("BINARY(3)", "BYTES"), ("BOOLEAN", "INT"), ("ARRAY<INT>", "ARRAY<BIGINT>"),
    ],
)  # fmt: skip
def test_other_type_changes_are_refused_with_a_way_out(old, new):
    assert not is_wider(parse_sql_type(old), parse_sql_type(new))
    assert not is_wider(parse_sql_type(new), parse_sql_type(old))
    table = TableSchema.create(parse_columns(f"k INT, v {old}"), time_millis=0)
    with pytest.raises(SchemaError, match="cannot become") as caught:
        change(WidenColumn("v", parse_sql_type(new)), schema=table)
    assert caught.value.hint


def test_a_widened_column_keeps_its_id_and_nullability():
    changed = change(
        WidenColumn("n", t.BigIntType()),
        WidenColumn(("a", "element", "b"), t.DoubleType()),
        WidenColumn(("m", "value", "d"), t.DoubleType()),
        WidenColumn(("l", "element"), t.BigIntType()),
        WidenColumn(("r", "e"), t.BigIntType()),
    )
    before, after = inner(TABLE), inner(changed)
    assert {f.id for f in after.values()} == {f.id for f in before.values()}
    assert after["n"] == replace(before["n"], type=t.BigIntType())
    assert after["b"].type == after["d"].type == t.DoubleType()
    assert after["l"].type == t.ArrayType(t.BigIntType(nullable=False))
    assert after["e"].type == t.BigIntType()


@pytest.mark.parametrize(
    ("widened", "named"),
    [
        (WidenColumn("n", t.BigIntType(nullable=False)), "NOT NULL"),
        (WidenColumn("dt", STRING), "partition key"),
        (WidenColumn("gone", INT), "does not exist"),
        (WidenColumn(("m", "key"), STRING), "cannot change"),
        (WidenColumn("a", t.ArrayType(INT)), "cannot become"),
    ],
)
def test_a_column_that_cannot_be_widened(widened, named):
    with pytest.raises(SchemaError, match=named):
        change(widened)


def test_a_bucket_key_is_widened_only_where_its_hash_stays():
    assert change(WidenColumn("name", STRING)).field("name").type == STRING
    queue = TableSchema.create(
        parse_columns("k INT"), options={"bucket": "2", "bucket-key": "k"}, time_millis=0
    )
    with pytest.raises(SchemaError, match="bucket"):
        change(WidenColumn("k", t.BigIntType()), schema=queue)
    assert change(WidenColumn("k", INT), schema=queue).fields == queue.fields


@given(ATOMIC_TYPES, ATOMIC_TYPES, ATOMIC_TYPES)
def test_widening_is_an_order(a, b, c):
    assert is_wider(a, a)
    assert not (is_wider(a, b) and is_wider(b, a)) or a == b
    assert not (is_wider(a, b) and is_wider(b, c)) or is_wider(a, c)


def test_nulls_can_be_allowed():
    assert change(SetNullable("id")).field("id").type == t.BigIntType()
    assert change(SetNullable(("l", "element"))).field("l").type == t.ArrayType(INT)


def test_nulls_cannot_be_forbidden():
    assert change(SetNullable("id", nullable=False), SetComment("x")).fields == TABLE.fields
    for path in ("n", "a.element.b", "r"):
        with pytest.raises(SchemaError, match=f"'{path}' cannot become NOT NULL"):
            change(SetNullable(path, nullable=False))


# Names and ids


@pytest.mark.parametrize("path", ["a.element.b", ("a", "element", "b"), "a.`element`.b", "`a`.element.`b`"])
def test_a_field_inside_is_named_by_its_path(path):
    assert "b" not in inner(change(DropColumn(path)))
    assert meant_ids(TABLE, [DropColumn(path)]) == [inner(TABLE)["b"].id]


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "`a", "a`b`", "`a`b"])
def test_text_that_is_no_path_is_refused(path):
    with pytest.raises(SchemaError):
        change(DropColumn(path))


def test_a_column_with_dots_in_its_name_comes_before_a_path():
    dotted = change(AddColumn(("r.e",), STRING), AddColumn("`x.y`", STRING))
    assert names(dotted)[-2:] == ["r.e", "x.y"]
    changed = change(DropColumn("r.e"), DropColumn("x.y"), schema=dotted)
    assert changed.field("r").type == TABLE.field("r").type
    assert change(DropColumn("a.element.c"), schema=dotted).field("r.e").type == STRING


def test_a_renamed_field_may_be_given_with_its_path():
    assert [f.name for f in change(RenameColumn("r.e", "r.f")).field("r").type.fields] == ["f"]
    with pytest.raises(SchemaError, match="stays in its row"):
        change(RenameColumn("r.e", "a.f"))


def test_each_change_is_about_a_field_or_the_one_around_it():
    ids = {name: f.id for name, f in inner(TABLE).items()}
    changes = [
        AddColumn("new", INT),
        AddColumn("a.element.new", INT),
        WidenColumn("l.element", INT),
        RenameColumn("new", "newer"),
        DropColumn("newer"),
        SetComment("x"),
    ]
    highest = TABLE.highest_field_id
    assert meant_ids(TABLE, changes) == [None, ids["a"], ids["l"], highest + 1, highest + 1, None]


# Places and comments


@pytest.mark.parametrize(
    ("name", "position", "expected"),
    [("x", Last(), "yzx"), ("z", First(), "zxy"), ("z", Before("y"), "xzy"), ("x", After("y"), "yxz")],
)
def test_a_column_is_moved(name, position, expected):
    changed = change(MoveColumn(name, position), schema=PLAIN)
    assert "".join(names(changed)) == expected
    assert set(changed.fields) == set(PLAIN.fields)


def test_a_nested_field_is_moved():
    moved = change(MoveColumn(("a", "element", "c"), First()))
    assert [f.name for f in moved.field("a").type.element.fields] == ["c", "b"]


@pytest.mark.parametrize(
    "moved", [MoveColumn("gone", First()), MoveColumn("x", After("x")), MoveColumn("x", Before("a"))]
)
def test_a_column_that_cannot_be_moved(moved):
    with pytest.raises(SchemaError, match="does not exist"):
        change(moved, schema=PLAIN)


def test_columns_are_described():
    changed = change(SetColumnComment("n", "how many"), SetColumnComment(("r", "e"), "inside"))
    assert (inner(changed)["n"].description, inner(changed)["e"].description) == ("how many", "inside")
    assert change(SetColumnComment("n", None), schema=changed).field("n").description is None


# Options


def test_options_about_a_column_go_with_it():
    assert "fields.n.stats-mode" not in change(DropColumn("n")).options
    assert change(DropColumn("a")).options == TABLE.options


def test_options_are_set_and_removed():
    changed = change(SetOption("write-only", "true"), RemoveOption("owner"), RemoveOption("never-set"))
    assert changed.options["write-only"] == "true"
    assert "owner" not in changed.options
    assert TABLE.options["owner"] == "me"


FIXED = [
    SetOption("bucket-key", "id"),
    RemoveOption("bucket-key"),
    SetOption("partition.default-name", "null"),
    SetOption("partition.legacy-name", "false"),
]


@pytest.mark.parametrize("fixed", [*FIXED, SetOption("bucket", "-1")])
def test_what_files_depend_on_is_fixed_once_there_are_snapshots(fixed):
    with pytest.raises(OptionError):
        change(fixed)


def test_setting_an_option_to_what_it_is_changes_nothing():
    assert change(*(SetOption(key, value) for key, value in TABLE.options.items())).options == TABLE.options


@pytest.mark.parametrize("fixed", [f for f in FIXED if f != RemoveOption("bucket-key")])
def test_before_the_first_snapshot_it_can_change(fixed):
    assert change(fixed, has_snapshots=False).options[fixed.key] == fixed.value


def test_a_queue_may_change_its_number_of_buckets_and_nothing_else():
    assert change(SetOption("bucket", "8")).bucket == 8
    with pytest.raises(OptionError, match="has snapshots"):
        change(SetOption("bucket", "1"), schema=PLAIN)
    assert change(SetOption("bucket", "1"), schema=PLAIN, has_snapshots=False).bucket == 1
    scalable = change(SetOption("bucket", "-1"), RemoveOption("bucket-key"), has_snapshots=False)
    assert (scalable.bucket, scalable.bucket_keys) == (-1, ())
    with pytest.raises(OptionError):
        change(SetOption("bucket", "-1"), RemoveOption("bucket-key"))


@pytest.mark.parametrize(
    ("option", "error"),
    [
        (SetOption("bucket", "0"), OptionError),
        (SetOption("bucket", "many"), OptionError),
        (SetOption("bucket-key", "gone"), OptionError),
        (SetOption("anabranch.table-uuid", "other"), OptionError),
        (SetOption("anabranch.nope", "x"), OptionError),
        (SetOption("file.format", "csv"), OptionError),
        (SetOption("target-file-size", "big"), OptionError),
        (SetOption("partition", "id"), OptionError),
        (SetOption("", "x"), OptionError),
        (SetOption("write-only", True), OptionError),
        (SetOption("primary-key", "id"), UnsupportedFeatureError),
        (SetOption("deletion-vectors.enabled", "true"), UnsupportedFeatureError),
        (SetOption("data-file.path-directory", "x"), (OptionError, UnsupportedFeatureError)),
    ],
)
@pytest.mark.parametrize("has_snapshots", [True, False])
def test_an_option_that_cannot_be_set(option, error, has_snapshots):
    with pytest.raises(error):
        change(option, has_snapshots=has_snapshots)


def test_values_that_others_gave_are_not_judged():
    foreign = replace(TABLE, options={**TABLE.options, "scan.mode": "compacted-full"})
    assert change(AddColumn("new", INT), schema=foreign).options == foreign.options


# Any changes at all

PATHS = st.sampled_from(
    ["id", "dt", "name", "n", "a", "r", "new", "other", ("a", "element", "b"), ("m", "value", "d"), ("m", "key"),
     ("r", "e"), ("r", "new"), ("l", "element"), ()]
)  # fmt: skip
POSITIONS = st.sampled_from([First(), Last(), Before("n"), After("id"), After("new")])
CHANGES = st.one_of(
    st.builds(AddColumn, PATHS, TYPES.map(lambda x: x.with_nullable(True)), st.none(), POSITIONS),
    st.builds(DropColumn, PATHS),
    st.builds(RenameColumn, PATHS, st.sampled_from(["n", "new", "other", "e"])),
    st.builds(WidenColumn, PATHS, ATOMIC_TYPES),
    st.builds(SetNullable, PATHS),
    st.builds(MoveColumn, PATHS, POSITIONS),
    st.builds(
        SetOption,
        st.sampled_from(["bucket", "bucket-key", "write-only"]),
        st.sampled_from(["3", "n", "true"]),
    ),
)


@given(st.lists(CHANGES, min_size=1, max_size=4), st.booleans())
def test_any_changes_make_a_sound_schema_or_are_refused(changes, has_snapshots):
    changed, error = attempt(lambda: change(*changes, has_snapshots=has_snapshots))
    assert error is None or isinstance(error, InvalidInputError | UnsupportedFeatureError)
    if changed is not None:
        assert TableSchema.from_json(changed.to_json(), path="schema/schema-1") == changed
        assert changed.partition_keys == TABLE.partition_keys
        fresh = {f.id for f in t.walk_fields(changed.fields)} - {f.id for f in t.walk_fields(TABLE.fields)}
        assert all(TABLE.highest_field_id < field_id <= changed.highest_field_id for field_id in fresh)
        if has_snapshots:
            assert _bucket_ids(changed) == _bucket_ids(TABLE)


def _bucket_ids(schema):
    return [schema.field(name).id for name in schema.bucket_keys]

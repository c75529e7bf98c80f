"""Files written with an older schema, read with a newer one: by id, at every depth."""

import datetime as dt
import io
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from anabranch.arrow.evolution import ColumnMapping
from anabranch.errors import CorruptTableError, SchemaError, UnsupportedFeatureError
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import to_arrow_schema, to_arrow_type
from anabranch.format.types.data_types import (
    ArrayType,
    BigIntType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    MapType,
    RowType,
    SmallIntType,
    TimestampType,
    VarCharType,
)
from anabranch.kernel.scan.split import Split, SplitFile
from anabranch.storage.memory import MemoryStorage
from tests.arrow.helpers import context_of, read_batches, read_table, reading, splits_of, write

# Each type with values it has and types it may become, with what becomes of a value.
WIDENINGS = {
    SmallIntType(): (st.integers(-(2**15), 2**15 - 1), [(IntType(), int), (DoubleType(), float), (DecimalType(7, 2), Decimal)]),
    IntType(): (st.integers(-(2**31), 2**31 - 1), [(BigIntType(), int), (DoubleType(), float)]),
    FloatType(): (st.floats(width=32, allow_nan=False), [(DoubleType(), float)]),
    DecimalType(5, 2): (
        st.integers(-99_999, 99_999).map(lambda n: Decimal(n).scaleb(-2)),
        [(DecimalType(7, 3), lambda v: v.quantize(Decimal("0.001")))],
    ),
    VarCharType(5): (st.text(max_size=5), [(VarCharType(), str), (VarCharType(2), lambda v: v[:2])]),
    TimestampType(3): (
        st.integers(-(10**12), 10**12).map(lambda ms: dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)),
        [(TimestampType(6), lambda v: v)],
    ),
}  # fmt: skip


class Counter:
    """Field ids are never used twice."""

    def __init__(self):
        self.last = -1

    def next(self):
        self.last += 1
        return self.last


@st.composite
def types(draw, ids, depth=2):
    kinds = ["leaf"] * 3 + (["row", "array", "map"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "row":
            return RowType(draw(fields(ids, depth - 1)))
        case "array":
            return ArrayType(draw(types(ids, depth - 1)))
        case "map":
            return MapType(VarCharType(nullable=False), draw(types(ids, depth - 1)))
        case _:
            return draw(st.sampled_from(sorted(WIDENINGS, key=str)))


@st.composite
def fields(draw, ids, depth=2):
    names = draw(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=3, unique=True))
    return tuple(Field(ids.next(), name, draw(types(ids, depth))) for name in names)


def values(data_type):
    """Values of a type; rows are dictionaries by field id."""
    match data_type:
        case RowType(fields=members):
            inner = st.fixed_dictionaries({f.id: values(f.type) for f in members})
        case ArrayType(element=element):
            inner = st.lists(values(element), max_size=3)
        case MapType(value=value):
            inner = st.dictionaries(st.sampled_from("xyz"), values(value), max_size=2).map(
                lambda d: list(d.items())
            )
        case _:
            inner = WIDENINGS[data_type][0]
    return st.none() | inner


def named(value, data_type):
    """The value with its rows by name, as PyArrow takes and gives them."""
    if value is None:
        return None
    match data_type:
        case RowType(fields=members):
            return {f.name: named(value.get(f.id), f.type) for f in members}
        case ArrayType(element=element):
            return [named(item, element) for item in value]
        case MapType(value=inner):
            return [(key, named(item, inner)) for key, item in value]
        case _:
            return value


@st.composite
def changed(draw, old, ids):
    """A later form of fields, and what becomes of a row of them."""
    kept = [f for f in old if draw(st.booleans())]
    free = draw(st.permutations("abcdefg"))
    new, steps = [], {}
    for f in kept:
        data_type, step = draw(changed_type(f.type, ids))
        new.append(Field(f.id, free.pop(), data_type))
        steps[f.id] = step
    if not new or draw(st.booleans()):
        new.append(Field(ids.next(), free.pop(), draw(types(ids, 1))))
    new = tuple(draw(st.permutations(new)))
    return new, lambda row: {i: (None if row[i] is None else step(row[i])) for i, step in steps.items()}


@st.composite
def changed_type(draw, data_type, ids):
    match data_type:
        case RowType(fields=members):
            new, step = draw(changed(members, ids))
            return RowType(new), step
        case ArrayType(element=element):
            new, step = draw(changed_type(element, ids))
            return ArrayType(new), lambda items: [None if v is None else step(v) for v in items]
        case MapType(key=key, value=value):
            new, step = draw(changed_type(value, ids))
            return MapType(key, new), lambda pairs: [(k, None if v is None else step(v)) for k, v in pairs]
        case _:
            same = [(data_type, lambda v: v)]
            return draw(st.sampled_from(same + WIDENINGS[data_type][1]))


def schema_of(columns):
    return TableSchema(0, columns, (), (), {}, 1000)


@given(st.data())
def test_rows_of_an_older_schema_are_what_the_changes_make_of_them(data):
    ids = Counter()
    old = data.draw(fields(ids))
    rows = data.draw(st.lists(st.fixed_dictionaries({f.id: values(f.type) for f in old}), max_size=4))
    new, step = data.draw(changed(old, ids))
    note(f"{RowType(old)} -> {RowType(new)}")
    arrow = to_arrow_schema(old)
    table = pa.Table.from_pylist([named(row, RowType(old)) for row in rows], arrow)
    context = context_of(schema_of(old))
    splits = splits_of(write([table], context), context)
    found = read_table(splits, reading(context, schema_of(new)))
    found.validate(full=True)
    assert found.schema.equals(to_arrow_schema(new))
    assert found.to_pylist(maps_as_pydicts=None) == [named(step(row), RowType(new)) for row in rows]
    streamed = read_batches(splits, reading(context, schema_of(new)))
    assert pa.Table.from_batches(streamed, found.schema).equals(found)


def mapped(old, new, table, *, path="f"):
    """The rows of a file with columns `old`, read as `new`; ids as the fields have them."""
    rows = table if isinstance(table, pa.Table) else pa.Table.from_pylist(table, to_arrow_schema(old))
    return ColumnMapping(schema_of(old), new).apply(rows, path).to_pylist()


def test_a_column_of_the_same_name_but_another_id_is_another_column():
    (old,) = parse_columns("a INT")
    old = replace(old, id=0)
    assert mapped((old,), (replace(old, id=5),), [{"a": 1}]) == [{"a": None}]
    inner = RowType((old,))
    again = RowType((replace(old, id=9),))
    assert mapped((Field(1, "r", inner),), (Field(1, "r", again),), [{"r": {"a": 1}}, {"r": None}]) == [
        {"r": {"a": None}},
        {"r": None},
    ]


def test_names_may_be_exchanged():
    old = (Field(0, "a", IntType()), Field(1, "b", IntType()))
    new = (Field(1, "a", IntType()), Field(0, "b", IntType()))
    assert mapped(old, new, [{"a": 1, "b": 2}]) == [{"a": 2, "b": 1}]


def test_a_column_that_the_file_lacks_is_null():
    old = (
        Field(0, "a", IntType()),
        Field(1, "r", RowType((Field(2, "x", IntType()), Field(3, "y", IntType())))),
    )
    rows = pa.table({"r": [{"y": 5}, None]})
    assert mapped(old, old, rows) == [{"a": None, "r": {"x": None, "y": 5}}, {"a": None, "r": None}]


def test_what_is_not_null_and_null_in_a_file_is_refused():
    required, optional = Field(0, "a", IntType(nullable=False)), Field(0, "a", IntType())
    nulls = [{"a": 1}, {"a": None}]
    with pytest.raises(
        SchemaError, match="'a' is NOT NULL, but null in 1 of 2 rows: in schema 0, .* may be null"
    ):
        mapped((optional,), (required,), nulls)
    with pytest.raises(SchemaError, match="in schema 0, .* does not exist"):
        mapped((Field(1, "b", IntType()),), (required,), [{"b": 1}])
    with pytest.raises(CorruptTableError, match="'a' is NOT NULL, but null in 1 of 2 rows"):
        ColumnMapping(schema_of((required,)), (required,)).apply(pa.Table.from_pylist(nulls), "f")


@pytest.mark.parametrize(
    ("kind", "value", "fine"),
    [
        ("ARRAY<INT{}>", [1, None], [None, [], [1]]),
        ("MAP<STRING, INT{}>", [("a", None)], [None, [], [("a", 1)]]),
        ("ROW<x INT{}>", {"x": None}, [None, {"x": 1}]),
        ("ARRAY<ROW<x INT{}>>", [{"x": None}], [None, [None], [{"x": 1}]]),
    ],
)
def test_what_is_not_null_inside_and_null_in_a_file_is_refused(kind, value, fine):
    """Engines that are told so take nulls there for zeros."""
    old, new = (parse_columns(f"c {kind.format(suffix)}") for suffix in ("", " NOT NULL"))
    assert [row["c"] for row in mapped(old, new, [{"c": v} for v in fine])] == fine
    with pytest.raises(SchemaError, match="is null in some rows"):
        mapped(old, new, [{"c": value}])
    assert mapped(new, old, [{"c": v} for v in fine]) == [{"c": v} for v in fine]


REFUSED = [
    ("BIGINT", "INT"),
    ("DOUBLE", "FLOAT"),
    ("FLOAT", "BIGINT"),
    ("DECIMAL(5, 2)", "DECIMAL(5, 3)"),
    ("DECIMAL(5, 2)", "DECIMAL(9, 1)"),
    ("INT", "DECIMAL(11, 2)"),
    ("INT", "STRING"),
    ("STRING", "INT"),
    ("STRING", "BYTES"),
    ("BYTES", "VARBINARY(5)"),
    ("VARBINARY(5)", "BINARY(9)"),
    ("TIMESTAMP(6)", "TIMESTAMP(3)"),
    ("TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"),
    ("TIMESTAMP(6)", "DATE"),
    ("DATE", "TIMESTAMP(6)"),
    ("BOOLEAN", "INT"),
    ("ARRAY<BIGINT>", "ARRAY<INT>"),
    ("ARRAY<INT>", "MAP<INT, INT>"),
    ("MAP<INT, INT>", "MAP<BIGINT, INT>"),
    ("INT", "ROW<x INT>"),
]


def typed(sql):
    return parse_columns(f"c {sql}")[0].type


@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_other_changes_of_type_are_refused(old, new):
    with pytest.raises(UnsupportedFeatureError) as caught:
        ColumnMapping(schema_of((Field(0, "c", typed(old)),)), (Field(0, "now", typed(new)),))
    assert caught.value.feature == "type-change"
    assert f"'now' is {typed(new)}, but {typed(old)} in schema 0" in str(caught.value)


ACCEPTED = [
    ("TINYINT", "BIGINT", -128, -128),
    ("BIGINT", "DOUBLE", 2**53 + 1, float(2**53)),
    ("BIGINT", "FLOAT", 2**60 + 1, float(2**60)),
    ("BIGINT", "DECIMAL(20, 1)", -(2**63), Decimal(-(2**63))),
    ("CHAR(3)", "VARCHAR(5)", "a  ", "a  "),
    ("VARCHAR(5)", "CHAR(3)", "\U0001f600bcd", "\U0001f600bc"),
    ("VARCHAR(5)", "CHAR(7)", "é", "é      "),
    ("BINARY(3)", "VARBINARY(5)", b"\0\1", b"\0\1"),
    ("VARBINARY(3)", "BYTES", b"", b""),
    ("TIME(0)", "TIME(3)", dt.time(1), dt.time(1)),
    ("TIMESTAMP(0)", "TIMESTAMP(3)", dt.datetime(1, 1, 1), dt.datetime(1, 1, 1)),
    ("INT NOT NULL", "INT", 5, 5),
]


@pytest.mark.parametrize(("old", "new", "value", "expected"), ACCEPTED)
def test_what_becomes_of_values(old, new, value, expected):
    before, after = (Field(0, "c", typed(old)),), (Field(0, "c", typed(new)),)
    assert mapped(before, after, [{"c": value}]) == [{"c": expected}]


def test_a_timestamp_that_nanoseconds_cannot_express_is_refused():
    before, after = (Field(0, "c", TimestampType(6)),), (Field(0, "c", TimestampType(9)),)
    with pytest.raises(UnsupportedFeatureError, match="'c' is TIMESTAMP") as caught:
        mapped(before, after, [{"c": dt.datetime(1, 1, 1)}])
    assert caught.value.feature == "timestamp-range"


# What other writers store.

STORED = [
    (pa.array([1_000_001, None, -1], pa.timestamp("us")), "TIMESTAMP(3)", [1000, None, -1]),
    (pa.array([1_999, -1], pa.timestamp("ms")), "TIMESTAMP(0)", [1, -1]),
    (pa.array([5], pa.timestamp("ms")), "TIMESTAMP_LTZ(6)", [5000]),
    (pa.array([5], pa.timestamp("us", "Asia/Tokyo")), "TIMESTAMP(6)", [5]),
    (pa.array([1, None], pa.int32()), "TINYINT", [1, None]),
    (pa.array([86_399_999], pa.int32()), "TIME(3)", [86_399_999]),
    (pa.array([19_000], pa.int32()), "DATE", [19_000]),
    (pa.array([Decimal("1.50")], pa.decimal128(10, 2)), "DECIMAL(12, 4)", [Decimal("1.5000")]),
    (pa.array([b"ab"], pa.binary(2)), "BINARY(2)", [b"ab"]),
    (pa.array([b"ab"]), "STRING", ["ab"]),
    (pa.array(["ab"], pa.large_string()), "VARCHAR(5)", ["ab"]),
    (pa.array(["a", "a"]).dictionary_encode(), "STRING", ["a", "a"]),
    (pa.array([[1, None], None], pa.large_list(pa.int32())), "ARRAY<SMALLINT>", [[1, None], None]),
    (pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.int32())), "MULTISET<STRING>", [[("a", 1)]]),
    (pa.nulls(1), "ROW<x INT>", [None]),
]


@pytest.mark.parametrize(("array", "sql_type", "expected"), STORED)
def test_columns_are_what_the_schema_of_their_file_says(array, sql_type, expected):
    target = to_arrow_type(typed(sql_type))
    columns = (Field(0, "c", typed(sql_type)),)
    found = ColumnMapping(schema_of(columns), columns).apply(pa.table({"c": array}), "f").column("c")
    found.validate(full=True)
    assert found.type == target
    plain = {"timestamp": pa.int64(), "date32": pa.int32(), "time32": pa.int32()}.get(
        str(target).partition("[")[0]
    )
    assert (found.cast(plain) if plain else found).to_pylist() == expected


MISPLACED = [
    (pa.array(["1"]), "INT"),
    (pa.array([1]), "STRING"),
    (pa.array([1.5]), "BIGINT"),
    (pa.array([2**40]), "INT"),
    (pa.array([1]), "DATE"),
    (pa.array([Decimal("1.234")]), "DECIMAL(5, 2)"),
    (pa.array([b"\xff"]), "STRING"),
    (pa.array([1]), "ARRAY<INT>"),
    (pa.array([[1]]), "ROW<x INT>"),
    (pa.array([{"x": "a"}]), "ROW<x INT>"),
]


@pytest.mark.parametrize(("array", "sql_type"), MISPLACED)
def test_a_column_that_is_not_what_its_schema_says_is_corrupt(array, sql_type):
    columns = (Field(0, "c", typed(sql_type)),)
    with pytest.raises(CorruptTableError, match=r"bucket-0/f.*'c'"):
        ColumnMapping(schema_of(columns), columns).apply(pa.table({"c": array}), "bucket-0/f")


def test_names_with_dots_are_names():
    columns = parse_columns("`a.b` INT, a ROW<b STRING, c INT>, `a.b.c` STRING")
    columns = tuple(replace(f, id=i) for i, f in enumerate(columns))
    schema = schema_of(columns)
    rows = [{"a.b": 1, "a": {"b": "x", "c": 2}, "a.b.c": "y"}]
    context = context_of(schema)
    splits = splits_of(write([pa.Table.from_pylist(rows, to_arrow_schema(columns))], context), context)
    assert read_table(splits, reading(context)).to_pylist() == rows
    for name in ("a.b", "a", "a.b.c"):
        assert read_table(splits, reading(context), columns=[name]).to_pylist() == [{name: rows[0][name]}]


def test_files_are_read_by_the_schema_they_were_written_with():
    """Columns in another order, and one that nobody declared."""
    storage = MemoryStorage()
    sink = io.BytesIO()
    pq.write_table(pa.table({"other": [9.5], "b": ["x"], "a": pa.array([1], pa.int32())}), sink)
    storage.put("f.parquet", sink.getvalue())
    columns = tuple(replace(f, id=i) for i, f in enumerate(parse_columns("a INT, b STRING")))
    split = Split(b"", 0, (SplitFile("f.parquet", len(sink.getvalue()), 1, 0, "parquet"),))
    context = context_of(schema_of(columns), storage)
    assert read_table([split], reading(context)).to_pylist() == [{"a": 1, "b": "x"}]

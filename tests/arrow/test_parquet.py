"""Data files keep to what Paimon's oldest reader decodes, whatever the types and however many row groups."""

import datetime as dt
import io
from cProfile import Profile

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.arrow import row_buffer
from anabranch.arrow.parquet_encode import PageSettings, encode
from anabranch.arrow.parquet_footer import KEY, JoinedFile, is_intact, sealed
from anabranch.arrow.row_buffer import measured
from anabranch.arrow.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    decode_struct,
    encode_struct,
)
from tests.arrow.helpers import context_of, make_schema, rows_of, stored_paths, write

ALL_TYPES = (
    "k INT NOT NULL, o BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f FLOAT, d DOUBLE, "
    "d9 DECIMAL(9, 2), d18 DECIMAL(18, 2), d20 DECIMAL(20, 2), d38 DECIMAL(38, 2), c CHAR(3), v VARCHAR(9), "
    "s STRING, b BINARY(4), vb VARBINARY(9), bs BYTES, day DATE, t TIME(3), t0 TIMESTAMP(0), t3 TIMESTAMP(3), "
    "t6 TIMESTAMP(6), t9 TIMESTAMP(9), z0 TIMESTAMP_LTZ(0), z3 TIMESTAMP_LTZ(3), z6 TIMESTAMP_LTZ(6), "
    "z7 TIMESTAMP_LTZ(7), l ARRAY<TIMESTAMP(9)>, m MAP<STRING, DECIMAL(5, 1)>, u MULTISET<STRING>, "
    "r ROW<x INT, y ARRAY<STRING> NOT NULL, z TIMESTAMP(8)>"
)
# The types of columns in files that Java Paimon 0.9 wrote, as Parquet spells them.
EXPECTED = {
    "k": "required int32",
    "o": "optional boolean",
    "i1": "optional int32 (Int(bitWidth=8, isSigned=true))",
    "i2": "optional int32 (Int(bitWidth=16, isSigned=true))",
    "i4": "optional int32",
    "i8": "optional int64",
    "f": "optional float",
    "d": "optional double",
    "d9": "optional int32 (Decimal(precision=9, scale=2))",
    "d18": "optional int64 (Decimal(precision=18, scale=2))",
    "d20": "optional fixed_len_byte_array(9) (Decimal(precision=20, scale=2))",
    "d38": "optional fixed_len_byte_array(16) (Decimal(precision=38, scale=2))",
    **dict.fromkeys(("c", "v", "s"), "optional binary (String)"),
    **dict.fromkeys(("b", "vb", "bs"), "optional binary"),
    "day": "optional int32 (Date)",
    "t": "optional int32 (Time(isAdjustedToUTC=true, timeUnit=milliseconds))",
    **dict.fromkeys(("t0", "t3"), "optional int64 (Timestamp(isAdjustedToUTC=false, timeUnit=milliseconds))"),
    "t6": "optional int64 (Timestamp(isAdjustedToUTC=false, timeUnit=microseconds))",
    **dict.fromkeys(("z0", "z3"), "optional int64 (Timestamp(isAdjustedToUTC=true, timeUnit=milliseconds))"),
    "z6": "optional int64 (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds))",
    **dict.fromkeys(("t9", "z7"), "optional int96"),
}


def written(schema, columns, **how):
    """The only file of a table with these columns."""
    context = context_of(schema, **how)
    table = rows_of(schema, columns)
    write([table], context)
    (path,) = stored_paths(context.storage)
    return table, context.storage.get(path)


def opened(data):
    return pq.ParquetFile(io.BytesIO(data))


def spelled(schema):
    """Lines of a Parquet schema without what is the same everywhere."""
    text = str(schema).replace(" field_id=-1", "")
    text = text.replace(", is_from_converted_type=false, force_set_converted_type=false", "")
    return [line.strip().rstrip(";") for line in text.splitlines()]


@pytest.fixture(scope="module")
def all_types():
    schema = make_schema(ALL_TYPES)
    names = [f.name for f in schema.fields]
    return written(schema, {name: [1, 2] if name == "k" else [None, None] for name in names})[1]


def test_columns_have_the_physical_types_that_java_writes(all_types):
    lines = spelled(opened(all_types).schema)
    for name, expected in EXPECTED.items():
        first, *rest = expected.split(" (")
        found = next(
            line for line in lines if f" {name} " in f"{line} " and line.startswith(("optional", "required"))
        )
        assert found == " (".join([f"{first} {name}", *rest])


def test_nested_columns_have_three_levels(all_types):
    text = "\n".join(spelled(opened(all_types).schema))
    assert "optional group l (List) {\nrepeated group list {\noptional int96 element\n}\n}" in text
    assert (
        "optional group m (Map) {\nrepeated group key_value {\nrequired binary key (String)\n"
        "optional int32 value (Decimal(precision=5, scale=1))\n}\n}" in text
    )
    assert "repeated group key_value {\nrequired binary key (String)\nrequired int32 value\n}" in text
    assert (
        "optional group r {\noptional int32 x\nrequired group y (List) {\nrepeated group list {\n"
        "optional binary element (String)\n}\n}\noptional int96 z\n}" in text
    )


def test_footers_carry_nothing_that_only_arrow_reads(all_types):
    assert [*opened(all_types).metadata.metadata] == [b"anabranch.footer-crc32"]


def test_pages_are_of_version_1_with_plain_and_dictionary_encodings():
    schema = make_schema("i INT, s STRING, o BOOLEAN, d DOUBLE, t TIMESTAMP(9)")
    count = 5000
    columns = {
        "i": range(count),
        "s": [f"s{n % 7}" for n in range(count)],
        "o": [n % 3 == 0 for n in range(count)],
        "d": [n / 7 for n in range(count)],
        "t": range(count),
    }
    _, data = written(schema, columns)
    group = opened(data).metadata.row_group(0)
    encodings = {group.column(n).path_in_schema: set(group.column(n).encodings) for n in range(5)}
    assert encodings == {
        "i": {"PLAIN", "RLE"},
        "s": {"PLAIN", "RLE", "RLE_DICTIONARY"},
        "o": {"PLAIN", "RLE"},
        "d": {"PLAIN", "RLE"},
        "t": {"PLAIN", "RLE"},
    }
    assert all(kind == 0 for kind, _ in _pages(data))


def _pages(data):
    """Kind (0: data page of version 1, 2: dictionary, 3: data page of version 2) and values of each data page."""
    metadata = opened(data).metadata
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            header = decode_struct(data[chunk.data_page_offset :])
            yield header[1][1], header


def test_a_dictionary_is_made_only_where_values_repeat():
    schema = make_schema("few ARRAY<STRING>, many MAP<STRING, BIGINT>, r ROW<few INT, many STRING>")
    columns = {
        "few": [[f"{n % 5}"] * 3 for n in range(4000)],
        "many": [[(f"key {n}", n)] for n in range(4000)],
        "r": [{"few": n % 3, "many": f"value {n}"} for n in range(4000)],
    }
    _, data = written(schema, columns)
    group = opened(data).metadata.row_group(0)
    dictionaries = {
        group.column(n).path_in_schema: group.column(n).has_dictionary_page for n in range(group.num_columns)
    }
    assert dictionaries == {
        "few.list.element": True,
        "many.key_value.key": False,
        "many.key_value.value": False,
        "r.few": True,
        "r.many": False,
    }


def test_footers_have_bounds_for_other_readers():
    schema = make_schema("i INT, s STRING, t TIMESTAMP(9), l ARRAY<INT>")
    columns = {"i": [3, 1, None], "s": ["b", None, "a"], "t": [1, 2, 3], "l": [[5], [7], None]}
    group = opened(written(schema, columns)[1]).metadata.row_group(0)
    bounds = {
        group.column(n).path_in_schema: (s and (s.min, s.max, s.null_count))
        for n in range(4)
        for s in [group.column(n).statistics]
    }
    assert bounds == {"i": (1, 3, 1), "s": ("a", "b", 1), "t": None, "l.list.element": (5, 7, 1)}


FIRST_NANO = -(2**63) + 1
NANOS = [0, 1, -1, 10**9, -(10**9) - 1, 86_400 * 10**9, -86_400 * 10**9, FIRST_NANO, 2**63 - 1, None]


def test_nanoseconds_are_int96_also_beside_other_timestamps_and_before_1970():
    schema = make_schema("t TIMESTAMP(9), u TIMESTAMP(6), l ARRAY<TIMESTAMP(9)>")
    columns = {"t": NANOS, "u": [n and n // 1000 for n in NANOS], "l": [None, *([n] for n in NANOS[1:])]}
    table, data = written(schema, columns)
    assert [opened(data).schema.column(n).physical_type for n in range(3)] == ["INT96", "INT64", "INT96"]
    assert opened(data).read().cast(table.schema).equals(table)
    # Another reader, which takes the time of day for a number without a sign.
    polars = pl.read_parquet(io.BytesIO(data), columns=["t"])
    found = polars.get_column("t").cast(pl.Int64).to_list()
    assert [n for n, given in zip(found, NANOS, strict=True) if given != FIRST_NANO] == [
        n
        for n in NANOS
        if n != FIRST_NANO  # Polars clips it
    ]


def test_row_groups_encoded_apart_make_one_file(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 1000)
    schema = make_schema("i BIGINT NOT NULL, s STRING, t TIMESTAMP(9), l ARRAY<STRING>")
    count = 10_500
    table, data = written(
        schema,
        {
            "i": range(count),
            "s": [None if n % 5 == 0 else f"s{n % 9}" for n in range(count)],
            "t": [n - count // 2 for n in range(count)],
            "l": [None if n % 4 == 0 else [f"{n}"] * (n % 3) for n in range(count)],
        },
    )
    metadata = opened(data).metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [1000] * 10 + [500]
    assert metadata.num_rows == count
    assert opened(data).read().equals(table)
    for group in (0, 5, 10):
        assert opened(data).read_row_group(group).equals(table.slice(group * 1000, 1000))
    assert (
        pl.read_parquet(io.BytesIO(data))
        .select("i", "s", "l")
        .equals(pl.from_arrow(table.select(["i", "s", "l"])))
    )


def test_a_joined_file_says_where_everything_is():
    """Offsets in a footer, checked by reading the page headers there."""
    table = pa.table({"a": [1, 2, 3] * 100, "b": ["x", "y", "z"] * 100})
    joined, data = JoinedFile(), b""
    for _ in range(3):
        data += bytes(joined.add(memoryview(encode(measured(table), PageSettings("zstd", 1)))))
        assert joined.size == len(data)
    data += joined.tail()
    metadata = opened(data).metadata
    for group in range(3):
        for number in range(2):
            chunk = metadata.row_group(group).column(number)
            assert decode_struct(data[chunk.dictionary_page_offset :])[1] == (I32, 2)
            assert decode_struct(data[chunk.data_page_offset :])[1] == (I32, 0)
    assert [kind for kind, _ in _pages(data)] == [0] * 6


def test_a_footer_of_one_part_is_sealed_without_being_decoded():
    """As if it were: the bytes are the same, whatever statistics hold."""
    mark = f"{KEY.decode()}\x18\x0800000000"
    table = pa.table({"a": [mark, mark + "9"], "b": [1.0, None]})
    part = bytes(encode(measured(table), PageSettings("zstd", 1)))
    joined = JoinedFile()
    data = bytes(joined.add(memoryview(part))) + joined.tail()
    footer = data[len(part) - 8 - int.from_bytes(part[-8:-4], "little") : -8]
    assert footer == sealed(decode_struct(footer))
    assert footer.count(b"00000000") >= 2
    assert is_intact(footer)
    at = footer.rindex(KEY)
    assert not is_intact(footer[:4] + bytes([footer[4] ^ 1]) + footer[5:])
    assert at > footer.index(KEY)
    assert opened(data).read().equals(table)


def test_the_work_of_a_wide_row_grows_with_its_columns():
    """In calls of Python functions; once for each column of a table is what may be."""

    def work(columns):
        names = [f"c{number}" for number in range(columns)]
        schema = make_schema(", ".join(f"{name} DOUBLE" for name in names))
        profile = Profile()
        profile.enable()
        written(schema, {name: [1.0] for name in names})
        profile.disable()
        return sum(entry.callcount for entry in profile.getstats())

    few, many = work(100), work(400)
    assert many <= 4.1 * few
    assert (many - few) / 300 < 150


def test_dates_beyond_the_years_of_python():
    schema = make_schema("d DATE, t TIMESTAMP(3)")
    table, data = written(schema, {"d": [2**31 - 1, -(2**31)], "t": [2**62, -(2**62)]})
    assert opened(data).read().equals(table)


def test_seconds_are_stored_as_milliseconds():
    schema = make_schema("t TIMESTAMP(0)")
    _, data = written(schema, {"t": [253_402_300_799, -62_135_596_800]})
    found = opened(data).read().column("t")
    assert found.type == pa.timestamp("ms")
    assert found.to_pylist() == [dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(1, 1, 1)]


# Thrift


def _values(depth):
    leaves = [
        st.tuples(st.just(TRUE), st.just(True)),
        st.tuples(st.just(FALSE), st.just(False)),
        st.tuples(st.just(BYTE), st.integers(0, 255)),
        st.tuples(st.just(I16), st.integers(-(2**15), 2**15 - 1)),
        st.tuples(st.just(I32), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just(I64), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(DOUBLE), st.floats(allow_nan=False)),
        st.tuples(st.just(BINARY), st.binary(max_size=200)),
        st.tuples(
            st.just(LIST), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40).map(lambda v: (I64, v))
        ),
        st.tuples(st.just(LIST), st.lists(st.binary(max_size=3), max_size=20).map(lambda v: (BINARY, v))),
    ]
    if depth:
        inner = _structs(depth - 1)
        leaves += [
            st.tuples(st.just(STRUCT), inner),
            st.tuples(st.just(LIST), st.lists(inner, max_size=3).map(lambda v: (STRUCT, v))),
        ]
    return st.one_of(leaves)


def _structs(depth):
    return st.dictionaries(st.integers(1, 2000), _values(depth), max_size=4)


@given(_structs(2), st.binary(max_size=5))
def test_thrift_structs_come_back_as_they_were(struct, rest):
    encoded = encode_struct(struct)
    assert decode_struct(encoded + rest) == struct
    assert encode_struct(decode_struct(encoded)) == encoded


def test_footers_of_arrow_come_back_byte_for_byte():
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1.5, None], "b": [[1], []]}), sink)
    data = sink.getvalue()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert encode_struct(decode_struct(footer)) == footer

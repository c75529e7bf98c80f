"""BinaryRow, one row at a time and by column, against bytes that Java Paimon wrote and against each other."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError, SchemaError
from anabranch.format.rows.binary_row import arity, decode_row, encode_row, fixed_size, null_size, with_arity
from anabranch.format.rows.binary_row_columns import decode_column
from anabranch.format.rows.encoded_rows import encode_rows
from anabranch.format.types.arrow_types import to_arrow_type
from anabranch.format.types.data_types import (
    ArrayType,
    BigIntType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)
from anabranch.format.types.values import from_physical, physical_values
from tests.format.row_values import atomic_types, columns_of, same, tables, values_of

STRING = VarCharType()
TWENTY_DIGITS = DecimalType(20, 2)
NOV_14 = 1_700_000_000_123_456_000
NULL_PART = "0000000000000000"
NULL_0 = "0001000000000000"

# Types, values, bytes as Java Paimon 0.9 wrote them, and whether nulls have their place reserved there.
WRITTEN_BY_JAVA: list[tuple[list[DataType], list[Any], str, bool]] = [
    ([], [], f"00000000 {NULL_PART}", False),
    ([BooleanType()], [True], f"00000001 {NULL_PART} 0100000000000000", False),
    ([IntType()], [1], f"00000001 {NULL_PART} 0100000000000000", False),
    ([BigIntType()], [1], f"00000001 {NULL_PART} 0100000000000000", False),
    *(
        ([compact], [None], f"00000001 {NULL_0} 0000000000000000", reserved)
        for compact in (
            BooleanType(),
            IntType(),
            DoubleType(),
            DateType(),
            DecimalType(18, 2),
            TimestampType(3),
            STRING,
        )
        for reserved in (False, True)
    ),
    ([IntType()], [-1], f"00000001 {NULL_PART} ffffffff00000000", False),
    ([FloatType()], [1.5], f"00000001 {NULL_PART} 0000c03f00000000", False),
    ([DoubleType()], [2.5], f"00000001 {NULL_PART} 0000000000000440", False),
    ([DateType()], [19723], f"00000001 {NULL_PART} 0b4d000000000000", False),
    ([STRING], [""], f"00000001 {NULL_PART} 0000000000000080", False),
    ([STRING], ["1234567"], f"00000001 {NULL_PART} 3132333435363787", False),
    ([STRING], ["12345678"], f"00000001 {NULL_PART} 0800000010000000 3132333435363738", False),
    (
        [STRING],
        ["hello paimon"],
        f"00000001 {NULL_PART} 0c00000010000000 68656c6c6f207061 696d6f6e00000000",
        False,
    ),
    ([DecimalType(10, 2)], [Decimal("123.45")], f"00000001 {NULL_PART} 3930000000000000", False),
    (
        [TWENTY_DIGITS],
        [Decimal("123.45")],
        f"00000001 {NULL_PART} 0200000010000000 3039000000000000 {NULL_PART}",
        False,
    ),
    (
        [TWENTY_DIGITS],
        [Decimal("-123.45")],
        f"00000001 {NULL_PART} 0200000010000000 cfc7000000000000 {NULL_PART}",
        False,
    ),
    ([TWENTY_DIGITS], [None], f"00000001 {NULL_0} 0000000010000000 {NULL_PART} {NULL_PART}", True),
    ([TWENTY_DIGITS], [None], f"00000001 {NULL_0} {NULL_PART}", False),
    (
        [TWENTY_DIGITS],
        [Decimal("-1.28")],
        f"00000001 {NULL_PART} 0100000010000000 8000000000000000 {NULL_PART}",
        False,
    ),
    ([TimestampType(3)], [NOV_14], f"00000001 {NULL_PART} 7b68e5cf8b010000", False),
    ([TimestampType(6)], [NOV_14], f"00000001 {NULL_PART} 40f5060010000000 7b68e5cf8b010000", False),
    ([TimestampType(6)], [-1000], f"00000001 {NULL_PART} 583e0f0010000000 ffffffffffffffff", False),
    ([TimestampType(6)], [None], f"00000001 {NULL_0} 0000000010000000 {NULL_PART}", True),
    ([TimestampType(6)], [None], f"00000001 {NULL_0} {NULL_PART}", False),
    (
        [IntType(), STRING],
        [1, "hello paimon"],
        f"00000002 {NULL_PART} 0100000000000000 0c00000018000000 68656c6c6f207061 696d6f6e00000000",
        False,
    ),
    (
        [STRING, TWENTY_DIGITS, TimestampType(6)],
        ["hello paimon", Decimal("-5.25"), 1_000_005_000],
        (
            f"00000003 {NULL_PART} 0c00000020000000 0200000030000000 8813000040000000 68656c6c6f207061 696d6f6e00000000"
            f" fdf3000000000000 {NULL_PART} e803000000000000"
        ),
        False,
    ),
    (
        [TinyIntType()] * 57,
        [*range(1, 57), None],
        f"00000039 {NULL_PART} 0100000000000000 {''.join(f'{i:02x}00000000000000' for i in range(1, 57))} {NULL_PART}",
        False,
    ),
]


@pytest.mark.parametrize(("types", "values", "written", "reserved"), WRITTEN_BY_JAVA)
def test_rows_that_java_wrote(types: list[DataType], values: list[Any], written: str, reserved: bool):
    data = bytes.fromhex(written)
    assert with_arity(len(types), encode_row(types, values, reserve_nulls=reserved)) == data
    assert arity(data) == len(types)
    decoded = decode_row(types, data)
    assert encode_row(types, decoded, reserve_nulls=reserved) == data[4:]
    rows = pa.array([data, None, data], pa.binary())
    for position, (data_type, value) in enumerate(zip(types, decoded, strict=True)):
        column = decode_column(rows, position, data_type, len(types), strict=True)
        assert same(physical_values(column, data_type), [value, None, value])
    if types:
        columns = [from_physical([value], t) for t, value in zip(types, values, strict=True)]
        assert encode_rows(columns, types, reserve_nulls=reserved).row(0) == data[4:]


def test_milliseconds_round_towards_the_past():
    assert decode_row([TimestampType(3)], with_arity(1, encode_row([TimestampType(3)], [-1]))) == (
        -1_000_000,
    )
    assert decode_row([TimestampType(9)], with_arity(1, encode_row([TimestampType(9)], [-1]))) == (-1,)


def test_null_part_grows_with_the_fields():
    assert [null_size(n) for n in (0, 1, 56, 57, 120, 121)] == [8, 8, 8, 16, 16, 24]
    assert fixed_size(57) == 16 + 57 * 8


def test_complex_types_are_always_null():
    types = [IntType(), ArrayType(IntType()), MapType(IntType(), STRING)]
    data = with_arity(3, encode_row(types, [1, None, None]))
    assert decode_row(types, data) == (1, None, None)
    assert decode_column(pa.array([data]), 1, types[1], 3).to_pylist() == [None]
    assert decode_column(pa.array([data]), 1, types[1], 3).type == to_arrow_type(types[1])
    with pytest.raises(SchemaError):
        encode_row(types, [1, [1], None])


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (TinyIntType(), 128),
        (SmallIntType(), -(2**15) - 1),
        (IntType(), 2**31),
        (IntType(), "1"),
        (BigIntType(), 1.5),
        (FloatType(), 1e300),
        (STRING, b"bytes"),
        (STRING, "\ud800"),
        (VarBinaryType(), "text"),
        (VarBinaryType(), 7),
        (DecimalType(4, 2), Decimal(100)),
        (DecimalType(4, 2), Decimal("1.005")),
        (DecimalType(4, 2), Decimal("NaN")),
        (DecimalType(38, 0), Decimal("1E+1000000")),
        (DecimalType(38, 0), Decimal(10) ** 38),
        (TimeType(3), 86_400_000),
        (TimeType(3), -1),
        (TimestampType(3), 2**90),
        (TimestampType(9), 2**90),
    ],
)
def test_values_that_do_not_fit_are_refused(data_type: DataType, value: Any):
    with pytest.raises(SchemaError, match="does not fit the type"):
        encode_row([data_type], [value])


def test_rows_need_a_value_for_every_field():
    with pytest.raises(SchemaError, match="2 fields"):
        encode_row([IntType()] * 2, [1])


def row(slot: str, tail: str = "") -> bytes:
    return bytes.fromhex("00000001" + NULL_PART + slot + tail)


@pytest.mark.parametrize(
    ("data_type", "data", "complaint"),
    [
        (IntType(), b"", "found 0 bytes"),
        (IntType(), b"\0\0\0\1", "needs 16 bytes, found 0"),
        (IntType(), bytes.fromhex("ffffffff"), "found 4294967295"),
        (IntType(), bytes.fromhex(f"00000002 {NULL_PART * 3}"), "1 fields, found 2"),
        (IntType(), row("0100000000000000")[:-1], "found 15"),
        (STRING, row("6161616161616188"), "8 bytes in its slot"),
        (STRING, row("61616161616161ff"), "127 bytes in its slot"),
        (STRING, row("ff00000000000081"), "UTF-8"),
        (STRING, row("0800000010000000"), "of a row of 16 bytes"),
        (STRING, row("0900000010000000", "6161616161616161"), "16 to 25"),
        (STRING, row("080000000f000000", "6161616161616161"), "15 to 23"),
        (STRING, row("0000000000000000", "6161616161616161"), "0 to 0"),
        (STRING, row("ffffffff10000000", "6161616161616161"), "4294967311"),
        (STRING, row("08000000ffffff7f", "6161616161616161"), "of a row of 24 bytes"),
        (STRING, row("0800000010000000", "ff61616161616161"), "UTF-8"),
        (TimeType(3), row("005c260500000000"), "millisecond 86400000 of a day"),
        (TimeType(3), row("ffffffff00000000"), "millisecond -1"),
        (DecimalType(4, 2), row("1027000000000000"), "more digits"),
        (TWENTY_DIGITS, row("0000000010000000", "00" * 16), "number of 0 bytes"),
        (TWENTY_DIGITS, row("1100000010000000", "00" * 24), "number of 17 bytes"),
        (TWENTY_DIGITS, row("0100000010000000", "00" * 8), "16 to 32"),
        (TWENTY_DIGITS, row("1000000010000000", "7f" * 16), "more digits"),
        (TWENTY_DIGITS, row("1000000010000000", "8f" * 16), "more digits"),
        (TimestampType(6), row("40420f0010000000", "00" * 8), "1000000 nanoseconds"),
        (TimestampType(6), row("0000000010000000"), "16 to 24"),
    ],
)
def test_damaged_rows(data_type: DataType, data: bytes, complaint: str):
    with pytest.raises(CorruptTableError, match=complaint) as caught:
        decode_row([data_type], data, where="manifest/m")
    assert str(caught.value).startswith("manifest/m: ")
    whole = with_arity(1, encode_row([data_type], [None]))
    rows = pa.array([whole, data, whole])
    assert decode_column(rows, 0, data_type, 1).to_pylist() == [None] * 3
    with pytest.raises(CorruptTableError, match="manifest/m: row 1 "):
        decode_column(rows, 0, data_type, 1, strict=True, where="manifest/m")
    assert decode_column(rows.slice(1, 1), 0, data_type, 1).to_pylist() == [None]


def test_rows_of_another_arity_are_null():
    rows = pa.array([with_arity(n, encode_row([IntType()] * n, [n] * n)) for n in (1, 2, 0, 3, 2)])
    assert decode_column(rows, 1, IntType(), 2).to_pylist() == [None, 2, None, None, 2]
    assert decode_column(rows, 0, IntType(), 7).to_pylist() == [None] * 5


def test_timestamps_that_arrow_cannot_hold_are_null():
    types = [TimestampType(9)]
    year_9999 = 253_370_764_800 * 10**9
    edges = [2**63 - 1, -(2**63), 2**63, -(2**63) - 1, year_9999]
    rows = pa.array([with_arity(1, encode_row(types, [value])) for value in edges])
    assert decode_row(types, rows[4].as_py()) == (year_9999,)
    column = decode_column(rows, 0, types[0], 1)
    assert physical_values(column, types[0]) == [2**63 - 1, -(2**63), None, None, None]
    with pytest.raises(CorruptTableError, match="row 2"):
        decode_column(rows, 0, types[0], 1, strict=True)


@pytest.mark.parametrize("layout", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("data_type", [BigIntType(), STRING])
def test_every_layout_of_rows(layout: pa.DataType, data_type: DataType):
    values = [5, None, 7] if isinstance(data_type, BigIntType) else ["short", None, "longer than a slot"]
    encoded = [with_arity(1, encode_row([data_type], [value])) for value in values]
    rows = pa.array([b"", *encoded], layout)
    expected = [None, *values]
    assert decode_column(rows, 0, data_type, 1).to_pylist() == expected
    assert decode_column(rows.slice(1, 2), 0, data_type, 1).to_pylist() == expected[1:3]
    chunked = pa.chunked_array([rows.slice(0, 2), rows.slice(2), rows.slice(0, 0)])
    assert decode_column(chunked, 0, data_type, 1).to_pylist() == expected
    assert decode_column(pa.chunked_array([rows]), 0, data_type, 1).to_pylist() == expected
    for empty in (rows.slice(0, 0), pa.chunked_array([], layout)):
        assert decode_column(empty, 0, data_type, 1).equals(pa.array([], to_arrow_type(data_type)))


def test_columns_have_the_arrow_type_of_the_table():
    for data_type in (
        CharType(2),
        LocalZonedTimestampType(0),
        DecimalType(30, 4),
        TimeType(0),
        BooleanType(),
    ):
        rows = pa.array([with_arity(1, encode_row([data_type], [None])), b"damaged"])
        assert decode_column(rows, 0, data_type, 1).type == to_arrow_type(data_type)
        assert decode_column(pa.nulls(3, pa.binary()), 0, data_type, 1).equals(
            pa.nulls(3, to_arrow_type(data_type))
        )


@given(tables(), st.booleans())
def test_what_is_encoded_is_decoded(table: tuple[list[DataType], list[tuple[Any, ...]]], reserve: bool):
    types, rows = table
    encoded = [with_arity(len(types), encode_row(types, values, reserve_nulls=reserve)) for values in rows]
    assert all(len(data) % 8 == 4 for data in encoded)
    assert same([decode_row(types, data) for data in encoded], rows)
    columns = [decode_column(pa.array(encoded), i, t, len(types), strict=True) for i, t in enumerate(types)]
    for data_type, column, values in zip(types, columns, zip(*rows, strict=True), strict=True):
        column.validate(full=True)
        assert same(physical_values(column, data_type), list(values))


@given(tables(), st.booleans())
def test_columns_encode_as_rows_do(table: tuple[list[DataType], list[tuple[Any, ...]]], reserve: bool):
    types, rows = table
    encoded = encode_rows(columns_of(types, rows), types, reserve_nulls=reserve)
    assert len(encoded) == len(rows)
    for index, values in enumerate(rows):
        assert encoded.row(index) == encode_row(types, values, reserve_nulls=reserve)


@pytest.mark.long
@given(st.data())
def test_wide_rows_encode_by_column(data: st.DataObject):
    types: list[DataType] = [BooleanType()] * data.draw(st.integers(50, 140))
    rows = [tuple(data.draw(st.lists(st.none() | st.booleans(), min_size=len(types), max_size=len(types))))]
    assert encode_rows(columns_of(types, rows), types).row(0) == encode_row(types, rows[0])


@st.composite
def hostile_rows(draw: st.DrawFn) -> tuple[DataType, int, int, list[bytes]]:
    """Rows with some bytes overwritten, cut off, or made up altogether; the type of one field, its place, the arity."""
    data_type = draw(atomic_types())
    types: list[DataType] = draw(st.permutations([data_type, STRING, IntType()]))
    position = types.index(data_type)
    whole = [
        with_arity(3, encode_row(types, [draw(values_of(t)) for t in types]))
        for _ in range(draw(st.integers(1, 4)))
    ]
    rows = []
    for data in whole:
        damaged = bytearray(data)
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(4, len(damaged) - 1))
            damaged[at] = draw(st.sampled_from((0x00, 0x01, 0x07, 0x10, 0x20, 0x7F, 0x80, 0x88, 0xFF)))
        rows.append(bytes(damaged[: draw(st.integers(0, len(damaged)) | st.just(len(damaged)))]))
    return data_type, position, 3, [*rows, draw(st.binary(max_size=60)), *whole]


@given(hostile_rows())
def test_hostile_rows_give_values_or_the_one_error(case: tuple[DataType, int, int, list[bytes]]):
    data_type, position, count, rows = case
    types: list[DataType] = [BigIntType()] * count
    types[position] = data_type
    expected: list[Any] = []
    for data in rows:
        try:
            expected.append(decode_row(types, data)[position])
        except CorruptTableError:
            expected.append(None)
    column = decode_column(pa.array(rows), position, data_type, count)
    column.validate(full=True)
    assert same(physical_values(column, data_type), [_as_arrow_holds_it(v, data_type) for v in expected])


def _as_arrow_holds_it(value: Any, data_type: DataType) -> Any:
    try:
        return physical_values(from_physical([value], data_type), data_type)[0]
    except SchemaError:
        return None


@given(st.lists(st.binary(max_size=80), max_size=8), atomic_types(), st.integers(1, 3))
def test_made_up_bytes_are_never_read_out_of_bounds(rows: list[bytes], data_type: DataType, count: int):
    made_up = [*rows, *(struct.pack(">I", count) + data for data in rows)]
    for position in range(count):
        decode_column(pa.array(made_up, pa.binary()), position, data_type, count).validate(full=True)


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(SchemaError):
        encode_rows([pa.array([1]), pa.array([1, 2])], [IntType(), IntType()])
    with pytest.raises(SchemaError, match="does not fit INT"):
        encode_rows([pa.array([2**40])], [IntType()])
    with pytest.raises(SchemaError):
        encode_rows([pa.array([[1]])], [ArrayType(IntType())])
    with pytest.raises(SchemaError, match="milliseconds"):
        encode_rows([pa.array([2**62]).view(pa.timestamp("s"))], [TimestampType(0)])


def test_columns_of_fitting_types_are_taken():
    values = ["a", None, "longer than a slot"]
    expected = [encode_row([STRING], [value]) for value in values]
    for column in (
        pa.array(values, pa.large_string()),
        pa.array(values, pa.string_view()),
        pa.array(values).dictionary_encode(),
        pa.chunked_array([values[:1], values[1:]]),
    ):
        encoded = encode_rows([column], [STRING])
        assert [encoded.row(i) for i in range(3)] == expected
    micros = pa.array([-1], pa.timestamp("us"))
    assert encode_rows([micros], [TimestampType(3)]).row(0) == encode_row([TimestampType(3)], [-1000])
    assert len(encode_rows([pa.array([], pa.string())], [STRING])) == 0


def test_what_lies_under_a_null_does_not_matter():
    is_first, offsets = pa.py_buffer(b"\x01"), pa.py_buffer(struct.pack("<3i", 0, 3, 23))
    texts = pa.Array.from_buffers(pa.string(), 2, [is_first, offsets, pa.py_buffer(b"abc" + b"x" * 20)])
    numbers = pa.Array.from_buffers(pa.int64(), 2, [is_first, pa.py_buffer(struct.pack("<2q", 1, 99))])
    types: list[DataType] = [STRING, BigIntType()]
    assert encode_rows([texts, numbers], types).row(1) == encode_row(types, [None, None])
    rows = pa.Array.from_buffers(
        pa.binary(), 2, [is_first, offsets, pa.py_buffer(b"abc" + row("01" + "00" * 7))]
    )
    assert decode_column(rows, 0, BigIntType(), 1, strict=False).to_pylist() == [None, None]


def test_floats_keep_their_bits():
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324]
    rows = pa.array([with_arity(1, encode_row([DoubleType()], [v])) for v in values])
    assert same(decode_column(rows, 0, DoubleType(), 1).to_pylist(), values)

"""Statistics of columns: against Java Paimon's for the same files, and against the rows themselves."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.errors import OptionError, SchemaError
from anabranch.format.avro.files import read_frame
from anabranch.format.records.data_file import EMPTY_STATS, SimpleStats
from anabranch.format.records.layout import Layout
from anabranch.format.records.stats import (
    DEFAULT_STATS_MODE,
    StatsCollector,
    StatsKind,
    StatsMode,
    has_bounds,
    parse_stats_mode,
    partition_stats,
    stats_modes,
    truncate_max,
    truncate_min,
)
from anabranch.format.rows.binary_row import decode_row, encode_row, with_arity
from anabranch.format.rows.partition_path import partition_path
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import (
    ArrayType,
    BigIntType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)
from tests.format.row_values import columns_of, same, tables

STRING = VarCharType()
FULL = StatsMode(StatsKind.FULL)
TABLES_OF_JAVA = Path(__file__).parents[1] / "data" / "paimon" / "java-0.9"


def collect(types: list[DataType], columns: list[Any], mode: StatsMode = DEFAULT_STATS_MODE) -> SimpleStats:
    fields = [Field(i, f"c{i}", t) for i, t in enumerate(types)]
    collector = StatsCollector(fields, [mode] * len(fields))
    collector.update(pa.record_batch(columns, names=[f.name for f in fields]))
    return collector.finish()


def bounds(
    data_type: DataType, values: list[Any] | pa.Array, mode: StatsMode = DEFAULT_STATS_MODE
) -> tuple[Any, Any, int]:
    column = values if isinstance(values, pa.Array) else columns_of([data_type], [(v,) for v in values])[0]
    stats = collect([data_type], [column], mode)
    return (
        decode_row([data_type], stats.min_values)[0],
        decode_row([data_type], stats.max_values)[0],
        stats.null_counts[0],
    )


@pytest.mark.parametrize(
    "case",
    [
        "a_bounded_types",
        "a_decimals",
        "a_scalar_types",
        "a_timestamps",
        "a_timestamps_wide",
        "a_timestamps_nanos_old",
        "a_nested_types",
        "a_nested_rows",
        "b_partition_types",
        "b_partition_blank",
        "d_evolution",
        "f_compacted",
    ],
)
def test_statistics_of_files_that_java_wrote(case: str):
    (table,) = TABLES_OF_JAVA.glob(f"{case}/warehouse/*/*")
    schemas = {
        schema.id: schema
        for path in table.glob("schema/schema-*")
        for schema in [TableSchema.from_json(path.read_bytes(), path=path.name)]
    }
    compared = 0
    for manifest in table.glob("manifest/manifest-*"):
        if manifest.name.startswith("manifest-list-"):
            continue
        for entry in read_frame(manifest.read_bytes(), path=manifest.name).iter_rows(named=True):
            schema = schemas[entry["_FILE._SCHEMA_ID"]]
            partition = entry["_PARTITION"]
            partition_types = [field.type for field in schema.partition_fields]
            values = decode_row(partition_types, partition)
            # Java writes partitions with the place of nulls reserved.
            assert (
                with_arity(len(values), encode_row(partition_types, values, reserve_nulls=True)) == partition
            )
            folder = partition_path(schema.partition_fields, values)
            data_file = table / Layout().data_path(folder, entry["_BUCKET"], entry["_FILE._FILE_NAME"])
            if entry["_KIND"] == 1 and not data_file.exists():
                continue
            collector = StatsCollector(schema.fields, stats_modes(schema))
            for batch in pq.ParquetFile(data_file).iter_batches(batch_size=3):
                collector.update(batch)
            expected = SimpleStats(
                min_values=entry["_FILE._VALUE_STATS._MIN_VALUES"],
                max_values=entry["_FILE._VALUE_STATS._MAX_VALUES"],
                null_counts=tuple(entry["_FILE._VALUE_STATS._NULL_COUNTS"]),
            )
            assert collector.finish() == expected
            compared += 1
    assert compared


@pytest.mark.parametrize("case", ["b_partition_types", "b_partitioned", "a_scalar_types"])
def test_partition_statistics_that_java_wrote(case: str):
    (table,) = TABLES_OF_JAVA.glob(f"{case}/warehouse/*/*")
    schema = TableSchema.from_json((table / "schema/schema-0").read_bytes(), path="schema-0")
    types = [field.type for field in schema.partition_fields]
    compared = 0
    for manifest_list in table.glob("manifest/manifest-list-*"):
        for meta in read_frame(manifest_list.read_bytes(), path=manifest_list.name).iter_rows(named=True):
            manifest = table / "manifest" / meta["_FILE_NAME"]
            entries = read_frame(manifest.read_bytes(), path=manifest.name)
            found = partition_stats(types, [decode_row(types, data) for data in entries["_PARTITION"]])
            assert found == SimpleStats(
                min_values=meta["_PARTITION_STATS._MIN_VALUES"],
                max_values=meta["_PARTITION_STATS._MAX_VALUES"],
                null_counts=tuple(meta["_PARTITION_STATS._NULL_COUNTS"]),
            )
            compared += 1
    assert compared


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", StatsMode(StatsKind.NONE)),
        ("counts", StatsMode(StatsKind.COUNTS)),
        (" FULL ", FULL),
        ("truncate(16)", DEFAULT_STATS_MODE),
        ("TRUNCATE(1)", StatsMode(StatsKind.TRUNCATE, 1)),
    ],
)
def test_modes_from_text(text: str, mode: StatsMode):
    assert parse_stats_mode(text) == mode
    assert parse_stats_mode(str(mode)) == mode


@pytest.mark.parametrize(
    "text", ["", "some", "truncate", "truncate()", "truncate(0)", "truncate(-1)", "truncate(x)"]
)
def test_modes_that_are_none(text: str):
    with pytest.raises(OptionError, match="not a statistics mode"):
        parse_stats_mode(text)


def test_modes_of_a_schema():
    fields = [Field(-1, name, BigIntType()) for name in ("a", "b")]
    plain = TableSchema.create(fields, time_millis=0)
    assert stats_modes(plain) == [DEFAULT_STATS_MODE] * 2
    options = {"metadata.stats-mode": "counts", "fields.b.stats-mode": "full"}
    assert stats_modes(TableSchema.create(fields, options=options, time_millis=0)) == [
        StatsMode(StatsKind.COUNTS),
        FULL,
    ]


def test_what_each_mode_keeps():
    values = ["b" * 20, None, "a" * 20]
    assert bounds(STRING, values, FULL) == ("a" * 20, "b" * 20, 1)
    assert bounds(STRING, values) == ("a" * 16, "b" * 15 + "c", 1)
    assert bounds(STRING, values, StatsMode(StatsKind.COUNTS)) == (None, None, 1)
    assert bounds(STRING, values, StatsMode(StatsKind.NONE)) == (None, None, None)


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (BooleanType(), True),
        (BigIntType(), True),
        (DoubleType(), True),
        (DecimalType(38, 2), True),
        (CharType(3), True),
        (DateType(), True),
        (TimeType(), True),
        (TimestampType(6), True),
        (LocalZonedTimestampType(6), True),
        (TimestampType(7), False),
        (LocalZonedTimestampType(9), False),
        (VarBinaryType(), False),
        (ArrayType(IntType()), False),
        (RowType((Field(0, "x", IntType()),)), False),
    ],
)
def test_types_with_bounds(data_type: DataType, expected: bool):
    assert has_bounds(data_type) is expected


def test_types_without_bounds_have_their_nulls_counted():
    assert bounds(VarBinaryType(), [b"a", None, b"b"]) == (None, None, 1)
    assert bounds(TimestampType(9), [1, None, 2]) == (None, None, 1)


@pytest.mark.parametrize(
    ("data_type", "column"),
    [
        (ArrayType(IntType()), pa.array([[1], None])),
        (MapType(STRING, IntType()), pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32()))),
        (MultisetType(STRING), pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32()))),
        (RowType((Field(1, "x", IntType()),)), pa.array([{"x": 1}, None])),
    ],
)
def test_nothing_is_known_of_complex_types(data_type: DataType, column: pa.Array):
    assert bounds(data_type, column) == (None, None, None)


@pytest.mark.parametrize("data_type", [FloatType(), DoubleType()])
def test_floats(data_type: DataType):
    assert same(bounds(data_type, [0.0, 1.0]), (-0.0, 1.0, 0))
    assert same(bounds(data_type, [-1.0, -0.0]), (-1.0, 0.0, 0))
    assert bounds(data_type, [1.0, math.nan, 2.0]) == (None, None, 0)
    assert bounds(data_type, [-math.inf, None, math.inf]) == (-math.inf, math.inf, 1)


def test_a_nan_in_one_batch_spoils_the_file():
    collector = StatsCollector([Field(0, "x", DoubleType())], [FULL])
    for values in ([1.0], [math.nan], [2.0]):
        collector.update(pa.record_batch([pa.array(values)], names=["x"]))
    assert decode_row([DoubleType()], collector.finish().min_values) == (None,)


def test_only_nulls_and_no_rows():
    assert bounds(BigIntType(), [None, None]) == (None, None, 2)
    assert bounds(BigIntType(), pa.nulls(3)) == (None, None, 3)
    nothing = StatsCollector([Field(0, "x", BigIntType())], [FULL]).finish()
    assert nothing == SimpleStats(*[with_arity(1, encode_row([BigIntType()], [None]))] * 2, null_counts=(0,))


def test_text_is_ordered_by_its_bytes():
    # In UTF-16 the emoji would sort before the private-use character.
    assert bounds(STRING, ["\U0001f600", "\ue000", "z"]) == ("z", "\U0001f600", 0)


@pytest.mark.parametrize(
    ("text", "length", "low", "high"),
    [
        ("a string value longer", 16, "a string value l", "a string value m"),
        ("exactly 16 chars", 16, "exactly 16 chars", "exactly 16 chars"),
        ("😀" * 3, 2, "😀😀", "😀😁"),
        ("ab\U0010ffffc", 3, "ab\U0010ffff", "ac"),
        ("\U0010ffff" * 3, 2, "\U0010ffff" * 2, None),
        ("\ud7ffx", 1, "\ud7ff", "\ue000"),
    ],
)
def test_shortened_text(text: str, length: int, low: str, high: str | None):
    assert truncate_min(text, length) == low
    assert truncate_max(text, length) == high


def test_neither_bound_where_the_maximum_cannot_be_shortened():
    assert bounds(STRING, ["a", "\U0010ffff" * 17, None]) == (None, None, 1)
    assert bounds(STRING, ["a", "\U0010ffff" * 17], FULL)[:2] == ("a", "\U0010ffff" * 17)


@given(st.text(), st.text(), st.integers(1, 5))
def test_shortened_text_bounds_what_it_shortens(text: str, other: str, length: int):
    low, high = truncate_min(text, length), truncate_max(text, length)
    assert len(low) <= length
    assert low <= text
    if high is not None:
        assert len(high) <= length
        assert text <= high
        assume(len(text) > length)
        assert text[:length] + other < high


@given(
    tables(), st.integers(1, 5), st.sampled_from([FULL, DEFAULT_STATS_MODE, StatsMode(StatsKind.TRUNCATE, 3)])
)
def test_bounds_hold_every_value(
    table: tuple[list[DataType], list[tuple[Any, ...]]], batch_size: int, mode: StatsMode
):
    types, rows = table
    rows = rows[:40]
    fields = [Field(i, f"c{i}", t) for i, t in enumerate(types)]
    collector = StatsCollector(fields, [mode] * len(types))
    whole = pa.table(columns_of(types, rows), names=[f.name for f in fields])
    for batch in whole.to_batches(max_chunksize=batch_size):
        collector.update(batch)
    stats = collector.finish()
    low, high = decode_row(types, stats.min_values), decode_row(types, stats.max_values)
    for position, data_type in enumerate(types):
        values = [values[position] for values in rows if values[position] is not None]
        assert stats.null_counts[position] == len(rows) - len(values)
        if low[position] is None or high[position] is None:
            assert low[position] is high[position] is None
            spoiled = any(isinstance(v, float) and math.isnan(v) for v in values)
            unshortened = isinstance(data_type, VarCharType | CharType) and mode is not FULL
            assert not values or spoiled or unshortened or not has_bounds(data_type)
        else:
            assert all(low[position] <= value <= high[position] for value in values)
            if mode is FULL and not isinstance(data_type, TimestampType | LocalZonedTimestampType):
                assert (low[position], high[position]) == (min(values), max(values))


def test_a_batch_must_have_the_columns_of_the_schema():
    collector = StatsCollector([Field(0, "x", BigIntType())], [FULL])
    with pytest.raises(SchemaError, match="expected a batch of 1 columns, found 2"):
        collector.update(pa.record_batch([pa.array([1]), pa.array([2])], names=["x", "y"]))
    with pytest.raises(SchemaError, match="does not fit BIGINT"):
        collector.update(pa.record_batch([pa.array(["text"])], names=["x"]))


def test_columns_of_fitting_types_are_taken():
    assert bounds(STRING, pa.array(["b", "a"], pa.large_string())) == ("a", "b", 0)
    assert bounds(STRING, pa.array(["b", "a", None]).dictionary_encode()) == ("a", "b", 1)
    assert bounds(BigIntType(), pa.array([3, 1], pa.int32())) == (1, 3, 0)


def test_partition_statistics_are_exact():
    types: list[DataType] = [STRING, BigIntType(), DecimalType(20, 2), TimestampType(9), VarBinaryType()]
    rows = [
        ("x" * 40, None, Decimal("1.50"), -1, b"b"),
        ("", None, Decimal("-1.50"), 2**70, b"a"),
        (None, None, None, 5, None),
    ]
    stats = partition_stats(types, rows)
    assert decode_row(types, stats.min_values) == ("", None, Decimal("-1.50"), -1, b"a")
    assert decode_row(types, stats.max_values) == ("x" * 40, None, Decimal("1.50"), 2**70, b"b")
    assert stats.null_counts == (1, 3, 1, 0, 1)


def test_partition_statistics_without_partition_or_rows():
    assert partition_stats([], [(), ()]) == EMPTY_STATS
    assert partition_stats([BigIntType()], []).null_counts == (0,)
    nan = partition_stats([DoubleType()], [(math.nan,), (1.0,)])
    assert decode_row([DoubleType()], nan.min_values) == (None,)

"""Which bucket a row belongs to, against what Java Paimon says."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SchemaError
from anabranch.format.rows.binary_row import encode_row
from anabranch.format.rows.bucket import assign_buckets, hash_rows
from anabranch.format.rows.encoded_rows import encode_rows
from anabranch.format.types.data_types import (
    BigIntType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    TimestampType,
    VarCharType,
)
from anabranch.format.types.grammar import parse_type
from anabranch.format.types.values import from_physical
from tests.format.row_values import columns_of, tables

STRING = VarCharType()
TWENTY_DIGITS = DecimalType(20, 2)
TABLES_OF_JAVA = Path(__file__).parents[1] / "data" / "paimon" / "java-0.9"

# Types and values of keys, their hash, and their bucket of 3 and of 7.
KEYS: list[tuple[list[DataType], list[Any], int, int, int]] = [
    ([IntType()], [0], -300363099, 0, 1),
    ([BigIntType()], [0], -300363099, 0, 1),
    ([BooleanType()], [False], -300363099, 0, 1),
    ([IntType()], [1], 1465514398, 1, 5),
    ([BigIntType()], [1], 1465514398, 1, 5),
    ([IntType()], [-1], 1133687267, 2, 6),
    ([IntType()], [42], 907821237, 0, 1),
    ([BigIntType()], [-1], -821098432, 1, 0),
    ([BigIntType()], [1234567890123], -1873221036, 0, 1),
    ([IntType()], [None], -1748325344, 2, 3),
    ([STRING], [None], -1748325344, 2, 3),
    ([DoubleType()], [2.5], 727599657, 0, 1),
    ([STRING], [""], 302122119, 0, 5),
    ([STRING], ["a"], 943281246, 0, 5),
    ([STRING], ["12345678"], -391021801, 1, 2),
    ([STRING], ["hello paimon"], 168916036, 1, 2),
    ([DateType()], [19723], -1439008885, 1, 6),
    ([DecimalType(10, 2)], [Decimal("123.45")], 767607022, 1, 0),
    ([TWENTY_DIGITS], [Decimal("123.45")], -118192725, 0, 0),
    ([TWENTY_DIGITS], [None], -1380280760, 2, 5),
    ([TimestampType(6)], [1_700_000_000_123_456_000], 1196670069, 0, 0),
    ([TimestampType(6)], [None], -340882661, 2, 0),
    ([IntType(), STRING], [1, "hello paimon"], 1327775179, 1, 3),
]


MASK = 0xFFFF_FFFF


def hash_row(row: bytes) -> int:
    """Murmur3 of a key row as it is defined, word by word: a signed number of 32 bits."""
    state = 42
    for at in range(0, len(row), 4):
        word = int.from_bytes(row[at : at + 4], "little") * 0xCC9E2D51 & MASK
        state ^= ((word << 15 | word >> 17) & MASK) * 0x1B873593 & MASK
        state = ((state << 13 | state >> 19) & MASK) * 5 + 0xE6546B64 & MASK
    state ^= len(row)
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    state ^= state >> 16
    return state - (state >> 31 << 32)


def bucket_of(row_hash: int, bucket_count: int) -> int:
    return abs(row_hash) % bucket_count


@pytest.mark.parametrize(("types", "values", "expected", "of_3", "of_7"), KEYS)
def test_keys_that_java_hashed(types: list[DataType], values: list[Any], expected: int, of_3: int, of_7: int):
    row = encode_row(types, values, reserve_nulls=True)
    assert hash_row(row) == expected
    assert (bucket_of(expected, 3), bucket_of(expected, 7)) == (of_3, of_7)
    # Few rows and many rows take different ways through the code.
    for count in (1, 100):
        columns = [from_physical([value] * count, t) for t, value in zip(types, values, strict=True)]
        assert hash_rows(encode_rows(columns, types)).tolist() == [expected] * count
        assert assign_buckets(columns, types, 3).tolist() == [of_3] * count
        assert assign_buckets(columns, types, 7).tolist() == [of_7] * count


@pytest.mark.parametrize(
    "case", ["c_bucketed", "c_bucketed_multi", "c_bucketed_partitioned", "f_compacted_bucketed"]
)
def test_rows_lie_in_the_buckets_where_java_put_them(case: str):
    (schema_file,) = TABLES_OF_JAVA.glob(f"{case}/warehouse/*/*/schema/schema-0")
    schema = json.loads(schema_file.read_bytes())
    keys = schema["options"]["bucket-key"].split(",")
    types = [
        parse_type(f["type"], where="schema") for key in keys for f in schema["fields"] if f["name"] == key
    ]
    bucket_count = int(schema["options"]["bucket"])
    seen = set()
    for data_file in schema_file.parents[1].rglob("bucket-*/*.parquet"):
        bucket = int(data_file.parent.name.removeprefix("bucket-"))
        columns = pq.ParquetFile(data_file).read(columns=keys).select(keys).columns
        assert set(assign_buckets(columns, types, bucket_count).tolist()) == {bucket}
        seen.add(bucket)
    assert len(seen) > 1


@given(tables(), st.integers(1, 2**31 - 1))
def test_columns_hash_as_rows_do(table: tuple[list[DataType], list[tuple[Any, ...]]], bucket_count: int):
    types, rows = table
    columns = columns_of(types, rows)
    expected = [hash_row(encode_row(types, values, reserve_nulls=True)) for values in rows]
    assert hash_rows(encode_rows(columns, types)).tolist() == expected
    buckets = assign_buckets(columns, types, bucket_count)
    assert buckets.dtype == np.int32
    assert buckets.tolist() == [bucket_of(h, bucket_count) for h in expected]


@given(st.lists(st.text(max_size=200), min_size=60, max_size=90))
def test_many_texts_of_all_lengths(texts: list[str]):
    expected = [bucket_of(hash_row(encode_row([STRING], [text])), 13) for text in texts]
    assert assign_buckets([pa.array(texts)], [STRING], 13).tolist() == expected


def test_a_very_long_key_among_short_ones():
    texts = ["x" * 300_001, *map(str, range(100))]
    expected = [bucket_of(hash_row(encode_row([STRING], [text])), 5) for text in texts]
    assert assign_buckets([pa.array(texts)], [STRING], 5).tolist() == expected


def test_no_rows_have_no_buckets():
    assert assign_buckets([pa.array([], pa.int64())], [BigIntType()], 4).tolist() == []


def test_a_column_must_fit_its_type():
    with pytest.raises(SchemaError):
        assign_buckets([pa.array(["not a number"])], [BigIntType()], 4)

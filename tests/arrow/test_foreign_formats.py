"""ORC and Avro files, which other writers leave in tables."""

import datetime as dt
import io
from dataclasses import replace
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc

from anabranch.arrow.orc_file import OrcData
from anabranch.arrow.reader import ReadContext
from anabranch.errors import CorruptTableError, UnsupportedFeatureError
from anabranch.format.types.data_types import Field, IntType
from anabranch.kernel.scan.split import Split, SplitFile
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from tests.arrow.helpers import filtered, make_schema, read_batches, read_table

UTC = dt.UTC


class File:
    """One file of a table."""

    def __init__(self, schema, data, rows, kind, storage=None):
        self.schema = schema
        self.storage = storage or MemoryStorage()
        self.path = f"bucket-0/data-0.{kind}"
        self.storage.put(self.path, data)
        self.file = SplitFile(self.path, len(data), rows, 0, kind)
        self.split = Split(b"", 0, (self.file,))

    def context(self, fields=None):
        return ReadContext(self.storage, fields or self.schema.fields, lambda _: self.schema)

    def read(self, **how):
        return read_table([self.split], self.context(), **how)


def orc_file(schema, table, storage=None, **how):
    sink = io.BytesIO()
    orc.write_table(table, sink, **how)
    return File(schema, sink.getvalue(), table.num_rows, "orc", storage)


def avro_file(schema, avro, records, **how):
    sink = io.BytesIO()
    fastavro.writer(
        sink, {"type": "record", "name": "org.apache.paimon.record", "fields": avro}, records, **how
    )
    return File(schema, sink.getvalue(), len(records), "avro")


def rows(count):
    return pa.table(
        {
            "id": pa.array(range(count), pa.int32()),
            "s": [None if n % 3 == 0 else f"s{n % 10}" for n in range(count)],
            "r": [None if n % 4 == 0 else {"x": n, "l": [f"{n}"] * (n % 3)} for n in range(count)],
        },
        schema=pa.schema(
            {
                "id": pa.int32(),
                "s": pa.string(),
                "r": pa.struct({"x": pa.int64(), "l": pa.list_(pa.string())}),
            }
        ),
    )


PLAIN = make_schema("id INT NOT NULL, s STRING, r ROW<x BIGINT, l ARRAY<STRING>>")
PLAIN_AVRO = [
    {"name": "id", "type": "int"},
    {"name": "s", "type": ["null", "string"]},
    {
        "name": "r",
        "type": [
            "null",
            {
                "type": "record",
                "name": "record_r",
                "fields": [
                    {"name": "x", "type": ["null", "long"]},
                    {"name": "l", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
                ],
            },
        ],
    },
]


@pytest.fixture(scope="module", params=["orc", "local orc", "avro"])
def plain(request, tmp_path_factory):
    """The same rows in several stripes or blocks."""
    if request.param == "avro":
        return avro_file(PLAIN, PLAIN_AVRO, rows(5000).to_pylist(), codec="deflate", sync_interval=4000)
    storage = LocalStorage(tmp_path_factory.mktemp("orc")) if request.param == "local orc" else None
    file = orc_file(PLAIN, rows(5000), storage, stripe_size=1000, batch_size=1000)
    assert orc.ORCFile(io.BytesIO(file.storage.get(file.path))).nstripes > 1
    return file


def test_rows_columns_predicates_and_limits(plain):
    expected = rows(5000).to_pylist()
    assert plain.read().to_pylist() == expected
    assert [r for b in read_batches([plain.split], plain.context()) for r in b.to_pylist()] == expected
    assert plain.read(columns=["s"]).to_pylist() == [{"s": r["s"]} for r in expected]
    assert plain.read(columns=[]).num_rows == 5000
    assert plain.read(limit=1234).to_pylist() == expected[:1234]
    predicate = filtered(PLAIN, "s = 's4' AND r.x > 100")
    found = plain.read(columns=["id"], predicate=predicate, limit=7).column("id").to_pylist()
    assert found == [r["id"] for r in expected if r["s"] == "s4" and r["r"] and r["r"]["x"] > 100][:7]


def test_columns_added_and_dropped_since(plain):
    fields = (PLAIN.field("s"), Field(77, "id", IntType()))
    found = read_table([plain.split], plain.context(fields))
    assert found.to_pylist() == [{"s": r["s"], "id": None} for r in rows(5000).to_pylist()]
    only_new = read_table([plain.split], plain.context((Field(77, "n", IntType()),)))
    assert only_new.to_pylist() == [{"n": None}] * 5000


def test_a_damaged_file_is_named(plain):
    data = plain.storage.get(plain.path)
    for damaged in (data[: len(data) // 2], b"", b"x" * len(data), data[:300] + b"\xff" * 600 + data[900:]):
        file = File(PLAIN, damaged, 5000, plain.file.format)
        with pytest.raises(CorruptTableError) as caught:
            file.read()
        assert caught.value.path == file.path


def test_rows_are_counted(plain):
    wrong = Split(b"", 0, (plain.file._replace(row_count=4999),))
    for read in (read_table, lambda *how: [*read_batches(*how)]):
        with pytest.raises(CorruptTableError, match="5000 rows, its manifest entry says 4999"):
            read([wrong], plain.context())


# ORC


def test_what_orc_has_no_types_for():
    schema = make_schema(
        "i TINYINT, t TIME(3), t0 TIMESTAMP(0), t6 TIMESTAMP(6), t9 TIMESTAMP(9), z3 TIMESTAMP_LTZ(3), "
        "old TIMESTAMP_LTZ(6), u MULTISET<STRING>, d DECIMAL(20, 3), b BINARY(2)"
    )
    naive = pa.timestamp("ns")
    table = pa.table(
        {
            "i": pa.array([-128, None], pa.int8()),
            "t": pa.array([86_399_999, None], pa.int32()),
            "t0": pa.array([-1_000_000_000, None], naive),
            "t6": pa.array([-1000, None], naive),
            "t9": pa.array([-1, None], naive),
            "z3": pa.array([1_000_000, None], pa.timestamp("ns", "UTC")),
            "old": pa.array([5000, None], naive),  # what writers do that store an instant as its clock in UTC
            "u": pa.array([[("a", 2)], None], pa.map_(pa.string(), pa.int32())),
            "d": pa.array([Decimal("-1.250"), None], pa.decimal128(20, 3)),
            "b": pa.array([b"\0\1", None]),
        }
    )
    found = orc_file(schema, table).read()
    assert found["t9"].cast("int64").to_pylist() == [-1, None]
    first, nulls = found.drop_columns("t9").to_pylist()
    assert set(nulls.values()) == {None}
    epoch = dt.datetime(1970, 1, 1)
    assert first == {
        "i": -128,
        "t": dt.time(23, 59, 59, 999_000),
        "t0": epoch - dt.timedelta(seconds=1),
        "t6": epoch - dt.timedelta(microseconds=1),
        "z3": epoch.replace(tzinfo=UTC) + dt.timedelta(milliseconds=1),
        "old": epoch.replace(tzinfo=UTC) + dt.timedelta(microseconds=5),
        "u": [("a", 2)],
        "d": Decimal("-1.250"),
        "b": b"\0\1",
    }


def test_orc_timestamps_beyond_nanoseconds_are_refused():
    schema = make_schema("t TIMESTAMP(3)")
    table = pa.table({"t": pa.array([253_402_300_799], pa.timestamp("s"))})
    with pytest.raises(UnsupportedFeatureError, match="1677 to 2262") as caught:
        orc_file(schema, table).read()
    assert caught.value.feature == "timestamp-range"


def test_orc_columns_with_dots_in_their_names():
    schema = make_schema("`a.b` INT, a ROW<b STRING>, c INT")
    table = pa.table({"a.b": pa.array([1], pa.int32()), "a": [{"b": "x"}], "c": pa.array([2], pa.int32())})
    file = orc_file(schema, table)
    assert file.read(columns=["a.b"]).to_pylist() == [{"a.b": 1}]
    assert file.read(columns=["a", "c"]).to_pylist() == [{"a": {"b": "x"}, "c": 2}]


def test_padding_that_java_writes_into_orc_is_removed():
    schema = make_schema("c CHAR(5), v VARCHAR(5), r ROW<c CHAR(3)>")
    table = pa.table(
        {"c": ["ab   ", None, "é    "], "v": ["ab   ", "", None], "r": [{"c": "x  "}, None, {"c": None}]}
    )
    file = orc_file(schema, table)
    data = OrcData(file.storage, file.file)
    (stripe,) = data.pieces()
    assert stripe.read(schema.fields).column("c").to_pylist() == ["ab   ", None, "é    "]
    data.pads_char = True
    assert stripe.read(schema.fields).to_pylist() == [
        {"c": "ab", "v": "ab   ", "r": {"c": "x"}},
        {"c": None, "v": "", "r": None},
        {"c": "é", "v": None, "r": {"c": None}},
    ]


# Avro


def optional(avro):
    return ["null", avro]


def test_every_type_in_avro_as_java_writes_it():
    schema = make_schema(
        "o BOOLEAN, i1 TINYINT, i2 SMALLINT, i8 BIGINT NOT NULL, f FLOAT, d DOUBLE, c CHAR(3), b BINARY(2), "
        "n9 DECIMAL(9, 2), n38 DECIMAL(38, 10), day DATE, t TIME(3), t3 TIMESTAMP(3), t6 TIMESTAMP(6), "
        "z3 TIMESTAMP_LTZ(3), z6 TIMESTAMP_LTZ(6), l ARRAY<TIMESTAMP(3)>, m MAP<STRING, DECIMAL(5, 1)>, "
        "k MAP<INT, STRING>, u MULTISET<STRING>, e ARRAY<ROW<x INT>>"
    )
    entry = {
        "type": "record",
        "name": "record_k",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": optional("string")}],
    }
    types = {
        "o": "boolean",
        "i1": "int",
        "i2": "int",
        "f": "float",
        "d": "double",
        "c": "string",
        "b": "bytes",
        "n9": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "n38": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
        "day": {"type": "int", "logicalType": "date"},
        "t": {"type": "int", "logicalType": "time-millis"},
        "t3": {"type": "long", "logicalType": "timestamp-millis"},
        "t6": {"type": "long", "logicalType": "local-timestamp-micros"},
        "z3": {"type": "long", "logicalType": "timestamp-millis"},
        "z6": {"type": "long", "logicalType": "timestamp-micros"},
        "l": {"type": "array", "items": optional({"type": "long", "logicalType": "timestamp-millis"})},
        "m": {"type": "map", "values": optional({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1})},
        "k": {"type": "array", "items": entry, "logicalType": "map"},
        "u": {"type": "map", "values": "int"},
        "e": {"type": "array", "items": optional({"type": "record", "name": "e", "fields": [{"name": "x", "type": "int"}]})},
    }  # fmt: skip
    avro = [{"name": "i8", "type": "long"}, *({"name": n, "type": optional(t)} for n, t in types.items())]
    wide = Decimal((1, (9,) * 38, -10))
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    record = {
        "o": True,
        "i1": -128,
        "i2": 32767,
        "i8": -(2**63),
        "f": 0.5,
        "d": -0.0,
        "c": "é",
        "b": b"\0",
        "n9": Decimal("-0.01"),
        "n38": wide,
        "day": dt.date(1, 1, 1),
        "t": dt.time(23, 59, 59, 999_000),
        "t3": moment,
        "t6": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
        "z3": moment,
        "z6": moment,
        "l": [moment, None],
        "m": {"a": Decimal("1.5"), "b": None},
        "k": [{"key": 5, "value": "v"}, {"key": -1, "value": None}],
        "u": {"a": 3},
        "e": [{"x": 1}, None],
    }
    empty = {name: (0 if name == "i8" else None) for name in record}
    clock = moment.replace(tzinfo=None)
    first, second = avro_file(schema, avro, [record, empty]).read().to_pylist()
    assert second == empty
    assert first == record | {
        "t3": clock,
        "l": [clock, None],
        "m": [("a", Decimal("1.5")), ("b", None)],
        "k": [(5, "v"), (-1, None)],
        "u": [("a", 3)],
    }


def test_avro_of_writers_with_other_habits():
    """Micros where millis are expected, decimals of a fixed length, types named once and used again."""
    schema = make_schema("t TIME(3), n DECIMAL(10, 2), a ROW<x INT>, b ROW<x INT>, z TIMESTAMP(3), i BIGINT")
    point = {"type": "record", "name": "ns.point", "fields": [{"name": "x", "type": "int"}]}
    fixed = {"type": "fixed", "name": "f", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2}
    avro = [
        {"name": "t", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "n", "type": [fixed, "null"]},
        {"name": "a", "type": point},
        {"name": "b", "type": ["null", "ns.point"]},
        {"name": "z", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "i", "type": "int"},
    ]
    record = {
        "t": dt.time(1, 2, 3, 4000),
        "n": Decimal("-12345.67"),
        "a": {"x": 1},
        "b": {"x": 2},
        "z": dt.datetime(1970, 1, 1, 0, 0, 0, 7000, tzinfo=UTC),
        "i": 5,
    }
    expected = record | {"z": dt.datetime(1970, 1, 1, 0, 0, 0, 7000)}
    assert avro_file(schema, avro, [record]).read().to_pylist() == [expected]


def test_an_avro_column_of_another_kind_is_corrupt():
    for sql, avro, value in (("INT", "string", "a"), ("INT", "long", 2**40), ("ARRAY<INT>", "int", 1)):
        file = avro_file(make_schema(f"c {sql}"), [{"name": "c", "type": avro}], [{"c": value}])
        with pytest.raises(CorruptTableError) as caught:
            file.read()
        assert caught.value.path == file.path


def test_an_empty_avro_file():
    file = avro_file(PLAIN, PLAIN_AVRO, [])
    assert file.read().equals(rows(0).cast(file.read().schema))
    assert file.read(columns=[]).num_rows == 0


def test_files_of_all_formats_in_one_read():
    files = [
        orc_file(PLAIN, rows(3)),
        avro_file(PLAIN, PLAIN_AVRO, rows(3).to_pylist()),
    ]
    storage = MemoryStorage()
    for file in files:
        storage.put(file.path, file.storage.get(file.path))
    context = replace(files[0].context(), storage=storage)
    found = read_table([file.split for file in files], context)
    assert found.to_pylist() == rows(3).to_pylist() * 2

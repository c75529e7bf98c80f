"""Paths from ids and names, and back."""

from __future__ import annotations

import math
import struct
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError, InvalidInputError, UnsupportedFeatureError
from anabranch.format.avro.files import read_frame
from anabranch.format.records import layout
from anabranch.format.records.layout import Layout
from anabranch.format.rows import partition_path
from anabranch.format.rows.binary_row import decode_row
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import (
    ArrayType,
    BigIntType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)

EVENING = 1_700_000_000_120_000_000
"""2023-11-14 22:13:20.120 in nanoseconds."""


def test_main_lies_in_the_tables_own_folder():
    main = Layout()
    assert main.branch_root == ""
    assert main.snapshot_path(12) == "snapshot/snapshot-12"
    assert main.latest_hint_path == "snapshot/LATEST"
    assert main.earliest_hint_path == "snapshot/EARLIEST"
    assert main.schema_path(0) == "schema/schema-0"
    assert main.tag_path("good") == "tag/tag-good"
    assert main.consumer_path("etl") == "consumer/consumer-etl"
    assert main.savepoint_path(3) == "savepoint/savepoint-3"
    assert Layout("main").snapshot_path(1) == main.snapshot_path(1)


def test_a_branch_has_its_own_metadata_and_shares_the_rest():
    branch = Layout("fix")
    assert branch.branch_root == "branch/branch-fix"
    assert branch.snapshot_path(12) == "branch/branch-fix/snapshot/snapshot-12"
    assert branch.schema_path(1) == "branch/branch-fix/schema/schema-1"
    assert branch.tag_path("good") == "branch/branch-fix/tag/tag-good"
    assert branch.consumer_path("etl") == "branch/branch-fix/consumer/consumer-etl"
    assert branch.branch_file_path("FORK") == "branch/branch-fix/FORK"
    for shared in ("manifest_path", "index_path", "statistics_path", "branches_file_path"):
        assert getattr(branch, shared)("x") == getattr(Layout(), shared)("x")
    assert branch.manifest_path("manifest-u-0") == "manifest/manifest-u-0"
    assert branch.data_path("dt=a", 3, "data-u-0.parquet") == "dt=a/bucket-3/data-u-0.parquet"
    assert branch.data_path("", 0, "data-u-0.parquet") == "bucket-0/data-u-0.parquet"


def test_names_of_new_files():
    assert layout.data_file_name("u", 2, "parquet") == "data-u-2.parquet"
    assert layout.manifest_name("u", 0) == "manifest-u-0"
    assert layout.manifest_list_name("u", 1) == "manifest-list-u-1"
    assert layout.file_format_of("data-u-2.zstd.parquet") == "parquet"
    assert layout.file_format_of("data-u-2") == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("snapshot-12", 12),
        ("snapshot/snapshot-12", 12),
        ("branch/branch-b/snapshot/snapshot-0", 0),
        (f"snapshot-{2**63 - 1}", 2**63 - 1),
        (f"snapshot-{2**63}", None),
        ("snapshot-012", None),
        ("snapshot-", None),
        ("snapshot-x", None),
        ("snapshot--1", None),
        ("snapshot-+1", None),
        ("snapshot-1_0", None),
        ("snapshot-١", None),
        ("snapshot-1.tmp", None),
        (".snapshot-1.7f9e.tmp", None),
        ("schema-1", None),
        ("LATEST", None),
        ("snapshot-" + "9" * 5000, None),
    ],
)
def test_snapshot_ids_out_of_names(name: str, expected: int | None):
    assert layout.snapshot_id_of(name) == expected


def test_other_names_back_to_what_they_name():
    assert layout.schema_id_of("schema/schema-7") == 7
    assert layout.savepoint_id_of("savepoint-7") == 7
    assert layout.savepoint_id_of("savepoint-7.deleted") is None
    assert layout.bucket_of_folder("dt=a/bucket-2") == 2
    assert layout.bucket_of_folder("bucket-postpone") is None
    assert layout.tag_name_of("tag/tag-tag-1") == "tag-1"
    assert layout.consumer_id_of("consumer-etl") == "etl"
    assert layout.branch_name_of("branch/branch-fix") == "fix"
    assert layout.tag_name_of("tag-") is None
    assert layout.tag_name_of(".tag-x.7f9e.tmp") is None


def test_file_names_of_manifests_must_be_plain():
    for name in ("data-u-0.parquet", "manifest-u-1", "..data", "Grüße 1.orc"):
        layout.check_file_name(name, path="manifest/m")
    for name in ("", ".", "..", "a/b", "/a", "..\\a", "a\0b", "a\nb", "a\x7f", "a\x85", "\ud800"):
        with pytest.raises(CorruptTableError, match="manifest/m: names the file"):
            layout.check_file_name(name, path="manifest/m")


def folder(data_type: DataType, value: object, **options: object) -> str:
    return partition_path.partition_path([Field(0, "k", data_type)], [value], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data_type", "value", "legacy", "cast"),
    [
        (VarCharType(), "a b", "a b", "a b"),
        (VarCharType(), "A%2FB", "A%252FB", "A%252FB"),
        (VarCharType(), "q?*#[]{}^", "q%3F%2A%23%5B%5D%7B%7D%5E", "q%3F%2A%23%5B%5D%7B%7D%5E"),
        (VarCharType(), "\x00\t\x1f\x7f\"'/:=\\", *["%00%09%1F%7F%22%27%2F%3A%3D%5C"] * 2),
        (VarCharType(), "~!@$&()+,-.;<>_|` äö€😀", *["~!@$&()+,-.;<>_|` äö€😀"] * 2),
        (VarCharType(), None, *["__DEFAULT_PARTITION__"] * 2),
        (VarCharType(), "", *["__DEFAULT_PARTITION__"] * 2),
        (VarCharType(), " \t\u3000", *["__DEFAULT_PARTITION__"] * 2),
        (VarCharType(), "\xa0", "\xa0", "\xa0"),
        (IntType(), -5, "-5", "-5"),
        (BooleanType(), True, "true", "true"),
        (DateType(), 19723, "19723", "2024-01-01"),
        (DateType(), -719_528, "-719528", "0000-01-01"),
        (TimeType(0), 3_600_000, "3600000", "01%3A00%3A00"),
        (TimeType(3), 3_600_120, "3600120", "01%3A00%3A00.12"),
        (TimeType(3), 0, "0", "00%3A00%3A00.0"),
        (DecimalType(10, 2), Decimal("1.50"), "1.50", "1.50"),
        (DecimalType(38, 10), Decimal(f"-{'9' * 28}.{'9' * 10}"), *[f"-{'9' * 28}.{'9' * 10}"] * 2),
        (DecimalType(38, 0), Decimal("1E+20"), "1" + "0" * 20, "1" + "0" * 20),
        (DoubleType(), 1e10, "1.0E10", "1.0E10"),
        (FloatType(), 1.5, "1.5", "1.5"),
        (TimestampType(3), EVENING, "2023-11-14T22%3A13%3A20.120", "2023-11-14 22%3A13%3A20.120"),
        (TimestampType(6), EVENING, "2023-11-14T22%3A13%3A20.120", "2023-11-14 22%3A13%3A20.120000"),
        (LocalZonedTimestampType(0), 0, "1970-01-01T00%3A00", "1970-01-01 00%3A00%3A00"),
        (TimestampType(9), -1, *["1969-12-31T23%3A59%3A59.999999999", "1969-12-31 23%3A59%3A59.999999999"]),
        (TimestampType(6), -1000, "1969-12-31T23%3A59%3A59.999999", "1969-12-31 23%3A59%3A59.999999"),
        (TimestampType(6), 30 * 10**9, "1970-01-01T00%3A00%3A30", "1970-01-01 00%3A00%3A30.000000"),
    ],
)
def test_partition_folders(data_type: DataType, value: object, legacy: str, cast: str):
    assert folder(data_type, value) == f"k={legacy}"
    assert folder(data_type, value, legacy_names=False) == f"k={cast}"


def test_partition_folders_of_several_keys():
    fields = [Field(0, "a/b", VarCharType()), Field(1, "n", BigIntType())]
    assert partition_path.partition_path(fields, ["x", None], default_name="nil") == "a%2Fb=x/n=nil"
    assert partition_path.partition_path([], []) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dt=2026-01-01/hour = 3", {"dt": "2026-01-01", "hour": "3"}),
        ("dt=a=b", {"dt": "a=b"}),
        ("dt=", {"dt": ""}),
        ("a%2Fb=x%2Fy/n=%25%zz%20", {"a/b": "x/y", "n": "%%zz "}),
        *((bad, None) for bad in ("dt", "=x", "a=1/a=2", "a=1/", "")),
    ],
)
def test_partitions_as_people_spell_them(text: str, expected: dict[str, str] | None):
    if expected is not None:
        assert partition_path.parse_partition(text) == expected
        return
    with pytest.raises(InvalidInputError, match="names no partition"):
        partition_path.parse_partition(text)


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda t: t == t.strip()), st.text().map(str.strip), min_size=1
    )
)
def test_partitions_are_read_as_folders_spell_them(values: dict[str, str]):
    folder = "/".join(f"{partition_path.escape(k)}={partition_path.escape(v)}" for k, v in values.items())
    assert partition_path.parse_partition(folder) == values


def test_folders_that_pypaimon_wrote():
    (table,) = (Path(__file__).parents[1] / "data/paimon/python-2.1/b_partition_names/warehouse").glob("*/*")
    schema = TableSchema.from_json((table / "schema/schema-0").read_bytes(), path="schema-0")
    types = [field.type for field in schema.partition_fields]
    for manifest in table.glob("manifest/manifest-[!l]*"):
        for entry in read_frame(manifest.read_bytes(), path=manifest.name).iter_rows(named=True):
            values = decode_row(types, entry["_PARTITION"])
            partition = partition_path.partition_path(schema.partition_fields, values, legacy_names=False)
            assert (
                table / Layout().data_path(partition, entry["_BUCKET"], entry["_FILE._FILE_NAME"])
            ).is_file()


def test_years_beyond_four_digits():
    year_10000, before_zero = 253_402_300_800, -62_167_219_201
    assert folder(TimestampType(0), year_10000 * 10**9) == "k=+10000-01-01T00%3A00"
    assert folder(TimestampType(0), before_zero * 10**9) == "k=-0001-12-31T23%3A59%3A59"
    for seconds in (year_10000, before_zero):
        with pytest.raises(UnsupportedFeatureError):
            folder(TimestampType(0), seconds * 10**9, legacy_names=False)


def test_types_without_an_agreed_text_are_refused():
    assert folder(VarBinaryType(), b"abc", legacy_names=False) == "k=abc"
    with pytest.raises(UnsupportedFeatureError, match="BYTES"):
        folder(VarBinaryType(), b"abc")
    with pytest.raises(UnsupportedFeatureError):
        folder(VarBinaryType(), b"\xff", legacy_names=False)
    with pytest.raises(UnsupportedFeatureError, match="ARRAY"):
        folder(ArrayType(IntType()), [1])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (100.0, "100.0"),
        (1e-5, "1.0E-5"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1234567.875, "1234567.875"),
        (0.1, "0.1"),
        (-2.5e-9, "-2.5E-9"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_java_text_of_doubles(value: float, text: str):
    assert partition_path.float_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.4e-45, "1.4E-45"),
        (3.4028235e38, "3.4028235E38"),
        (0.1, "0.1"),
        (16777216.0, "1.6777216E7"),
        (1e10, "1.0E10"),
    ],
)
def test_java_text_of_floats(value: float, text: str):
    assert partition_path.float_text(value, single=True) == text


@given(st.floats(allow_nan=False))
def test_float_text_reads_back(value: float):
    text = partition_path.float_text(value).replace("Infinity", "inf")
    assert struct.pack("<d", float(text)) == struct.pack("<d", value)


@given(st.dates())
def test_civil_date_is_the_calendars(day: date):
    assert partition_path.civil_date((day - date(1970, 1, 1)).days) == (day.year, day.month, day.day)


@given(st.integers(-(2**31), 2**31 - 1))
def test_civil_date_repeats_every_400_years(days: int):
    year, month, day = partition_path.civil_date(days)
    inside = date(1970, 1, 1) + timedelta(days=days % 146_097)
    assert (month, day, (year - inside.year) % 400) == (inside.month, inside.day, 0)


@given(st.text())
def test_unescape_inverts_escape(text: str):
    escaped = partition_path.escape(text)
    assert partition_path.unescape(escaped) == text
    assert "/" not in escaped


def test_unescape_keeps_what_is_no_escape():
    assert partition_path.unescape("50%, %zz %4 %41") == "50%, %zz %4 A"

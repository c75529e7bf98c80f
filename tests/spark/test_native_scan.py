"""Tables read by Spark's own Parquet reader, with the files that our planner chose."""

import gc
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

import anabranch
from anabranch.errors import CorruptTableError
from anabranch.spark.native.frame import PlannedFileIndex, native_frame
from anabranch.spark.native.planned_files import PlannedFiles
from anabranch.spark.native.scan_builder import ScanBuilder
from anabranch.spark.native.table_scan import TableScan
from tests.spark.native_cases import bag, check, eventually, files_read, in_spark, v2_frame
from tests.support.lengths import first_short

pytestmark = [pytest.mark.spark, pytest.mark.versions]

PAIMON = Path(__file__).parent.parent / "data" / "paimon"


@pytest.fixture(params=["frame", "scan builder"])
def native(request, spark):
    """Both ways in: a frame, and what a catalog's table gives."""
    return lambda scan: native_frame(spark, scan) if request.param == "frame" else v2_frame(spark, scan)


@pytest.fixture
def portable(caplog):
    """Why reads went through the portable door."""
    caplog.set_level(logging.WARNING, "anabranch.spark.native.door")
    return lambda: [r.getMessage() for r in caplog.records if "portable door" in r.getMessage()]


def numbers(start, count=10, **more):
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), **{k: pa.array([v] * count) for k, v in more.items()}})


@pytest.fixture(scope="module")
def module_lake(tmp_path_factory):
    return anabranch.connect(str(tmp_path_factory.mktemp("native")))


@pytest.fixture(scope="module")
def parts(module_lake):
    """Files of ten ids each in four partitions with names that need care, one of them null."""
    table = module_lake.create_table("db.parts", "id BIGINT NOT NULL, p STRING", partition_by=["p"])
    for n, name in enumerate(["a b%2F", "é='\"", "2", None]):
        for k in range(3):
            table.append(numbers(100 * n + 10 * k, p=name).cast(table.writer().schema))
    return table


@pytest.mark.parametrize(
    ("condition", "files", "rows"),
    [
        ("true", 12, 120),
        ("id = 215", 1, 1),
        ("id BETWEEN 205 AND 219", 2, 15),
        ("id IN (5, 115, 9999)", 2, 2),
        ("p = '2'", 3, 30),
        ("p = '2' AND id < 210", 1, 10),
        ("p IS NULL", 3, 30),
        ("p <=> NULL AND id > 325", 1, 4),
        ("NOT (p = '2' OR p IS NULL)", 6, 60),
    ],
)
def test_filters_leave_out_files(native, parts, condition, files, rows):
    frame = native(parts.scan()).filter(condition)
    assert len(frame.collect()) == rows
    assert files_read(frame) == files


def test_what_the_planner_does_not_understand_of_partitions_is_decided_all_the_same(native, parts):
    """Spark does not look at the rows again where a filter is of partition columns only."""
    frame = native(parts.scan()).filter("length(p) = 1 AND p || 'x' = '2x'")
    assert len(frame.collect()) == 30


def test_what_a_filter_says_of_partitions_and_rows_together_leaves_out_files(spark, parts):
    frame = v2_frame(spark, parts.scan()).filter("p LIKE 'a b%' OR id = 100")
    assert len(frame.collect()) == 31
    assert files_read(frame) == 4


def test_a_join_leaves_out_partitions_while_it_runs(native, spark, parts):
    frame = native(parts.scan())
    few = spark.createDataFrame([("2", 1), ("none", 2)], "q STRING, n INT").filter("n > 0")
    joined = frame.join(few.hint("broadcast"), frame.p == few.q)
    assert len(joined.collect()) == 30
    assert files_read(joined, "dynamicpruning") == 3


def test_partitions_have_the_values_of_their_metadata(native, parts):
    """Not those that the names of their folders look like: '2' stays a text, and null is no text."""
    found = {row.p: row["count"] for row in native(parts.scan()).groupBy("p").count().collect()}
    assert found == {"a b%2F": 30, "é='\"": 30, "2": 30, None: 30}


EVERY_TYPE = """
    k INT NOT NULL, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i64 BIGINT, f FLOAT, g DOUBLE, d DECIMAL(9, 2),
    w DECIMAL(30, 10), c CHAR(4), v VARCHAR(9), s STRING, x BYTES, y DATE, t TIME(3), ts0 TIMESTAMP(0),
    ts3 TIMESTAMP(3), ts TIMESTAMP(6), l3 TIMESTAMP(3) WITH LOCAL TIME ZONE, l TIMESTAMP(6) WITH LOCAL TIME ZONE,
    a ARRAY<DOUBLE>, m MAP<STRING NOT NULL, INT>, u MULTISET<STRING NOT NULL>, r ROW<x INT, f DOUBLE, z ROW<s STRING>>,
    `o.d``d` INT
"""
NANOS = [0, 1, None, 999, 1_000, 1_999, -1, 86_400 * 10**9, None, 1_700_000_000_123_456_789]
NAN, INF = float("nan"), float("inf")


def moments(unit, values, zone=None):
    """Moments given in nanoseconds."""
    per = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    return pa.array([None if v is None else v // per for v in values], pa.int64()).view(
        pa.timestamp(unit, zone)
    )


def every_type():
    """Rows in which every column has nulls and values near the edges."""
    text = ["a", "ab", None, "b", "", "ab", "é", "a", None, "z"]
    rows = [None, *({"x": i, "f": f, "z": {"s": s}} for i, f, s in zip(range(9), [NAN, 1.0, INF] * 3, text[:9], strict=True))]  # fmt: skip
    return {
        "k": range(10),
        "b": [True, False, None, True, False] * 2,
        "i8": [-128, 127, None, 0, 1] * 2,
        "i16": [-(2**15), 2**15 - 1, None, 0, 1] * 2,
        "i64": [-(2**63), 2**63 - 1, None, 0, 1] * 2,
        "f": [0.1, NAN, None, -0.0, INF, 5.5, 0.0, 1.0, -INF, 0.1],
        "g": [0.1, NAN, None, -0.0, INF, 5.5, 0.0, 1.0, -INF, 1e300],
        "d": [Decimal("1.50"), Decimal("-9999999.99"), None, Decimal(0), Decimal("2.00")] * 2,
        "w": [Decimal("1.5"), Decimal("12345678901234567890.0123456789"), None, Decimal(0), Decimal(-1)] * 2,
        "c": ["abcd", "ab  ", None, "    ", "é   "] * 2,
        "v": text,
        "s": text,
        "x": [b"", b"\x00", None, b"\xff", b"ab"] * 2,
        "y": [date(1, 1, 1), date(1582, 10, 4), None, date(2026, 11, 1), date(9999, 12, 31)] * 2,
        "t": pa.array([0, 86_399_999, None, 1, 1000] * 2, pa.time32("ms")),
        "ts0": moments("s", [n if n is None else n * 10**9 for n in NANOS[:6]] + [None] * 4),
        "ts3": moments("ms", NANOS),
        "ts": moments("us", NANOS),
        "l3": moments("ms", NANOS, "UTC"),
        "l": moments("us", NANOS, "UTC"),
        "a": [[], [NAN, None], None, [1.0], [-0.0]] * 2,
        "m": [[], [("k", 1), ("j", None)], None, [("k", 2)], [("", 0)]] * 2,
        "u": [[], [("k", 1)], None, [("k", 2)], [("", 7)]] * 2,
        "r": rows,
        "o.d`d": [1, 2, None, 4, 5] * 2,
    }


@pytest.fixture(scope="module")
def wide(module_lake):
    """A table of all types, its ten rows in five files, and together in one."""
    table = module_lake.create_table("db.wide", EVERY_TYPE)
    schema = table.writer().schema
    rows = pa.table([pa.array(list(v), f.type) if not isinstance(v, pa.Array) else v.cast(f.type)
                     for f, v in zip(schema, every_type().values(), strict=True)], schema=schema)  # fmt: skip
    for n in range(0, 10, 2):
        table.append(rows.slice(n, 2))
    table.append(rows)
    return table


FILTERS = [
    "b", "NOT b", "b IS NULL", "i8 = 127", "i8 > 126L", "i16 < -32767", "i64 >= 9223372036854775807", "i64 = 0.0BD",
    "f = 0.1", "f = float(0.1)", "f > 1e30", "f = double('NaN')", "f >= 5.5", "f <> 0", "f IN (0, 1, 5.5)", "f < 0",
    "g = double('NaN')", "g > 5", "NOT (g <= 5.5)", "g = 0", "g IN (double('NaN'), 1.0)", "g <=> NULL", "g <> 0.1D",
    "d = 1.5", "d > 1", "d IN (2, 1.50)", "w = 12345678901234567890.0123456789", "w < 0", "c = 'ab  '", "c = 'ab'",
    "v = 'ab'", "v >= 'ab'", "s LIKE 'a%'", "startswith(s, 'é')", "s IN ('a', 'z', NULL)", "s NOT IN ('a', 'z')",
    "s > ''", "s LIKE 'a_'", "s = 'a' OR g > 5", "x = X'FF'", "x > X''", "x IN (X'00', X'6162')",
    "y = DATE'1582-10-04'", "y < DATE'1600-01-01'", "y >= '2026-11-01'", "y IN (DATE'0001-01-01', DATE'9999-12-31')",
    "t = 1000", "t > 86399998", "t IN (1, 99999999)", "ts3 = TIMESTAMP_NTZ'1970-01-01 00:00:00'",
    "ts = TIMESTAMP_NTZ'1970-01-01 00:00:00.000001'", "l = TIMESTAMP'1970-01-01 00:00:00Z'", "l > '1970-01-01 00:00:00'",
    "ts >= DATE'1970-01-02'", "l3 IN (TIMESTAMP'1970-01-02 00:00:00Z', TIMESTAMP'2001-01-01 00:00:00Z')",
    "r.x = 3", "r.f > 1", "r.f = double('NaN')", "r IS NULL", "r.z.s = 'ab'", "r.z.s IS NULL", "a IS NULL",
    "size(a) = 0", "m['k'] = 2", "`o.d``d` = 4", "k + 1 > 9", "k IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 99, 100, 101, 102)",
    "s IN ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'null')", "k % 2 = 0 AND (s IS NULL OR k > 7)",
]  # fmt: skip


@pytest.mark.parametrize("step", first_short([2, 1]), ids=["every second", "every"])
def test_every_type_is_read_and_filtered_as_spark_filters_its_values(spark, wide, portable, step):
    scan = wide.scan()
    check(spark, native_frame(spark, scan), scan, ["true", *FILTERS[::step]])
    check(spark, v2_frame(spark, scan), scan, ["true", *FILTERS[::10]])
    assert portable() == []


OF_NANOS = [
    "n = TIMESTAMP_NTZ'1970-01-01 00:00:00.000001' OR n >= DATE'1970-01-02'", "n <= TIMESTAMP_NTZ'1970-01-01 00:00:00'",
    "NOT (n > TIMESTAMP_NTZ'1970-01-01 00:00:00') OR n > TIMESTAMP_NTZ'2000-01-01 00:00:00.123456'",
    "NOT (n = TIMESTAMP_NTZ'1970-01-01 00:00:00')", "r.n = TIMESTAMP_NTZ'1970-01-01 00:00:00'",
    "n IN (TIMESTAMP_NTZ'2023-11-14 22:13:20.123456', TIMESTAMP_NTZ'1969-12-31 23:59:59.999999')",
    "l < TIMESTAMP'1970-01-01 00:00:00Z' OR l = TIMESTAMP'2023-11-14 22:13:20.123456Z'",
]  # fmt: skip


@pytest.mark.long
def test_filters_of_nanoseconds_ask_for_what_spark_sees_of_them(spark, lake, portable):
    """Spark has six digits of them. Its filters leave out files by moments of nine."""
    table = lake.create_table(
        "db.t", "k INT, n TIMESTAMP(9), l TIMESTAMP(9) WITH LOCAL TIME ZONE, r ROW<n TIMESTAMP(9)>"
    )
    plain, zoned = moments("ns", NANOS), moments("ns", NANOS, "UTC")
    rows = pa.StructArray.from_arrays([plain], ["n"])
    data = pa.table({"k": pa.array(range(10), pa.int32()), "n": plain, "l": zoned, "r": rows})
    for n in range(10):
        table.append(data.slice(n, 1))
    check(spark, v2_frame(spark, table.scan()), table.scan(), OF_NANOS)
    assert "column 'n' has nanoseconds" in portable()[0]
    seen = len(portable())
    assert v2_frame(spark, table.scan()).select("k").filter("k > 5").count() == 4
    assert len(portable()) == seen


def test_a_scan_is_a_frame_with_its_filter_columns_limit_and_moment(spark, warehouse, lake, portable):
    lake.create_table("db.t", "id BIGINT NOT NULL, v STRING, g DOUBLE")
    table = anabranch.connect(warehouse, spark=spark).table("db.t")
    table.append(numbers(0, v="it's %", g=0.5))
    table.append(numbers(10, v="x", g=NAN))
    frame = table.scan("v = 'it''s %' AND id > 3", columns=["g", "id"]).to_spark()
    table.append(numbers(4, v="it's %", g=2.0))
    assert frame.columns == ["g", "id"]
    assert sorted(row.id for row in frame.collect()) == [4, 5, 6, 7, 8, 9]
    assert files_read(frame) == 1
    assert table.at(1).scan(limit=3).to_spark().count() == 3
    assert table.at(2).scan("g > 1E0 OR v IN ('a', 'b')").to_spark().count() == 10
    assert portable() == []
    with pytest.raises(anabranch.InvalidInputError, match="knows no SparkSession"):
        lake.table("db.t").scan().to_spark()


OURS = [
    "i8 = 127 AND i16 > -5", "f = 0.1E0", "f >= 5.5", "g = CAST('NaN' AS DOUBLE) OR g < 0", "g <> 0.1E0", "d IN (1.5, 2)",
    "w >= 12345678901234567890", "v LIKE 'a%' AND v NOT LIKE 'a_'", "s NOT IN ('a', 'z')", "x > X'00'",
    "t > TIME '00:00:00.5'", "y <= DATE '1582-10-04'", "ts < TIMESTAMP '1970-01-01 00:00:00.000002'",
    "l3 >= TIMESTAMP '1970-01-02 00:00:00Z'", "r.x IN (1, 3) OR r.z.s = 'ab'", "i8 < i16", "v = s", "f = g", "d < w",
    "NOT (b <=> TRUE)", "`o.d``d` > 3"
]  # fmt: skip


@pytest.mark.long
def test_a_filter_of_ours_means_the_same_in_spark(spark, wide, portable):
    scans = [wide.scan(text, columns=["k", "s"]) for text in OURS]
    frames = [native_frame(spark, scan).select(fn.lit(i), "*") for i, scan in enumerate(scans)]
    found = reduce(DataFrame.unionAll, frames).collect()
    for i, scan in enumerate(scans):
        wanted = bag(row.values() for row in scan.to_arrow().to_pylist())
        assert bag(row[1:] for row in found if row[0] == i) == wanted, OURS[i]
    assert portable() == []


def test_two_moments_of_a_table_are_not_taken_for_one(spark, lake):
    """Spark reads what is equal only once; both moments have files in the same folder."""
    table = lake.create_table("db.t", "id BIGINT NOT NULL")
    table.append(numbers(0))
    table.append(numbers(5))
    for read in (native_frame, v2_frame):
        then, now = (read(spark, table.at(n).scan()).repartition(2, "id") for n in (1, 2))
        assert then.join(now, "id").count() == 15
        assert now.alias("x").join(now.alias("y"), "id").count() == 30


def test_what_cannot_be_read_natively_goes_through_the_portable_door(spark, native, portable):
    lake = anabranch.connect(str(PAIMON / "java-0.9/g_orc/warehouse"))
    scan = lake.table("viburnum_db.ivy").scan()
    assert as_json(native(scan)) == as_json(in_spark(spark, scan))
    said = portable()[0]
    assert said.startswith("viburnum_db.ivy is read through the portable door")
    assert "there are files of format orc" in said


def test_what_is_in_memory_is_refused(spark):
    table = anabranch.connect("memory://native").create_table("db.t", "id INT")
    with pytest.raises(anabranch.InvalidInputError, match="memory of one process"):
        native_frame(spark, table.scan())


OTHERS = [
    "java-0.9/a_nested_types", "java-0.9/a_timestamps_nanos_old", "java-0.9/b_partition_types", "python-2.1/d_evolution",
]  # fmt: skip


@pytest.mark.parametrize("case", first_short(OTHERS))
def test_tables_of_other_writers(spark, case):
    (scan,) = scans_of(PAIMON / case)
    assert as_json(native_frame(spark, scan)) == as_json(in_spark(spark, scan))


@pytest.mark.long
@pytest.mark.parametrize(
    "case", [pytest.param(p, id=f"{p.parent.name}-{p.name}") for p in PAIMON.glob("*/*_*")]
)
def test_all_tables_of_other_writers(spark, native, case):
    for scan in scans_of(case):
        assert as_json(native(scan)) == as_json(in_spark(spark, scan))


def scans_of(folder):
    lake = anabranch.connect(str(folder / "warehouse"))
    return [lake.table(f"{d}.{t}").scan() for d in lake.databases() for t in lake.tables(d)]


def as_json(frame):
    """Rows as text, because Python has no year 0."""
    return sorted(row[0] for row in frame.select(fn.to_json(fn.struct("*"))).collect())


def test_names_that_differ_in_case_only_are_told_apart(spark, lake, native, portable):
    table = lake.create_table("db.t", "a INT, A INT")
    table.append(pa.table({"a": pa.array([1], pa.int32()), "A": pa.array([2], pa.int32())}))
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert native(table.scan()).filter("A = 2 AND a = 1").count() == 1
        assert portable() == []
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert bag(native(table.scan()).collect()) == ["(1, 2)"]
    assert "differ in case only" in portable()[0]


def test_a_frame_cannot_be_written_to(spark, parts):
    """Spark writes into the folder of a relation that has one; here that is the table's."""
    native_frame(spark, parts.scan()).createOrReplaceTempView("a_view")
    for statement in ("INSERT INTO a_view VALUES (1, 'a')", "INSERT OVERWRITE a_view VALUES (1, 'a')"):
        with pytest.raises(AnalysisException):
            spark.sql(statement)
    spark.catalog.dropTempView("a_view")


def test_a_table_without_rows_has_its_columns(spark, lake, native):
    table = lake.create_table("db.t", "id BIGINT NOT NULL, p STRING", partition_by=["p"])
    frame = native(table.scan())
    assert frame.schema == spark.createDataFrame([], "id BIGINT NOT NULL, p STRING").schema
    assert frame.filter("p = 'a' OR id > 5").collect() == []


@pytest.mark.parametrize("error", [CorruptTableError, anabranch.UnsupportedFeatureError])
def test_an_error_of_the_planner_reaches_the_user(spark, parts, monkeypatch, error):
    frame = native_frame(spark, parts.scan()).filter("id > 5")

    def fail(*_arguments):
        raise error(
            "manifest-7 is not what it says", **({"feature": "x"} if error is not CorruptTableError else {})
        )

    monkeypatch.setattr(PlannedFiles, "matching", fail)
    with pytest.raises(PySparkException, match="manifest-7 is not what it says"):
        frame.collect()


@pytest.mark.long
def test_proxies_are_let_go(spark, lake):
    """The JVM tells of a proxy when it has collected it; nothing else may hold one."""
    table = lake.create_table("db.t", "id BIGINT NOT NULL")
    table.append(numbers(0))
    pool = spark.sparkContext._gateway.gateway_property.pool

    def held():
        gc.collect()
        spark._jvm.java.lang.System.gc()
        return sum(
            isinstance(v, PlannedFileIndex | ScanBuilder | TableScan) for v in list(pool.dict.values())
        )

    before = held()
    for _ in range(20):
        native_frame(spark, table.scan()).filter("id > 5").inputFiles()
        v2_frame(spark, table.scan()).filter("id > 5")._jdf.queryExecution().optimizedPlan()
    eventually(lambda: held() < before + 20)


def test_many_threads_read_at_once(spark, parts):
    def count(n):
        frame = (native_frame if n % 2 else v2_frame)(spark, parts.scan())
        return frame.filter(f"id < {100 * n + 5}").count()

    with ThreadPoolExecutor(6) as threads:
        assert [*threads.map(count, range(4))] == [5, 35, 65, 95]

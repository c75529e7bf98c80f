"""Batch reads of what was added between two moments, in Spark: frames, options and SQL, as without Spark."""

import pytest
from pyspark.errors import PySparkException

import anabranch
from tests.support.lengths import first_short

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    lake = anabranch.connect(str(tmp_path_factory.mktemp("between")), spark=spark.newSession())
    table = lake.create_table("db.t", "id BIGINT, x DOUBLE, p INT", partition_by="p")
    for number in range(4):
        table.append([{"id": 10 * number + n, "x": float(n), "p": n % 2} for n in range(4)])
    table.create_tag("second", 2)
    table.alter().rename_column("x", "y").apply()
    table.append([{"id": 100, "y": float("nan"), "p": None}])
    table.compact(full=True)
    return lake


def ids(frame):
    return sorted(row.id for row in frame.select("id").collect())


EXPECTED = [*range(20, 24), *range(30, 34), 100]


def test_a_scan_of_what_was_added_is_a_frame(lake):
    table = lake.table("db.t")
    scan = table.with_options({"incremental-between": "second,6"}).scan()
    frame = scan.to_spark()
    assert ids(frame) == EXPECTED == sorted(scan.to_arrow()["id"].to_pylist())
    assert ids(frame.filter("p = 1 AND id > 21")) == [23, 31, 33]
    assert ids(frame.filter("y > 2")) == [23, 33, 100], "NaN is the largest"
    assert ids(table.scan().to_spark()) == sorted(table.scan().to_arrow()["id"].to_pylist()), "not mixed up"
    filtered = table.with_options({"incremental-between": "1,3"}).scan(
        "id >= 12", columns=["id", "p"], limit=3
    )
    assert filtered.to_spark().count() == 3


@pytest.mark.parametrize("native", first_short([True, False]), ids=["catalog", "format"])
def test_options_of_a_read(lake, native):
    spark = lake._spark

    def read(**options):
        if native:
            anabranch.spark.attach(spark, lake.url, catalog="lake")
            return spark.read.options(**options).table("lake.db.t")
        where = {"warehouse": lake.url, **options}
        return spark.read.format("anabranch").options(**where).load("db.t")

    added = read(**{"incremental-between": "2,6"})
    assert ids(added) == EXPECTED
    assert added.where("p = 0").count() == len([n for n in EXPECTED if n < 100 and n % 2 == 0])
    assert added.groupBy("p").count().count() == 3
    assert (read().count(), added.count()) == (17, len(EXPECTED)), "each by itself"
    assert read(**{"incremental-between": "4,4"}).count() == 0
    times = [s.time_millis for s in lake.table("db.t").snapshots()]
    between = ",".join(str(time) for time in (times[-2], times[-4])) if times[0] > times[-1] else None
    between = between or f"{times[1]},{times[3]}"
    assert ids(read(**{"incremental-between-timestamp": between})) == [*range(20, 24), *range(30, 34)]


def test_in_sql_it_is_an_option_behind_the_table(lake):
    found = lake.sql("SELECT id FROM db.t /*+ OPTIONS('incremental-between' = '2,4') */ WHERE p = 1")
    assert ids(found) == [21, 23, 31, 33]
    with_whole = lake.sql(
        "SELECT count(*) FROM db.t /*+ OPTIONS('incremental-between' = '2,4') */ a JOIN db.t b USING (id)"
    )
    assert with_whole.collect()[0][0] == 8


@pytest.mark.parametrize(
    "call",
    first_short(
        [
            "paimon_incremental_query('lake.db.t', 'second', 6)",
            "PAIMON_INCREMENTAL_QUERY ( \"lake.`db`.t\" , 2,\n '6' ) AS x",
        ]
    ),
)
def test_a_function_of_what_was_added(lake, call):
    spark = lake._spark
    anabranch.spark.attach(spark, lake.url, catalog="lake")
    assert ids(spark.sql(f"SELECT id FROM {call} WHERE id >= 20")) == EXPECTED
    assert ids(lake.sql(f"SELECT id FROM {call} WHERE id >= 20")) == EXPECTED
    joined = f"SELECT count(*) FROM lake.db.t AS whole JOIN {call} USING (id)"
    assert spark.sql(joined).first()[0] == len(EXPECTED)


def test_a_function_by_times(lake):
    times = [s.time_millis for s in lake.table("db.t").snapshots()]
    first, last = min(times), sorted(times)[-2]
    text = f"paimon_incremental_between_timestamp('db.t', '{first}', '{last}')"
    expected = lake.table("db.t").with_options({"incremental-between-timestamp": f"{first},{last}"}).scan()
    assert ids(lake.sql(f"SELECT id FROM {text}")) == sorted(expected.to_arrow()["id"].to_pylist())


def test_a_function_that_is_none_is_told_how_to_be_written(lake):
    with pytest.raises(anabranch.AnabranchError, match="paimon_incremental_query") as found:
        lake.sql("SELECT * FROM paimon_incremental_query('db.t', 'second')")
    assert "incremental-between" in str(found.value)
    assert [tuple(r) for r in lake.sql("SELECT 'paimon_incremental_query(1)' AS c").collect()] == [
        ("paimon_incremental_query(1)",)
    ]


@pytest.mark.long
def test_lineage_says_which_snapshots_were_read(lake):
    with lake.job("added"):
        rows = lake.sql("SELECT id, y FROM db.t /*+ OPTIONS('incremental-between' = '2,4') */")
        lake.create_table("db.added", "id BIGINT, y DOUBLE").append(rows)
    (flow,) = [f for f in lake.table("db.added").lineage.upstream(1).flows if f.job == "added"]
    assert "3..4" in repr(lake.table("db.added").lineage.upstream(1)), flow


def test_what_it_does_not_go_with_is_refused(lake, tmp_path):
    spark = lake._spark
    where = {"warehouse": lake.url, "incremental-between": "2,4"}
    with pytest.raises(PySparkException, match="incremental-between"):
        spark.read.format("anabranch").options(**where, **{"scan.tag-name": "second"}).load("db.t").count()
    with pytest.raises(PySparkException, match="go forward"):
        spark.read.format("anabranch").options(**{**where, "incremental-between": "4,2"}).load("db.t").count()
    rows = spark.createDataFrame([(1, 1.0, 1)], "id BIGINT, y DOUBLE, p INT")
    with pytest.raises(PySparkException, match="batch reads"):
        rows.write.format("anabranch").options(**where).mode("append").save("db.t")
    stream = spark.readStream.format("anabranch").options(**where).load("db.t").writeStream.format("noop")
    with pytest.raises(PySparkException, match="batch reads"):
        stream.option("checkpointLocation", str(tmp_path)).start().processAllAvailable()
    assert lake.table("db.t").snapshot.id == 6

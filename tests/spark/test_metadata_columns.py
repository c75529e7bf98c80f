"""Metadata columns in Spark: the rows that Python gives, hidden unless they are named, in every way to read a table."""

import datetime as dt
import random
import time

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

import anabranch
from anabranch.scan.metadata import METADATA
from tests.spark.native_cases import bag
from tests.support.lengths import first_short

pytestmark = pytest.mark.spark

ALL = [*METADATA]


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    lake = anabranch.connect(str(tmp_path_factory.mktemp("told")), spark=session)
    anabranch.spark.attach(session, lake.url, catalog="lake")
    chance = random.Random(5)
    table = lake.create_table(
        "db.t",
        "id BIGINT NOT NULL, v STRING, dt DATE",
        partition_by="dt",
        options={"bucket": "2", "bucket-key": "id"},
    )
    for number in range(4):
        days = [None, dt.date(2026, 1, 1), dt.date(2026, 1, 2)]
        table.append(
            [
                {"id": number * 1000 + n, "v": chance.choice(["a", "b", None]), "dt": chance.choice(days)}
                for n in range(300)
            ]
        )
    table.create_tag("second", 2)
    table.create_branch("fix", tag="second")
    fix = table.branch("fix")
    fix.append([{"id": -1, "v": "fixed", "dt": None}])
    table.alter().rename_column("v", "w").apply()
    table.append([{"id": -2, "w": "later", "dt": dt.date(2026, 1, 1)}])
    return lake


def of_python(view, names, filter=None):
    return bag(tuple(row.values()) for row in in_utc(view.scan(filter, columns=names)).to_pylist())


def in_utc(scan):
    """Moments as Spark's rows have them: without a zone."""
    rows = scan.to_arrow()
    for place, field in enumerate(rows.schema):
        if field.name == "_commit_time":
            moments = rows[place].cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
            rows = rows.set_column(place, field.name, moments)
    return rows


@pytest.fixture(autouse=True)
def _zone(monkeypatch):
    """PySpark gives moments in the zone of the process."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("view", "name"),
    first_short(
        [
            (lambda table: table, "lake.db.t"),
            (lambda table: table.branch("fix"), "lake.db.`t$branch_fix`"),
            (lambda table: table.at("second"), "lake.db.t VERSION AS OF 'second'"),
            (lambda table: table.at(3), "lake.db.t VERSION AS OF 3"),
        ]
    ),
    ids=["newest", "branch", "tag", "version"],
)
def test_the_same_rows_as_in_python(lake, view, name):
    table, spark = view(lake.table("db.t")), lake._spark
    chance = random.Random(name)
    own = [field.name for field in table.schema.fields]
    text = own[1]
    filters = [
        None,
        "id % 7 = 3",
        "dt IS NULL AND id > 900",
        f"{text} = 'a' OR id < 0",
        "dt = DATE '2026-01-02'",
    ]
    for filter in filters:
        names = chance.sample([*own, *ALL], chance.randint(1, 6))
        if not METADATA.keys() & {*names}:
            names.append("_row_position")
        where = "" if filter is None else f" WHERE {filter}"
        found = spark.sql(f"SELECT {', '.join(names)} FROM {name}{where}")
        assert bag(found.collect()) == of_python(table, names, filter), (names, filter)


def test_they_are_hidden_until_they_are_named(lake):
    spark = lake._spark
    frame = spark.table("lake.db.t")
    assert frame.columns == ["id", "w", "dt"] == spark.sql("SELECT * FROM lake.db.t").columns
    assert spark.sql("SELECT *, _bucket FROM lake.db.t").columns == ["id", "w", "dt", "_bucket"]
    assert "_file" not in str(spark.sql("DESCRIBE lake.db.t").collect())
    with pytest.raises(PySparkException, match="_files"):
        spark.sql("SELECT _files FROM lake.db.t")
    types = dict(spark.sql(f"SELECT {', '.join(ALL)} FROM lake.db.t").dtypes)
    assert types == {
        "_file": "string",
        "_row_position": "bigint",
        "_partition": "string",
        "_bucket": "int",
        "_snapshot_added": "bigint",
        "_commit_time": "timestamp",
    }


@pytest.mark.long
def test_frames_have_them(lake):
    table, frame = lake.table("db.t"), lake._spark.table("lake.db.t")
    assert bag(frame.select("id", "_file").collect()) == of_python(table, ["id", "_file"])
    assert bag(frame.select(frame.metadataColumn("_bucket")).collect()) == of_python(table, ["_bucket"])
    some = frame.where("_snapshot_added = 2 AND id % 2 = 0").select("id", "_row_position")
    expected = table.scan(columns=["id", "_row_position", "_snapshot_added"]).to_arrow().to_pylist()
    assert bag(some.collect()) == bag(
        (row["id"], row["_row_position"])
        for row in expected
        if row["_snapshot_added"] == 2 and row["id"] % 2 == 0
    )
    assert frame.select("_file").distinct().count() == table.scan().plan().files.height
    assert frame.groupBy("_partition").agg(fn.count("*")).count() == 3
    assert frame.where("_bucket = 0").count() + frame.where("_bucket = 1").count() == table.scan().count()


@pytest.mark.parametrize(
    "options", first_short([{}, {"scan.tag-name": "second"}, {"branch": "fix"}, {"scan.filter": "id < 50"}])
)
def test_format_has_them(lake, options):
    given = {"warehouse": lake.url, **options}
    table = lake.table("db.t").with_options({k: v for k, v in options.items() if k != "scan.filter"})
    filter = options.get("scan.filter")
    frame = lake._spark.read.format("anabranch").options(**given).load("db.t")
    names = ["_row_position", "id", "_file", "_commit_time"]
    assert bag(frame.select(*names).collect()) == of_python(table, names, filter)
    chosen = (
        lake._spark.read.format("anabranch").options(**given, **{"scan.columns": "id,_bucket"}).load("db.t")
    )
    assert chosen.columns == ["id", "_bucket"]
    assert bag(chosen.collect()) == of_python(table, ["id", "_bucket"], filter)


@pytest.mark.long
def test_scans_are_frames_with_them(lake):
    table = lake.table("db.t")
    scan = table.scan("id % 5 = 1", columns=["_file", "id", "_snapshot_added"])
    assert scan.to_spark().columns == ["_file", "id", "_snapshot_added"]
    assert bag(scan.to_spark().collect()) == of_python(table, list(scan.columns), "id % 5 = 1")
    assert bag(scan.to_spark().where("id > 1000").select("_file").collect()) == of_python(
        table, ["_file"], "id % 5 = 1 AND id > 1000"
    )


def test_plans_tell_the_door(lake):
    spark = lake._spark
    (plan,) = spark.sql("EXPLAIN SELECT id, _file FROM lake.db.t WHERE id = 3").first()
    assert "metadata columns" in plan
    (plain,) = spark.sql("EXPLAIN SELECT id FROM lake.db.t VERSION AS OF 2 WHERE id = 3").first()
    assert "metadata columns" not in plain


def test_they_can_be_written_and_joined(lake):
    lake.create_table("db.origin", "id BIGINT, file STRING, added BIGINT, at TIMESTAMP_LTZ(6)")
    with lake.job("origins"):
        lake.sql(
            "INSERT INTO db.origin SELECT id, _file, _snapshot_added, _commit_time FROM db.t WHERE id % 2 = 0"
        )
    names = ["id", "_file", "_snapshot_added"]
    assert bag(
        tuple(r.values())
        for r in lake.table("db.origin").scan(columns=["id", "file", "added"]).to_arrow().to_pylist()
    ) == (of_python(lake.table("db.t"), names, "id % 2 = 0"))
    found = lake.table("db.origin").lineage.upstream(1)
    names = {dataset.id: dataset.name for dataset in found.datasets}
    assert [names[flow.source] for flow in found.flows if flow.job == "origins"] == ["db.t"]
    assert "not known" not in str(found)
    joined = lake._spark.sql(
        "SELECT a.id FROM lake.db.t a JOIN lake.db.t b ON a._file = b._file AND a._row_position = b._row_position"
    )
    assert joined.count() == lake.table("db.t").scan().count()


def test_a_column_of_the_table_wins(lake):
    table = lake.create_table("db.mine", "id BIGINT, _file STRING, _ROW_POSITION STRING")
    table.append([{"id": 1, "_file": "mine", "_ROW_POSITION": "here"}])
    spark = lake._spark
    assert [
        tuple(r) for r in spark.sql("SELECT _file, _bucket, _row_position FROM lake.db.mine").collect()
    ] == [("mine", 0, "here")]
    assert spark.sql("SELECT * FROM lake.db.mine WHERE _file = 'mine'").count() == 1


@pytest.mark.long
def test_streams_refuse_them(lake, tmp_path):
    frame = lake._spark.readStream.table("lake.db.t").select("id", "_file")
    with pytest.raises(PySparkException, match="_file"):
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(
            availableNow=True
        ).start().processAllAvailable()
    asked = {"warehouse": lake.url, "scan.columns": "id,_file"}
    stream = (
        lake._spark.readStream.format("anabranch").options(**asked).load("db.t").writeStream.format("noop")
    )
    with pytest.raises(PySparkException, match="_file"):
        stream.option("checkpointLocation", str(tmp_path / "2")).start().processAllAvailable()


def test_what_was_added_has_them(lake):
    scan = lake.table("db.t").with_options({"incremental-between": "2,4"}).scan()
    names = ["id", "_snapshot_added", "_row_position"]
    found = lake._spark.read.option("incremental-between", "2,4").table("lake.db.t").select(*names)
    expected = bag(tuple(r.values()) for r in scan.only_columns(names).to_arrow().to_pylist())
    assert bag(found.collect()) == expected

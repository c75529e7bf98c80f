"""Ways to write rows by statements, frames and Python; see `lineage_ways`."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql.functions import lit, udf

from tests.spark.lineage_ways import BOTH, COLUMNS, NONE, A, among, way

# Statements


@way(A, short=True)
def insert_select(w):
    w.insert("SELECT * FROM ways.db.a")


@way(A)
def insert_overwrite(w):
    w.spark.sql(f"INSERT OVERWRITE {w.to} SELECT * FROM ways.db.a")


@way(BOTH)
def insert_cte(w):
    w.insert(
        "WITH x AS (SELECT * FROM ways.db.a), y AS (SELECT id FROM ways.db.b) SELECT x.* FROM x JOIN y USING (id)"
    )


@way(BOTH)
def insert_join(w):
    w.insert("SELECT a.id, b.v FROM ways.db.a a JOIN ways.db.b b ON a.id = b.id")


@way(BOTH, short=True)
def insert_in_subquery(w):
    w.insert("SELECT * FROM ways.db.a WHERE id IN (SELECT id FROM ways.db.b)")


@way(BOTH)
def insert_scalar_subquery(w):
    w.insert("SELECT id, (SELECT max(v) FROM ways.db.b) AS v FROM ways.db.a")


@way(BOTH)
def insert_not_exists(w):
    w.insert("SELECT * FROM ways.db.a a WHERE NOT EXISTS (SELECT 1 FROM ways.db.b b WHERE b.id = a.id + 100)")


@way(BOTH)
def insert_union(w):
    w.insert("SELECT * FROM ways.db.a UNION ALL SELECT * FROM ways.db.b")


@way(A)
def insert_self_join(w):
    w.insert("SELECT x.id, y.v FROM ways.db.a x JOIN ways.db.a y ON x.id = y.id")


@way(A)
def insert_version_as_of(w):
    w.insert("SELECT * FROM ways.db.a VERSION AS OF 1")


@way(A)
def insert_of_a_tag(w):
    w.insert("SELECT * FROM ways.db.a VERSION AS OF 'good'")


@way({"db.a$branch_side"})
def insert_of_a_branch(w):
    w.insert("SELECT * FROM ways.db.`a$branch_side`")


@way(A)
def insert_grouped_and_limited(w):
    w.insert("SELECT max(id) AS id, v FROM ways.db.a GROUP BY v ORDER BY v LIMIT 1")


@way(BOTH)
def insert_lateral(w):
    w.insert("SELECT a.id, l.v FROM ways.db.a a, LATERAL (SELECT v FROM ways.db.b b WHERE b.id = a.id) l")


@way(BOTH)
def insert_except(w):
    w.insert("SELECT * FROM ways.db.a EXCEPT SELECT id + 100, v FROM ways.db.b")


@way(A)
def insert_by_name(w):
    w.insert("BY NAME SELECT v, id FROM ways.db.a")


@way(NONE)
def insert_values(w):
    w.insert("VALUES (1, 'x')")


@way(NONE)
def insert_range(w):
    w.insert("SELECT id, 'x' AS v FROM range(3)")


@way({"files"})
def insert_of_files(w):
    w.insert(f"SELECT * FROM parquet.`{w.folder}/files`")


@way(A)
def insert_of_a_view_of_the_native_door(w):
    w.native().createOrReplaceTempView("seen")
    w.insert("SELECT * FROM seen")


@way(A)
def insert_of_a_view_of_the_portable_door(w):
    w.portable().createOrReplaceTempView("seen_too")
    w.insert("SELECT * FROM seen_too")


@way(A)
def insert_of_a_global_view(w):
    w.native().createOrReplaceGlobalTempView("seen_by_all")
    w.insert("SELECT * FROM global_temp.seen_by_all")


@way(A, short=True)
def create_table_as(w):
    w.spark.sql(f"DROP TABLE {w.to}")
    w.spark.sql(f"CREATE TABLE {w.to} AS SELECT * FROM ways.db.a")


@way(BOTH)
def replace_table_as(w):
    w.spark.sql(f"CREATE OR REPLACE TABLE {w.to} AS SELECT a.* FROM ways.db.a a JOIN ways.db.b b USING (id)")


# Frames


@way(A)
def write_to(w):
    w.native().writeTo(w.to).append()


@way(A)
def write_to_from_the_portable_door(w):
    w.portable().writeTo(w.to).append()


@way(A)
def write_to_overwrite(w):

    w.native().writeTo(w.to).overwrite(lit(True))


@way(A)
def write_to_partitions(w):
    w.lake.drop_table(w.sink)
    w.lake.create_table(w.sink, COLUMNS, partition_by=["v"])
    w.native().writeTo(w.to).overwritePartitions()


@way(BOTH)
def write_to_create(w):
    w.lake.drop_table(w.sink)
    w.native().unionByName(w.portable("db.b")).writeTo(w.to).create()


@way(A)
def save_as_table(w):
    w.native().write.mode("append").saveAsTable(w.to)


@way(A)
def insert_into(w):
    w.native().write.insertInto(w.to)


@way(A)
def save_by_format(w):
    w.native().write.format("anabranch").mode("append").option("warehouse", w.place).save(w.sink)


@way(A)
def append_frame(w):
    w.table.append(w.native())


@way(BOTH)
def append_joined_frame(w):
    w.table.append(w.native().join(w.portable("db.b").hint("broadcast").select("id"), "id"))


@way(A)
def overwrite_frame(w):
    w.table.overwrite(w.portable())


@way(A)
def replace_frame(w):
    w.table.replace(w.native().distinct())


@way(A)
def scan_to_spark(w):
    w.table.append(w.lake.table("db.a").at(1).scan().to_spark())


@way(A)
def cached_native(w):
    frame = w.native().cache()
    frame.count()
    frame.writeTo(w.to).append()
    frame.unpersist()


@way(A)
def cached_portable(w):
    frame = w.portable().persist()
    frame.count()
    w.table.append(frame)
    frame.unpersist()


@way(A)
def map_in_pandas(w):
    w.table.append(w.native().mapInPandas(lambda frames: frames, "id long, v string"))


@way(A)
def apply_in_pandas(w):
    w.native().groupBy("v").applyInPandas(lambda frame: frame, "id long, v string").writeTo(w.to).append()


@way(NONE, problem=True)
def local_checkpoint(w):
    w.native().localCheckpoint().writeTo(w.to).append()


@way(NONE, problem=True)
def reliable_checkpoint(w):
    w.spark.sparkContext.setCheckpointDir(str(w.folder / "kept"))
    w.portable().checkpoint().writeTo(w.to).append()


@way(NONE, problem=True)
def rdd(w):
    w.spark.createDataFrame(w.native().rdd.map(tuple), "id long, v string").writeTo(w.to).append()


@way(NONE, problem=True, short=True)
def pandas_and_back(w):
    w.table.append(w.spark.createDataFrame(w.native().toPandas(), "id long, v string"))


@way(NONE, problem=True)
def pandas_and_back_by_the_portable_door(w):
    w.spark.createDataFrame(w.portable().toPandas(), "id long, v string").writeTo(w.to).append()


@way(NONE, problem=True)
def arrow_and_back(w):
    w.table.append(w.spark.createDataFrame(w.native().toArrow()))


@way(NONE, problem=True)
def collected_rows(w):
    w.table.append(w.spark.createDataFrame(w.native().collect(), "id long, v string"))


@way(A)
def pandas_in_a_job(w):
    with w.lake.job("nightly"):
        w.table.append(w.spark.createDataFrame(w.portable().toPandas(), "id long, v string"))


@way({"files"})
def frame_of_files(w):
    w.table.append(w.files())


# Python without Spark's plans


@way(A, short=True)
def embedded_job(w):
    with w.lake.job("nightly"):
        w.table.append(w.lake.table("db.a").scan().to_arrow())


@way(BOTH)
def embedded_job_of_changes_and_states(w):
    with w.lake.job("nightly"):
        w.lake.table("db.b").scan().to_arrow()
        w.table.overwrite(w.lake.table("db.a").changes(0, 1).to_arrow())


@way(A)
def embedded_tail(w):
    with w.lake.job("nightly"):
        for step in w.lake.table("db.a").tail(idle=0):
            w.table.append(step)


@way(BOTH)
def embedded_job_of_a_difference(w):
    with w.lake.job("nightly"):
        rows = w.lake.table("db.a").diff("main@snapshot.1", "main").rows().to_arrow()
        w.lake.table("db.b").scan().count()
        w.table.append(rows.drop_columns(["_change"]))


@way({"db.moved$branch_fix", "db.moved$branch_main@1"}, short=True)
def moments_of_a_main_that_was_replaced(w):
    table = w.lake.create_table("db.moved", COLUMNS, data=[{"id": 1, "v": "x"}])
    table.create_tag("good")
    table.append([{"id": 2, "v": "y"}])
    table.create_branch("fix", "good")
    table.branch("fix").append([{"id": 3, "v": "z"}])
    table.replace_main_branch("fix")
    reader = w.spark.read.format("anabranch").option("warehouse", w.place)
    for version in ("main.snapshot.2", "main@1.snapshot.2"):
        with w.lake.job("nightly"):
            w.table.append(reader.option("scan.version", version).load("db.moved"))


@way(BOTH)
def embedded_job_with_a_pool(w):
    with w.lake.job("nightly"), ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda name: w.lake.table(name).scan().to_arrow(), ("db.a", "db.b"))
        w.table.append(pa.concat_tables(found).to_pylist())


@way(A)
def embedded_job_with_rows_from_before(w):
    rows = w.lake.table("db.a").scan().to_arrow()
    with w.lake.job("nightly"):
        w.table.append(rows)


@way(NONE, problem=True)
def embedded_job_with_values_from_before(w):
    rows = w.lake.table("db.a").scan().to_arrow().to_pylist()
    with w.lake.job("nightly"):
        w.table.append(rows)


@way(A, problem=True)
def embedded_job_with_a_dimension_from_before(w):
    known = w.lake.table("db.b").scan().to_pandas()
    with w.lake.job("nightly"):
        w.table.append(w.lake.table("db.a").scan().to_pandas().merge(known[["id"]], on="id"))


@way(BOTH, short=True)
def job_of_spark_with_ids_read_in_python(w):
    with w.lake.job("nightly"):
        ids = w.lake.table("db.b").scan().to_arrow()["id"].to_pylist()
        w.native().where(f"id IN ({ids[0]}, {ids[1]})").writeTo(w.to).append()


@way(BOTH)
def job_of_spark_with_ids_collected(w):
    with w.lake.job("nightly"):
        w.table.append(among(w.native(), w.native("db.b").collect()))


@way(BOTH)
def job_of_spark_with_ids_collected_of_the_portable_door(w):
    with w.lake.job("nightly"):
        w.table.append(among(w.portable(), w.portable("db.b").collect()))


@way(BOTH)
def job_of_spark_with_a_function_over_a_dictionary(w):
    with w.lake.job("nightly"):
        known = {row["id"]: row["v"] for row in w.lake.table("db.b").scan().to_arrow().to_pylist()}
        w.insert_frame(w.native().withColumn("v", udf(known.get)("id")))


@way(BOTH)
def job_of_spark_with_ids_collected_of_a_scan(w):
    with w.lake.job("nightly"):
        w.insert_frame(among(w.native(), w.lake.table("db.b").scan().to_spark().collect()))


@way(BOTH)
def job_of_spark_with_ids_of_a_tail(w):
    with w.lake.job("nightly"):
        for step in w.lake.table("db.b").tail(idle=0):
            w.insert(f"SELECT * FROM ways.db.a WHERE id IN ({', '.join(map(str, step['id'].to_pylist()))})")


@way(A)
def job_of_spark_after_another_statement(w):
    """What one statement read goes into no rows of another one."""
    other = f"{w.sink}_other"
    w.lake.create_table(other, COLUMNS)
    with w.lake.job("nightly"):
        w.spark.sql(f"INSERT INTO ways.{other} SELECT * FROM ways.db.b")
        w.lake.table(other).append(w.portable("db.b"))
        w.native("db.b").writeTo(f"ways.{other}").append()
        w.insert("SELECT * FROM ways.db.a")


@way(BOTH)
def job_of_spark_that_takes_kept_rows_into_python(w):
    with w.lake.job("nightly"):
        kept = w.native("db.b").cache()
        other = f"{w.sink}_other"
        w.lake.create_table(other, COLUMNS)
        w.lake.table(other).append(kept)
        rows = kept.toPandas()
        kept.unpersist()
        w.table.append([*w.lake.table("db.a").scan().to_arrow().to_pylist(), *rows.to_dict("records")])


@way(NONE, problem=True)
def embedded_job_with_rows_of_spark_from_before(w):
    rows = w.native().toPandas()
    with w.lake.job("nightly"):
        w.table.append(rows)


@way(NONE, problem=True)
def embedded_job_with_rows_of_the_portable_door_from_before(w):
    rows = w.portable().toPandas()
    with w.lake.job("nightly"):
        w.table.append(w.spark.createDataFrame(rows, "id long, v string"))


@way(A, short=True)
def python_outside_of_a_job(w):
    w.table.append(w.lake.table("db.a").scan().to_arrow())


@way(NONE, problem=True)
def python_outside_of_a_job_with_values(w):
    w.table.append(w.lake.table("db.a").scan().to_arrow().to_pylist())


@way(NONE, problem=True)
def python_outside_of_a_job_with_rows_of_spark(w):
    w.table.append(pa.Table.from_pandas(w.native().toPandas(), preserve_index=False))


@way(NONE, problem=True)
def python_outside_of_a_job_with_rows_of_the_portable_door(w):
    w.table.append(w.portable().toPandas())


@way(NONE, silent=True)
def python_from_nowhere(w):
    w.table.append([{"id": 1, "v": "x"}])

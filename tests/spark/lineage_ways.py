"""Ways to write rows, with what each must say of where they come from.

A way is a function of a `Ways`; it writes to ``w.sink`` what it reads of `db.a`, `db.b` and files. `reads` are the names that
its commits must have among their inputs, and no others unless a problem says that there may be more. `problem` says that it
cannot be known, which then must stand in the commit.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.functions import lit, udf

import anabranch
from anabranch.jobs.run import Schedule, run_jobs
from anabranch.jobs.supervise import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW
from anabranch.spark.catalog import register_catalog

COLUMNS = "id BIGINT, v STRING"
A, B, BOTH, NONE = {"db.a"}, {"db.b"}, {"db.a", "db.b"}, set()


@dataclass(frozen=True)
class Way:
    name: str
    make: object
    reads: frozenset
    problem: bool
    short: bool
    silent: bool

    def __str__(self):
        return self.name


WAYS = []


def way(reads, *, problem=False, short=False, silent=False):
    """A way that is declared by a function; `silent` ones may have no entry, which is for `impact` to tell."""

    def add(function):
        WAYS.append(Way(function.__name__, function, frozenset(reads), problem, short, silent))
        return function

    return add


@dataclass
class Ways:
    """What a way works with."""

    spark: object
    lake: object
    place: str
    sink: str
    folder: Path

    @property
    def table(self):
        return self.lake.table(self.sink)

    @property
    def to(self):
        return f"ways.{self.sink}"

    def native(self, name="db.a"):
        return self.spark.table(f"ways.{name}")

    def portable(self, name="db.a"):
        return self.spark.read.format("anabranch").option("warehouse", self.place).load(name)

    def files(self):
        return self.spark.read.parquet(str(self.folder / "files"))

    def insert(self, query):
        self.spark.sql(f"INSERT INTO {self.to} {query}")

    def insert_frame(self, frame):
        frame.writeTo(self.to).append()

    def stream(self, door="portable", name="db.a"):
        if door == "native":
            return self.spark.readStream.table(f"ways.{name}")
        return self.spark.readStream.format("anabranch").option("warehouse", self.place).load(name)

    def run(self, frame, mode="append", each=None, to_table=False):
        writer = frame.writeStream.queryName(self.sink.replace(".", "_")).outputMode(mode)
        where = str(self.folder / "checkpoints" / self.sink)
        writer = writer.option("checkpointLocation", where).trigger(availableNow=True)
        if each is not None:
            query = writer.foreachBatch(each).start()
        elif to_table:
            query = writer.toTable(self.to)
        else:
            query = writer.format("anabranch").option("warehouse", self.place).start(self.sink)
        query.awaitTermination()

    def job(self, function, sources, **how):
        self.run_job(
            anabranch.job(self.sink.replace(".", "-"), sources=sources, sink=self.sink, **how)(function)
        )

    def run_job(self, declared):
        (status,) = run_jobs([declared], self.lake, None, Schedule(AVAILABLE_NOW, Policy(most=0)))
        assert status.state == "ended", status


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


@way(A, short=True)
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
    from pyspark.sql.functions import lit

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


@way(NONE, problem=True, short=True)
def save_by_the_portable_door(w):
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


@way(NONE, problem=True, short=True)
def pandas_and_back_by_the_portable_door(w):
    w.spark.createDataFrame(w.portable().toPandas(), "id long, v string").writeTo(w.to).append()


@way(NONE, problem=True)
def arrow_and_back(w):
    w.table.append(w.spark.createDataFrame(w.native().toArrow()))


@way(NONE, problem=True)
def collected_rows(w):
    w.table.append(w.spark.createDataFrame(w.native().collect(), "id long, v string"))


@way(A, short=True)
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


@way(BOTH, short=True)
def job_of_spark_with_ids_collected_of_the_portable_door(w):
    with w.lake.job("nightly"):
        w.table.append(among(w.portable(), w.portable("db.b").collect()))


@way(BOTH)
def job_of_spark_with_a_function_over_a_dictionary(w):
    with w.lake.job("nightly"):
        known = {row["id"]: row["v"] for row in w.lake.table("db.b").scan().to_arrow().to_pylist()}
        w.insert_frame(w.native().withColumn("v", udf(known.get)("id")))


@way(BOTH, short=True)
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


# Streams


@way(A, short=True)
def stream_of_the_portable_door(w):
    w.run(w.stream())


@way(A)
def stream_of_the_native_door(w):
    w.run(w.stream("native"))


@way(A)
def stream_to_the_native_door(w):
    w.run(w.stream(), to_table=True)


@way(BOTH)
def stream_union(w):
    w.run(w.stream().union(w.stream("native", "db.b")))


@way(BOTH, short=True)
def stream_joined_with_a_table_of_the_native_door(w):
    w.run(w.stream().join(w.native("db.b").select("id"), "id"), to_table=True)


@way(BOTH)
def stream_joined_with_a_table_of_the_portable_door(w):
    w.run(w.stream("native").join(w.portable("db.b").select("id"), "id"))


@way(BOTH)
def stream_with_a_subquery(w):
    w.stream().createOrReplaceTempView("coming")
    w.run(w.spark.sql("SELECT * FROM coming WHERE id IN (SELECT id FROM ways.db.b)"))


@way({"db.a", "files"})
def stream_joined_with_files(w):
    w.run(w.stream().join(w.files().select("id"), "id"))


@way(A, problem=True)
def stream_joined_with_rows_of_the_program(w):
    w.run(w.stream().join(w.spark.createDataFrame([(1,)], "id long"), "id"))


@way(A)
def stream_without_doubles(w):
    w.run(w.stream().dropDuplicates(["id"]))


@way(BOTH)
def stream_of_totals_with_a_lookup(w):
    joined = w.stream().join(w.native("db.b").select("id"), "id")
    w.run(joined.groupBy("id").count().selectExpr("id", "CAST(count AS STRING) AS v"), mode="complete")


@way(BOTH)
def stream_of_two_streams(w):
    w.run(w.stream().join(w.stream("native", "db.b").select("id"), "id"))


@way(A)
def batches_by_function(w):
    w.run(w.stream(), each=lambda frame, _: w.table.append(frame))


@way(A)
def batches_by_write_to(w):
    def each(frame, _):
        # Sessions that are made from another one do not know its catalogs.
        register_catalog(frame.sparkSession, "ways", {"warehouse": w.place})
        frame.writeTo(w.to).append()

    w.run(w.stream(), each=each)


@way(BOTH)
def batches_joined_in_the_function(w):
    w.run(w.stream(), each=lambda frame, _: w.table.append(frame.join(w.portable("db.b").select("id"), "id")))


@way(A, short=True)
def batches_through_pandas(w):
    def each(frame, _):
        w.table.append(w.spark.createDataFrame(frame.toPandas(), "id long, v string"))

    w.run(w.stream(), each=each)


@way(A)
def batches_through_pandas_alone(w):
    w.run(w.stream(), each=lambda frame, _: w.table.append(frame.toPandas()))


def among(frame, rows):
    """The rows of a frame whose ids are among those of rows that a program has."""
    return frame.where(frame.id.isin([row["id"] for row in rows]))


@way(BOTH, short=True)
def batches_that_collect_a_table_of_the_native_door(w):
    w.run(w.stream(), each=lambda frame, _: w.table.append(among(frame, w.native("db.b").collect())))


@way(BOTH, short=True)
def batches_that_collect_a_table_of_the_portable_door(w):
    w.run(w.stream(), each=lambda frame, _: w.table.append(among(frame, w.portable("db.b").collect())))


@way(BOTH, short=True)
def batches_that_read_a_table_in_python(w):
    def each(frame, _):
        w.table.append(among(frame, w.lake.table("db.b").scan().to_arrow().to_pylist()))

    w.run(w.stream(), each=each)


@way(A)
def batches_into_two_tables(w):
    """What the plan of one write reads goes into no rows of another one."""
    w.lake.create_table(f"{w.sink}_other", COLUMNS)

    def each(frame, _):
        w.lake.table(f"{w.sink}_other").append(frame.join(w.native("db.b").select("id"), "id"))
        w.table.append(frame)

    w.run(w.stream(), each=each)


@way(BOTH)
def batches_that_collect_a_table_and_write_to(w):
    def each(frame, _):
        register_catalog(frame.sparkSession, "ways", {"warehouse": w.place})
        among(frame, w.native("db.b").collect()).writeTo(w.to).append()

    w.run(w.stream("native"), each=each)


@way(BOTH)
def batches_that_collect_a_table_and_insert(w):
    def each(frame, _):
        spark = frame.sparkSession
        register_catalog(spark, "ways", {"warehouse": w.place})
        among(frame, spark.table("ways.db.b").collect()).createOrReplaceTempView("batch")
        spark.sql(f"INSERT INTO {w.to} SELECT * FROM batch")

    w.run(w.stream(), each=each)


@way(BOTH)
def batches_that_keep_what_the_first_one_collected(w):
    kept = []

    def each(frame, _):
        kept.extend([] if kept else w.native("db.b").collect())
        w.table.append(among(frame, kept))

    source = w.spark.readStream.format("anabranch").option("warehouse", w.place)
    w.run(source.option("read.stream.maxFilesPerTrigger", "1").load("db.a"), each=each)


@way(BOTH)
def batches_through_pandas_with_a_table_read_in_python(w):
    def each(frame, _):
        ids = w.lake.table("db.b").scan().to_polars()["id"].to_list()
        rows = frame.toPandas()
        w.table.append(rows[rows["id"].isin(ids)])

    w.run(w.stream(), each=each)


@way(A, problem=True)
def batches_through_pandas_with_values_from_before(w):
    rows = w.lake.table("db.b").scan().to_arrow().to_pylist()
    w.run(w.stream(), each=lambda frame, _: w.table.append([*map(Row.asDict, frame.collect()), *rows]))


@way(A, problem=True, short=True)
def batches_with_ids_from_before(w):
    ids = w.native("db.b").collect()
    w.run(w.stream(), each=lambda frame, _: w.table.append(among(frame, ids)))


@way(A, problem=True)
def batches_that_read_in_a_pool(w):
    def each(frame, _):
        with ThreadPoolExecutor(1) as pool:
            rows = pool.submit(lambda: w.lake.table("db.b").scan().to_arrow().to_pylist()).result()
        w.table.append(among(frame, rows))

    w.run(w.stream(), each=each)


@way(BOTH)
def batches_that_collect_in_a_pool(w):
    def each(frame, _):
        with ThreadPoolExecutor(1) as pool:
            rows = pool.submit(w.portable("db.b").collect).result()
        w.table.append(among(frame, rows))

    w.run(w.stream(), each=each)


@way(BOTH)
def batches_that_take_kept_rows_into_python(w):
    w.lake.create_table(f"{w.sink}_other", COLUMNS)

    def each(frame, _):
        kept = w.native("db.b").cache()
        w.lake.table(f"{w.sink}_other").append(kept)
        rows = kept.toPandas()
        kept.unpersist()
        w.table.append([*map(Row.asDict, frame.collect()), *rows.to_dict("records")])

    w.run(w.stream(), each=each)


@way(NONE, problem=True)
def batches_that_collect_a_table_by_the_portable_door(w):
    def each(frame, _):
        found = among(frame, w.native("db.b").collect())
        found.write.format("anabranch").mode("append").option("warehouse", w.place).save(w.sink)

    w.run(w.stream(), each=each)


@way(NONE, problem=True)
def batches_by_the_portable_door(w):
    def each(frame, _):
        frame.write.format("anabranch").mode("append").option("warehouse", w.place).save(w.sink)

    w.run(w.stream(), each=each)


# Declared jobs


@way(A, short=True)
def declared_batch_job(w):
    w.job(lambda a: a, {"a": anabranch.static("db.a")}, mode="overwrite")


@way(BOTH)
def declared_stream_with_a_lookup(w):
    w.job(lambda a, b: a.join(b.select("id"), "id"), {"a": "db.a", "b": anabranch.static("db.b")})


@way(BOTH)
def declared_stream_whose_code_looks_something_up(w):
    w.job(lambda a: a.join(w.portable("db.b").select("id"), "id"), {"a": "db.a"})


@way(A)
def declared_stream_that_only_plans(w):
    """A function that takes rows of nothing has no problems, and names nothing besides."""
    w.job(lambda a: a.where("id > 0").withColumn("v", lit("x")), {"a": "db.a"})


@way(BOTH, short=True)
def declared_stream_whose_code_counts_a_table_in_python(w):
    def code(a):
        return a.where(a.id <= w.lake.table("db.b").scan().count())

    w.job(code, {"a": "db.a"})


@way(BOTH, short=True)
def declared_stream_whose_code_counts_a_table_of_the_native_door(w):
    w.job(lambda a: a.where(a.id <= w.native("db.b").count()), {"a": "db.a"})


@way(BOTH, short=True)
def declared_stream_whose_code_counts_a_table_of_the_portable_door(w):
    w.job(lambda a: a.where(a.id <= w.portable("db.b").count()), {"a": "db.a"})


@way(A, problem=True, short=True)
def declared_stream_with_a_dictionary_of_its_module(w):
    known = {row["id"]: row["v"] for row in w.lake.table("db.b").scan().to_arrow().to_pylist()}
    w.job(lambda a: a.withColumn("v", udf(known.get)("id")), {"a": "db.a"})


@way(A, problem=True)
def declared_batch_job_with_ids_of_its_module(w):
    ids = w.portable("db.b").collect()
    w.job(lambda a: among(a, ids), {"a": anabranch.static("db.a")})


@way(BOTH)
def declared_stream_whose_code_collects_a_scan(w):
    w.job(lambda a: among(a, w.lake.table("db.b").scan().to_spark().collect()), {"a": "db.a"})


@way(BOTH)
def batches_that_collect_a_scan(w):
    def each(frame, _):
        w.table.append(among(frame, w.lake.table("db.b").scan().to_spark().collect()))

    w.run(w.stream(), each=each)


@way(BOTH)
def declared_stream_whose_code_reads_in_a_pool(w):
    def code(a):
        with ThreadPoolExecutor(1) as pool:
            most = pool.submit(lambda: w.lake.table("db.b").scan().count()).result()
        return a.where(a.id <= most)

    w.job(code, {"a": "db.a"})


@way(BOTH)
def declared_stream_whose_code_has_a_job_of_its_own(w):
    def code(a):
        with w.lake.job("helper"):
            most = w.lake.table("db.b").scan().count()
        return a.where(a.id <= most)

    w.job(code, {"a": "db.a"})


@way(BOTH, problem=True)
def declared_stream_whose_code_goes_through_pandas(w):
    def code(a):
        return a.join(w.spark.createDataFrame(w.native("db.b").toPandas()).select("id"), "id")

    w.job(code, {"a": "db.a"})


@way(BOTH)
def declared_batch_job_whose_code_counts_a_table_in_python(w):
    w.job(lambda a: a.where(a.id <= w.lake.table("db.b").scan().count()), {"a": anabranch.static("db.a")})


@way(BOTH)
def declared_batch_job_whose_code_counts_a_table_of_the_native_door(w):
    w.job(lambda a: a.where(a.id <= w.native("db.b").count()), {"a": anabranch.static("db.a")})


@way(BOTH)
def declared_batch_job_whose_code_counts_a_table_of_the_portable_door(w):
    w.job(lambda a: a.where(a.id <= w.portable("db.b").count()), {"a": anabranch.static("db.a")})


@way(A, short=True)
def declared_statement(w):
    name = w.sink.replace(".", "-")
    w.run_job(anabranch.sql_job(name, "SELECT * FROM a", sources={"a": "db.a"}, sink=w.sink))

"""Ways to write rows by streams and declared jobs; see `lineage_ways`."""

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import Row
from pyspark.sql.functions import lit, udf

import anabranch
from anabranch.spark.catalog import register_catalog
from tests.spark.lineage_ways import BOTH, COLUMNS, NONE, A, among, way

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


@way(BOTH)
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


@way(A)
def batches_through_pandas(w):
    def each(frame, _):
        w.table.append(w.spark.createDataFrame(frame.toPandas(), "id long, v string"))

    w.run(w.stream(), each=each)


@way(A)
def batches_through_pandas_alone(w):
    w.run(w.stream(), each=lambda frame, _: w.table.append(frame.toPandas()))


@way(BOTH)
def batches_that_collect_a_table_of_the_native_door(w):
    w.run(w.stream(), each=lambda frame, _: w.table.append(among(frame, w.native("db.b").collect())))


@way(BOTH)
def batches_that_collect_a_table_of_the_portable_door(w):
    w.run(w.stream(), each=lambda frame, _: w.table.append(among(frame, w.portable("db.b").collect())))


@way(BOTH)
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


@way(A, problem=True)
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


@way(BOTH)
def declared_stream_whose_code_counts_a_table_in_python(w):
    def code(a):
        return a.where(a.id <= w.lake.table("db.b").scan().count())

    w.job(code, {"a": "db.a"})


@way(BOTH, short=True)
def declared_stream_whose_code_counts_a_table_of_the_native_door(w):
    w.job(lambda a: a.where(a.id <= w.native("db.b").count()), {"a": "db.a"})


@way(BOTH)
def declared_stream_whose_code_counts_a_table_of_the_portable_door(w):
    w.job(lambda a: a.where(a.id <= w.portable("db.b").count()), {"a": "db.a"})


@way(A, problem=True)
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

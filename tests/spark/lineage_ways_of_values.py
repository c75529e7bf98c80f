"""Ways to write rows that were computed with values which the program had collected before; see `lineage_ways`."""

import threading

import duckdb
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.functions import col, lit, udf

import anabranch
from tests.spark.lineage_ways import NONE, A, among, way

WHERE_ID = "id IN ({})"


def ids_of(rows):
    return ", ".join(str(row["id"]) for row in rows)


# Collected before, put into a plan


@way(A, problem=True)
def statement_with_ids_collected_before(w):
    # Numbers that stand in no text of the suite, all of which is the program here.
    ids = ", ".join(str(row["id"] + 48_611) for row in w.native("db.b").collect())
    w.insert(f"SELECT * FROM ways.db.a WHERE id + 48611 IN ({ids})")


@way(NONE, problem=True)
def statement_of_values_collected_before(w):
    rows = w.native("db.b").collect()
    w.spark.sql(f"INSERT INTO {w.to} VALUES {', '.join(f'({row.id}, {row.v!r})' for row in rows)}")


@way(A, problem=True)
def statement_with_a_parameter_collected_before(w):
    most = w.native("db.b").agg(F.max("id")).first()[0]
    w.spark.sql(f"INSERT INTO {w.to} SELECT * FROM ways.db.a WHERE id <= :most", args={"most": most})


@way(A, problem=True)
def statement_with_a_variable(w):
    w.spark.sql("DECLARE OR REPLACE VARIABLE most_of_b BIGINT")
    w.spark.sql("SET VARIABLE most_of_b = (SELECT max(id) FROM ways.db.b)")
    w.insert("SELECT * FROM ways.db.a WHERE id <= most_of_b")


@way(A, problem=True)
def statement_made_by_execute_immediate(w):
    ids = ids_of(w.portable("db.b").collect())
    w.spark.sql(f"EXECUTE IMMEDIATE 'INSERT INTO {w.to} SELECT * FROM ways.db.a WHERE id IN ({ids})'")


@way(A, problem=True, short=True)
def frame_with_ids_collected_before(w):
    ids = w.native("db.b").collect()
    w.insert_frame(among(w.native(), ids))


@way(A, problem=True)
def frame_with_ids_of_a_local_iterator(w):
    ids = list(w.native("db.b").toLocalIterator())
    w.table.append(among(w.portable(), ids))


@way(A, problem=True)
def frame_with_ids_read_in_python_before(w):
    ids = w.lake.table("db.b").scan().to_arrow().to_pylist()
    w.table.append(among(w.native(), ids))


@way(A, problem=True)
def frame_with_ids_of_polars(w):
    ids = w.lake.table("db.b").scan().to_polars(lazy=True).collect().to_dicts()
    w.table.append(among(w.native(), ids))


@way(A, problem=True)
def frame_with_ids_of_duckdb(w):
    with duckdb.connect() as db:
        db.register("b", w.lake.table("db.b").scan().to_dataset())
        ids = db.sql("SELECT id FROM b").to_df().to_dict("records")
    w.insert_frame(among(w.native(), ids))


@way(A, problem=True)
def frame_with_ids_of_a_statement_of_ours(w):
    ids = anabranch.connect(w.place).sql("SELECT id FROM db.b").collect()
    w.insert_frame(among(w.native(), ids))


@way(A, problem=True)
def frame_with_ids_collected_in_another_thread(w):
    found = []
    thread = threading.Thread(target=lambda: found.extend(w.native("db.b").collect()))
    thread.start()
    thread.join()
    w.insert_frame(among(w.native(), found))


@way(A, problem=True)
def frame_with_a_number_of_rows(w):
    most = w.native("db.b").count()
    w.insert_frame(w.native().limit(most))


@way(A, problem=True)
def frame_saved_by_format_with_ids(w):
    ids = w.native("db.b").collect()
    frame = among(w.native(), ids)
    frame.write.format("anabranch").mode("append").option("warehouse", w.place).save(w.sink)


@way(A, problem=True)
def view_with_ids_collected_before(w):
    among(w.native(), w.native("db.b").collect()).createOrReplaceTempView("some_of_a")
    w.insert("SELECT * FROM some_of_a")


@way(A, problem=True)
def kept_frame_with_ids_collected_before(w):
    frame = among(w.native(), w.native("db.b").collect()).cache()
    frame.count()
    frame.writeTo(w.to).append()
    frame.unpersist()


# In functions


@way(A, problem=True)
def function_over_a_dictionary_from_before(w):
    known = {row["id"]: row["v"] for row in w.native("db.b").collect()}
    w.insert_frame(w.native().withColumn("v", udf(lambda i: known.get(i, "none"))("id")))


@way(A, problem=True)
def function_over_a_broadcast(w):
    known = w.spark.sparkContext.broadcast({row["id"]: row["v"] for row in w.portable("db.b").collect()})
    w.table.append(w.native().withColumn("v", udf(lambda i: known.value.get(i, "none"))("id")))


@way(A, problem=True)
def function_of_pandas_over_a_series(w):
    known = w.native("db.b").toPandas()["id"].tolist()

    @F.pandas_udf("string")
    def named(ids: pd.Series) -> pd.Series:
        return ids.isin(known).astype(str)

    w.insert_frame(w.native().withColumn("v", named("id")))


@way(A, problem=True)
def map_in_pandas_with_a_dictionary(w):
    known = set(w.native("db.b").toPandas()["id"])

    def some(frames):
        for frame in frames:
            yield frame[frame["id"].isin(known)]

    w.insert_frame(w.native().mapInPandas(some, "id long, v string"))


@way(A, problem=True)
def map_in_arrow_with_a_table(w):
    known = w.lake.table("db.b").scan().to_arrow()["id"]

    def some(batches):
        import pyarrow.compute as pc

        for batch in batches:
            yield batch.filter(pc.is_in(batch["id"], known))

    w.insert_frame(w.native().mapInArrow(some, "id long, v string"))


@way(A, problem=True)
def function_registered_for_sql(w):
    known = {row["id"]: row["v"] for row in w.native("db.b").collect()}
    w.spark.udf.register("name_of", lambda i: known.get(i, "none"))
    w.insert("SELECT id, name_of(id) AS v FROM ways.db.a")


@way(A, problem=True)
def groups_with_a_dictionary(w):
    known = w.native("db.b").toPandas()

    def some(frame):
        return frame[frame["id"].isin(known["id"])]

    w.insert_frame(w.native().groupBy("v").applyInPandas(some, "id long, v string"))


# Collected before a job


@way(A, problem=True, short=True)
def job_of_spark_with_ids_collected_before(w):
    ids = w.native("db.b").collect()
    with w.lake.job("nightly"):
        w.insert_frame(among(w.native(), ids))


@way(A, problem=True)
def job_of_spark_with_ids_read_in_python_before(w):
    ids = w.lake.table("db.b").scan().to_polars()["id"].to_list()
    with w.lake.job("nightly"):
        w.insert(f"SELECT * FROM ways.db.a WHERE id IN ({', '.join(map(str, ids))})")


@way(A, problem=True)
def job_of_spark_with_ids_collected_in_the_job_before(w):
    with w.lake.job("reads"):
        ids = w.native("db.b").collect()
    with w.lake.job("writes"):
        w.table.append(among(w.native(), ids))


@way(A, problem=True)
def job_of_spark_with_a_dictionary_from_before(w):
    known = {row["id"]: row["v"] for row in w.portable("db.b").collect()}
    with w.lake.job("nightly"):
        w.insert_frame(w.native().withColumn("v", udf(known.get)("id")))


# Collected before a stream


@way(A, problem=True)
def stream_with_ids_collected_before(w):
    w.run(among(w.stream(), w.native("db.b").collect()))


@way(A, problem=True)
def stream_to_the_native_door_with_ids_collected_before(w):
    w.run(among(w.stream("native"), w.portable("db.b").collect()), to_table=True)


@way(A, problem=True)
def stream_with_a_function_over_a_dictionary(w):
    known = {row["id"]: row["v"] for row in w.lake.table("db.b").scan().to_arrow().to_pylist()}
    w.run(w.stream().withColumn("v", udf(known.get)("id")))


# What is no value that was collected


@way(A)
def frame_with_values_of_its_own_after_a_look(w):
    w.native("db.b").toPandas()
    w.insert_frame(w.native().where(col("id") > 0).withColumn("v", lit("x")))


@way(A, short=True)
def statement_with_values_of_its_own_after_a_look(w):
    w.lake.table("db.b").scan().to_arrow()
    w.spark.sql("SELECT id, 'x' AS v FROM ways.db.a WHERE id > 0").writeTo(w.to).append()


@way(A)
def statement_with_a_hint_and_values_of_its_own_after_a_look(w):
    w.lake.table("db.b").scan().to_arrow()
    w.insert("SELECT id, 'x' AS v FROM ways.db.a /*+ OPTIONS('scan.snapshot-id' = '2') */ WHERE id > 0")


@way(A)
def statement_of_ours_with_values_of_its_own_after_a_look(w):
    w.lake.table("db.b").scan().to_arrow()
    w.lake.sql(
        f"INSERT INTO {w.sink} SELECT id, 'x' AS v FROM db.a /*+ OPTIONS('scan.snapshot-id' = '2') */ WHERE id > 0"
    )


@way(A, problem=True)
def statement_of_ours_with_ids_collected_before(w):
    ids = ids_of(w.native("db.b").collect())
    w.lake.sql(
        f"INSERT INTO {w.sink} SELECT * FROM db.a /*+ OPTIONS('scan.snapshot-id' = '2') */ WHERE id IN ({ids})"
    )


@way(A)
def stream_with_values_of_its_own_after_a_look(w):
    w.native("db.b").collect()
    w.run(w.stream().where("id > 0").withColumn("v", lit("x")))


@way(A)
def frame_with_a_function_of_its_own_after_a_look(w):
    w.native("db.b").collect()
    w.insert_frame(w.native().withColumn("v", udf(lambda i: str(i + 1))("id")))


@way(A)
def frame_without_values_after_a_look(w):
    w.native("db.b").collect()
    w.insert_frame(w.native().where("id IS NOT NULL").select("id", F.upper("v").alias("v")))


@way(A)
def job_of_spark_with_values_of_its_own_after_a_look(w):
    w.native("db.b").collect()
    with w.lake.job("nightly"):
        w.insert_frame(w.native().where(col("id") > 0))


@way(NONE)
def values_of_a_statement_after_a_look(w):
    w.native("db.b").collect()
    w.spark.sql(f"INSERT INTO {w.to} VALUES (1, 'x')")

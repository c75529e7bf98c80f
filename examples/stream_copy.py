"""A stream from one table into another, each row exactly once, however often this program is killed.

python examples/stream_copy.py [folder]
"""

import sys
import tempfile

import anabranch


def main(folder: str) -> None:
    lake = anabranch.connect(f"{folder}/warehouse")
    events = lake.create_table("db.events", "id BIGINT NOT NULL, kind STRING", if_not_exists=True)
    lake.create_table("db.clicks", "id BIGINT NOT NULL, kind STRING", if_not_exists=True)
    events.append([{"id": i, "kind": "click" if i % 2 else "view"} for i in range(10)])

    spark = anabranch.spark.session(f"{folder}/warehouse", master="local[2]", **{"spark.ui.enabled": "false"})
    clicks = spark.readStream.format("anabranch").load("db.events").filter("kind = 'click'")
    query = (
        clicks.writeStream.format("anabranch")
        .queryName("clicks")
        .option("anabranch.job", "clicks")
        .option("checkpointLocation", f"{folder}/checkpoints/clicks")
        .trigger(availableNow=True)
        .start("db.clicks")
    )
    query.awaitTermination()
    spark.stop()
    found = lake.table("db.clicks").scan().to_arrow()["id"].to_pylist()
    print(f"{len(found)} clicks: {sorted(found)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())

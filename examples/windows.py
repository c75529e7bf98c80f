"""Orders counted for every ten minutes of event time, as a stream that ends when it has seen enough.

The table says what its event time is and how far out of order rows may come, so the stream need not.

python examples/windows.py [folder]
"""

import sys
import tempfile
from datetime import UTC, datetime

import anabranch

ORDERS = """
    `user` BIGINT,
    product STRING,
    order_time TIMESTAMP(3),
    WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND
"""


def main(folder: str) -> None:
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = anabranch.spark.session(f"{folder}/warehouse", master="local[2]", **settings)
    lake = anabranch.connect(f"{folder}/warehouse", spark=spark)
    orders = lake.create_table("db.orders", ORDERS)
    for times in ("09:02:10 09:04:30", "09:11:03 09:10:59", "09:19:59 09:20:01", "09:30:09", "12:00:00"):
        moments = [datetime.fromisoformat(f"2026-01-01 {time}") for time in times.split()]
        orders.append([{"user": t.second, "product": "tea", "order_time": t} for t in moments])

    until = datetime(2026, 1, 1, 10, tzinfo=UTC)
    stream = lake.read_stream("db.orders", **{"scan.bounded.watermark": int(until.timestamp() * 1000)})
    stream.createOrReplaceTempView("T")
    counts = spark.sql("""
        SELECT window.start AS window_start, window.end AS window_end, COUNT(`user`) AS orders
        FROM T GROUP BY window(order_time, '10 minutes')
    """)
    query = counts.writeStream.format("memory").queryName("counts").outputMode("append").start()
    query.awaitTermination()  # the session ends it: the last order's watermark is past ten o'clock
    for row in spark.table("counts").orderBy("window_start").collect():
        print(f"{row.window_start:%H:%M}-{row.window_end:%H:%M}: {row.orders}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())

"""A small lake in which something of everything happened, for the page to show."""

import datetime as dt

import pyarrow as pa

import anabranch

DAYS = [dt.date(2026, 1, day) for day in range(1, 8)]
HOSTILE = "<img src=x onerror=alert(1)>"
"""A text that would run if it were taken for HTML."""


def orders(first, count, day, price=2.0, note="fine"):
    ids = list(range(first, first + count))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": pa.array([f"c{i % 7}" for i in ids]),
            "price": pa.array([price + i % 5 for i in ids], pa.float64()),
            "ordered": pa.array([dt.datetime.combine(day, dt.time(i % 24)) for i in ids], pa.timestamp("ms")),
            "note": pa.array([note] * count),
            "dt": pa.array([day.isoformat()] * count),
        }
    )


def build(url, **how):
    """Make the lake and return it."""
    lake = anabranch.connect(str(url), **how)
    table = lake.create_table(
        "shop.orders",
        "id BIGINT NOT NULL, customer STRING, price DOUBLE, ordered TIMESTAMP(3), note STRING, dt STRING NOT NULL, "
        "WATERMARK FOR ordered AS ordered - INTERVAL '5' SECOND",
        partition_by=["dt"],
        comment="Every order of the shop",
    )
    clean = lake.create_table("shop.clean_orders", "id BIGINT NOT NULL, customer STRING, price DOUBLE")
    lake.create_table("shop.revenue", "customer STRING, total DOUBLE")
    lake.create_table("shop.customers", "customer STRING NOT NULL, name STRING").append(
        pa.table(
            {"customer": [f"c{i}" for i in range(7)], "name": ["Ada", HOSTILE, "Eve", None, "Ü", "F", "G"]}
        )
    )
    lake.create_table("archive.empty", "id BIGINT")
    with lake.job("ingest-orders", code="a1b2c3d") as job:
        job.read_from("inbox/orders", kind="files")
        for number, day in enumerate(DAYS[:4]):
            table.append(orders(number * 20, 10, day))
            table.append(orders(number * 20 + 10, 10, day))
    table.create_tag("good")
    derive(lake, "a1b2c3d")
    table.compact(full=True)
    with lake.job("ingest-orders", code="badc0de") as job:
        job.read_from("inbox/orders", kind="files")
        for number, day in enumerate(DAYS[4:]):
            table.append(orders(80 + number * 10, 10, day, price=200.0, note="in cents"))
    derive(lake, "badc0de")
    table.create_savepoint()
    correct(lake, table)
    table.alter().add_column("channel", "STRING").apply()
    clean.create_tag("checked")
    table.create_branch("what-if", tag="good")
    return lake


def derive(lake, code):
    with lake.job("clean", code=code):
        rows = lake.table("shop.orders").scan(columns=["id", "customer", "price"]).to_arrow()
        lake.table("shop.clean_orders").overwrite(rows)
    with lake.job("revenue", code=code):
        rows = lake.table("shop.clean_orders").scan().to_arrow()
        names = lake.table("shop.customers").scan().to_arrow()
        total = rows.join(names, "customer").group_by("customer").aggregate([("price", "sum")])
        renamed = total.rename_columns(["customer", "total"])
        lake.table("shop.revenue").overwrite(renamed)


def correct(lake, table):
    """Correct the wrong days on a branch and put it in place; merge another branch before."""
    table.create_branch("late", tag="good")
    with lake.job("late-orders") as job:
        job.read_from("inbox/late", kind="files")
        table.branch("late").append(orders(500, 5, DAYS[0], note="late"))
    table.merge_branch("late")
    table.create_branch("fix", tag="good")
    fix = table.branch("fix")
    with lake.job("ingest-orders", code="600dc0de") as job:
        job.read_from("inbox/orders", kind="files")
        for number, day in enumerate(DAYS[4:]):
            fix.append(orders(80 + number * 10, 10, day, price=2.0, note="corrected"))
        fix.append(orders(500, 5, DAYS[0], note="late"))
    table.replace_main_branch("fix", force=True, by="ada", reason="prices were in cents")
    with lake.job("ingest-orders", code="600dc0de") as job:
        job.read_from("inbox/orders", kind="files")
        lake.table("shop.orders").append(orders(110, 10, DAYS[6]))

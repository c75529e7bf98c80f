"""Two jobs that feed each other: orders are cleaned as they arrive, and priced in euros.

anabranch create-table shop.raw "id BIGINT, price DOUBLE, currency STRING"
anabranch create-table shop.orders "id BIGINT, price DOUBLE, currency STRING"
anabranch create-table shop.rates "currency STRING, euros DOUBLE"
anabranch create-table shop.in_euros "id BIGINT, euros DOUBLE"
anabranch run examples/order_jobs.py
"""

import anabranch


@anabranch.job("clean-orders", sources={"raw": "shop.raw"}, sink="shop.orders", trigger="5 seconds")
def clean_orders(raw):
    return raw.where("price > 0")


anabranch.sql_job(
    "orders-in-euros",
    "SELECT id, price * euros AS euros FROM orders JOIN rates USING (currency)",
    sources={"orders": "shop.orders", "rates": anabranch.static("shop.rates")},
    sink="shop.in_euros",
    trigger="5 seconds",
)

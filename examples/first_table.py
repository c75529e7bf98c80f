"""A table without Spark: create, append, read with a filter, change the schema, travel in time.

python examples/first_table.py [warehouse]
"""

import sys
import tempfile
from datetime import date
from decimal import Decimal

import anabranch


def main(warehouse: str) -> None:
    lake = anabranch.connect(warehouse)
    orders = lake.create_table(
        "shop.orders", "id BIGINT NOT NULL, dt DATE, city STRING, price DECIMAL(10, 2)", partition_by=["dt"]
    )
    orders.append(
        [
            {"id": 1, "dt": date(2026, 1, 1), "city": "Bonn", "price": Decimal("12.50")},
            {"id": 2, "dt": date(2026, 1, 2), "city": "Rome", "price": Decimal("99.00")},
        ]
    )

    scan = orders.scan("dt >= '2026-01-02' AND price > 50", columns=["id", "city"])
    print(scan.to_arrow().to_pylist())
    print(scan.explain())

    orders.alter().add_column("note", "STRING").rename_column("city", "town").apply()
    orders.append(
        [{"id": 3, "dt": date(2026, 1, 2), "town": "Oslo", "price": Decimal("5.00"), "note": "new"}]
    )
    print(
        orders.scan().to_arrow().num_rows,
        "rows now,",
        orders.at(1).scan().to_arrow().num_rows,
        "at snapshot 1",
    )
    for snapshot in orders.snapshots():
        print(f"snapshot {snapshot.id}: {snapshot.commit_kind}, {snapshot.total_record_count} rows")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())

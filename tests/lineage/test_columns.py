"""What the text of a statement tells of where its columns come from."""

import subprocess
import sys

import pytest

from anabranch.lineage.columns import column_origins

TABLES = {
    "db.orders": ["id", "price", "Region"],
    "db.orders$branch_fix": ["id", "price"],
    "db.items": ["order_id", "n"],
}
SINK = ["id", "total"]


def columns(text, sink=SINK, tables=TABLES, written=None):
    return {origin.column: origin.sources for origin in column_origins(text, sink, tables, written)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INSERT INTO lake.db.out SELECT id, price FROM lake.db.orders", {"id": ["id"], "total": ["price"]}),
        ("INSERT INTO out SELECT o.id, o.price + o.id FROM orders o", {"id": ["id"], "total": ["price", "id"]}),
        ("INSERT INTO out (total, id) SELECT * FROM (SELECT price, id FROM orders)", {"id": ["id"], "total": ["price"]}),
        ("CREATE TABLE db.out AS SELECT Id, MAX(price) AS total FROM db.Orders GROUP BY id", {"id": ["id"], "total": ["price"]}),
        ("INSERT OVERWRITE db.out WITH x AS (SELECT id, price AS p FROM db.orders) SELECT id, p FROM x", {"id": ["id"], "total": ["price"]}),
        ("WITH x AS (SELECT id, price AS p FROM db.orders) INSERT INTO db.out SELECT id, p FROM x", {"id": ["id"], "total": ["price"]}),
        ("INSERT INTO db.out PARTITION (id = 3) SELECT price FROM db.orders", {"total": ["price"]}),
        ("INSERT INTO db.out BY NAME SELECT price AS total, id FROM db.orders", {"total": ["price"], "id": ["id"]}),
        ("SELECT price AS total, 1 AS id, region FROM db.orders", {"total": ["price"], "id": []}),
    ],
)  # fmt: skip
def test_columns_of_one_table(text, expected):
    assert columns(text) == {
        name: tuple(sorted(f"db.orders.{source}" for source in sources)) for name, sources in expected.items()
    }


def test_columns_of_several_tables():
    joined = "INSERT INTO db.out SELECT o.id, price * n FROM db.orders o JOIN db.items i ON o.id = i.order_id"
    assert columns(joined) == {
        "id": ("db.orders.id",),
        "total": ("db.items.n", "db.orders.price"),
    }
    either = "INSERT INTO db.out SELECT * FROM db.`orders$branch_fix` UNION ALL SELECT * FROM db.items"
    assert columns(either) == {
        "id": ("db.items.order_id", "db.orders$branch_fix.id"),
        "total": ("db.items.n", "db.orders$branch_fix.price"),
    }


def test_a_query_tells_of_its_own_columns_only():
    text = "SELECT price AS id, id AS total FROM db.orders"
    assert columns(text, written=["ID", "total"]) == {
        "id": ("db.orders.price",),
        "total": ("db.orders.id",),
    }
    assert columns(text, written=["total", "id"]) == {}


def test_columns_of_tables_that_are_not_known_are_left_out():
    text = "SELECT o.id, v.total FROM db.orders o JOIN somewhere v ON o.id = v.id"
    assert columns(text) == {"id": ("db.orders.id",)}


@pytest.mark.parametrize(
    "text",
    [
        "WITH orders AS (SELECT id, price * id AS total FROM db.orders) INSERT INTO db.out SELECT id, total FROM orders",
        "INSERT INTO db.out WITH orders AS (SELECT id, price * id AS price FROM db.orders) SELECT id, price FROM orders",
        "INSERT INTO db.out WITH Orders AS (SELECT id, price * id AS id2 FROM lake.db.orders) SELECT o.id, o.id2 FROM ORDERS o",
        "INSERT INTO db.out WITH orders AS (SELECT id, id * price AS p FROM db.orders), x AS (SELECT * FROM orders) SELECT * FROM x",
    ],
)
def test_what_a_query_calls_as_a_table_is_called_is_not_the_table(text):
    assert columns(text) == {"id": ("db.orders.id",), "total": ("db.orders.id", "db.orders.price")}


def test_tables_beside_and_inside_of_what_is_called_as_they_are():
    text = (
        "INSERT INTO db.out WITH orders AS (SELECT order_id AS id, n AS price FROM items) "
        "SELECT o.id, t.price FROM orders o JOIN db.orders t ON o.id = t.id WHERE EXISTS (SELECT 1 FROM orders)"
    )
    assert columns(text) == {"id": ("db.items.order_id",), "total": ("db.orders.price",)}


def test_names_are_as_the_table_has_them():
    assert columns("SELECT upper(REGION) AS total FROM db.orders") == {"total": ("db.orders.Region",)}


@pytest.mark.parametrize(
    "text",
    [
        "this is no SQL",
        "DELETE FROM db.out",
        "INSERT INTO db.out VALUES (1, 2)",
        "INSERT INTO db.out SELECT * FROM elsewhere",
        "INSERT INTO db.out SELECT a, b FROM elsewhere",
        "INSERT INTO db.out SELECT id FROM db.orders",
        "INSERT INTO db.out SELECT id, price FROM db.orders -- " + "x" * 20_000,
    ],
)
def test_what_cannot_be_told_is_not(text):
    assert columns(text) == {}


def test_sqlglot_is_not_needed_before_a_statement_is_looked_at():
    program = "import sys, anabranch, anabranch.lineage.columns; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

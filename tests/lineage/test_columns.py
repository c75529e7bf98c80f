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


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("o.id, x.n FROM orders o, LATERAL (SELECT n FROM items i WHERE i.order_id = o.id) x", [["orders.id"], ["items.n"]]),
        ("o.id, x.* FROM orders o JOIN LATERAL (SELECT max(n) FROM items WHERE order_id = o.id) x", [["orders.id"], ["items.n"]]),
        ("o.id, x.c FROM orders o, LATERAL (SELECT n * o.price AS c FROM items WHERE order_id = o.id) x", [["orders.id"], ["items.n", "orders.price"]]),
        ("id, x.c FROM orders, LATERAL (SELECT price * 2 AS c) x", [["orders.id"], ["orders.price"]]),
        ("id, (SELECT max(n * o.price) FROM items WHERE order_id = o.id) FROM orders o", [["orders.id"], ["items.n", "orders.price"]]),
        ("id, (SELECT max(price) FROM items WHERE order_id = id) FROM orders", [["orders.id"], ["orders.price"]]),
        ("n, order_id FROM items AS t(n, order_id)", [["items.order_id"], ["items.n"]]),
        ("* FROM items t(p, q)", [["items.order_id"], ["items.n"]]),
        ("t.p, id FROM items AS t(p, q) JOIN orders ON q = id", [["items.order_id"], ["orders.id"]]),
        ("b, a FROM (SELECT order_id, n FROM items) AS t(a, b)", [["items.n"], ["items.order_id"]]),
        ("order_id, sum(n) OVER w FROM items WINDOW w AS (PARTITION BY order_id)", [["items.order_id"], ["items.n", "items.order_id"]]),
        # What is not known is left out, rather than said in part.
        ("id, col FROM orders LATERAL VIEW explode(array(price)) e", [["orders.id"], None]),
        ("o.id, x.c FROM orders o, LATERAL (SELECT n * price AS c FROM items) x", [["orders.id"], None]),
        ("id, absent FROM orders", [["orders.id"], None]),
        ("a.id, (SELECT max(n * a.id) FROM items) FROM (SELECT price AS id FROM orders) a", [["orders.price"], None]),
    ],
)  # fmt: skip
def test_columns_of_queries_within_queries(rows, expected):
    assert columns(f"INSERT INTO db.out SELECT {rows}", tables={**TABLES, "db.orders$branch_fix": ["x"]}) == {
        name: tuple(f"db.{source}" for source in sources)
        for name, sources in zip(SINK, expected, strict=True)
        if sources is not None
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

"""A table that is replaced by a process that dies: at every moment there are the old rows or the new ones. No JVM."""

import pyarrow as pa

from anabranch.format.schema.ddl import parse_columns
from anabranch.spark.catalog.properties import TableDefinition
from anabranch.spark.catalog.replacement import NewContent
from anabranch.spark.tasks.frame_writer import _AsPlanned
from tests.support.dying import deaths
from tests.support.tables import make_table

OLD = pa.table({"id": [1, 2], "v": ["a", "b"]})
NEW = pa.table({"id": [7], "w": [1.5]})


def replace(table):
    replacement = NewContent(table, TableDefinition(parse_columns("id BIGINT, w DOUBLE"), comment="new"))
    replacement._files = _AsPlanned(table, replacement.schema).writer().write([NEW])
    replacement.put_in_place()


def test_the_old_rows_stay_until_the_new_ones_are_there():
    table = make_table("memory://replaced", schema="id BIGINT, v STRING")
    table.append(OLD)
    seen = []
    for left in deaths(table, replace):
        rows = left.scan().to_arrow().to_pylist()
        columns = [f.name for f in left.schema.fields]
        assert (columns, rows) in (
            (["id", "v"], OLD.to_pylist()),
            (
                ["id", "w"],
                [{"id": 1, "w": None}, {"id": 2, "w": None}],
            ),  # the same rows, in the columns they kept
            (["id", "w"], NEW.to_pylist()),
        )
        seen.append((columns, len(rows)))
        assert [row["v"] for row in left.at(1).scan().to_arrow().to_pylist()] == ["a", "b"]
        left.append(pa.table({"id": [9]}))  # whoever comes next goes on
    assert seen[0] == (["id", "v"], 2)
    assert seen[-1] == (["id", "w"], 1)
    assert (["id", "w"], 2) in seen

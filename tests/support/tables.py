"""Small tables to test with."""

import pyarrow as pa

import anabranch

SCHEMA = "id BIGINT NOT NULL, v STRING"


def rows(start, count):
    ids = list(range(start, start + count))
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]})


def make_table(url, name="db.t", schema=SCHEMA, **how):
    return anabranch.connect(str(url)).create_table(name, schema, **how)


def ids_of(table, **scan):
    return sorted(table.scan(columns=["id"], **scan).to_arrow()["id"].to_pylist())


def written(table, start, count):
    """Commit messages of rows that are written but not committed."""
    writer = table.writer()
    batches = [b.cast(writer.schema) for b in rows(start, count).to_batches()]
    return writer.write(batches)

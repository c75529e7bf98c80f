"""What travels between processes is JSON that comes back as it was, and nothing that is read runs."""

import ast
import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch import col
from anabranch.errors import CorruptTableError, UnsupportedFeatureError
from anabranch.format.text.json_object import JsonObject
from anabranch.spark.context.as_json import scan_from, scan_values
from anabranch.spark.context.notices import BoundReached, Notice, leave, make_folder, take
from anabranch.storage.open import open_storage, settings_of

NAN = math.nan
SCHEMA = pa.schema(
    [("day", pa.string()), ("id", pa.int64()), ("price", pa.decimal128(12, 2)), ("w", pa.float64())]
)


@pytest.fixture
def table(tmp_path):
    lake = anabranch.connect(str(tmp_path / "ware house"))
    made = lake.create_table("db.t", SCHEMA, partition_by=["day"])
    made.append([{"day": d, "id": i, "price": Decimal(i), "w": float(i)} for d in "ab" for i in range(5)])
    return made


def sent(scan):
    text = json.dumps(scan_values(scan))
    return scan_from(JsonObject.parse(text.encode(), path="scan"), settings_of(scan.context.storage))


def state(context):
    return {**context.__getstate__(), "storage": context.storage.url, "groups": context.groups.url}


@pytest.mark.parametrize(
    "condition",
    [
        None,
        (col("day") == "a") & ((col("id") > 1) | col("price").is_null()),
        col("id").is_in([1, 2, 3]) & (col("w") != NAN),
        col("day").like("a\\_%") | (col("price") <= Decimal("3.50")),
    ],
)
def test_a_scan_comes_back_as_it_was(table, condition):
    scan = table.scan(filter=condition, columns=["id", "day"])
    again = sent(scan)
    # Stores are not compared by where they are.
    assert replace(again, context=scan.context) == scan
    assert state(again.context) == state(scan.context)
    assert again.to_arrow() == scan.to_arrow()


def test_a_scan_of_a_branch_of_some_files_and_of_a_savepoint_comes_back(table):
    files = table.scan().plan().files.select("partition", "bucket", "file_name").head(1)
    some = sent(replace(table.scan(), only=files))
    assert some.to_arrow().num_rows == 5
    assert isinstance(some.only, pl.DataFrame)
    assert some.only.equals(files)
    table.create_branch("fix", snapshot="1")
    assert sent(table.branch("fix").scan()).context.title == "db.t$branch_fix"
    saved = table.create_savepoint()
    kept = replace(table.scan(), snapshot=saved.snapshot)  # as it is read once its snapshot has expired
    assert sent(kept).snapshot == kept.snapshot
    assert sent(kept).to_arrow() == table.scan().to_arrow()


def test_credentials_are_beside_the_json_and_not_in_it():
    settings = {"s3.access-key": "who", "s3.secret-key": "hush", "s3.region": "here"}
    storage = open_storage("s3://bucket/ware", settings).scoped("db.db/t")
    assert settings_of(storage) == settings
    assert "hush" not in storage.url
    again = open_storage(storage.url, settings_of(storage))
    assert again.url == storage.url
    with pytest.raises(UnsupportedFeatureError, match="memory://x cannot be opened by another process"):
        settings_of(open_storage("memory://x"))


@pytest.mark.parametrize(
    "change",
    [
        {"table": None},
        {"table": {"url": 7}},
        {"schema": "{}"},
        {"schema": "no JSON"},
        {"snapshot": {"id": "x"}},
        {"columns": "id"},
        {"only": [["%%%", 0, "x"]]},
        {"only": ["x"]},
        {"options": ["x"]},
    ],
)
def test_other_json_is_refused_with_words(table, change):
    values = {**scan_values(table.scan()), **change}
    with pytest.raises(CorruptTableError):
        scan_from(JsonObject.parse(json.dumps(values).encode(), path="scan"), {})


def test_notices_are_json_and_what_is_none_is_passed_over(table, caplog):
    folder = make_folder()
    checkpoint = open_storage(str(folder / "checkpoint"))
    notices = [Notice("q", table.context, {"a": "1"}, checkpoint), BoundReached("t", "b")]
    for notice in notices:
        leave(notice, folder)
    for path in folder.glob("*.notice"):
        json.loads(path.read_bytes())
    (folder / "0.notice").write_bytes(b"cos\nsystem\n(S'echo'\ntR.")
    found = sorted(take(folder), key=lambda notice: len(notice.key), reverse=True)
    assert found[1] == notices[1]
    assert (found[0].query, found[0].options) == ("q", {"a": "1"})
    assert state(found[0].context) == state(table.context)
    assert found[0].checkpoint.url == checkpoint.url
    assert "a notice of a stream cannot be read" in caplog.text
    assert list(folder.iterdir()) == []
    folder.rmdir()


OF_OWN_TASKS = {
    # What this process's own Spark jobs gave back; no statement, option or file is between them.
    "spark/tasks/task_engine.py",
    "spark/native/writer.py",
    "spark/tasks/frame_writer.py",
    "spark/tasks/sort.py",
    # A data source that this process registered, as Spark's own Python process sent it back.
    "spark/lineage/plans.py",
    # Functions in a plan, which only the program itself can have put there, unless its Spark serves others.
    "spark/lineage/given_values.py",
    # The same in a plan of Spark Connect, which this process has not sent yet.
    "spark/lineage/connect_lineage.py",
}
PROGRAMS = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib"}


def test_pickles_are_read_where_only_this_processs_own_jobs_wrote_them():
    source = Path(anabranch.__file__).parent
    reading = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr="load" | "loads" | "Unpickler" | "open"):
                    is_program = name in PROGRAMS
                case ast.ImportFrom(module=str() as module, names=names):
                    is_program = module in PROGRAMS and any("load" in each.name for each in names)
                case ast.Call(func=ast.Name(id="eval" | "exec" | "__import__")):
                    is_program = True
                case _:
                    continue
            if is_program:
                reading.add(path.relative_to(source).as_posix())
    assert reading == OF_OWN_TASKS

"""The data source where Spark is not one classic process: Spark Connect, and a cluster of processes."""

import importlib.util
import re

import pytest

import anabranch
from anabranch.lineage.model import lineage_of
from tests.spark.elsewhere import run
from tests.support.tables import ids_of, make_table, rows

pytestmark = pytest.mark.spark
NEEDS_CONNECT = pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None, reason="Spark Connect is not installed"
)


@pytest.fixture
def warehouse(tmp_path):
    return str(tmp_path / "warehouse")


def connected(part, warehouse, folder):
    """What a client of Spark Connect printed."""
    # SPARK_TESTING makes the server take a free port.
    arguments = [warehouse, folder / "checkpoint", part]
    return run("tests.spark.connect_job", *arguments, log=folder / "log", SPARK_TESTING="1")


@pytest.mark.long
@NEEDS_CONNECT
def test_spark_connect(warehouse, tmp_path):
    make_table(warehouse, "db.src").append(rows(0, 10))
    batch, dst = make_table(warehouse, "db.batch"), make_table(warehouse, "db.dst")
    output = connected("main", warehouse, tmp_path)
    assert ids_of(batch) == [0, 1, 2, 3]
    assert ids_of(dst) == list(range(10))
    entry = lineage_of(dst.snapshot.properties, where="1")
    assert entry.engine.query == re.search(r"query (\S+)", output)[1]
    assert entry.inputs[0].through == 1


@pytest.mark.long
@NEEDS_CONNECT
def test_spark_connect_compacts_sorts_and_ends(warehouse, tmp_path):
    make_table(warehouse, "db.src").append(rows(0, 10))
    connected("rest", warehouse, tmp_path)
    small = anabranch.connect(warehouse).table("db.small")
    count = small.snapshot.total_record_count
    assert ids_of(small) == list(range(count))
    assert sum(len(split.files) for split in small.scan().plan().splits) < count - 9


@pytest.mark.long
def test_a_cluster_of_processes(cluster, warehouse, tmp_path):
    src, dst = make_table(warehouse, "db.src"), make_table(warehouse, "db.dst")
    run("tests.spark.cluster_job", cluster, warehouse, tmp_path / "checkpoint", log=tmp_path / "log")
    assert ids_of(src) == list(range(1000))
    assert ids_of(dst) == list(range(1000))

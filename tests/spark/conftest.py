"""One small Spark for all tests that need a JVM; starting one takes seconds."""

import logging
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import anabranch
import anabranch.spark
from anabranch.spark.native import door
from anabranch.spark.streams.stream_reader import HAS_READ_LIMITS
from tests.spark.stream_queries import Stream
from tests.support.clusters import standalone

CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "America/New_York",  # not UTC, so that a slip with zones is seen
}


def pytest_collection_modifyitems(items):
    if HAS_READ_LIMITS:
        return
    # Spark 4.1 leaves the sockets of collect() to the garbage collector.
    ignored = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(ignored)


@pytest.fixture(autouse=True)
def _log_of_its_own(monkeypatch):
    """What the log of this process has said in another test is said again."""
    monkeypatch.setattr(door, "_TOLD", set())


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    conf = {**CONF, "spark.sql.warehouse.dir": str(folder / "spark-warehouse")}
    session = anabranch.spark.session(
        str(folder / "warehouse"), master="local[2]", app_name="anabranch-tests", **conf
    )
    session.sparkContext.setLogLevel("OFF")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    yield session
    session.stop()


@pytest.fixture
def warehouse(tmp_path):
    return str(tmp_path / "warehouse")


@pytest.fixture
def lake(warehouse):
    return anabranch.connect(warehouse)


@pytest.fixture
def reading(spark, warehouse):
    """Begin a batch read of a table of this test."""

    def read(name="db.t", **options):
        return spark.read.format("anabranch").options(warehouse=warehouse, **_dotted(options)).load(name)

    return read


@pytest.fixture
def writing(warehouse):
    """Write a frame to a table of this test."""

    def write(frame, name="db.t", mode="append", **options):
        writer = frame.write.format("anabranch").mode(mode).options(warehouse=warehouse, **_dotted(options))
        writer.save(name)

    return write


@pytest.fixture
def stream(spark, warehouse, tmp_path):
    """Queries between tables of this test, with one checkpoint."""
    return Stream(spark, warehouse, tmp_path / "checkpoint")


def _dotted(options):
    """`scan__snapshot_id=3` for the option `scan.snapshot-id`."""
    return {key.replace("__", ".").replace("_", "-"): str(value) for key, value in options.items()}


@pytest.fixture
def cluster(tmp_path):
    """A standalone master and one worker; yields the master's address."""
    with standalone(tmp_path) as master:
        yield master

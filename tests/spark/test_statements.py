"""The statements of `corpus`, on the catalog of a classic session."""

import pytest

import anabranch.spark
from tests.spark.corpus_files import CORPUS, carry_out, statements_in

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark, tmp_path_factory):
    return anabranch.spark.attach(spark.newSession(), str(tmp_path_factory.mktemp("corpus")))


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_statements_on_the_catalog(session, file):
    carry_out(session.sql, statements_in(file))

"""The statements of `corpus`, on the catalog of a classic session."""

import pytest

import anabranch.spark
from tests.spark.corpus_files import CORPUS, carry_out, statements_in

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark, tmp_path_factory):
    return anabranch.spark.attach(spark.newSession(), str(tmp_path_factory.mktemp("corpus")))


def files():
    for file in CORPUS:
        yield pytest.param(
            file, id=file.stem, marks=[pytest.mark.long] if file.stem.endswith("_long") else []
        )


@pytest.mark.parametrize("file", [*files()])
def test_statements_on_the_catalog(session, file):
    carry_out(session.sql, statements_in(file))


def test_there_are_enough():
    assert sum(len(statements_in(file)) for file in CORPUS) >= 250

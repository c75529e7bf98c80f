"""The same tables twice, in sessions of the one Spark that tests have."""

import pytest

pytest.importorskip("pyspark")

from tests.spark.conftest import spark  # noqa: F401 - a fixture
from tests.tpcds.contest import Contest


@pytest.fixture(scope="session")
def contest(request, tmp_path_factory):
    """Sessions over the tables at a scale, made when it is first asked for."""
    made = {}

    def at(scale):
        if scale not in made:
            session = request.getfixturevalue("spark")
            made[scale] = Contest.made(session, tmp_path_factory.mktemp("tpcds"), scale)
        return made[scale]

    return at

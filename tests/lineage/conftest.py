"""What tests of lineage share."""

import pytest

from tests.support import postgres


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL server that runs until the last test is done."""
    missing = postgres.why_not()
    if missing is not None:
        pytest.skip(missing)
    with postgres.server() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def place(request, tmp_path):
    """Where an index may lie: what the option ``lineage.index`` is to be."""
    if request.param == "sqlite":
        return str(tmp_path / "index.db")
    return postgres.database(request.getfixturevalue("postgres_server"))

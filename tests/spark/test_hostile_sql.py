"""Whoever can only send SQL runs no Python and no program, in whatever session, by whatever option."""

import base64
import pickle

import pytest

import anabranch
import anabranch.spark
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.lineage import plans
from anabranch.spark.lineage.plan_inputs import found_in
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows

pytestmark = pytest.mark.spark


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.fixture
def place(tmp_path):
    place = str(tmp_path / "warehouse")
    make_table(place).append(rows(0, 4))
    return place


@pytest.fixture
def session(spark, place):
    return anabranch.spark.attach(spark.newSession(), place, catalog="hostile")


@pytest.fixture
def packed(tmp_path):
    return base64.b64encode(pickle.dumps(Bomb(tmp_path / "fired"))).decode()


def test_an_option_holds_no_pickle_that_is_read(session, packed, tmp_path):
    with pytest.raises(Exception) as by_statement:
        session.sql(f"CREATE TEMPORARY VIEW bomb USING `anabranch-scan` OPTIONS (scan '{packed}')").collect()
    frame = session.read.format("anabranch-scan").schema("id BIGINT").option("scan", packed).load()
    with pytest.raises(Exception) as by_reader:
        frame.collect()
    assert not (tmp_path / "fired").exists()
    for error in (by_statement, by_reader):
        assert "describe no scan" in str(error.value)
        assert "read tables as catalog.db.t" in str(error.value)


def test_nor_where_the_driver_looks_at_what_a_statement_read(session, packed, tmp_path):
    frame = session.read.format("anabranch-scan").schema("id BIGINT").option("scan", packed).load()
    leaves = list(plans._leaves(frame._jdf.queryExecution().analyzed()))
    found = found_in(Jvm(session), lambda: leaves)
    assert not (tmp_path / "fired").exists()
    assert len(leaves) == 1
    assert "describe no scan" in found.problems[0]


@pytest.mark.parametrize(
    "name", first_short(["plugin.library.paths", "sasl.kerberos.kinit.cmd", "SSL.engine.location"])
)
def test_an_option_of_kafka_runs_no_program_and_loads_no_library(session, tmp_path, name):
    statement = (
        "CREATE TEMPORARY VIEW topic USING `anabranch-kafka` OPTIONS (`kafka.bootstrap.servers` 'localhost:1', "
        f"subscribe 't', `kafka.{name}` 'touch {tmp_path / 'fired'}')"
    )
    session.sql(statement)
    with pytest.raises(Exception, match="would have the client run a program or load a library"):
        session.table("topic").collect()
    assert not (tmp_path / "fired").exists()

"""A warehouse that is not there, or is something else, is told; and never made by looking."""

import pytest

import anabranch
from anabranch.cli.main import run
from tests.support.tables import make_table, rows


@pytest.fixture
def warehouse(tmp_path):
    make_table(tmp_path / "lake", name="db.t").append(rows(0, 1))
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    return tmp_path


PLACES = [
    ("nowhere", "there is no warehouse", anabranch.NotFoundError),
    ("file", "is a file, not a warehouse", anabranch.InvalidInputError),
    ("lake/db.db", "is a database, not a warehouse", anabranch.InvalidInputError),
    ("lake/db.db/t", "is a table, not a warehouse", anabranch.InvalidInputError),
]


@pytest.mark.parametrize(("place", "said", "error"), PLACES, ids=[place for place, *_ in PLACES])
def test_what_is_no_warehouse(warehouse, place, said, error):
    lake = anabranch.connect(str(warehouse / place))
    asks = [
        lake.databases,
        lambda: lake.tables("db"),
        lambda: lake.table("db.t"),
        lambda: lake.system("tables"),
    ]
    if error is not anabranch.NotFoundError:
        asks.append(lambda: lake.create_table("db.u", "id BIGINT"))
    for ask in asks:
        with pytest.raises(error, match=said) as raised:
            ask()
        if place.startswith("lake/"):
            assert str(raised.value).endswith(f"its warehouse is {warehouse / 'lake'}.")
    assert not (warehouse / "nowhere").exists()


def test_an_empty_warehouse_is_one(warehouse):
    assert anabranch.connect(str(warehouse / "empty")).databases() == []


def test_a_new_one_is_made_by_writing_or_by_asking(warehouse, capsys):
    anabranch.connect(str(warehouse / "new")).create_table("db.t", "id BIGINT")
    assert anabranch.connect(str(warehouse / "new")).tables("db") == ["t"]
    asked = str(warehouse / "asked")
    assert run(["-w", asked, "databases"]) == 1
    assert "there is no warehouse" in capsys.readouterr().err
    assert run(["-w", asked, "--create", "databases", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert run(["-w", asked, "tables"]) == 0


def test_a_warehouse_may_be_called_as_a_database_is(tmp_path):
    place = tmp_path / "lake.db"
    make_table(place)
    assert anabranch.connect(str(place)).databases() == ["db"]


def test_a_database_in_memory_is_no_warehouse_either():
    make_table("memory://place")
    with pytest.raises(anabranch.InvalidInputError, match="is a database"):
        anabranch.connect("memory://place/db.db").databases()

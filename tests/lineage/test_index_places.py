"""Where the index of lineage lies, and how it heals."""

import logging
import pickle
import sqlite3
import sys

import pytest
import sqlalchemy as sa

import anabranch
from anabranch.errors import OptionError, StorageError, UnsupportedFeatureError
from anabranch.lineage.index import LineageIndex
from anabranch.lineage.index.catch_up import catch_up
from anabranch.lineage.index.database import Database
from anabranch.lineage.index.tables import LINES, META
from anabranch.lineage.store import DamagedIndexError
from tests.lineage.indexing import index_of, lake_of_two, now, truth
from tests.support.lengths import first_short


def test_it_lies_in_a_local_warehouse_where_it_is_taken_for_no_database(tmp_path):
    lake = lake_of_two(tmp_path)
    now(lake.lineage.index)
    assert (tmp_path / "lineage" / "index.db").exists()
    assert lake.databases() == ["db"]


def test_to_ask_makes_no_warehouse(tmp_path):
    lake = anabranch.connect(str(tmp_path / "mistyped"))
    assert lake.lineage.jobs() == ()
    assert not (tmp_path / "mistyped").exists()


def test_it_lies_where_the_option_or_the_environment_says(tmp_path):
    catalog = anabranch.connect("memory://placed").catalog
    there, other = str(tmp_path / "a.db"), f"sqlite:///{tmp_path}/b.db"
    assert LineageIndex.of(catalog, {"lineage.index": there}, {}).place == f"sqlite:///{there}"
    variable = {"ANABRANCH_LINEAGE_INDEX": other}
    assert LineageIndex.of(catalog, {}, variable).place == other
    assert LineageIndex.of(catalog, {"lineage.index": there}, variable).place == f"sqlite:///{there}"
    secret = LineageIndex.of(catalog, {"lineage.index": "postgresql://u:secret@h/d"}, {})
    assert "secret" not in f"{secret} {secret.place}"


def test_a_store_of_objects_has_one_for_the_process_alone():
    lake = lake_of_two()
    index = LineageIndex.of(lake.catalog, {}, {})
    assert now(index) == truth(lake)
    file = index._open().file
    assert file.exists()
    index.close()
    assert not file.exists()
    assert now(index) == truth(lake)
    index.close()


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "://", "postgresql+nonsense://h/d"])
def test_other_databases_are_refused(url):
    catalog = anabranch.connect("memory://refused").catalog
    with pytest.raises(OptionError, match="lineage index"):
        LineageIndex.of(catalog, {"lineage.index": url}, {}).catch_up()


def test_a_server_that_is_not_there_is_said_to_be(tmp_path):
    catalog = anabranch.connect("memory://refused").catalog
    url = f"postgresql://u:secret@/d?host={tmp_path}"
    with pytest.raises(StorageError, match="did not answer") as refused:
        LineageIndex.of(catalog, {"lineage.index": url}, {}).catch_up()
    assert "secret" not in str(refused.value)


def test_a_driver_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    catalog = anabranch.connect("memory://refused").catalog
    index = LineageIndex.of(catalog, {"lineage.index": "postgresql://u:secret@h/d"}, {})
    with pytest.raises(OptionError, match="needs a driver") as refused:
        index.catch_up()
    assert "anabranch[postgres]" in refused.value.hint
    assert "secret" not in str(refused.value)


def test_where_it_cannot_be_kept_it_is_built_all_the_same(tmp_path, caplog):
    lake = lake_of_two(tmp_path)
    (tmp_path / "lineage").write_text("somebody's own")
    index = lake.lineage.index
    assert now(index) == truth(lake)
    assert "is not kept, but built for this process alone" in caplog.text
    index.close()


@pytest.mark.parametrize("damage", ["text", "zeros", "cut"])
def test_a_damaged_file_is_set_aside_and_built_anew(tmp_path, damage, caplog):
    lake = lake_of_two(tmp_path)
    index = lake.lineage.index
    wanted = now(index)
    file = tmp_path / "lineage" / "index.db"
    data = file.read_bytes()
    harmed = {
        "text": b"no database" * 1000,
        "zeros": data[:4096] + bytes(len(data) - 4096),
        "cut": data[:8000],
    }
    file.write_bytes(harmed[damage])
    with caplog.at_level(logging.WARNING):
        assert now(index) == wanted
    assert "set aside as index.db.damaged-1" in caplog.text
    assert (tmp_path / "lineage" / "index.db.damaged-1").exists()
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def emptied(file):
    file.write_bytes(b"")


def removed(file):
    file.unlink()


def in_a_circle(file):
    file.unlink()
    file.symlink_to(file.name)


def with_zeros_in_its_middle(file):
    data = file.read_bytes()
    file.write_bytes(data[:12_288] + bytes(len(data) - 24_576) + data[-12_288:])


def under_a_folder(file):
    file.unlink()
    file.mkdir()
    (file / "somebody's").write_text("own")


@pytest.mark.parametrize(
    "harm",
    first_short([emptied, removed, in_a_circle, with_zeros_in_its_middle, under_a_folder], 2),
    ids=lambda harm: harm.__name__,
)
def test_questions_are_answered_when_the_file_is_harmed_between_them(tmp_path, harm):
    lake = lake_of_two(tmp_path)
    table = lake.table("db.b")
    questions = {
        "jobs": lake.lineage.jobs,
        "upstream": lambda: table.lineage.upstream().to_dict(),
        "producer": lambda: table.lineage.producer().to_dict(),
        "positions": table.lineage.positions,
        "table": lambda: lake.system("jobs").to_pylist(),
    }
    wanted = {name: ask() for name, ask in questions.items()}
    assert wanted["upstream"]["flows"]
    file = tmp_path / "lineage" / "index.db"
    for name, ask in questions.items():
        harm(file)
        assert ask() == wanted[name], name
        assert {other: again() for other, again in questions.items()} == wanted
        if harm is under_a_folder:
            break
    assert harm is not under_a_folder or (file / "somebody's").read_text() == "own"


def test_a_file_that_somebody_else_has_healed_meanwhile_stays(tmp_path, monkeypatch):
    lake = lake_of_two(tmp_path)
    index = lake.lineage.index
    wanted = now(index)
    late = [DamagedIndexError("it was damaged when it was read")]

    def catch_up_late(*asked):
        if late:
            raise late.pop()
        return catch_up(*asked)

    monkeypatch.setattr("anabranch.lineage.index.index.catch_up", catch_up_late)
    assert now(index) == wanted
    assert not late
    assert not list((tmp_path / "lineage").glob("*damaged*"))


def version_of(index, text):
    with index._open().writing() as connection:
        connection.execute(sa.update(META).values(value=text))
    index.close()


def test_one_of_a_newer_release_is_left_alone(place):
    lake = lake_of_two()
    index = index_of(lake, place)
    index.catch_up()
    version_of(index, "99")
    with pytest.raises(UnsupportedFeatureError, match="version 99"):
        index.catch_up()


@pytest.mark.parametrize("version", ["0", "soon"])
def test_one_of_an_older_release_is_built_anew(place, version):
    lake = lake_of_two()
    index = index_of(lake, place)
    wanted = now(index)
    version_of(index, version)
    assert now(index) == wanted
    index.close()


def test_two_warehouses_share_a_database(place, tmp_path):
    one, other = lake_of_two(tmp_path / "one"), lake_of_two(tmp_path / "other")
    first, second = index_of(one, place), index_of(other, place)
    alone = now(first)
    together = now(second)
    assert len(together["lines"]) == 4
    assert {uuid: together[uuid] for uuid in alone if uuid in together and "-" in uuid} == {
        uuid: found for uuid, found in alone.items() if "-" in uuid
    }
    one.drop_table("db.a")
    first.rebuild()
    second.catch_up()
    with first.reading() as store:
        assert len(store.lines()) == 3
    with second._open().reading() as connection:
        assert connection.scalars(sa.select(LINES.c.is_dropped)).all() == [False] * 3


# The public way


def test_a_lake_and_its_tables_answer_from_it(tmp_path):
    lake = lake_of_two(tmp_path)
    table = lake.table("db.b")
    assert table.lineage.upstream().tables == ("db.a", "db.b")
    assert pickle.loads(pickle.dumps(table)).lineage.upstream().tables == ("db.a", "db.b")
    assert (tmp_path / "lineage" / "index.db").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a folder in which nobody may make one, not even root")
def test_a_folder_that_must_not_be_made_is_said():
    with pytest.raises(StorageError, match="the folder of the index, /sys/anabranch, cannot be made"):
        Database("sqlite:////sys/anabranch/index.db")

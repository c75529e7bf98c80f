"""The index: the same however it came about, whatever dies or comes in between, on SQLite and on PostgreSQL."""

import itertools
import logging
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

import anabranch
from anabranch.catalog import FilesystemCatalog
from anabranch.errors import OptionError, StorageError, UnsupportedFeatureError
from anabranch.kernel.replacement.release import release_due
from anabranch.lineage.index import LineageIndex
from anabranch.lineage.index.tables import LINES, META
from anabranch.lineage.memory import MemoryStore
from anabranch.storage.open import open_storage
from tests.lineage.world import NAMES, World, told
from tests.support import postgres
from tests.support.faults import FaultyStorage, run
from tests.support.foreign_expiry import expire_as_others
from tests.support.processes import forking
from tests.support.tables import SCHEMA, rows

ALL = 10**15
"""A moment after everything, in epoch milliseconds."""
_names = itertools.count()


class Died(BaseException):
    """The process is dead."""


def index_of(lake, place):
    return LineageIndex.of(lake._catalog, {"lineage.index": place}, {})


def now(index):
    """What the index says, brought up to date."""
    caught = index.catch_up()
    assert caught.problems == ()
    return said(index)


def said(index):
    with index.reading() as store:
        return told(store)


def truth(lake):
    """The same from the tables themselves."""
    names = [f"{database}.{table}" for database in lake.databases() for table in lake.tables(database)]
    return told(MemoryStore.of_tables([lake.table(name).context for name in names]))


def lake_with(url, *names, commits=3):
    lake = anabranch.connect(str(url))
    for name in names:
        table = lake.create_table(name, SCHEMA)
        for number in range(commits):
            table.append(rows(number, 1))
    return lake


def copied(lake, source, sink):
    with lake.job("copy"):
        lake.table(sink).append(lake.table(source).scan().to_arrow())


# However it came about


def play(place, seed, steps):
    """A random history, with an index that is caught up now and then."""
    world = World(f"memory://world-{seed}-{steps}", seed)
    index = index_of(world.lake, place)
    for _ in range(steps):
        world.step()
        if world.rng.random() < 0.3:
            index.catch_up()
    return world, index


def check(world, index):
    found = now(index)
    assert index.catch_up().tables == (), "there is nothing new"
    index.rebuild()
    assert found == said(index) == truth(world.lake)
    commits = {
        line.branch_uuid: {
            commit.snapshot: commit.stamp for commit in found[line.branch_uuid]["commits"] if commit
        }
        for line in found["lines"]
    }
    assert {uuid: ids for uuid, ids in commits.items() if ids} == {
        uuid: ids for uuid, ids in world.seen.items() if ids
    }


@pytest.mark.parametrize("seed", [1, 4])
def test_it_knows_all_that_ever_was_and_is_the_same_when_it_is_built_anew(tmp_path, seed):
    check(*play(str(tmp_path / "index.db"), seed, 25))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_it_is_the_same_in_many_histories(tmp_path, seed):
    check(*play(str(tmp_path / "index.db"), seed, 60))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, 206))
def test_it_is_the_same_in_postgresql(postgres_server, seed):
    check(*play(postgres.database(postgres_server), seed, 50))


def test_it_is_the_same_after_expiry_deletion_and_a_dropped_main(place, tmp_path):
    lake = lake_with(tmp_path / "lake", *NAMES[:2])
    table = lake.table("db.a")
    copied(lake, "db.a", "db.b")
    table.create_tag("good", 2)
    for name in ("fix", "gone"):
        table.create_branch(name, "good")
        copied(lake, "db.b", f"db.a$branch_{name}")
    early = index_of(lake, place)
    early.catch_up()
    table.replace_main_branch("fix", force=True)
    table.delete_branch("gone")
    release_due(table.context, 0)
    for number in range(4):
        table.append(rows(number, 1))
    for name in NAMES[:2]:
        lake.table(name).expire_snapshots(retain_max=2, retain_min=2, older_than=ALL)
    found = now(early)
    titles = {line.title for line in found["lines"]}
    assert titles == {"db.a", "db.a$branch_main@1", "db.a$branch_gone", "db.b"}
    early.rebuild()
    assert said(early) == found == truth(lake)


def test_what_is_rolled_back_for_good_is_taken_out(place, tmp_path):
    lake = lake_with(tmp_path / "lake", *NAMES[:2], commits=5)
    index = index_of(lake, place)
    for _ in range(2):
        copied(lake, "db.b", "db.a")
    index.catch_up()
    table = lake.table("db.a")
    table.rollback(3, destructive=True)
    caught = index.catch_up()
    assert (caught.commits, caught.removed) == (0, 4)
    assert said(index) == truth(lake)
    assert said(index)["flows"] == []
    copied(lake, "db.b", "db.a")
    assert index.catch_up().commits == 1
    table.rollback(2, destructive=True)
    copied(lake, "db.b", "db.a")
    caught = index.catch_up()
    assert (caught.commits, caught.removed) == (1, 2)
    assert said(index) == truth(lake)


def test_what_another_engine_removed_stays_known_but_is_a_gap_when_it_is_built_anew(tmp_path):
    lake = lake_with(tmp_path, "db.a", commits=4)
    index = lake.lineage.index
    index.catch_up()
    table = lake.table("db.a")
    for number in range(4):
        table.append(rows(number, 1))
    expire_as_others(table, 2)
    uuid = table.table_uuid
    found = now(index)[uuid]
    assert (found["gaps"], sum(commit is not None for commit in found["commits"])) == ([(5, 6)], 6)
    index.rebuild()
    assert said(index)[uuid]["gaps"] == [(1, 6)]


def test_a_dropped_table_stays_known(place, tmp_path):
    lake = lake_with(tmp_path / "lake", *NAMES[:2])
    copied(lake, "db.a", "db.b")
    index = index_of(lake, place)
    before = now(index)
    uuid = lake.table("db.a").table_uuid
    lake.drop_table("db.a")
    after = now(index)
    assert after[uuid] == before[uuid]
    assert (after["flows"], after["jobs"]) == (before["flows"], before["jobs"])
    lake.create_table("db.a", SCHEMA)
    assert len(now(index)["lines"]) == 3


def test_a_renamed_table_has_its_new_name(tmp_path):
    lake = lake_with(tmp_path, "db.a")
    index = lake.lineage.index
    index.catch_up()
    lake.rename_table("db.a", "db.z")
    assert [line.table for line in now(index)["lines"]] == ["db.z"]


def test_one_table_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    lake = lake_with(tmp_path, *NAMES[:2])
    index = lake.lineage.index
    before = now(index)
    copied(lake, "db.a", "db.b")
    lake.table("db.a").append(rows(1, 1))
    context = lake.table("db.a").context
    context.storage.put(context.layout.snapshot_path(4), b"{")
    caught = index.catch_up()
    assert len(caught.problems) == 1
    assert caught.problems[0].startswith("db.a: ")
    assert caught.tables == ("db.b",)
    assert said(index)[context.branch_uuid]["commits"] == before[context.branch_uuid]["commits"]


# What comes in between


def lake_of_two(url=None):
    lake = lake_with(url or f"memory://index-{next(_names)}", *NAMES[:2])
    for _ in range(2):
        copied(lake, "db.a", "db.b")
    return lake


@pytest.fixture
def statements():
    """Ends this process, so to speak, at a statement of any database: ``statements.left = 3``."""

    class Statements:
        left = None

        def check(self, *_):
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise Died

    found = Statements()
    sa.event.listen(sa.Engine, "before_cursor_execute", found.check)
    sa.event.listen(sa.Engine, "commit", found.check)
    yield found
    sa.event.remove(sa.Engine, "before_cursor_execute", found.check)
    sa.event.remove(sa.Engine, "commit", found.check)


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.long)])
def test_wherever_catching_up_dies_in_the_database_the_next_one_heals(tmp_path, statements, step):
    lake = lake_of_two()
    wanted = truth(lake)
    for at in range(0, 1000, step):
        place = str(tmp_path / f"{at}.db")
        statements.left = at
        try:
            index_of(lake, place).catch_up()
        except Died:
            statements.left = None
            assert now(index_of(lake, place)) == wanted
        else:
            assert at > 20
            return


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.long)])
def test_wherever_catching_up_dies_in_the_store_the_next_one_heals(tmp_path, step):
    lake = lake_of_two()
    wanted = truth(lake)
    watched = FaultyStorage(lake._catalog.storage)
    LineageIndex.of(FilesystemCatalog(watched), {"lineage.index": str(tmp_path / "all.db")}, {}).catch_up()

    def die(path):
        raise Died

    for at in range(1, len(watched.calls) + 1, step):
        place = {"lineage.index": str(tmp_path / f"{at}.db")}
        calls = [call.name for call in watched.calls[:at]]
        storage = FaultyStorage(
            lake._catalog.storage, [run("before", calls[-1], die, nth=calls.count(calls[-1]))]
        )
        with pytest.raises(Died):
            LineageIndex.of(FilesystemCatalog(storage), place, {}).catch_up()
        assert now(LineageIndex.of(lake._catalog, place, {})) == wanted


def catch_up_and_die(url, statement):
    """In a process of its own: SIGKILL at a statement of the database."""
    left = [statement]

    def count(*_):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    anabranch.connect(url).lineage.catch_up()


@pytest.mark.long
@pytest.mark.parametrize("statement", range(5, 80, 6))
def test_a_process_that_is_killed_leaves_nothing_that_does_not_heal(tmp_path, statement):
    lake = lake_of_two(tmp_path)
    process = forking(__name__).Process(target=catch_up_and_die, args=(str(tmp_path), statement))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert now(lake.lineage.index) == truth(lake)


def catch_up_often(url, place, times):
    index = index_of(anabranch.connect(url), place)
    for _ in range(times):
        index.catch_up()


def test_processes_and_threads_catch_up_at_once(place, tmp_path):
    url = str(tmp_path / "lake")
    lake = lake_of_two(url)
    processes = [forking(__name__).Process(target=catch_up_often, args=(url, place, 3)) for _ in range(2)]
    for process in processes:
        process.start()
    index = index_of(lake, place)
    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(index.catch_up) for _ in range(3)]
        for _ in range(4):
            copied(lake, "db.a", "db.b")
            index.catch_up()
        assert all(not found.result().problems for found in done)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert now(index) == truth(lake)


def test_what_is_read_is_of_one_moment(place, tmp_path):
    lake = lake_of_two(tmp_path / "lake")
    index = index_of(lake, place)
    index.catch_up()
    with index.reading() as store:
        before = told(store)
        copied(lake, "db.a", "db.b")
        assert index.catch_up().commits == 1
        assert told(store) == before
    assert said(index) == truth(lake)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_an_expiry_and_a_deletion_during_catching_up_lose_nothing(tmp_path, step):
    lake = lake_with(f"memory://between-{next(_names)}", *NAMES[:1], commits=9)
    table = lake.table("db.a")
    table.create_tag("good", 2)
    table.create_branch("fix", "good")
    table.branch("fix").append(rows(1, 1))
    wanted = truth(lake)
    for nth in range(1, 60, step):
        url = f"memory://between-{next(_names)}"
        here, there = lake._catalog.storage, open_storage(url)
        there.put_many({info.path: here.get(info.path) for info in here.list(recursive=True)})
        other = anabranch.connect(url).table("db.a")

        def work(path, other=other):
            other.expire_snapshots(retain_max=2, retain_min=2, older_than=ALL)
            other.delete_branch("fix")

        storage = FaultyStorage(there, [run("before", "get", work, nth=nth)])
        place = {"lineage.index": str(tmp_path / f"{nth}.db")}
        LineageIndex.of(FilesystemCatalog(storage), place, {}).catch_up()
        if "fix" in other.branches():
            return
        assert now(LineageIndex.of(FilesystemCatalog(there), place, {})) == wanted
    raise AssertionError("it never ends")


# What it costs


def test_little_is_asked_of_the_store_when_there_is_nothing_new(tmp_path):
    lake = lake_with("memory://idle", "db.a", commits=5)
    table = lake.table("db.a")
    table.create_tag("good", 2)
    for name in ("one", "two", "three"):
        table.create_branch(name, "good")
        table.branch(name).append(rows(1, 1))
    table.delete_branch("three")
    storage = FaultyStorage(lake._catalog.storage)
    index = LineageIndex.of(FilesystemCatalog(storage), {"lineage.index": str(tmp_path / "i.db")}, {})
    index.catch_up()
    storage.forget_calls()
    assert index.catch_up().tables == ()
    of_table, of_branch = 9, 3
    assert len(storage.calls) <= 3 + of_table + 3 * of_branch, storage.calls
    table.append(rows(9, 1))
    storage.forget_calls()
    index.catch_up()
    assert len(storage.calls) <= 50, storage.calls


# Where it lies, and how it heals


def test_it_lies_in_a_local_warehouse_where_it_is_taken_for_no_database(tmp_path):
    lake = lake_of_two(tmp_path)
    now(lake.lineage.index)
    assert (tmp_path / "lineage" / "index.db").exists()
    assert lake.databases() == ["db"]


def test_it_lies_where_the_option_or_the_environment_says(tmp_path):
    catalog = anabranch.connect("memory://placed")._catalog
    there, other = str(tmp_path / "a.db"), f"sqlite:///{tmp_path}/b.db"
    assert LineageIndex.of(catalog, {"lineage.index": there}, {}).place == f"sqlite:///{there}"
    variable = {"ANABRANCH_LINEAGE_INDEX": other}
    assert LineageIndex.of(catalog, {}, variable).place == other
    assert LineageIndex.of(catalog, {"lineage.index": there}, variable).place == f"sqlite:///{there}"
    secret = LineageIndex.of(catalog, {"lineage.index": "postgresql://u:secret@h/d"}, {})
    assert "secret" not in f"{secret} {secret.place}"


def test_a_store_of_objects_has_one_for_the_process_alone():
    lake = lake_of_two()
    index = LineageIndex.of(lake._catalog, {}, {})
    assert now(index) == truth(lake)
    file = index._open().file
    assert file.exists()
    index.close()
    assert not file.exists()
    assert now(index) == truth(lake)
    index.close()


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "://", "postgresql+nonsense://h/d"])
def test_other_databases_are_refused(url):
    catalog = anabranch.connect("memory://refused")._catalog
    with pytest.raises(OptionError, match="lineage index"):
        LineageIndex.of(catalog, {"lineage.index": url}, {}).catch_up()


def test_a_server_that_is_not_there_is_said_to_be(tmp_path):
    catalog = anabranch.connect("memory://refused")._catalog
    url = f"postgresql://u:secret@/d?host={tmp_path}"
    with pytest.raises(StorageError, match="did not answer") as refused:
        LineageIndex.of(catalog, {"lineage.index": url}, {}).catch_up()
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


def test_nothing_of_it_is_loaded_before_it_is_asked():
    code = "import sys, anabranch, anabranch.cli.main; anabranch.connect('memory://x'); print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# The public way


def test_a_lake_and_its_tables_answer_from_it(tmp_path):
    lake = lake_of_two(tmp_path)
    table = lake.table("db.b")
    assert table.lineage.upstream().tables == ("db.a", "db.b")
    assert pickle.loads(pickle.dumps(table)).lineage.upstream().tables == ("db.a", "db.b")
    assert (tmp_path / "lineage" / "index.db").exists()

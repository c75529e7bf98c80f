"""The index: the same however it came about, whatever dies or comes in between, on SQLite and on PostgreSQL."""

import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

import anabranch
from anabranch.catalog import FilesystemCatalog
from anabranch.kernel.replacement.release import release_due
from anabranch.lineage.commit import Commit, CommitRef, Line
from anabranch.lineage.index import CaughtUp, LineageIndex
from anabranch.lineage.index.database import Database
from anabranch.lineage.index.rows import Words
from anabranch.lineage.index.store import IndexStore
from anabranch.lineage.index.writer import put_commits, put_line
from anabranch.storage.open import open_storage
from tests.lineage.indexing import ALL, copied, index_of, lake_of_two, lake_with, names, now, said, truth
from tests.lineage.world import NAMES, World, told
from tests.support import postgres
from tests.support.faults import FaultyStorage, run
from tests.support.foreign_expiry import expire_as_others
from tests.support.lengths import first_short
from tests.support.processes import forking
from tests.support.tables import SCHEMA, rows


class Died(BaseException):
    """The process is dead."""


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


@pytest.mark.parametrize("seed", first_short([1, 4]))
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


def test_commits_are_read_in_parts():
    line = Line("t", "t", "db.t", None)
    made = [
        Commit("t", "t", number, f"s{number}", "APPEND", number, 0, 1, CommitRef("t", number - 1), None)
        for number in range(2500, 0, -1)
    ]
    database = Database.temporary()
    with database.writing() as connection:
        words = Words(connection)
        put_line(connection, words, line, "memory://")
        put_commits(connection, words, line, 0, made)
    with database.reading() as connection:
        asked = []
        sa.event.listen(connection, "before_cursor_execute", lambda *given: asked.append(given[2]))
        commits = IndexStore(connection).commits("t", 31)
        assert next(commits) == made[-31]
        assert len(asked) == 2, "the number of the branch, and some commits"
        assert list(commits) == made[-32::-1]
        assert len(asked) < 10


def with_archived_branch(url):
    """A lake whose branch has 6 commits of its own, of which the first 4 expired; and the identity of the branch."""
    lake = lake_with(url, *NAMES[:2])
    table = lake.table("db.a")
    table.create_branch("fix", snapshot=2)
    for _ in range(6):
        copied(lake, "db.b", "db.a$branch_fix")
    fix = table.branch("fix")
    fix.expire_snapshots(retain_max=2, retain_min=1, older_than=ALL)
    return lake, fix.branch_uuid


def test_a_branch_that_another_engine_deleted_stays_known(tmp_path):
    lake, uuid = with_archived_branch(tmp_path / "lake")
    index = lake.lineage.index
    found = now(index)
    shutil.rmtree(tmp_path / "lake" / "db.db" / "a" / "branch" / "branch-fix")
    assert lake.lineage.catch_up().commits == lake.lineage.catch_up().removed == 0
    assert index.catch_up().tables == ()
    assert said(index)[uuid] == found[uuid]
    assert found[uuid]["newest"] == 8
    index.rebuild()
    assert said(index)[uuid]["newest"] == 6


@pytest.mark.parametrize("back", [2, 5])
def test_what_was_rolled_back_for_good_before_a_branch_was_deleted_is_taken_out(tmp_path, back):
    lake = lake_with(tmp_path / "lake", *NAMES[:2])
    table, index = lake.table("db.a"), lake.lineage.index
    table.create_branch("fix", snapshot=2)
    for _ in range(6):
        copied(lake, "db.b", "db.a$branch_fix")
    fix = table.branch("fix")
    index.catch_up()
    fix.rollback(back, destructive=True, force=True)
    table.delete_branch("fix")
    caught = index.catch_up()
    assert (caught.commits, caught.removed) == (0, 8 - back)
    assert said(index) == truth(lake)
    assert index.catch_up().tables == ()


def test_a_gap_goes_with_the_history_it_was_in(tmp_path):
    lake = lake_with(tmp_path, "db.a", commits=4)
    index, table = lake.lineage.index, lake.table("db.a")
    table.create_tag("old", 3)
    index.catch_up()
    for number in range(4):
        table.append(rows(number, 1))
    expire_as_others(table, 2)
    assert now(index)[table.table_uuid]["gaps"] == [(5, 6)]
    table.rollback("old", destructive=True)
    found = now(index)[table.table_uuid]
    assert (found["newest"], found["gaps"]) == (3, [])


def test_a_branch_that_came_and_went_without_a_commit_stays_known(tmp_path):
    """Who has read it has read what main had where it began."""
    lake = lake_with(tmp_path, "db.a")
    index, table = lake.lineage.index, lake.table("db.a")
    table.create_tag("good")
    table.create_branch("fix", "good")
    before = now(index)
    assert len(before["lines"]) == 2
    table.delete_branch("fix")
    assert now(index) == before
    assert index.catch_up().tables == ()
    index.rebuild()
    assert now(index) == before
    assert index.catch_up().tables == ()


def test_a_branch_without_a_commit_that_another_engine_removes_leaves_nothing(tmp_path):
    lake = lake_with(tmp_path, "db.a")
    index, table = lake.lineage.index, lake.table("db.a")
    before = now(index)
    table.create_tag("good")
    table.create_branch("fix", "good")
    assert len(now(index)["lines"]) == 2
    table.context.storage.delete_folder("branch/branch-fix")
    assert now(index) == before
    assert index.catch_up().tables == ()


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


def test_a_copy_of_a_table_is_told_from_it(tmp_path):
    lake = lake_with(tmp_path, "db.a")
    index = lake.lineage.index
    before = now(index)
    shutil.copytree(tmp_path / "db.db" / "a", tmp_path / "db.db" / "b")
    lake.table("db.b").append(rows(5, 1))
    assert index.catch_up().problems == ("db.b: has the identity of db.a, of which it is a copy",)
    assert said(index) == before


# What comes in between


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
    watched = FaultyStorage(lake.catalog.storage)
    LineageIndex.of(FilesystemCatalog(watched), {"lineage.index": str(tmp_path / "all.db")}, {}).catch_up()

    def die(path):
        raise Died

    for at in range(1, len(watched.calls) + 1, step):
        place = {"lineage.index": str(tmp_path / f"{at}.db")}
        calls = [call.name for call in watched.calls[:at]]
        storage = FaultyStorage(
            lake.catalog.storage, [run("before", calls[-1], die, nth=calls.count(calls[-1]))]
        )
        with pytest.raises(Died):
            LineageIndex.of(FilesystemCatalog(storage), place, {}).catch_up()
        assert now(LineageIndex.of(lake.catalog, place, {})) == wanted


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
    lake = lake_with(f"memory://between-{next(names)}", *NAMES[:1], commits=9)
    table = lake.table("db.a")
    table.create_tag("good", 2)
    table.create_branch("fix", "good")
    table.branch("fix").append(rows(1, 1))
    wanted = truth(lake)
    for nth in range(1, 60, step):
        url = f"memory://between-{next(names)}"
        here, there = lake.catalog.storage, open_storage(url)
        there.put_many({info.path: here.get(info.path) for info in here.list(recursive=True)})
        other = anabranch.connect(url).table("db.a")

        def work(path, other=other):
            other.expire_snapshots(retain_max=2, retain_min=2, older_than=ALL)
            other.delete_branch("fix")

        storage = FaultyStorage(there, [run("before", "get", work, nth=nth)])
        place = {"lineage.index": str(tmp_path / f"{nth}.db")}
        assert now(LineageIndex.of(FilesystemCatalog(storage), place, {})) == wanted
        if "fix" in other.branches():
            return
        assert now(LineageIndex.of(FilesystemCatalog(there), place, {})) == wanted
    raise AssertionError("it never ends")


# What it costs


def test_little_is_asked_of_the_store_when_there_is_nothing_new(tmp_path):
    lake = lake_with("memory://idle", "db.a", commits=20)
    table = lake.table("db.a")
    table.create_tag("good", 2)
    for name in ("one", "two", "three"):
        table.create_branch(name, "good")
        table.branch(name).append(rows(1, 1))
    table.delete_branch("three")
    storage = FaultyStorage(lake.catalog.storage)
    index = LineageIndex.of(FilesystemCatalog(storage), {"lineage.index": str(tmp_path / "i.db")}, {})
    index.catch_up()
    storage.forget_calls()
    assert index.catch_up().tables == ()
    of_table, of_branch = 9, 3
    assert len(storage.calls) <= 3 + of_table + 3 * of_branch, storage.calls
    table.append(rows(9, 1))
    storage.forget_calls()
    assert index.catch_up().commits == 1
    read = [call for call in storage.calls if call.name == "get" and "/snapshot-" in call.path]
    assert len(read) <= 25, read


def test_a_table_without_branches_costs_three_requests_when_nothing_is_new(tmp_path):
    names = [f"db.t{number}" for number in range(20)]
    lake = lake_with("memory://quiet", *names, commits=2)
    storage = FaultyStorage(lake.catalog.storage)
    index = LineageIndex.of(FilesystemCatalog(storage), {"lineage.index": str(tmp_path / "i.db")}, {})
    index.catch_up()
    storage.forget_calls()
    assert index.catch_up() == CaughtUp()
    assert len(storage.calls) <= 3 + 3 * len(names), storage.counts()


NEWS = {
    "commit": lambda table: table.append(rows(9, 1)),
    "rollback": lambda table: table.rollback(2),
    "rollback for good": lambda table: table.rollback(2, destructive=True),
    "rolled back and as many commits": lambda table: (
        table.rollback(2, destructive=True),
        table.append(rows(7, 1)),
    ),
    "branch": lambda table: (table.create_tag("good"), table.create_branch("fix", "good")),
    "branch that came and went": lambda table: (
        table.create_tag("good"),
        table.create_branch("fix", "good"),
        table.branch("fix").append(rows(5, 1)),
        table.delete_branch("fix"),
    ),
    "replacement": lambda table: (
        table.create_tag("good"),
        table.create_branch("fix", "good"),
        table.replace_main_branch("fix"),
    ),
}


@pytest.mark.parametrize("news", NEWS)
def test_what_happens_to_a_quiet_table_is_noticed(tmp_path, news):
    lake = lake_with(f"memory://{news.replace(' ', '-')}", "db.a", "db.b")
    index = index_of(lake, str(tmp_path / "i.db"))
    assert now(index) == truth(lake)
    assert index.catch_up() == CaughtUp()
    NEWS[news](lake.table("db.a"))
    assert now(index) == truth(lake)
    assert index.catch_up() == CaughtUp()


def test_a_table_made_anew_under_the_name_of_a_quiet_one_is_another(tmp_path):
    lake = lake_with("memory://made-anew", "db.a", "db.b")
    index = index_of(lake, str(tmp_path / "i.db"))
    now(index)
    index.catch_up()
    before = lake.table("db.a").table_uuid
    lake.drop_table("db.a")
    table = lake.create_table("db.a", SCHEMA)
    for number in range(3):
        table.append(rows(number, 1))
    assert now(index) != before
    with index.reading() as store:
        assert [line.table_uuid for line in store.lines() if line.table == "db.a" and line.is_main] == [
            table.table_uuid
        ]

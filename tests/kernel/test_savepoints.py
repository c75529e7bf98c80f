"""Savepoints: made, read, removed; by several at once, dying at any call, and on time."""

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import anabranch
from anabranch.format.records.savepoint import Savepoint
from anabranch.kernel.refs.savepoints import due_savepoint, tend
from anabranch.runtime import Runtime, SystemClock
from tests.support.clock import at_time
from tests.support.deaths import calls_of, each_death, through
from tests.support.faults import lose_answer, lose_request, no_space, run
from tests.support.moments import copied_history, foreign_savepoint, forget, history, rewrite, set_times
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
DAY = 86_400_000


@pytest.fixture
def table():
    return copied_history()


def _later(table, millis):
    """The same table so much later."""

    class Ahead(SystemClock):
        def now_millis(self):
            return super().now_millis() + millis

    return at_time(table, Ahead())


def _files(table, folder):
    return sorted(info.path.rpartition("/")[2] for info in table.context.storage.list(folder))


def _pins(table):
    return [name for name in table.tags(include_internal=True) if name.startswith("anabranch-pin-")]


def _own_tags(table):
    return [name for name in table.tags(include_internal=True) if name.startswith("anabranch-savepoint-")]


def _check_whole(table, rows_of):
    """What holds at every moment: each savepoint reads its rows, and a tag keeps them from other engines."""
    pinned = {table.tag(name).snapshot.stamp for name in table.tags(include_internal=True)}
    for savepoint in table.savepoints():
        assert savepoint.saved_snapshot.stamp in pinned
        assert ids_of(table.at(f"savepoint.{savepoint.id}")) == rows_of(savepoint.saved_snapshot_id)
        assert len(savepoint.data_manifests(table.context.manifests)) == savepoint.saved_snapshot_id


def _check_settled(table):
    """What holds when nothing is left to put in order."""
    assert _own_tags(table) == sorted(s.pin for s in table.savepoints())
    assert _pins(table) == []


# One after the other


def test_a_savepoint_of_the_current_moment(table):
    made = table.create_savepoint()
    assert (made.id, made.saved_snapshot_id, made.schema_id, made.record_count) == (1, 6, 0, 6)
    assert made.save_time > table.snapshot.time_millis
    assert _files(table, "savepoint") == ["savepoint-1"]
    content = json.loads(table.context.storage.get("savepoint/savepoint-1"))
    assert content["fullManifestList"] == made.full_manifest_list
    assert content["savedSnapshotId"] == 6
    assert table.savepoints() == [made]
    _check_settled(table)
    assert table.tags() == []


def test_a_savepoint_of_a_chosen_moment(table):
    table.create_tag("good", 2)
    for number, made in enumerate(
        [table.create_savepoint(3), table.create_savepoint("good"), table.create_savepoint(timestamp=5500),
         table.at("snapshot.4").create_savepoint(), table.create_savepoint("savepoint.1"),
         table.savepoint_manager.create("snapshot.1")], 1,
    ):  # fmt: skip
        assert made.id == number
    assert [s.saved_snapshot_id for s in table.savepoints()] == [3, 2, 5, 4, 3, 1]
    with pytest.raises(anabranch.NotFoundError):
        table.create_savepoint(77)


def test_it_keeps_the_rows_when_all_else_is_gone(table):
    made = table.create_savepoint(3)
    forget(table, 1, 2, 3)
    assert ids_of(table.at("savepoint.1")) == [0, 1, 2]
    assert table.at("savepoint.1").snapshot == made.saved_snapshot
    table.context.storage.delete(f"manifest/{made.full_manifest_list}")  # as an orphan cleaning of others may
    assert ids_of(_fresh(table).at("savepoint.1")) == [0, 1, 2]


def test_it_is_read_through_the_full_list_when_another_engine_removed_the_rest(table):
    made = table.create_savepoint(3)
    forget(table, 1, 2, 3)
    table.context.storage.delete(f"tag/tag-{made.pin}")
    for name in (made.saved_snapshot.base_manifest_list, made.saved_snapshot.delta_manifest_list):
        table.context.storage.delete(f"manifest/{name}")
    found = _fresh(table).at("savepoint.1")
    assert ids_of(found) == [0, 1, 2]
    assert (found.snapshot.time_millis, found.snapshot.total_record_count) == (3000, 3)
    for make in (found.create_savepoint, lambda: found.create_tag("x")):
        with pytest.raises(anabranch.InvalidInputError, match="full manifest list of a savepoint"):
            make()
    assert found.tags() == []


def _fresh(table):
    """Without what this process remembers of manifests."""
    from anabranch.kernel.log.cache import MetadataCache

    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def test_savepoints_of_the_proposal_are_read_and_counted(table):
    foreign_savepoint(table, 5, 2)
    assert ids_of(table.at("savepoint.5")) == [0, 1]
    forget(table, 1, 2)
    assert ids_of(table.at("savepoint.5")) == [0, 1]
    assert table.create_savepoint().id == 6
    assert table.delete_savepoint(5).saved_snapshot_id == 2
    assert [s.id for s in table.savepoints()] == [6]


def test_rows_are_counted_where_the_snapshot_does_not_say(table):
    for unknown in (None, -3):
        rewrite(table, 6, total_record_count=unknown)
        assert table.create_savepoint().record_count == 6


def test_numbers_are_never_given_out_again(table):
    assert [table.create_savepoint().id for _ in range(3)] == [1, 2, 3]
    table.delete_savepoint(3)
    assert _files(table, "savepoint") == ["savepoint-1", "savepoint-2", "savepoint-3.deleted"]
    assert table.context.storage.get("savepoint/savepoint-3.deleted") == b""
    assert table.create_savepoint().id == 4
    table.delete_savepoint(1)
    table.delete_savepoint(4)
    table.delete_savepoint(2)
    assert table.savepoints() == []
    assert table.create_savepoint().id == 5
    with pytest.raises(
        anabranch.NotFoundError, match="savepoint 4 does not exist in 'db.t' any more"
    ) as caught:
        table.delete_savepoint(4)
    assert "savepoints there are: 5" in caught.value.hint
    _check_settled(table)


def test_old_marks_of_deleted_savepoints_go(table):
    for _ in range(3):
        table.create_savepoint()
    table.delete_savepoint(1)
    table.delete_savepoint(3)
    tend(_later(table, DAY // 2).context)
    assert _files(table, "savepoint") == ["savepoint-1.deleted", "savepoint-2", "savepoint-3.deleted"]
    tend(_later(table, 2 * DAY).context)
    assert _files(table, "savepoint") == ["savepoint-2", "savepoint-3.deleted"], "that of the newest stays"
    assert _later(table, 3 * DAY).create_savepoint().id == 4


def test_the_manager_of_the_proposal(table):
    manager = table.savepoint_manager
    assert (manager.earliest_savepoint_id, manager.latest_savepoint_id) == (None, None)
    made = [manager.create(version) for version in (2, 3, None)]
    assert (manager.earliest_savepoint_id, manager.latest_savepoint_id) == (1, 3)
    place = table.context.storage.url
    assert manager.savepoint_directory == f"{place}/savepoint"
    assert manager.savepoint_path(2) == f"{place}/savepoint/savepoint-2"
    assert made[1] == Savepoint.from_path(table.context.storage, "savepoint/savepoint-2")
    assert (
        manager.savepoint(2)
        == made[1]
        == Savepoint.from_path(table.context.storage, manager.savepoint_path(2))
    )
    assert manager.savepoint_exists(2)
    assert manager.delete(3) == made[2]
    assert not manager.savepoint_exists(3)
    assert (manager.earliest_savepoint_id, manager.latest_savepoint_id) == (1, 2)
    assert manager.savepoints() == made[:2]
    with pytest.raises(anabranch.NotFoundError, match="savepoint 3 does not exist"):
        manager.savepoint(3)
    table.context.storage.put("savepoint/savepoint-2", b"{")
    with pytest.raises(anabranch.CorruptTableError, match="savepoint-2"):
        manager.savepoint(2)


def _branch(table, name):
    """A branch as other engines make it: the newest snapshot and the schema, copied."""
    context = table.context
    for path in ("schema/schema-0", "snapshot/snapshot-6"):
        context.storage.put(f"branch/branch-{name}/{path}", context.storage.get(path))
    return table.branch(name)


def test_numbers_are_the_tables_whatever_the_branch(table):
    fix = _branch(table, "fix")
    assert [t.create_savepoint().id for t in (table, fix, table, fix)] == [1, 2, 3, 4]
    assert [s.id for s in table.savepoints()] == [1, 3]
    assert [s.id for s in fix.savepoints()] == [2, 4]
    assert (fix.savepoint_manager.earliest_savepoint_id, fix.savepoint_manager.latest_savepoint_id) == (2, 4)
    fix.append(rows(100, 1))
    made = fix.create_savepoint()
    assert made.id == 5
    assert ids_of(fix.at("savepoint.5")) == [*range(6), 100]
    with pytest.raises(anabranch.NotFoundError, match="savepoint 5 is of another branch than 'db.t'"):
        table.at("savepoint.5")
    with pytest.raises(anabranch.NotFoundError, match="another branch"):
        table.delete_savepoint(5)
    _check_settled(table)
    _check_settled(fix)
    fix.delete_savepoint(5)
    assert table.create_savepoint().id == 6


def test_a_branch_that_took_over_the_pin_has_the_savepoint(table):
    made = table.create_savepoint()
    fix = _branch(table, "fix")
    assert fix.savepoints() == []
    pin = f"tag/tag-{made.pin}"
    table.context.storage.put(f"branch/branch-fix/{pin}", table.context.storage.get(pin))
    assert fix.savepoints() == [made]
    assert ids_of(fix.at("savepoint.1")) == ids_of(table)


# At once


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_many_make_and_remove_savepoints_at_once(store, tmp_path):
    table = copied_history() if store == "memory" else history(tmp_path)
    together = threading.Barrier(4)

    def work(_):
        mine = anabranch.Table(replace(table.context))
        together.wait(30)
        made = []
        for number in range(6):
            made.append(mine.create_savepoint((number % 6) + 1).id)
            if number % 3 == 2:
                mine.delete_savepoint(made[-1])
        return made

    with ThreadPoolExecutor(4) as pool:
        made = [*pool.map(work, range(4))]
    assert sorted(itertools.chain(*made)) == list(range(1, 25)), "each number once, and none left out"
    assert len(table.savepoints()) == 16
    _check_whole(table, lambda snapshot: list(range(snapshot)))
    _check_settled(table)


def test_the_number_goes_to_whoever_puts_it_first(table):
    def compete(path):
        table.create_savepoint(2)

    slow = through(table, run("before", "put_if_absent", compete, where="savepoint/*"))
    assert slow.create_savepoint(3).id == 2
    assert [s.saved_snapshot_id for s in table.savepoints()] == [2, 3]
    _check_settled(table)


def test_a_number_that_was_given_and_taken_back_meanwhile_is_not_used(table):
    def compete(path):
        table.delete_savepoint(table.create_savepoint(2).id)
        if later:
            table.create_savepoint(4)

    for later in (False, True):
        slow = through(table, run("before", "put_if_absent", compete, where="savepoint/*"))
        newest_id = slow.create_savepoint(3).id
        assert newest_id == (5 if later else 2), "1, then 3 and 4, were given to others"
    assert [s.saved_snapshot_id for s in table.savepoints()] == [3, 4, 3]
    _check_settled(table)


def test_a_savepoint_that_is_removed_while_it_is_made_leaves_no_tag(table):
    def remove(path):
        table.delete_savepoint(1)

    slow = through(table, run("before", "put", remove, where="tag/tag-anabranch-savepoint-*"))
    assert slow.create_savepoint().id == 1
    assert table.savepoints() == []
    _check_settled(table)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_snapshot_that_expires_before_it_is_held(table, nth):
    def expire(path):
        forget(table, 1, 2)

    slow = through(
        table,
        run("before", ["put", "get"][nth - 1], expire, where=["tag/*", "snapshot/*-2"][nth - 1], nth=nth),
    )
    with pytest.raises(anabranch.NotFoundError, match="snapshot.2' of 'db.t' was removed"):
        slow.create_savepoint(2)
    assert table.savepoints() == []
    assert table.tags(include_internal=True) == []
    assert table.create_savepoint().id == 1


def test_a_number_that_another_snapshot_got_is_not_taken_for_it(table):
    def roll_back(path):
        forget(table, 6)
        table.append(rows(60, 1))

    slow = through(table, run("before", "put", roll_back, where="tag/*"))
    with pytest.raises(anabranch.NotFoundError, match="removed while"):
        slow.create_savepoint()
    assert table.tags(include_internal=True) == []


# While snapshots expire


def _overwritten():
    """Each of six snapshots has a file of its own, which only it reaches."""
    table = make_table(f"memory://savepoints{next(_names)}")
    for i in range(6):
        table.overwrite(rows(i, 1))
    return table


def _expire(table):
    return table.expire_snapshots(retain_max=2, retain_min=2, older_than=0)


def _days_pass(table):
    """What happens while somebody is paused: their pin is taken for one of a killed process, and snapshots expire."""
    table.context.storage.delete_many([table.context.layout.tag_path(name) for name in _pins(table)])
    _expire(table)


@pytest.mark.parametrize(
    ("meanwhile", "refusal"),
    # Lists that are gone before they are read are told as such.
    [
        (_expire, anabranch.NotFoundError),
        (_days_pass, (anabranch.NotFoundError, anabranch.CorruptTableError)),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_expiry_between_any_two_calls_of_a_creation(when, meanwhile, refusal):
    """Either there is a savepoint and its rows stay, or there is none, and at most an orphan is left of it."""
    outcomes = []
    for name, nth in [*calls_of(_overwritten(), lambda t: t.create_savepoint(3))]:
        table = _overwritten()
        disturbed = through(table, run(when, name, lambda _, table=table: meanwhile(table), nth=nth))
        try:
            disturbed.create_savepoint(3)
        except refusal:
            assert table.savepoints() == []
            outcomes.append("refused")
        else:
            _expire(table)
            assert ids_of(_fresh(table).at("savepoint.1")) == [2]
            outcomes.append("made")
        _check_settled(table)
        assert _fresh(table).verify().ok
        assert [s.id for s in table.snapshots()] == [6, 5]
        assert len(_files(table, "bucket-0")) <= 3
    assert set(outcomes) == {"made", "refused"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_days_pass_between_any_two_calls_of_replacing_a_tag(when):
    outcomes = []
    begun = _overwritten()
    begun.create_tag("t", 5)
    for name, nth in [*calls_of(begun, lambda t: t.replace_tag("t", 3))]:
        table = _overwritten()
        table.create_tag("t", 5)
        meanwhile = through(table, run(when, name, lambda _, table=table: _days_pass(table), nth=nth))
        try:
            meanwhile.replace_tag("t", 3)
        except anabranch.AnabranchError:
            outcomes.append("refused")
        else:
            outcomes.append("replaced")
        _expire(table)
        assert ids_of(_fresh(table).at("t")) == [2 if outcomes[-1] == "replaced" else 4]
        assert _pins(table) == []
        assert _fresh(table).verify().ok
    assert set(outcomes) == {"replaced", "refused"}


def test_what_only_a_savepoint_kept_goes_after_it():
    table = _overwritten()
    table.create_savepoint(3)
    _expire(table)
    assert [s.id for s in table.snapshots()] == [6, 5]
    assert ids_of(_fresh(table).at("savepoint.1")) == [2]
    table.delete_savepoint(1)
    later = _later(table, 2 * DAY)
    later.remove_orphan_files(older_than="1 d")
    _later(table, 4 * DAY).remove_orphan_files(older_than="1 d")
    assert len(_files(table, "bucket-0")) == 2


# Dying


def _rows_of(snapshot):
    return list(range(snapshot))


def test_dying_at_every_call_of_a_creation():
    deaths = 0
    for table, *where in each_death(copied_history, lambda t: t.create_savepoint(3)):
        deaths += 1
        _check_whole(table, _rows_of)
        before = [s.id for s in table.savepoints()]
        assert before in ([], [1]), where
        assert table.create_savepoint(4).id == len(before) + 1
        _check_whole(table, _rows_of)
        assert _own_tags(table) == [s.pin for s in table.savepoints()], "put in order by the next creation"
        tended = tend(_later(table, 2 * DAY).context)
        assert len(tended.unpinned) <= 1
        _check_settled(table)
        _check_whole(table, _rows_of)
    assert deaths > 25


def _with_savepoints():
    table = copied_history()
    for snapshot in (2, 3, 4):
        table.create_savepoint(snapshot)
    return table


@pytest.mark.parametrize("number", [2, 3], ids=["one in the middle", "the newest"])
def test_dying_at_every_call_of_a_removal(number):
    deaths = 0
    for table, *where in each_death(_with_savepoints, lambda t: t.delete_savepoint(number)):
        deaths += 1
        _check_whole(table, _rows_of)
        assert len(table.savepoints()) in (2, 3), where
        try:
            table.delete_savepoint(number)
        except anabranch.NotFoundError as error:
            assert "any more" in error.message
        assert [s.id for s in table.savepoints()] == [n for n in (1, 2, 3) if n != number]
        _check_settled(table)
        assert table.create_savepoint().id == 4
        _check_whole(table, _rows_of)
    assert deaths > 15


@pytest.mark.long
def test_dying_on_a_real_disk(tmp_path):
    numbers = itertools.count()

    def make():
        return history(tmp_path / str(next(numbers)))

    for table, *_ in each_death(make, lambda t: t.create_savepoint(3)):
        _check_whole(table, _rows_of)
        table.create_savepoint()
        _check_whole(table, _rows_of)


@pytest.mark.parametrize("fault", [lose_answer, lose_request, no_space], ids=lambda f: f.__name__)
def test_errors_of_the_store(fault):
    for call in ("put", "put_many", "put_if_absent", "delete", "list", "get", "exists"):
        for nth in (1, 2, 3):
            table = copied_history()
            faulty = through(table, fault(call, nth=nth))
            try:
                faulty.create_savepoint(3)
            except anabranch.AnabranchError:
                _check_whole(table, _rows_of)
            table.create_savepoint(4)
            _check_whole(table, _rows_of)
            numbers = [s.id for s in table.savepoints()]
            assert numbers == list(range(1, len(numbers) + 1))
            tend(_later(table, 2 * DAY).context)
            _check_settled(table)


def test_a_pin_that_somebody_removed_comes_back(table):
    made = table.create_savepoint()
    table.context.storage.delete(f"tag/tag-{made.pin}")
    table.context.storage.put(
        "tag/tag-anabranch-savepoint-9", table.context.storage.get("snapshot/snapshot-1")
    )
    assert tend(table.context).pinned == (made.pin,)
    assert table.tag(made.pin).snapshot == made.saved_snapshot
    assert tend(table.context).lost == (9,), "somebody deleted its savepoint: `repair` makes it again"
    table.delete_savepoint(9)
    _check_settled(table)
    assert tend(table.context) == type(tend(table.context))()


# On time


HOURLY = {"savepoint.create-interval": "1 h"}
HOUR = 3_600_000


def _commit_at(table, millis):
    """A commit made by a job whose clock says so."""

    class At(SystemClock):
        def now_millis(self):
            return millis

    job = anabranch.Table(replace(table.context, runtime=Runtime(clock=At())))
    return job.append(rows(0, 1)).id


def _saved(table):
    return [s.saved_snapshot_id for s in table.savepoints()]


def test_commits_create_savepoints_when_they_are_due():
    table = make_table(f"memory://savepoints{next(_names)}", options=HOURLY)
    start = 10**12
    for minutes in (0, 10, 59, 60, 61, 119, 121, 600, 601, 659, 660):
        _commit_at(table, start + minutes * 60_000)
    times = [(s.saved_time - start) // 60_000 for s in table.savepoints()]
    assert times == [0, 60, 121, 600, 660], "a long pause makes one, not many"
    assert [s.id for s in table.savepoints()] == [1, 2, 3, 4, 5]


def test_without_the_option_there_are_none(table):
    table.append(rows(10, 1))
    assert due_savepoint(table.context, table.options) is None
    assert table.savepoints() == []


def test_an_option_of_the_job_counts(table):
    job = table.with_options(HOURLY)
    job.append(rows(10, 1))
    assert _saved(job) == [7]
    job.append(rows(11, 1))
    assert _saved(job) == [7]


def test_a_savepoint_that_was_missed_is_made_by_the_next_commit(table, caplog):
    faulty = anabranch.Table(
        through(table, no_space("put_if_absent", where="savepoint/*")).context, options=HOURLY
    )
    faulty.append(rows(10, 1))
    assert "savepoint that is due was not made" in caplog.text
    assert _saved(table) == []
    table.with_options(HOURLY).append(rows(11, 1))
    assert _saved(table) == [8]
    _check_settled(table)


def test_of_many_who_find_one_due_one_makes_it(table):
    set_times(table, {6: 10**10})
    table.create_savepoint(1)
    together = threading.Barrier(6)

    def work(_):
        context = replace(table.context)
        together.wait(30)
        return due_savepoint(context, HOURLY)

    with ThreadPoolExecutor(6) as pool:
        made = [*pool.map(work, range(6))]
    assert [s.id for s in made if s is not None] == [2]
    assert _saved(table) == [1, 6]
    _check_settled(table)


def test_where_none_is_due_a_listing_and_a_small_read_tell(table):
    made = table.create_savepoint()
    watched = through(table)
    assert watched.branch_uuid == made.branch_uuid  # read once
    watched.context.storage.forget_calls()
    assert due_savepoint(watched.context, HOURLY, made.saved_snapshot) is None
    assert watched.context.storage.counts() == {"list": 1, "get": 1}
    watched.context.storage.forget_calls()
    assert due_savepoint(watched.context, {}, made.saved_snapshot) is None
    assert watched.context.storage.calls == []


def test_due_looks_again_when_another_took_the_number(table):
    """Another branch may have taken it, and this one's is still due."""
    fix = _branch(table, "fix")

    for competitor, expected in [(fix, True), (table, False)]:
        set_times(table, {6: table.snapshot.time_millis + 2 * HOUR})
        compete = run(
            "before",
            "put_if_absent",
            lambda _, other=competitor: other.create_savepoint(),
            where="savepoint/*",
        )
        assert (due_savepoint(through(table, compete).context, HOURLY) is not None) == expected


def test_dying_while_one_is_due_makes_it_once():
    def make():
        table = copied_history()
        set_times(table, {6: 10**10})
        return table

    for table, *where in each_death(make, lambda t: due_savepoint(t.context, HOURLY)):
        due_savepoint(table.context, HOURLY)
        due_savepoint(table.context, HOURLY)
        assert _saved(table) == [6], where
        _check_whole(table, _rows_of)

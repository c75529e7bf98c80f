"""Savepoints while others expire, and processes that die at any call of making and removing one."""

import itertools

import pytest

import anabranch
from anabranch.kernel.refs.savepoints import tend
from tests.kernel.savepointing import (
    after,
    check_settled,
    check_whole,
    files_of,
    fresh,
    own_tags,
    pins_of,
    rows_of,
)
from tests.support.deaths import calls_of, each_death, through
from tests.support.faults import lose_answer, lose_request, no_space, run
from tests.support.lengths import first_short
from tests.support.moments import copied_history, history
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
DAY = 86_400_000


@pytest.fixture
def table():
    return copied_history()


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
    table.context.storage.delete_many([table.context.layout.tag_path(name) for name in pins_of(table)])
    _expire(table)


@pytest.mark.parametrize(
    ("meanwhile", "refusal"),
    # Lists that are gone before they are read are told as such.
    first_short(
        [
            (_expire, anabranch.NotFoundError),
            (_days_pass, (anabranch.NotFoundError, anabranch.CorruptTableError)),
        ]
    ),
)
@pytest.mark.parametrize("when", first_short(["before", "after"]))
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
            assert ids_of(fresh(table).at("savepoint.1")) == [2]
            outcomes.append("made")
        check_settled(table)
        assert fresh(table).verify().ok
        assert [s.id for s in table.snapshots()] == [6, 5]
        assert len(files_of(table, "bucket-0")) <= 3
    assert set(outcomes) == {"made", "refused"}


@pytest.mark.long
@pytest.mark.parametrize("when", first_short(["before", "after"]))
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
        assert ids_of(fresh(table).at("t")) == [2 if outcomes[-1] == "replaced" else 4]
        assert pins_of(table) == []
        assert fresh(table).verify().ok
    assert set(outcomes) == {"replaced", "refused"}


def test_what_only_a_savepoint_kept_goes_after_it():
    table = _overwritten()
    table.create_savepoint(3)
    _expire(table)
    assert [s.id for s in table.snapshots()] == [6, 5]
    assert ids_of(fresh(table).at("savepoint.1")) == [2]
    table.delete_savepoint(1)
    later = after(table, 2 * DAY)
    later.remove_orphan_files(older_than="1 d")
    after(table, 4 * DAY).remove_orphan_files(older_than="1 d")
    assert len(files_of(table, "bucket-0")) == 2


# Dying


def test_dying_at_every_call_of_a_creation():
    deaths = 0
    for table, *where in each_death(copied_history, lambda t: t.create_savepoint(3)):
        deaths += 1
        check_whole(table, rows_of)
        before = [s.id for s in table.savepoints()]
        assert before in ([], [1]), where
        assert table.create_savepoint(4).id == len(before) + 1
        check_whole(table, rows_of)
        assert own_tags(table) == [s.pin for s in table.savepoints()], "put in order by the next creation"
        tended = tend(after(table, 2 * DAY).context)
        assert len(tended.unpinned) <= 1
        check_settled(table)
        check_whole(table, rows_of)
    assert deaths > 25


def _with_savepoints():
    table = copied_history()
    for snapshot in (2, 3, 4):
        table.create_savepoint(snapshot)
    return table


@pytest.mark.parametrize("number", first_short([2, 3]), ids=["one in the middle", "the newest"])
def test_dying_at_every_call_of_a_removal(number):
    deaths = 0
    for table, *where in each_death(_with_savepoints, lambda t: t.delete_savepoint(number)):
        deaths += 1
        check_whole(table, rows_of)
        assert len(table.savepoints()) in (2, 3), where
        try:
            table.delete_savepoint(number)
        except anabranch.NotFoundError as error:
            assert "any more" in error.message
        assert [s.id for s in table.savepoints()] == [n for n in (1, 2, 3) if n != number]
        check_settled(table)
        assert table.create_savepoint().id == 4
        check_whole(table, rows_of)
    assert deaths > 15


@pytest.mark.long
def test_dying_on_a_real_disk(tmp_path):
    numbers = itertools.count()

    def make():
        return history(tmp_path / str(next(numbers)))

    for table, *_ in each_death(make, lambda t: t.create_savepoint(3)):
        check_whole(table, rows_of)
        table.create_savepoint()
        check_whole(table, rows_of)


@pytest.mark.parametrize(
    "fault", first_short([lose_answer, lose_request, no_space]), ids=lambda f: f.__name__
)
def test_errors_of_the_store(fault):
    for call in ("put", "put_many", "put_if_absent", "delete", "list", "get", "exists"):
        for nth in (1, 2, 3):
            table = copied_history()
            faulty = through(table, fault(call, nth=nth))
            try:
                faulty.create_savepoint(3)
            except anabranch.AnabranchError:
                check_whole(table, rows_of)
            table.create_savepoint(4)
            check_whole(table, rows_of)
            numbers = [s.id for s in table.savepoints()]
            assert numbers == list(range(1, len(numbers) + 1))
            tend(after(table, 2 * DAY).context)
            check_settled(table)


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
    check_settled(table)
    assert tend(table.context) == type(tend(table.context))()

"""A destructive rollback lets numbers be used again, and an expiry removes snapshots by their numbers."""

from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import CommitConflictError, CorruptTableError, NotFoundError
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.main_branch import main_of
from tests.support.clock import DAY, Clock, at_time
from tests.support.deaths import Died, through
from tests.support.faults import FaultyStorage, run
from tests.support.moments import copied_history
from tests.support.tables import ids_of, rows

REFUSED = (CommitConflictError, NotFoundError, CorruptTableError)
"""The latter two where what it was to go to has expired by then, or does while it is read."""


class SlowDelete(FaultyStorage):
    """Files of one request go one by one, and something happens after the first."""

    def __init__(self, inner, happens):
        super().__init__(inner)
        self._happens = happens

    def delete_many(self, paths):
        paths = list(paths)
        self.inner.delete_many(paths[:1])
        if happens := self._happens:
            self._happens = None
            happens()
        self.inner.delete_many(paths[1:])


def fresh(table):
    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def paths(table):
    return [info.path for info in table.context.storage.list(recursive=True)]


def expire(table):
    return table.expire_snapshots(retain_max=2, retain_min=1)


def test_rolling_back_for_good_to_what_is_expiring_is_refused_as_its_numbers_go_by_name():
    """It went on, and the expiry took the row that had been appended under the number of an old snapshot."""
    table, done = copied_history(), []

    def go_back():
        with pytest.raises(CommitConflictError, match="EXPIRY_UNDERWAY"):
            fresh(table).rollback(2, destructive=True)
        fresh(table).append(rows(70, 1))
        done.append(True)

    slow = SlowDelete(table.context.storage, go_back)
    expired = expire(anabranch.Table(replace(fresh(table).context, storage=slow)))
    assert (done, expired.snapshots) == ([True], (1, 2, 3, 4))
    assert ids_of(fresh(table)) == [0, 1, 2, 3, 4, 5, 70]
    assert fresh(table).tags(include_internal=True) == []


@pytest.mark.parametrize(("to", "is_refused"), [(4, True), (5, False)])
def test_the_snapshot_that_it_goes_to_does_not_expire_under_it(to, is_refused):
    """An expiry that had looked for the last time before removed what was the newest by then, and died: nothing was left."""
    table, done = copied_history(), []

    def go_back(_):
        with pytest.raises(CommitConflictError, match="EXPIRY_UNDERWAY") if is_refused else nullcontext():
            fresh(table).rollback(to, destructive=True)
        done.append(True)

    def die(_):
        raise Died

    dying = through(fresh(table), run("before", "delete_many", go_back), run("after", "delete_many", die))
    with suppress(Died):
        expire(dying)
    assert done
    assert ids_of(fresh(table)) == ([0, 1, 2, 3, 4, 5] if is_refused else [0, 1, 2, 3, 4])


def test_an_expiry_that_stands_still_counts_although_another_has_done_its_work():
    """Then nothing is left of what it is about to remove, and what it took by number would be new."""
    table, done = copied_history(), []
    table.create_tag("good", 2)

    def go_back():
        assert expire(fresh(table)).snapshots
        with pytest.raises(CommitConflictError, match="EXPIRY_UNDERWAY"):
            fresh(table).rollback("good", destructive=True)
        fresh(table).append(rows(70, 1))
        done.append(True)

    slow = SlowDelete(table.context.storage, go_back)
    expire(anabranch.Table(replace(fresh(table).context, storage=slow)))
    assert done
    assert ids_of(fresh(table)) == [0, 1, 2, 3, 4, 5, 70]
    fresh(table).rollback("good", destructive=True)
    assert ids_of(fresh(table)) == [0, 1]


def test_expiries_that_are_over_stand_in_no_way():
    """Nor does what a rollback to an expired tag has put again, or a replacement has taken over."""
    table = copied_history()
    table.create_tag("second", 2)
    table.create_tag("third", 3)
    expire(table)
    fresh(table).rollback("third", destructive=True)
    fresh(table).rollback("second", destructive=True, force=True)
    assert ids_of(fresh(table)) == [0, 1]
    other = copied_history()
    other.create_tag("second", 2)
    other.create_branch("fix", snapshot=3)
    other.branch("fix").append(rows(70, 1))
    expire(other)
    other.replace_main_branch("fix", force=True)
    main = anabranch.Table(main_of(other.context))
    assert ids_of(main) == [0, 1, 2, 70]
    main.rollback("second", destructive=True, force=True)
    assert ids_of(main) == [0, 1]


def test_an_expiry_that_died_counts_for_a_week():
    clock = Clock()
    table = at_time(copied_history(), clock)

    def die(_):
        raise Died

    with suppress(Died):
        expire(through(fresh(table), run("before", "delete_many", die)))
    with pytest.raises(CommitConflictError, match="EXPIRY_UNDERWAY"):
        fresh(table).rollback(2, destructive=True)
    clock.now += 8 * DAY
    fresh(table).rollback(2, destructive=True)
    assert ids_of(fresh(table)) == [0, 1]
    assert not [path for path in paths(table) if "expiring-" in path]


def test_a_rollback_that_stood_still_for_a_day_looks_again():
    """Its pin was taken for that of a killed one, and an expiry has begun since."""
    table, stands = copied_history(), []

    def a_day_passes(_):
        late = fresh(table)
        late.context.storage.delete_many([path for path in paths(late) if "anabranch-rollback" in path])

        def stand(_):
            raise Died

        with suppress(Died):
            expire(through(late, run("before", "delete_many", stand)))
        stands.append(True)

    with pytest.raises(CommitConflictError, match="EXPIRY_UNDERWAY"):
        through(
            fresh(table), run("before", "put_if_absent", a_day_passes, where="lineage/removed-*")
        ).rollback(2, destructive=True)
    assert stands
    assert ids_of(fresh(table)) == [0, 1, 2, 3, 4, 5]
    assert expire(fresh(table)).snapshots
    fresh(table).append(rows(80, 1))
    assert ids_of(fresh(table)) == [0, 1, 2, 3, 4, 5, 80]


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_at_whatever_call_one_stands_still_and_the_other_does_all_of_its_work(when):
    """What was acknowledged is there, whoever was refused."""

    def go_back(table):
        table.rollback(2, destructive=True)
        table.append(rows(70, 1))

    for first, second in ((expire, go_back), (go_back, expire)):
        numbers = {}
        watched = through(copied_history())
        first(watched)
        for call in watched.context.storage.calls:
            numbers[call.name] = numbers.get(call.name, 0) + 1
            table, acknowledged = copied_history(), []

            def other(_, table=table, acknowledged=acknowledged, second=second):
                with suppress(*REFUSED):
                    second(fresh(table))
                    acknowledged.append(second)

            with suppress(*REFUSED):
                first(through(fresh(table), run(when, call.name, other, nth=numbers[call.name])))
                acknowledged.append(first)
            went_back = go_back in acknowledged
            assert ids_of(fresh(table)) == ([0, 1, 70] if went_back else [0, 1, 2, 3, 4, 5]), (first, call)
            fresh(table).append(rows(80, 1))
            assert ids_of(fresh(table))[-1] == 80
            assert not fresh(table).verify().problems, (first, call)

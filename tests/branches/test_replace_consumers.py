"""Consumers of what was main, while main goes on and expires: they get what they would get if nothing expired."""

import itertools
import shlex

import pytest

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.kernel.log.consumers import find_consumer
from anabranch.lake import Lake
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.branches.replacing import again, timed
from tests.support.clock import DAY, HOUR, Clock
from tests.support.foreign_expiry import expire_as_others
from tests.support.lengths import first_short
from tests.support.tables import SCHEMA, make_table, rows

_names = itertools.count()
FORK = 3
POLICIES = {
    "fail": {},
    "continue": {"scan.on-replace": "continue"},
    "replay": {"scan.on-replace": "replay"},
    "changes": {"scan.on-replace": "changes", "scan.on-overwrite": "changes"},
}


def got(table, policy, consumer="c"):
    """What a consumer gets, ids that are taken away as negative numbers; and the error that ends it."""
    found, error = [], None
    try:
        for batch in again(table).with_options(POLICIES[policy]).tail(consumer, idle=0):
            found += [
                -row["id"] if row.get("_change") == "delete" else row["id"] for row in batch.to_pylist()
            ]
    except AnabranchError as raised:
        error = type(raised).__name__
    return found, error


def hourly():
    """A table under a clock, whose consumers expire after an hour."""
    runtime = Runtime(clock=Clock())
    lake = Lake(MemoryStorage(runtime=runtime), runtime=runtime)
    return lake.create_table("db.t", SCHEMA, options={"consumer.expiration-time": "1 h"})


def replaced(read, table=None, *, moved=True):
    """Rows 1 to 3 in the snapshots of both mains, 4 on the old one, 13 on the new one; a consumer has had some snapshots.

    Then six more rows on the new main.
    """
    table = table or timed(make_table(f"memory://consumers{next(_names)}"))
    for number in (1, 2, 3, 4) if moved else (1, 2, 3):
        table.append(rows(number, 1))
        if number == FORK:
            table.create_tag("good")
        if number == read:
            got(table, "fail")
    table.create_branch("fix", "good")
    table.branch("fix").append(rows(13, 1))
    table.replace_main_branch("fix")
    for number in range(6):
        table.append(rows(100 + number, 1))
    return table


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("read", "moved"),
    first_short([(3, True), (1, False), (1, True), (2, True), (4, True), (3, False)], 2),
)
def test_what_expires_changes_nothing_of_what_a_consumer_gets(policy, read, moved):
    whole, expired = replaced(read, moved=moved), replaced(read, moved=moved)
    gone = expired.expire_snapshots(retain_max=2, retain_min=1, older_than=0).snapshots
    assert gone == tuple(range(1, min(read, FORK) + 1)), "what it has had, and nothing else"
    assert got(expired, policy) == got(whole, policy)
    for follower in ("continue", "replay"):  # also of one that was stopped
        assert got(expired, follower) == got(whole, follower)
    expired.expire_snapshots(retain_max=2, retain_min=1, older_than=0)
    assert expired.context.snapshots.earliest_id() == 9, "once it has had all, it holds nothing"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_consumer_whose_next_rows_another_engine_expired_is_told_so_and_gets_none_of_the_old_main_alone(
    policy,
):
    table = replaced(3)
    expire_as_others(again(table), 2)
    assert got(table, policy) == ([], NotFoundError.__name__)


def test_consumers_of_former_mains_that_stand_still_expire_with_those_of_main():
    table = replaced(2, hourly())
    clock, former = table.context.runtime.clock, again(table).branch("main@1")
    assert find_consumer(former.context, "c").next_snapshot == 3
    kept = again(table).with_options({"branch.replaced-main.time-retained": "0 ms"})
    assert kept.maintain().mains.kept == (("main@1", "consumer 'c'"),)
    assert kept.expire_snapshots(retain_max=2, retain_min=1, older_than=0).snapshots == (1, 2)
    clock.now += HOUR + 1
    dry = kept.expire_snapshots(retain_max=2, retain_min=1, older_than=0, dry_run=True)
    assert (dry.consumers, dry.snapshots) == (("c",), tuple(range(3, 9)))
    done = kept.expire_snapshots(retain_max=2, retain_min=1, older_than=0)
    assert (done.consumers, done.snapshots) == (("c",), tuple(range(3, 9)))
    assert find_consumer(former.context, "c") is None
    assert kept.maintain().mains.dropped == ("main@1",)


def test_the_time_of_a_consumer_of_main_is_told_by_main():
    table = replaced(2, hourly())
    table.context.runtime.clock.now += HOUR + 1
    again(table).append(rows(200, 1))
    got(table, "continue", "new")
    assert again(table).expire_snapshots().consumers == ("c",)
    assert [one.name for one in again(table).consumers()] == ["new"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("read", first_short([3, 1, 2, 4]))
def test_a_consumer_goes_through_several_mains_as_if_nothing_had_expired(policy, read):
    """The third main parted from the second below where that parted from the first, or above."""

    def twice(tag):
        table = replaced(read)
        main = again(table)
        main.create_tag("later")
        main.create_branch("last", tag)
        main.branch("last").append(rows(23, 1))
        main.append(rows(24, 1))
        main.replace_main_branch("last", force=True)
        for number in range(4):
            again(table).append(rows(200 + number, 1))
        return table

    for tag in ("good", "later"):
        whole, expired = twice(tag), twice(tag)
        again(expired).expire_snapshots(retain_max=2, retain_min=1, older_than=0)
        assert got(expired, policy) == got(whole, policy)
        assert got(expired, "replay") == got(whole, "replay")


def test_after_an_undo_nothing_is_lost_to_a_consumer_either():
    def undone():
        table = replaced(3)
        got(table, "fail")  # of what was main for a while
        again(table).append(rows(300, 1))
        again(table).undo_replace()
        for number in range(6):
            again(table).append(rows(200 + number, 1))
        return table

    for policy in ("continue", "replay"):
        whole, expired = undone(), undone()
        again(expired).expire_snapshots(retain_max=2, retain_min=1, older_than=0)
        assert got(expired, policy) == got(whole, policy)


def test_health_of_main_tells_of_a_consumer_of_a_former_main_that_stands_still():
    table = replaced(2, hourly())
    table.context.runtime.clock.now += 10 * DAY
    why = [found for found in again(table).health().findings if "consumer" in found.why]
    assert [found.why.split(":")[0] for found in why] == [
        "consumer 'c' of main@1 has not moved for 10 days and keeps 8 snapshots from expiring"
    ]
    command = shlex.split(why[0].command)
    assert command[-2:] == ["--branch", "main@1"]
    again(table).branch("main@1").delete_consumer("c")
    assert not [found for found in again(table).health().findings if "consumer" in found.why]

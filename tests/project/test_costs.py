"""The page of costs says what each work costs: measured here, on a small scale."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.format.records.refs import Consumer
from anabranch.kernel.log.consumers import consumer_lags, record_consumer
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import UNLIMITED, Limits
from anabranch.streaming.offsets import BEGINNING
from tests.kernel.expiring import expire_to, fill, new_table, through
from tests.support.clock import Clock
from tests.support.forged import forge_history

_PAGE = Path(__file__).parents[2] / "docs" / "costs.md"


def long(count, **options):
    table = new_table(Clock(), **options)
    fill(table, 1)
    forge_history(table, count)
    return table


def with_consumers(count):
    table = long(50)
    for number in range(count):
        record_consumer(table.context, f"c{number}", Consumer(2))
    return table


def with_one_consumer(history):
    table = long(history)
    record_consumer(table.context, "c", Consumer(2))
    return table


def with_savepoints(count):
    table = long(1)
    for _ in range(count):
        table.create_savepoint()
    return table


def with_partitions(count):
    table = new_table(Clock(), **{"manifest.merge-min-count": "1000", "write-only": "true"})
    for number in range(count):
        table.append(pa.table({"id": [number], "p": [f"p{number:04}"]}))
    return table


def with_branches(count):
    table = long(5)
    table.create_tag("base", 3)
    for number in range(count):
        table.create_branch(f"b{number}", tag="base")
    return table


def forked(history, *, tags=0, on_main=0, on_branch=0):
    table = long(history)
    for number in range(tags):
        table.create_tag(f"t{number}", 2)
    table.create_tag("base")
    table.create_branch("fix", tag="base")
    fill(table.branch("fix"), 1 + on_branch)
    fill(table, on_main)
    return table.branch("main")


def merged_before(commits):
    """As much as leaves notes, and then some: merged, and one more commit."""
    table = forked(1, on_main=commits, on_branch=commits)
    table.merge_branch("fix")
    fill(table.branch("fix"), 1)
    return table


def with_schemas(count):
    table = new_table(Clock())
    for number in range(count):
        fill(table, 1)
        table.alter().set_option("owner.name", str(number)).apply()
        table = table.branch("main")
    return table


def follow(table, limits):
    feed = Feed.of(table.context, table.context.schemas.latest(), {})
    position = BEGINNING
    while (end := feed.advance(position, limits)) != position:
        feed.splits(position, end)
        position = end


def overwrite(table):
    table.overwrite(pa.table({"id": [77], "p": ["p0003"]}))


def replace(table):
    table.replace_main_branch("fix", force=True)


def replaced_before(count):
    table = long(3)
    for number in range(count + 1):
        name = "fix" if number == count else f"before{number}"
        table.create_branch(name, tag=f"t{number}", snapshot=table.snapshot.id)
        fill(table.branch(name), 1)
        if number < count:
            table.replace_main_branch(name)
    return table.branch("main")


def merge(table):
    table.merge_branch("fix")


WORKS = {
    "append, for each snapshot of the history": (long, lambda t: fill(t, 1)),
    "overwrite of a partition, for each other partition": (with_partitions, overwrite),
    "first plan, for each manifest": (with_partitions, lambda t: t.scan().plan()),
    "first plan, for each version of the schema in use": (with_schemas, lambda t: t.scan().plan()),
    "a stream's backlog, for each snapshot": (long, lambda t: follow(t, UNLIMITED)),
    "the same in steps of a limited size": (long, lambda t: follow(t, Limits(files=10))),
    "`$consumers`, for each snapshot since the oldest position": (
        with_one_consumer,
        lambda t: consumer_lags(t.context),
    ),
    "`$consumers`, for each consumer": (with_consumers, lambda t: consumer_lags(t.context)),
    "`create_savepoint`, for each savepoint": (with_savepoints, lambda t: t.create_savepoint()),
    "`expire_snapshots`, for each snapshot that goes or stays": (long, lambda t: expire_to(t, 10)),
    "`expire_snapshots`, for each branch": (with_branches, lambda t: expire_to(t, 3)),
    "`remove_orphan_files`, for each branch": (with_branches, lambda t: t.remove_orphan_files()),
    "`maintain`, for each branch": (with_branches, lambda t: t.maintain()),
    "`merge_branch`, for each commit of main since the fork": (lambda n: forked(1, on_main=n), merge),
    "`merge_branch`, for each commit of the branch since the fork": (lambda n: forked(1, on_branch=n), merge),
    "`merge_branch` again, for each commit of both before the last merge": (merged_before, merge),
    "`replace_main_branch`, for each snapshot of the common past": (forked, replace),
    "`replace_main_branch`, for each tag of the common past that was made since the last one": (
        lambda n: forked(5, tags=n),
        replace,
    ),
    "`replace_main_branch`, for each one before it": (replaced_before, replace),
}


def calls(make, work, count):
    watched = through(make(count))
    work(watched)
    return watched.context.storage.counts().total()


def documented():
    section = _PAGE.read_text().partition("## Calls that grow")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| ([0-9.]+) \|", section, flags=re.MULTILINE)
    return {name: float(number) for name, number in rows}


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_a_work_costs_what_the_page_says(work):
    make, act = WORKS[work]
    size = 20
    slope = (calls(make, act, 3 * size) - calls(make, act, size)) / (2 * size)
    assert documented()[work] - 0.75 <= slope <= documented()[work] + 0.25, slope


def test_the_page_says_nothing_that_is_not_measured():
    assert documented().keys() == WORKS.keys()

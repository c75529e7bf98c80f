"""What a replacement of main costs: calls, and how many of them wait for each other."""

import time
from collections import Counter

from tests.kernel.expiring import fill, new_table, through
from tests.support.clock import Clock
from tests.support.faults import run
from tests.support.forged import forge_history

LATENCY = 0.004


def corrected(history):
    """A table with a branch from the end of a long history."""
    table = new_table(Clock())
    fill(table, 1)
    forge_history(table, history)
    table.create_tag("base")
    table.create_branch("fix", tag="base")
    fill(table.branch("fix"), 2)
    return table


def test_a_long_past_is_copied_with_two_calls_a_snapshot_side_by_side():
    slow = [
        run("before", call, lambda _: time.sleep(LATENCY), times=10**9)
        for call in ("get", "put_if_absent", "exists", "list")
    ]
    watched = through(corrected(400), *slow)
    begun = time.monotonic()
    watched.replace_main_branch("fix", force=True)
    waited = time.monotonic() - begun
    calls = watched.context.storage.counts()
    assert calls.total() <= 2 * 400 + 150
    assert waited < calls.total() * LATENCY / 2
    assert len([*watched.snapshots()]) == 403


def test_a_past_that_was_copied_before_is_not_read_again():
    table = corrected(200)
    once = through(table)
    once.replace_main_branch("fix", force=True)
    table = through(table)
    table.undo_replace()
    calls = Counter(call.name for call in table.context.storage.calls)
    assert calls["get"] < 150

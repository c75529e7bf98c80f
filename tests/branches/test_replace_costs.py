"""What a replacement of main costs: calls, and how many of them wait for each other."""

from collections import Counter

import pytest

from tests.kernel.expiring import fill, new_table, through
from tests.support.clock import Clock
from tests.support.depth import cost_of
from tests.support.forged import forge_history


def corrected(history):
    """A table with a branch from the end of a long history."""
    table = new_table(Clock())
    fill(table, 1)
    forge_history(table, history)
    table.create_tag("base")
    table.create_branch("fix", tag="base")
    fill(table.branch("fix"), 2)
    return table


@pytest.mark.parametrize("is_far", [False, True])
def test_a_long_past_costs_nothing(is_far):
    short, long = (
        cost_of(corrected(count), lambda table: table.replace_main_branch("fix", force=True), is_far=is_far)
        for count in (20, 400)
    )
    # Far away, of what nobody waits for any more, more or less may have been begun.
    assert abs(long.calls - short.calls) <= (2 if is_far else 0)
    assert long.calls < 120
    # Rounds are told by the time that calls take, so a busy machine counts some more.
    assert not is_far or long.depth <= 2 * short.depth


def test_each_replacement_reads_and_writes_as_many_snapshots_as_the_first():
    table = corrected(5)
    asked = []
    for number in range(10):
        once = through(table)
        once.replace_main_branch(f"fix{number}" if number else "fix", force=True)
        asked.append(sum("/snapshot-" in call.path for call in once.context.storage.calls))
        opened = through(table)
        opened.create_tag(f"base{number}")
        opened.create_branch(f"fix{number + 1}", tag=f"base{number}")
        fill(opened.branch(f"fix{number + 1}"), 1)
    assert max(asked) <= 1.2 * asked[0]


def test_a_past_that_was_copied_before_is_not_read_again():
    table = corrected(200)
    once = through(table)
    once.replace_main_branch("fix", force=True)
    table = through(table)
    table.undo_replace()
    calls = Counter(call.name for call in table.context.storage.calls)
    assert calls["get"] < 150

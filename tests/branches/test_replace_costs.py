"""What a replacement of main costs: calls, and how many of them wait for each other."""

from collections import Counter

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


def test_a_long_past_is_copied_with_two_calls_a_snapshot_side_by_side():
    calls, depth = cost_of(corrected(400), lambda table: table.replace_main_branch("fix", force=True))
    assert calls <= 2 * 400 + 150
    assert depth < calls / 3


def test_a_past_that_was_copied_before_is_not_read_again():
    table = corrected(200)
    once = through(table)
    once.replace_main_branch("fix", force=True)
    table = through(table)
    table.undo_replace()
    calls = Counter(call.name for call in table.context.storage.calls)
    assert calls["get"] < 150

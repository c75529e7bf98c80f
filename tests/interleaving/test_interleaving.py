"""No order of the storage calls of two works comes to what no order of whole works comes to."""

import pytest

from anabranch.kernel.refs import tags
from tests.interleaving.pairs import Pair, beginning, tried
from tests.interleaving.works import ALL
from tests.support.lengths import first_short

SHORT = [
    ("append_to_new", "create_branch"),
    ("append_to_fix", "delete_branch"),
    ("merge", "replace_main"),
    ("rollback_for_good", "expire"),
    ("expire", "append"),
    ("create_branch_of_snapshot", "expire"),
]
MOST = 8
MOST_LONG = 8


@pytest.fixture(autouse=True)
def in_one_thread(monkeypatch):
    """The product's own threads are done without, here alone: only the two works take turns."""
    from tests.simulation import pools

    for module in pools.MODULES:
        monkeypatch.setattr(module, "ThreadPoolExecutor", pools.Inline)


@pytest.mark.parametrize(("one", "other"), first_short(SHORT, 2))
def test_two_works_at_a_time(one, other):
    number, wrong = tried(one, other, MOST)
    assert number
    assert wrong == []


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("one", ALL)
def test_any_two_works_at_a_time(one):
    wrong = {other: found for other in ALL if (found := tried(one, other, MOST_LONG)[1])}
    assert wrong == {}


@pytest.mark.long
def test_what_would_be_lost_is_seen(monkeypatch):
    """A tag whose maker does not look whether an expiry has taken what it refers to."""
    monkeypatch.setattr(tags, "check_holds", lambda *_: None)
    pair = Pair(beginning(), ALL["create_tag"], ALL["expire"])
    assert any(pair.lived(*order) for order in pair.orders())

"""A writer of a branch stands still before it writes the hint; the branch is deleted and made anew, and then the hint lands.

It claims a number that the new branch has never had. Nothing of the deleted branch becomes the new one's by that.
"""

import pytest

import anabranch
from anabranch.lake import Lake
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.support.clock import Clock
from tests.support.dying import through
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, rows

HINT = "branch/branch-fix/snapshot/LATEST"


class Ticking(Clock):
    """Each look at it is a millisecond later, so that the store's times tell what came first."""

    def now_millis(self):
        self.now += 1
        return self.now


def _fresh(table):
    return through(table, table.context.storage)


def _made():
    runtime = Runtime(clock=Ticking())
    lake = Lake(MemoryStorage(runtime=runtime), runtime=runtime)
    table = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
    table.append(rows(0, 2))
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    for number in (10, 11, 12):
        table.branch("fix").append(rows(number, 1))
    return table


def _late(table, act, meanwhile=lambda: None):
    """Let a writer of the branch do `act`, and others make the branch anew right before it writes the hint."""

    def anew(_):
        _fresh(table).delete_branch("fix")
        _fresh(table).create_branch("fix", tag="good")
        meanwhile()

    act(through(table, FaultyStorage(table.context.storage, [run("before", "put", anew, where=HINT)])))
    return _fresh(table)


ACTS = {
    "append": lambda table: table.branch("fix").append(rows(13, 1)),
    "merge": lambda table: table.merge_branch("fix"),
}


@pytest.fixture(params=ACTS)
def late(request):
    """Main got a commit after the branch was made anew and before the hint landed."""
    table = _made()
    main = [0, 1, 50] if request.param == "append" else [0, 1, 10, 11, 12, 50]
    found = _late(table, ACTS[request.param], lambda: _fresh(table).append(rows(50, 1)))
    assert int(table.context.storage.get(HINT)) > 4
    assert ids_of(found) == main
    return found


def test_repair_takes_the_hint_back(late):
    main = ids_of(late)
    assert [problem.path for problem in late.verify().problems] == [HINT]
    planned = late.repair(dry_run=True)
    done = _fresh(late).repair()
    assert [step.what for step in done.steps] == ["write the hint to the newest snapshot"]
    assert planned.steps == done.steps
    assert "unless the hint to the newest snapshot was wrong" in done.left[0].message
    assert late.context.storage.get(HINT) == b"1"
    assert ids_of(_fresh(late).branch("fix")) == [0, 1]
    assert ids_of(_fresh(late)) == main
    assert _fresh(late).verify(deep=True).ok


VERBS = {
    "append": lambda table: table.branch("fix").append(rows(20, 1)),
    "merge": lambda table: table.merge_branch("fix"),
    "expire": lambda table: table.expire_snapshots(retain_max=1, retain_min=1),
    "clean": lambda table: table.remove_orphan_files(),
    "maintain": lambda table: table.maintain(),
}


@pytest.mark.parametrize("act", VERBS.values(), ids=VERBS)
def test_what_is_committed_after_the_hint_does_not_make_it_believed(act):
    """No commit that was prepared before can be the one that it claims."""
    table = _late(_made(), ACTS["append"])
    table.append(rows(50, 1))
    act(_fresh(table))
    _fresh(table).branch("fix").append(rows(21, 1))
    assert {10, 11, 12, 13}.isdisjoint(ids_of(_fresh(table).branch("fix")))
    assert _fresh(table).verify(deep=True).ok


def test_a_lost_newest_snapshot_of_a_branch_made_anew_is_told():
    table = _late(_made(), ACTS["append"])
    branch = table.branch("fix")
    for start in (20, 21):
        lost = branch.append(rows(start, 1))
    table.append(rows(50, 1))
    table.context.storage.delete(branch.context.layout.snapshot_path(lost.id))
    with pytest.raises(anabranch.CorruptTableError, match="by the hint, but it is not there"):
        _fresh(table).branch("fix").append(rows(22, 1))
    assert _fresh(table).repair().left == ()
    assert ids_of(_fresh(table).branch("fix")) == [0, 1, 20, 21]


def test_repair_puts_back_what_is_of_the_new_branch(late):
    """Whoever deletes snapshots of the branch that was made anew gets those, and none of the deleted one's."""
    late.repair()
    branch = _fresh(late).branch("fix")
    made = [branch.append(rows(start, 1)).id for start in (20, 21)]
    for number in made:
        late.context.storage.delete(branch.context.layout.snapshot_path(number))
    assert {str(problem.kind) for problem in _fresh(late).verify().problems} == {"head-gone"}
    assert _fresh(late).repair().left == ()
    assert ids_of(_fresh(late).branch("fix")) == [0, 1, 20, 21]

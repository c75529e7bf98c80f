"""A merge that dies at any storage call is brought to its end by the next; two at once, and others in between, do no harm."""

import itertools
import random
from dataclasses import dataclass, field, replace

import pytest

import anabranch
from anabranch.errors import CommitConflictError, CommitError, CommitOutcomeUnknownError, StorageError
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.merge_log import merge_log
from tests.branches.merging import SCALABLE, branched, conflicts_of, contents, lake, parted, rows
from tests.support import dying
from tests.support.deaths import calls_of, through
from tests.support.dying import CHANGING, Died, DyingStorage, copy_of
from tests.support.faults import FaultyStorage, lose_answer, run
from tests.support.foreign_expiry import expire_as_others
from tests.support.lengths import first_short
from tests.support.writers import Writer

SOME = pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
"""Of the calls at which a merge may be interrupted, every so many are tried."""


def some(moments, every):
    return itertools.islice(moments, every // 2, None, every)


def again(table):
    """The table as another process has it."""
    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def moved():
    """A table and a branch that both did something, in several partitions."""
    table, fix = parted({"bucket": "1"})
    fix.append(rows([10, 11], "a"))
    fix.overwrite(rows([20], "b"))
    fix.alter().add_column("n", "INT").apply()
    table.append(rows([50], "a"))
    return table


MERGED = {"a": [1, 2, 50, 10, 11], "b": [20]}


def check_merged(table, expected=None):
    for dt, ids in (expected or MERGED).items():
        assert contents(table, dt) == ids
    log = merge_log(table.context.on_branch("fix"))
    assert not log.under_way
    made = [end for end in log.ends.values() if end.snapshot is not None]
    assert len(made) == 1, "it is merged once"
    assert [f.name for f in table.schema.fields] == ["id", "dt", "n"]
    pins = [name for name in table.branch("fix").tags(include_internal=True) if "merge" in name]
    assert f"anabranch-merge-{made[0].number}" in pins


def test_run_again_it_ends_in_the_same_place():
    died = undone = 0
    for table in dead(moved()):
        undone += bool(merge_log(table.context.on_branch("fix")).under_way)
        table.merge_branch("fix")
        check_merged(table)
        assert table.merge_branch("fix").snapshot is None
        died += 1
    assert died >= 10
    assert undone >= 5


def test_what_died_is_no_longer_carried_out_when_something_else_is_wanted():
    for table in dead(moved()):
        merged = (
            any(end.snapshot for end in merge_log(table.context.on_branch("fix")).ends.values())
            or len(contents(table, "a")) > 3
        )
        table.branch("fix").append(rows([12], "a"))
        table.merge_branch("fix", resolve="ours")
        assert contents(table, "a") == [1, 2, 50, 10, 11, 12]
        assert contents(table, "b") == [20]
        made = [e for e in merge_log(table.context.on_branch("fix")).ends.values() if e.snapshot]
        assert len(made) == (2 if merged else 1)


@pytest.mark.long
@SOME
def test_a_merger_that_was_held_up_finds_its_number_taken(every):
    """Another, who wants something else, comes in before any call of this one."""
    whole = moved()
    for call, nth in some(merging_calls(whole), every):
        table = copy_of(whole)

        def meanwhile(path, table=table):
            again(table).merge_branch("fix", resolve="theirs")

        held_up = through_faults(table, run("before", call, meanwhile, nth=nth))
        held_up.merge_branch("fix")
        assert contents(again(table), "a") == MERGED["a"], (call, nth)
        assert contents(again(table), "b") == MERGED["b"], (call, nth)
        log = merge_log(again(table).context.on_branch("fix"))
        assert sum(end.snapshot is not None for end in log.ends.values()) == 1, (call, nth)
        assert not log.under_way


def merge(table):
    table.merge_branch("fix")


def dead(table):
    """Copies of a table as a merge leaves it that dies right after a call which changes something: each state there is."""
    watched = through(copy_of(table), run("before", "get", lambda path: None))
    merge(watched)
    for number, call in enumerate(watched.context.storage.calls, 1):
        if call.name in CHANGING:
            left = copy_of(table)
            with pytest.raises(Died):
                merge(dying.through(left, DyingStorage(left.context.storage, number, after=True)))
            yield again(left)


def merging_calls(table):
    return [*calls_of(copy_of(table), merge)]


def through_faults(table, *faults):
    storage = FaultyStorage(table.context.storage, faults)
    return anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache()))


COMING = {
    "append to main": lambda t: t.append(rows([51], "a")),
    "compact main": lambda t: t.compact(full=True),
    "expire main": lambda t: t.expire_snapshots(retain_max=2, retain_min=2),
    "append to the branch": lambda t: t.branch("fix").append(rows([12], "a")),
    "compact the branch": lambda t: t.branch("fix").compact(full=True),
    "expire the branch": lambda t: t.branch("fix").expire_snapshots(retain_max=2, retain_min=2),
    "change the schema": lambda t: t.alter().add_column("m", "INT").apply(),
}


@SOME
@pytest.mark.parametrize("what", first_short(COMING, 3))
def test_whatever_comes_in_between(what, every):
    whole = moved()
    for call, nth in some(merging_calls(whole), 4 * every if every > 1 else 1):
        table = copy_of(whole)
        fault = run("before", call, lambda path, table=table: COMING[what](again(table)), nth=nth)
        through_faults(table, fault).merge_branch("fix")
        table = again(table)
        assert {1, 2, 50, 10, 11} <= set(contents(table, "a")) <= {1, 2, 50, 51, 10, 11, 12}, (call, nth)
        table.merge_branch("fix")
        expected = {1, 2, 50, 10, 11} | {"append to main": {51}, "append to the branch": {12}}.get(
            what, set()
        )
        assert sorted(contents(table, "a")) == sorted(expected), (call, nth)
        assert contents(table, "b") == [20]
        fix = table.branch("fix")
        fix.append(rows([13], "a"))
        fix.compact(full=True)
        table.merge_branch("fix")
        assert sorted(contents(table, "a")) == sorted(expected | {13}), (call, nth)


@pytest.mark.long
@SOME
def test_an_overwrite_of_main_that_comes_in_between_is_a_conflict_or_comes_after(every):
    whole = moved()
    calls = merging_calls(whole)
    conflicts = 0
    for call, nth in [*some(calls, every), calls[-1]]:
        table = copy_of(whole)

        def overwrite(path, table=table):
            again(table).overwrite(rows([60], "a"))

        try:
            through_faults(table, run("before", call, overwrite, nth=nth)).merge_branch("fix")
        except CommitConflictError as error:
            assert [c.kind for c in error.conflicts] == ["APPEND_VS_OVERWRITE"]
            conflicts += 1
            assert contents(again(table), "b") == [3]
            again(table).merge_branch("fix", resolve="theirs")
            assert contents(again(table), "a") == [1, 2, 10, 11]
        else:
            assert contents(again(table), "a") == [60]
        assert contents(again(table), "b") == [20]
    assert 0 < conflicts < len(calls)


@SOME
def test_a_rollback_of_main_that_comes_in_between_takes_the_merge_away_or_comes_before_it(every):
    whole = moved()
    whole.create_tag("before")
    for call, nth in some(merging_calls(whole), every):
        table = copy_of(whole)

        def roll_back(path, table=table):
            again(table).rollback("before")

        through_faults(table, run("before", call, roll_back, nth=nth)).merge_branch("fix")
        again(table).merge_branch("fix")
        for dt, ids in MERGED.items():
            assert contents(again(table), dt) == ids


def test_a_store_that_does_not_answer():
    """It is not known whether the snapshot was taken; the next finds out."""
    for fault in (lose_answer, lambda *a, **k: run("before", *a, _fails, **k)):
        for where in ("snapshot/snapshot-4", "branch/branch-fix/MERGE-1", "branch/branch-fix/MERGE-1.done"):
            table = moved()
            failing = through_faults(table, fault("put_if_absent", where=where))
            with pytest.raises((CommitOutcomeUnknownError, StorageError)):
                failing.merge_branch("fix")
            again(table).merge_branch("fix")
            check_merged(again(table))


def _fails(path):
    raise StorageError("the test made it fail", retryable=True, outcome_unknown=True)


def test_where_the_log_has_a_gap_since_a_merge_began_nobody_knows():
    for table in dead(moved()):
        log = merge_log(table.context.on_branch("fix"))
        if not log.under_way:
            continue
        for i in range(4):
            table.append(rows([900 + i], "z"))
        expire_as_others(table, 2)
        with pytest.raises(CommitOutcomeUnknownError, match="MERGE_OUTCOME_UNKNOWN"):
            table.merge_branch("fix")
        return
    raise AssertionError("it never died in the middle")


@pytest.mark.long
def test_where_our_own_expiry_went_on_it_is_known():
    for table in dead(moved()):
        for i in range(4):
            table.append(rows([900 + i], "z"))
        table.expire_snapshots(retain_max=2, retain_min=2)
        table.merge_branch("fix")
        for dt, ids in MERGED.items():
            assert sorted(contents(table, dt)) == sorted(ids)


# Many at once


@dataclass
class Crowd:
    """Mergers, writers, compactors and expirers of a table, who all may fail or die, in one order or another."""

    seed: int
    trouble: float = 0.01
    crowd: float = 0.2
    added: list = field(default_factory=list)
    merging: int = 0

    def __post_init__(self):
        self.rng = random.Random(self.seed)
        table = lake().create_table(
            "db.t",
            "id BIGINT NOT NULL, dt STRING",
            partition_by=["dt"],
            options=self.rng.choice([SCALABLE, {"bucket": "1"}]) | {"compaction.min.file-num": "2"},
        )
        table.append(rows([0], "a"))
        branched(table)
        self.table = again(table)
        self.storage = table.context.storage
        self.next_row = 1
        self.writers = 0
        self.nested = 0

    def run(self, steps):
        for _ in range(steps):
            self.meanwhile(None)
        again(self.table).merge_branch("fix")
        return self

    def meanwhile(self, writer):
        if self.nested > 2:
            return
        self.nested += 1
        self.writers += 1
        one = Writer(self, self.writers).table
        act = self.rng.choices([self.append, self.merge, self.compact, self.expire], [4, 4, 2, 1])[0]
        try:
            act(one)
        except (CommitError, StorageError):
            pass
        except BaseException as error:
            if type(error).__name__ != "Died":
                raise
        finally:
            self.nested -= 1

    def append(self, table):
        row = self.next_row
        self.next_row += 1
        self.added.append(row)
        line = self.rng.choice([table, table.branch("fix")])
        line.append(rows([row], self.rng.choice("ab")))

    def merge(self, table):
        self.merging += 1
        table.merge_branch("fix")

    def compact(self, table):
        self.rng.choice([table, table.branch("fix")]).compact(full=True)

    def expire(self, table):
        self.rng.choice([table, table.branch("fix")]).expire_snapshots(retain_max=3, retain_min=2)


def check_crowd(seed, steps):
    crowd = Crowd(seed).run(steps)
    table = again(crowd.table)
    merged, branch = contents(table), contents(table.branch("fix"))
    assert len(merged) == len(set(merged)), f"seed {seed}: a row is there twice"
    assert set(branch) <= set(merged), f"seed {seed}: a row of the branch is missing"
    assert set(merged) <= {0, *crowd.added}


@pytest.mark.parametrize("seed", range(4))
def test_a_crowd_of_mergers_loses_and_doubles_nothing(seed):
    check_crowd(seed, 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_crowds_of_mergers(seed):
    check_crowd(seed, 30)


def test_the_fence_is_a_compaction_of_nothing():
    table = moved()
    table.merge_branch("fix")
    fence = table.branch("fix").snapshot
    assert (fence.commit_kind, fence.delta_record_count) == (CommitKind.COMPACT, 0)


@pytest.mark.parametrize("dry_run", [False, True], ids=["merge", "dry run"])
@pytest.mark.parametrize("is_undone", [False, True], ids=["once", "twice"])
def test_what_another_merges_between_two_looks_at_the_branch_is_no_rollback_of_it(is_undone, dry_run):
    table, fix = parted()
    fix.append(rows([10], "a"))
    table.create_tag("before")

    def meanwhile(_):
        other = again(table)
        other.branch("fix").append(rows([11], "a"))
        other.merge_branch("fix")
        if is_undone:
            other.rollback("before")
            other.branch("fix").append(rows([12], "a"))
            other.merge_branch("fix")

    # The branch is listed when it is opened, and for the records of its merges once its head is known.
    held_up = through_faults(table, run("before", "list", meanwhile, nth=2, where="branch/branch-fix"))
    assert held_up.merge_branch("fix", dry_run=dry_run).conflicts == ()
    assert contents(again(table), "a") == [1, 2, 10, 11] + [12] * is_undone


def test_a_branch_that_was_rolled_back_for_good_is_refused_as_before():
    table, fix = parted()
    begun = fix.snapshot.id
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    fix.rollback(begun, destructive=True, force=True)
    assert conflicts_of(table) == [("HISTORY_REWRITTEN", None)]

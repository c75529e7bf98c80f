"""Every rule of merging is broken on purpose, one at a time, and the oracle must notice within some histories.

Each mutation replaces one function by one that lacks the rule. In the short form only some are tried, from a history on
that is known to show it.
"""

from dataclasses import replace

import pytest

from anabranch.errors import AnabranchError
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.expiry import snapshot_removal
from anabranch.kernel.merge import entries as merge_entries
from anabranch.kernel.merge import plan as merge_plan
from anabranch.kernel.merge import state
from anabranch.kernel.provenance import births as provenance
from anabranch.kernel.provenance import carry, classify, fence, sides
from anabranch.kernel.provenance.births import Birth
from anabranch.kernel.provenance.classify import ChangeKind, LastChanges, SnapshotMarks
from tests.branches.histories import World, Wrong
from tests.support.lengths import first_short

_SHORT = 10
_LONG = 150
MUTATIONS = {}


def mutation(first, *, foreign=0.0, steps=15):
    """A way to break a rule, and the first history that is known to show it."""

    def add(function):
        MUTATIONS[function.__name__] = (function, first, foreign, steps)
        return function

    return add


# Which rows are new


@mutation(3)
def compaction_outputs_do_not_inherit(patch):
    follow = provenance._follow

    def newborn(known, snapshot, delta, older):
        follow(known, snapshot, delta, older)
        for name in delta.adds().df["file_name"]:
            known[name] = Birth(snapshot.id, snapshot.id)

    patch(provenance, "_follow", newborn)


@mutation(3)
def compaction_crosses_the_fence(patch):
    patch(fence, "is_fenced", lambda context: False)


@mutation(11)
def the_fence_forgets_merges(patch):
    points = fence.points
    patch(fence, "points", lambda branch: points(branch)[:1])


@mutation(55)
def births_are_not_carried(patch):
    patch(carry, "_births_kept", lambda branch, following: {})


# What main did


@mutation(2)
def own_merges_are_changes_of_main(patch):
    span_of = sides.span_of

    def counted(context, snapshots, *, besides=None, **how):
        span = span_of(context, snapshots, besides=besides, **how)
        if besides is None:
            return span
        return replace(span, marks=span_of(context, snapshots, besides="nobody", **how).marks)

    patch(sides, "span_of", counted)


@mutation(56)
def appends_are_not_carried(patch):
    _carried(patch, lambda m: LastChanges(0, m.overwritten))


@mutation(58)
def overwrites_are_not_carried(patch):
    _carried(patch, lambda m: LastChanges(m.appended, 0))


@mutation(5)
def nothing_is_carried(patch):
    patch(snapshot_removal, "carry_over", lambda context, due, following: None)


@mutation(1)
def seen_moves_with_taken(patch):
    class Newest(dict):
        def get(self, key, otherwise=None):
            return max([otherwise, *self.values()])

    def seen(self, schema):
        ids = [end.snapshot.id for end in self.merges.values() if end.snapshot is not None]
        return Newest(enumerate(ids))

    patch(state.MergeState, "seen", seen)


@mutation(0)
def taken_stays_at_the_fork(patch):
    merge_state = merge_plan.merge_state

    def stuck(main, head, branch, *rest, **how):
        fork = branch.fork
        return replace(merge_state(main, head, branch, *rest, **how), taken=fork.snapshot)

    patch(merge_plan, "merge_state", stuck)


@mutation(1)
def theirs_does_not_move_seen(patch):
    patch(state.MergeState, "seen", lambda self, schema: {})


@mutation(3)
def rollbacks_undo_nothing(patch):
    patch(classify, "counting", lambda snapshots, *more: tuple(snapshots))


@mutation(3)
def compactions_of_main_are_overwrites(patch):
    _marked(patch, CommitKind.COMPACT, lambda row, snapshot: LastChanges(overwritten=snapshot.id))


@mutation(0)
def overwrites_are_appends(patch):
    _marked(patch, CommitKind.OVERWRITE, lambda row, snapshot: LastChanges(appended=snapshot.id))


@mutation(0)
def overwrites_of_nothing_are_nothing(patch):
    patch(classify, "_wide", lambda snapshot, has_entries: ())


@mutation(5001, foreign=0.7)
def gaps_are_nothing(patch):
    compared = sides._compared

    def unseen(side, places, *rest):
        return dict.fromkeys(compared(side, places, *rest), ChangeKind.NOTHING)

    patch(sides, "_compared", unseen)


# What is done


@mutation(2)
def empty_on_both_sides_conflicts(patch):
    patch(merge_entries.MergeEntries, "is_empty_on_both", lambda self, key: False)


@mutation(17)
def merged_files_keep_their_numbers(patch):
    patch(merge_entries, "in_order", lambda base, added, keeping: [*added])


@mutation(45)
def files_are_declared_under_the_newest_schema(patch):
    patch(merge_entries, "declared_as", lambda written, merged, versions=(): merged)


@mutation(16, steps=60)
def columns_are_compared_with_those_of_the_fork(patch):
    merge_state = merge_plan.merge_state

    def first(main, head, branch, *rest, **how):
        return replace(merge_state(main, head, branch, *rest, **how), taken_schema=branch.fork.schema_id)

    patch(merge_plan, "merge_state", first)


def _carried(patch, kept):
    span_of = carry.span_of

    def forgetful(*args, **how):
        span = span_of(*args, **how)
        return replace(span, marks={row: kept(marks) for row, marks in span.marks.items()})

    patch(carry, "span_of", forgetful)


def _marked(patch, kind, mark):
    marks_of = classify.marks_of

    def wrong(context, snapshot, delta=None):
        found = marks_of(context, snapshot, delta)
        if snapshot.commit_kind != kind:
            return found
        rows = {*found.partitions, *classify.delta_of(context, snapshot).df["partition"]}
        return SnapshotMarks({row: mark(row, snapshot) for row in rows})

    patch(classify, "marks_of", wrong)


def noticed(name, monkeypatch, histories):
    """The first history that shows it, or None."""
    function, first, foreign, steps = MUTATIONS[name]
    with monkeypatch.context() as patched:
        function(patched.setattr)
        for seed in range(first, first + histories):
            try:
                World(seed, foreign=foreign).run(steps)
            except (Wrong, AnabranchError):
                return seed
    return None


@pytest.mark.parametrize(
    "name",
    first_short(
        [
            "compaction_outputs_do_not_inherit",
            "compaction_crosses_the_fence",
            "own_merges_are_changes_of_main",
            "appends_are_not_carried",
            "seen_moves_with_taken",
            "merged_files_keep_their_numbers",
        ],
        2,
    ),
)
def test_the_oracle_notices(name, monkeypatch):
    assert noticed(name, monkeypatch, _SHORT) is not None


@pytest.mark.long
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_oracle_notices_every_broken_rule(name, monkeypatch):
    assert noticed(name, monkeypatch, _LONG) is not None

"""The cost of a commit does not grow with the history of its table."""

from collections import Counter
from dataclasses import replace

import pytest

import anabranch
from tests.support.faults import FaultyStorage
from tests.support.tables import make_table, rows


def _counted(table, times):
    """Storage calls of each of so many appends by a writer that has committed before."""
    storage = FaultyStorage(table.context.storage)
    writer = anabranch.Table(replace(table.context, storage=storage))
    writer.append(rows(0, 1))
    calls = []
    for _ in range(times):
        storage.forget_calls()
        writer.append(rows(0, 1))
        calls.append(Counter(call.name for call in storage.calls))
    return calls


@pytest.mark.parametrize("between", [400, pytest.param(9_790, marks=pytest.mark.long)])
def test_storage_calls_per_commit_stay_the_same(between):
    table = make_table(f"memory://cost{between}")
    for _ in range(9):
        table.append(rows(0, 1))
    early = _counted(table, 100)
    for _ in range(between):
        table.append(rows(0, 1))
    late = _counted(table, 100)
    plain_early = min(early, key=Counter.total)
    plain_late = min(late, key=Counter.total)
    assert plain_early == plain_late
    mean = [sum(c.total() for c in calls) / len(calls) for calls in (early, late)]
    assert abs(mean[1] - mean[0]) <= 0.05 * mean[0]


def test_manifests_stay_few():
    table = make_table("memory://few", options={"manifest.merge-min-count": "5"})
    for i in range(60):
        table.append(rows(i, 1))
    manifests = table.context.manifests.of_snapshot(table.snapshot)
    assert len(manifests) <= 6
    assert sum(m.num_added_files for m in manifests) == 60
    assert table.scan().to_arrow().num_rows == 60


@pytest.mark.long
def test_deleted_entries_are_dropped_once_they_pile_up():
    table = make_table("memory://dropped", options={"manifest.full-compaction-threshold-size": "1 kb"})
    for i in range(40):
        table.overwrite(rows(i, 1))
    manifests = table.context.manifests.of_snapshot(table.snapshot)
    assert sum(m.num_deleted_files for m in manifests) <= 2
    assert table.scan().to_arrow()["id"].to_pylist() == [39]

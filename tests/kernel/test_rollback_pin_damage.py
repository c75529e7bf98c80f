"""Damaged tags with which rollbacks hold on to files: repair makes them again, and upkeep goes on."""

from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import CorruptTableError
from anabranch.kernel.log.cache import MetadataCache
from tests.branches.replacing import parted
from tests.support.lengths import first_short
from tests.support.tables import ids_of, make_table, rows


def _again(table):
    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def _rolled_back(url):
    table = make_table(url)
    for i in range(3):
        table.append(rows(i, 1))
    table.create_tag("good")
    table.append(rows(9, 1))
    table.compact(full=True)
    table.rollback("good")
    table.append(rows(10, 1))
    return table


def _cut(table, which):
    storage = table.context.storage
    path = next(
        info.path
        for info in storage.list("tag")
        if "anabranch-rollback-" in info.path and info.path.endswith(which)
    )
    whole = storage.get(path)
    storage.put(path, whole[: len(whole) // 2])
    return path, whole


@pytest.mark.parametrize("which", first_short(["-target", "-result"]))
def test_a_damaged_pin_of_a_rollback_is_made_again(which):
    table = _rolled_back(f"memory://rollback-pin{which}")
    path, whole = _cut(table, which)
    with pytest.raises(CorruptTableError) as refused:
        _again(table).expire_snapshots(retain_max=2)
    assert "repair" in refused.value.hint
    (problem,) = _again(table).verify(deep=True).problems
    assert "`repair`" in problem.hint
    repaired = _again(table).repair()
    assert len(repaired.steps) == 1
    assert table.context.storage.get(path) == whole
    assert _again(table).verify(deep=True).ok
    _again(table).expire_snapshots(retain_max=2)
    _again(table).maintain()
    assert ids_of(_again(table)) == [0, 1, 2, 10]


def test_a_damaged_pin_of_which_all_else_is_gone_is_put_aside():
    table = _rolled_back("memory://rollback-pin-gone")
    path, _ = _cut(table, "-target")
    storage = table.context.storage
    storage.delete("tag/tag-good")
    for number in (1, 2, 3):
        storage.delete(f"snapshot/snapshot-{number}")
    _again(table).repair()
    assert not storage.exists(path)
    assert _again(table).verify(deep=True).ok
    _again(table).expire_snapshots(retain_max=2)


def test_a_damaged_pin_of_a_replacement_by_a_commit():
    table = parted()
    table.replace_main_branch("fix", mode="commit")
    path, whole = _cut(table, "-target")
    _again(table).repair()
    assert table.context.storage.get(path) == whole
    assert _again(table).verify(deep=True).ok

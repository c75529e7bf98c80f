"""An overwrite that names the snapshot it was computed from replaces nothing that came after it."""

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.kernel.log.cache import MetadataCache
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()


def new_table(**how):
    return make_table(f"memory://unchanged{next(_names)}", **how)


def partitioned():
    table = new_table(schema="id BIGINT, p STRING", partition_by=["p"])
    table.append(part("a", 1))
    table.append(part("b", 2))
    return table


def part(p, *numbers):
    return pa.table({"id": pa.array(numbers, pa.int64()), "p": [p] * len(numbers)})


def test_an_append_that_was_acknowledged_meanwhile_is_not_dropped():
    table = new_table()
    read = table.append(rows(0, 2))
    table.append(rows(2, 1))
    for since in (read, read.id):
        with pytest.raises(
            anabranch.CommitConflictError, match="CHANGED_SINCE: .*snapshot 2 .APPEND"
        ) as caught:
            table.overwrite(rows(10, 1), if_unchanged_since=since)
        assert "read the newest snapshot" in caught.value.hint
    assert ids_of(table) == [0, 1, 2]
    assert not [i for i in table.context.storage.list(recursive=True) if i.path.count("data-") > 0][2:], (
        "no orphans"
    )
    table.overwrite(rows(10, 1), if_unchanged_since=table.snapshot)
    assert ids_of(table) == [10]


def test_an_append_in_the_very_moment_of_the_commit():
    table = new_table()
    read = table.append(rows(0, 2))
    other = anabranch.Table(replace(table.context, cache=MetadataCache()))
    storage = FaultyStorage(
        table.context.storage,
        [run("before", "put_if_absent", lambda _: other.append(rows(2, 1)), where="snapshot/*")],
    )
    slow = anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache()))
    with pytest.raises(anabranch.CommitConflictError, match="CHANGED_SINCE"):
        slow.overwrite(rows(10, 1), if_unchanged_since=read.id)
    assert ids_of(table) == [0, 1, 2]


def test_compactions_and_other_partitions_do_not_count():
    table = partitioned()
    read = table.append(part("a", 3))
    table.compact(full=True)
    table.append(part("b", 4))
    table.overwrite(part("a", 5), if_unchanged_since=read)
    table.overwrite(part("a", 6), {"p": "a"}, if_unchanged_since=table.snapshot.id)
    assert ids_of(table) == [2, 4, 6]
    for write in (
        lambda: table.overwrite(part("a", 7), if_unchanged_since=read),
        lambda: table.overwrite(part("b", 7), {"p": "b"}, if_unchanged_since=read),
        lambda: table.replace(part("b", 7), "p = 'b'", if_unchanged_since=read),
        lambda: table.replace(part("b", 7), if_unchanged_since=read),
    ):
        with pytest.raises(anabranch.CommitConflictError, match="CHANGED_SINCE"):
            write()
    table.replace(part("c", 8), "p = 'c'", if_unchanged_since=read)
    assert ids_of(table) == [2, 4, 6, 8]


def test_an_overwrite_or_rollback_meanwhile_counts():
    table = partitioned()
    read = table.snapshot
    table.overwrite(part("a"), {"p": "a"})
    with pytest.raises(anabranch.CommitConflictError, match=r"snapshot 3 \(OVERWRITE"):
        table.overwrite(part("a", 9), if_unchanged_since=read)
    table.rollback(1)
    with pytest.raises(anabranch.CommitConflictError, match="CHANGED_SINCE"):
        table.overwrite(part("b", 9), if_unchanged_since=3)
    assert ids_of(table) == [1]


def test_a_table_without_snapshots():
    table = new_table()
    other = anabranch.Table(replace(table.context, cache=MetadataCache()))
    table.overwrite(rows(0, 1), if_unchanged_since=0)
    with pytest.raises(anabranch.CommitConflictError, match="CHANGED_SINCE"):
        other.overwrite(rows(1, 1), if_unchanged_since=0)
    assert ids_of(table) == [0]


def test_history_that_does_not_lead_back_there_tells_nothing():
    table = new_table()
    read = table.append(rows(0, 1))
    table.append(rows(1, 0))
    table.append(rows(1, 0))
    for number in (2, 3):
        table.append(rows(number, 0))
    table.expire_snapshots(retain_max=2)
    with pytest.raises(anabranch.CommitConflictError, match="cannot be told"):
        table.overwrite(rows(9, 1), if_unchanged_since=read)
    with pytest.raises(anabranch.NotFoundError, match="snapshot 1 does not exist"):
        table.overwrite(rows(9, 1), if_unchanged_since=1)
    assert ids_of(table) == [0]


def test_a_number_that_was_given_again_is_another_snapshot():
    table = new_table()
    table.append(rows(0, 1))
    read = table.append(rows(1, 1))
    table.rollback(1, destructive=True)
    table.append(rows(2, 1))
    with pytest.raises(anabranch.CommitConflictError, match="cannot be told"):
        table.overwrite(rows(9, 1), if_unchanged_since=read)
    assert ids_of(table) == [0, 2]

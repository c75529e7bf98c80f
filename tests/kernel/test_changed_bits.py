"""A changed bit in a file that says what the table is: rows never go missing without a word, and `repair` mends it."""

import itertools
import random
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.kernel.cache import MetadataCache
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
FILES = ["snapshot/snapshot-2", "snapshot/snapshot-3", "snapshot/snapshot-4", "tag/tag-good"]


def _table(hint):
    table = make_table(f"memory://bits{next(_names)}")
    for row in range(4):
        table.append(rows(row, 1))
    table.create_tag("good", 3)
    if not hint:
        table.context.storage.delete(table.context.layout.latest_hint_path)
    return table


def _fresh(table):
    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def _ids(table):
    try:
        return sorted(ids_of(_fresh(table)))
    except AnabranchError:
        return None


def _flip(table, path, place):
    data = bytearray(table.context.storage.get(path))
    data[place >> 3] ^= 1 << (place & 7)
    table.context.storage.put(path, bytes(data))


def _places(table, path, count):
    """Some in each value that tells one snapshot from another, and some anywhere."""
    data = table.context.storage.get(path)
    keys = (
        b"commitUser",
        b"timeMillis",
        b"commitIdentifier",
        b"anabranch.parent",
        b"totalRecordCount",
        b"watermark",
    )
    for key in keys:
        if key in data:
            start = data.index(key) + len(key) + 4
            yield 8 * start + 1
    yield from random.Random(path).sample(range(8 * len(data)), count)


@pytest.mark.parametrize("hint", [True, False], ids=["hint", "no hint"])
@pytest.mark.parametrize("path", FILES)
def test_no_row_goes_missing_without_a_word(path, hint):
    for place in _places(_table(hint), path, 3):
        table = _table(hint)
        whole = table.context.storage.get(path)
        _flip(table, path, place)
        assert _ids(table) in (None, [0, 1, 2, 3]), place
        acknowledged = [0, 1, 2, 3]
        try:
            _fresh(table).append(rows(9, 1))
            acknowledged.append(9)
        except AnabranchError:
            pass
        assert _ids(table) in (None, acknowledged), place
        _fresh(table).repair()
        found = _fresh(table).verify(deep=True)
        assert _ids(table) == acknowledged, (place, found)
        table.context.storage.put(path, whole)
        assert _ids(table) == acknowledged, place


def test_repair_puts_the_bit_back():
    table = _table(True)
    path = "snapshot/snapshot-4"
    whole = table.context.storage.get(path)
    _flip(table, path, 8 * (whole.index(b"totalRecordCount") + 19) + 1)
    with pytest.raises(CorruptTableError, match="checksum"):
        ids_of(_fresh(table))
    assert [p.kind for p in table.verify().problems] == ["snapshot"]
    assert "one bit" in str(table.repair(dry_run=True))
    assert _ids(table) is None
    table.repair()
    assert table.context.storage.get(path) == whole
    assert table.verify().ok


def test_the_newest_snapshot_is_deleted_by_hand(caplog):
    table = _table(True)
    table.context.storage.delete("snapshot/snapshot-4")
    assert _ids(table) == [0, 1, 2]
    assert "the newest snapshot is 4 by the hint, but it is not there" in caplog.text
    for handle in (table, _fresh(table)):
        with pytest.raises(CorruptTableError, match="is not there; the newest that is there is 3"):
            handle.append(rows(9, 1))
    table.repair()
    _fresh(table).append(rows(9, 1))
    assert _ids(table) == [0, 1, 2, 3, 9]


def test_all_snapshots_are_deleted_by_hand():
    table = _table(True)
    table.delete_tag("good")
    for number in range(1, 5):
        table.context.storage.delete(f"snapshot/snapshot-{number}")
    with pytest.raises(CorruptTableError, match="is not there; the newest that is there is none"):
        _fresh(table).append(rows(9, 1))
    table.repair()
    assert _ids(table) == [0, 1, 2, 3]


def test_a_hint_that_a_rollback_could_not_move_is_no_deletion(caplog):
    table = _table(True)
    table.rollback(2, destructive=True, force=True)
    table.context.storage.put(table.context.layout.latest_hint_path, b"4")
    assert _ids(table) == [0, 1]
    _fresh(table).append(rows(9, 1))
    assert _ids(table) == [0, 1, 9]
    assert "by the hint" not in caplog.text


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("which", ["base_manifest_list", "delta_manifest_list"])
def test_verify_notices_each_missing_list(number, which):
    table = _table(True)
    name = getattr(table.context.snapshots.get(number), which)
    table.context.storage.delete(table.context.layout.manifest_path(name))
    assert "manifest" in {p.kind for p in _fresh(table).verify().problems}


def test_verify_notices_a_changed_name_of_a_column():
    table = _table(True)
    data = table.context.storage.get("schema/schema-0")
    _flip(table, "schema/schema-0", 8 * (data.index(b'"name": "id"') + 9))
    assert _fresh(table).verify().ok, "what is listed is all there"
    problems = _fresh(table).verify(deep=True).problems
    assert {p.kind for p in problems} == {"file-damaged"}
    assert "has a column 'id', which the schema that it was written with does not have" in problems[0].message

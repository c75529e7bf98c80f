"""A changed bit in a file that says what the table is: rows never go missing without a word, and `repair` mends it."""

import itertools
import random
import re
import time
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.cache import MetadataCache
from tests.support.faults import FaultyStorage, run
from tests.support.lengths import first_short
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


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        *(
            pytest.param(path, True, id=f"{path}-hint", marks=[pytest.mark.long] * (path in FILES[:3]))
            for path in FILES
        ),
        pytest.param(FILES[2], False, id=f"{FILES[2]}-no hint"),  # of the newest, which the hint leads to
        *(
            pytest.param(path, False, id=f"{path}-no hint", marks=pytest.mark.long)
            for path in FILES
            if path != FILES[2]
        ),
    ],
)
def test_no_row_goes_missing_without_a_word(path, hint):
    for place in _places(_table(hint), path, 2):
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


@pytest.mark.parametrize("path", ["snapshot/snapshot-4", "tag/tag-good"])
@pytest.mark.parametrize("key", ["properties", "anabranch.checksum", "uuid", "version"])
def test_a_changed_bit_in_a_key_is_noticed_and_put_back(path, key):
    """The checksum stands among the properties, so it goes with their key."""
    table = _table(True)
    whole = table.context.storage.get(path)
    _flip(table, path, 8 * whole.index(f'"{key}"'.encode()) + 8 * len(key))
    with pytest.raises(CorruptTableError, match=f"with one bit changed in place of '{key}'"):
        ids_of(_fresh(table).at("good" if path.startswith("tag") else 4))
    assert [p.path for p in _fresh(table).verify().problems] == [path]
    assert "one bit" in str(_fresh(table).repair())
    assert table.context.storage.get(path) == whole
    assert _fresh(table).verify().ok


def test_a_changed_bit_in_a_key_is_noticed_whichever_it_is():
    table = _table(True)
    path = "snapshot/snapshot-4"
    whole = table.context.storage.get(path)
    for key in re.finditer(rb'(?<=")[\w.-]+(?=": )', whole):
        for place in range(8 * key.start(), 8 * key.end()):
            changed = bytearray(whole)
            changed[place >> 3] ^= 1 << (place & 7)
            with pytest.raises(CorruptTableError):
                Snapshot.from_json(bytes(changed), path=path)


@pytest.mark.parametrize("path", FILES[:3])
def test_a_dry_run_says_what_the_repair_does(path):
    """A tag holds one of them, of one nothing is left but its neighbours, and one is the newest."""
    table = _table(hint=True)
    _flip(table, path, 8 * (table.context.storage.get(path).index(b"totalRecordCount") + 19) + 1)
    planned = _fresh(table).repair(dry_run=True)
    done = _fresh(table).repair()
    assert (planned.steps, planned.left) == (done.steps, done.left)
    assert [step.what for step in done.steps] == [f"put back the one bit that changed in {path}"]


@pytest.mark.parametrize("path", first_short(["snapshot/snapshot-4", "tag/tag-good"]))
def test_several_bits_may_explain_what_the_checksum_does_not_cover(path):
    """A colon in a size may have been a 2 or an 8, and a quotation mark in a UUID a 2 or a b."""
    table = _table(True)
    storage = table.context.storage
    whole = storage.get(path)
    sizes = [found.span(1) for found in re.finditer(rb'Size": (\d+)', whole)]
    digits = [place for start, end in sizes for place in range(start, end) if whole[place] in b"2345"]
    assert digits
    uuid = whole.index(b'"uuid"') + 9
    storage.put(path, whole[:uuid] + b"2" + whole[uuid + 1 :])
    for place, bit in [*((place, 3) for place in digits), (uuid, 4)]:
        _flip(table, path, 8 * place + bit)
        assert not _fresh(table).verify().ok
        _fresh(table).repair()
        assert _fresh(table).verify().ok
        assert _ids(table) == [0, 1, 2, 3]
        assert ids_of(_fresh(table).at("good")) == [0, 1, 2]
        found = storage.get(path)
        assert found[:uuid] + found[uuid + 1 :] == whole[:uuid] + whole[uuid + 1 :], place


@pytest.mark.long
def test_several_bits_may_explain_the_mark_of_a_tag():
    """What is no text may have been a 6 or a V; the simulator found it (damaged 1200968)."""
    table = _table(True)
    storage, path = table.context.storage, "tag/tag-good"
    whole = storage.get(path)
    mark = whole.index(b'"anabranch.mark"') + 19
    for place in range(mark, mark + 36):
        storage.put(path, whole[:place] + b"\x16" + whole[place + 1 :])
        _fresh(table).repair()
        assert _fresh(table).verify().ok, place
        assert ids_of(_fresh(table).at("good")) == [0, 1, 2]
        found = storage.get(path)
        assert found[:place] + found[place + 1 :] == whole[:place] + whole[place + 1 :]


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


def test_the_newest_snapshot_of_a_far_store_is_deleted_by_hand():
    """Who saw the one before it does not commit in its place."""
    table = _table(True)
    far = anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, is_far=True)))
    assert ids_of(far) == [0, 1, 2, 3]
    table.append(rows(4, 1))
    table.context.storage.delete("snapshot/snapshot-5")
    with pytest.raises(CorruptTableError, match="is not there; the newest that is there is 4"):
        far.append(rows(9, 1))
    table.repair()
    far.append(rows(9, 1))
    assert _ids(table) == [0, 1, 2, 3, 4, 9]


def _overtaken(table, call, where, meanwhile):
    """The table as somebody has it who is overtaken right before a call."""
    storage = FaultyStorage(table.context.storage, [run("before", call, lambda _: meanwhile(), where=where)])
    return anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache()))


def test_the_hint_does_not_go_back_when_a_slow_writer_says_where_his_snapshot_is():
    table = _table(True)
    _overtaken(table, "put", "snapshot/LATEST", lambda: _fresh(table).append(rows(5, 1))).append(rows(4, 1))
    assert table.context.storage.get("snapshot/LATEST") == b"6"
    table.context.storage.delete("snapshot/snapshot-6")
    with pytest.raises(CorruptTableError, match="the newest that is there is 5"):
        _fresh(table).append(rows(9, 1))


def test_a_deleted_snapshot_that_took_two_attempts():
    """The lists that it names are of different attempts."""
    table = _table(True)
    _overtaken(table, "put_if_absent", "snapshot/*", lambda: _fresh(table).append(rows(4, 1))).append(
        rows(5, 1)
    )
    table.context.storage.delete("snapshot/snapshot-6")
    done = _fresh(table).repair()
    assert _ids(table) == [0, 1, 2, 3, 4, 5], done
    assert done.left == ()


def test_deleted_snapshots_between_which_the_table_came_back_to_a_state_that_it_had_before():
    table = _table(True)
    table.rollback(3)
    table.append(rows(5, 1))
    for number in (4, 5, 6):
        table.context.storage.delete(f"snapshot/snapshot-{number}")
    done = _fresh(table).repair()
    assert _ids(table) == [0, 1, 2, 5], done
    assert done.left == ()
    assert [ids_of(_fresh(table).at(number)) for number in (4, 5)] == [[0, 1, 2, 3], [0, 1, 2]]


def test_all_snapshots_are_deleted_and_the_first_had_expired():
    """A branch still has the first, which the others do not lead back to any more."""
    table = _table(True)
    table.create_branch("fix", "one", snapshot=1)
    table.expire_snapshots(retain_max=2, retain_min=2)
    table.delete_tag("good")
    for number in (3, 4):
        table.context.storage.delete(f"snapshot/snapshot-{number}")
    done = _fresh(table).repair()
    assert _ids(table) == [0, 1, 2, 3], done
    assert _fresh(table).snapshot.id == 4
    _fresh(table).append(rows(9, 1))
    assert _fresh(table).verify(deep=True).ok


def test_what_cannot_be_made_again_is_told():
    table = _table(True)
    table.context.storage.delete(
        table.context.layout.manifest_path(table.context.snapshots.get(4).delta_manifest_list)
    )
    table.context.storage.delete("snapshot/snapshot-4")
    for is_tried in (True, False):
        done = _fresh(table).repair(dry_run=is_tried)
        assert "snapshot 4 of 'db.t' cannot be made again" in str(done)
    assert _fresh(table).verify().ok


def test_all_snapshots_are_deleted_and_nothing_is_left_of_the_newest():
    """What a tag has of the one before is newer than what any manifest list tells."""
    table = _table(True)
    table.context.storage.delete(
        table.context.layout.manifest_path(table.context.snapshots.get(4).delta_manifest_list)
    )
    for number in range(1, 5):
        table.context.storage.delete(f"snapshot/snapshot-{number}")
    done = _fresh(table).repair()
    assert _ids(table) == [0, 1, 2], done
    assert "snapshot 4 of 'db.t' cannot be made again" in str(done)


def test_what_the_newest_snapshot_added_is_not_taken_for_what_it_took_over():
    table = _table(True)
    table.delete_tag("good")
    context = table.context
    lists = [(s.base_manifest_list, s.delta_manifest_list) for s in map(context.snapshots.get, range(1, 5))]
    for number in range(1, 5):
        context.storage.delete(f"snapshot/snapshot-{number}")
    for name in (name for pair in lists[:3] for name in pair):
        context.storage.delete(context.layout.manifest_path(name))
    time.sleep(0.01)
    for path in (context.layout.manifest_path(lists[3][1]), context.layout.latest_hint_path):
        context.storage.put(
            path, context.storage.get(path)
        )  # stored a moment later than the list of all others
    done = _fresh(table).repair()
    assert _ids(table) == [0, 1, 2, 3], done
    newest = _fresh(table).snapshot
    assert (newest.id, newest.base_manifest_list, newest.delta_manifest_list) == (4, *lists[3])
    assert (newest.total_record_count, newest.delta_record_count) == (4, 1)


def test_all_snapshots_are_deleted_by_hand():
    table = _table(True)
    table.delete_tag("good")
    for number in range(1, 5):
        table.context.storage.delete(f"snapshot/snapshot-{number}")
    with pytest.raises(CorruptTableError, match="is not there; the newest that is there is none"):
        _fresh(table).append(rows(9, 1))
    table.repair()
    assert _ids(table) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.scan().to_arrow(),
        lambda table: table.scan().count(),
        lambda table: table.changes(0).to_arrow(),
        lambda table: table.snapshot,
        lambda table: [*table.tail(idle=0)],
    ],
    ids=["scan", "count", "changes", "snapshot", "tail"],
)
def test_who_reads_a_table_whose_snapshots_were_all_deleted_is_told(read):
    table = _table(True)
    table.context.storage.delete_many([f"snapshot/snapshot-{number}" for number in range(1, 5)])
    with pytest.raises(CorruptTableError, match="the newest snapshot is 4 by the hint, but it is not there"):
        read(_fresh(table))
    table.repair()
    read(_fresh(table))
    read(make_table(f"memory://new-{time.time_ns()}"))  # one that is really empty


def test_a_hint_that_a_rollback_could_not_move_is_no_deletion(caplog):
    table = _table(True)
    table.rollback(2, destructive=True, force=True)
    table.context.storage.put(table.context.layout.latest_hint_path, b"4")
    assert _ids(table) == [0, 1]
    assert _fresh(table).repair(dry_run=True).left == ()
    _fresh(table).append(rows(9, 1))
    assert _ids(table) == [0, 1, 9]
    assert "by the hint" not in caplog.text


def test_a_rollback_of_another_branch_hides_no_deletion():
    table = _table(True)
    table.create_branch("fix", tag="good")
    table.branch("fix").append(rows(7, 1))
    table.branch("fix").rollback(3, destructive=True, force=True)
    table.context.storage.delete("snapshot/snapshot-4")
    assert "head-gone" in [p.kind for p in _fresh(table).verify().problems]
    with pytest.raises(CorruptTableError, match="is not there; the newest that is there is 3"):
        _fresh(table).append(rows(9, 1))
    _fresh(table).repair()
    assert _ids(table) == [0, 1, 2, 3]


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

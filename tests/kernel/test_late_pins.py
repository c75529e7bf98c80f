"""What is put to hold a snapshot after an expiry has removed it, and cannot be taken back, keeps nobody waiting."""

import pytest

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.kernel.log.rollback_pins import pin_target
from tests.kernel.expiring import through
from tests.support.faults import fail, run
from tests.support.tables import ids_of, make_table, rows


@pytest.fixture
def table(request):
    table = make_table(f"memory://{request.node.name}")
    for row in range(4):
        table.append(rows(row, 1))
    return table


def _paused(table, call, pin, *faults):
    """A handle whose process stands still right before it puts that pin, until the snapshots have expired."""

    def expire(_path):
        if not expired:
            expired.append(table.expire_snapshots(retain_max=1, retain_min=1))

    expired = []
    return through(table, run("before", call, expire, where=pin), *faults)


def _all_is_well(table, ids):
    assert table.tags(include_internal=True) == []
    table.append(rows(20, 1))
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert ids_of(table) == [*ids, 20]
    assert table.verify(deep=True).ok


def test_the_pin_of_a_rollback_whose_target_has_expired(table):
    pin = "tag/tag-anabranch-rollback-*"
    slow = _paused(table, "put_if_absent", pin, fail("delete", where=pin))
    with pytest.raises(NotFoundError, match="'snapshot.2' of 'db.t' was removed while"):
        slow.rollback(2)
    assert len(table.tags(include_internal=True)) == 1, "it could not be taken back"
    table.expire_snapshots(retain_max=1, retain_min=1)
    _all_is_well(table, [0, 1, 2, 3])


@pytest.mark.parametrize(
    "make",
    [
        lambda table: table.create_savepoint(snapshot=2),
        lambda table: table.replace_tag("good", 2),
    ],
    ids=["savepoint", "tag"],
)
def test_the_pin_of_what_was_to_be_made_of_an_expired_snapshot(table, make):
    table.create_tag("good", 4)
    pin = "tag/tag-anabranch-pin-*"
    with pytest.raises(NotFoundError, match="'snapshot.2' of 'db.t' was removed while"):
        make(_paused(table, "put", pin, fail("delete", where=pin)))
    assert len(table.tags(include_internal=True)) == 2, "it could not be taken back"
    table.expire_snapshots(retain_max=1, retain_min=1)
    table.delete_tag("good")
    _all_is_well(table, [0, 1, 2, 3])


def test_a_tag_of_an_expired_snapshot_that_could_not_be_taken_back(table):
    """Nobody but its maker knows that it never held anything, so that one is told; the expiry names it too."""
    path = "tag/tag-good"
    slow = _paused(table, "put_if_absent", path, fail("get", where=path, nth=2))
    with pytest.raises(NotFoundError, match="'snapshot.2' of 'db.t' was removed while") as caught:
        slow.create_tag("good", 2)
    assert "The tag 'good' may be left" in caught.value.hint
    assert "`delete_tag` removes it" in caught.value.hint
    table.append(rows(10, 1))
    with pytest.raises(CorruptTableError, match="tag 'good' cannot be read in full"):
        through(table).expire_snapshots(retain_max=1, retain_min=1)
    table.delete_tag("good")
    _all_is_well(table, [0, 1, 2, 3, 10])


def test_a_pin_that_lost_only_the_file_of_its_snapshot_holds_the_rest(table):
    target = table.context.snapshots.find(2)
    pin_target(table.context, target, "somebody")
    for _ in range(2):
        table.expire_snapshots(retain_max=1, retain_min=1)
        assert len(table.tags(include_internal=True)) == 1
        layout, storage = table.context.layout, table.context.storage
        for meta in table.context.manifests.of_snapshot(target):
            assert storage.exists(layout.manifest_path(meta.file_name))
        table.append(rows(10, 1))

import json

import pytest

from anabranch.errors import CorruptTableError
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.storage.open import open_storage
from anabranch.streaming.sink_identity import SinkIdentity, SinkRecord

BRANCH = "b-1"


def ref(number: int) -> SnapshotRef:
    return SnapshotRef(BRANCH, number, f"stamp-{number}")


@pytest.fixture
def record(tmp_path):
    return SinkRecord(open_storage(str(tmp_path)), BRANCH)


def never() -> SinkIdentity:
    raise AssertionError("the identity is fixed already")


def test_an_identity_is_made_once_and_then_kept(record):
    made = record.identity(lambda: SinkIdentity.of_job("clean", BRANCH, None))
    assert made == SinkIdentity("clean", "clean@b-1", SnapshotRef(BRANCH, 0, ""))
    assert record.identity(never) == made


def test_of_two_that_begin_at_once_one_identity_stays(record):
    first = SinkIdentity("a", "a@b-1", ref(3))

    def while_another_begins() -> SinkIdentity:
        assert record.identity(lambda: first) == first
        return SinkIdentity("b", "b@b-1", ref(4))

    assert record.identity(while_another_begins) == first


def test_branches_of_one_query_are_kept_apart(record, tmp_path):
    other = SinkRecord(record.checkpoint, "b-2")
    record.identity(lambda: SinkIdentity.of_job("j", BRANCH, None))
    assert other.identity(lambda: SinkIdentity.of_job("j", "b-2", None)).user == "j@b-2"


def test_a_damaged_identity_stops_the_query(record, tmp_path):
    record.identity(lambda: SinkIdentity.of_job("j", BRANCH, None))
    (tmp_path / "anabranch" / "sink-b-1.json").write_text('{"version": 1, "job": "j"}')
    with pytest.raises(CorruptTableError, match="no identity of a sink"):
        record.identity(never)


def test_the_floor_of_a_batch_is_older_than_the_batch(record):
    identity = SinkIdentity("j", "j@b-1", ref(10))
    assert record.floor_before(0, identity) == ref(10)
    record.committed(0, ref(11))
    record.committed(1, ref(15))
    record.committed(2, ref(16))
    assert record.floor_before(3, identity) == ref(16)
    assert record.floor_before(2, identity) == ref(15)  # repeated: its own snapshot may be 16
    assert record.floor_before(1, identity) == ref(10)  # forgotten: back to the beginning
    record.committed(2, ref(16))
    assert record.floor_before(3, identity) == ref(16)
    assert record.floor_before(2, identity) == ref(15)


@pytest.mark.parametrize("content", [b"", b"{", b'{"batch": 1}', b'[{"batch": 1}]', b"[3]"])
def test_lost_progress_only_lowers_the_floor(record, tmp_path, content):
    identity = SinkIdentity("j", "j@b-1", ref(10))
    record.committed(4, ref(20))
    (tmp_path / "anabranch" / "sink-b-1.progress.json").write_bytes(content)
    assert record.floor_before(5, identity) == ref(10)
    record.committed(5, ref(21))
    assert json.loads((tmp_path / "anabranch" / "sink-b-1.progress.json").read_text())[0]["batch"] == 5

import pytest

from anabranch.errors import NotFoundError, OptionError
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.streaming.offsets import BEGINNING, Position
from anabranch.streaming.scan_modes import first_position
from tests.streaming.history import History


@pytest.fixture
def history(tmp_path):
    return History.new(tmp_path)


def start(history, **options):
    return first_position(
        history.context, {k.replace("_", "-").replace("--", "."): v for k, v in options.items()}
    )


@pytest.mark.parametrize("mode", ["default", "latest-full", "latest"])
def test_every_mode_of_an_empty_table_begins_at_the_beginning(history, mode):
    assert start(history, scan__mode=mode) == BEGINNING


def test_modes_begin_before_the_first_row_they_deliver(history):
    for name in ("f1", "f2", "f3"):
        head = history.append(name)
    assert start(history) == Position(3, head.stamp, files=0, full=True)
    assert start(history, scan__mode="latest-full") == start(history)
    assert start(history, scan__mode="latest") == Position(3, head.stamp)
    second = history.context.snapshots.get(2)
    expected = Position(2, second.stamp)
    assert start(history, scan__mode="from-snapshot", scan__snapshot_id="3") == expected
    assert start(history, scan__snapshot_id="3") == expected
    assert start(history, scan__snapshot_id="1") == BEGINNING
    assert start(history, scan__snapshot_id="4") == Position(3, head.stamp)


def test_a_snapshot_that_is_not_there_is_named_with_a_way_out(history):
    for name in ("f1", "f2", "f3"):
        history.append(name)
    history.remove(1)
    with pytest.raises(NotFoundError, match="the newest is 3"):
        start(history, scan__snapshot_id="5")
    with pytest.raises(NotFoundError, match="earliest is 2") as caught:
        start(history, scan__snapshot_id="1")
    assert "scan.snapshot-id=2" in caught.value.hint
    second = history.context.snapshots.get(2)
    assert start(history, scan__snapshot_id="2") == Position(1, second.properties[PARENT_PROPERTY])


def test_contradicting_options_are_refused(history):
    with pytest.raises(OptionError, match="which takes none"):
        start(history, scan__mode="latest", scan__snapshot_id="1")
    with pytest.raises(OptionError, match=r"scan.snapshot-id is not set"):
        start(history, scan__mode="from-snapshot")
    with pytest.raises(OptionError, match=r"scan.mode"):
        start(history, scan__mode="newest")

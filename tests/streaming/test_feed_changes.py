"""What a stream delivers of snapshots that take rows away."""

from dataclasses import replace

import pytest

from anabranch.errors import OptionError
from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.snapshot import CommitKind
from anabranch.streaming.feed import Feed
from anabranch.streaming.limits import Limits
from anabranch.streaming.offsets import BEGINNING, Position
from tests.streaming.history import Delta, History, names, partition_row

A = partition_row("a")


@pytest.fixture
def history(tmp_path):
    return History.new(tmp_path)


def feed(history, **how):
    return Feed(history.context, history.schema, **{"on_overwrite": "changes", **how})


def at(snapshot):
    return Position(snapshot.id, snapshot.stamp)


def marked(source, start, end):
    """Names of files in the order of delivery, those taken away with a minus."""
    splits = source.splits(start, end)
    return [
        ("-" if f.removed else "") + name
        for split, found in zip(splits, names(splits), strict=True)
        for f, name in zip(split.files, found, strict=True)
    ]


def test_rows_taken_away_come_before_rows_added(history):
    history.append("f1", "f2")
    start = history.append("b1", partition="b")
    history.overwrite("f3", "f4")
    last = history.append("f5")
    source = feed(history)
    assert source.advance(at(start)) == at(last)
    assert marked(source, at(start), at(last)) == ["-f1", "-f2", "f3", "f4", "f5"]


def test_limits_hold_inside_of_an_overwrite(history):
    history.append("f1", "f2", rows=3)
    start = at(history.append("b1", partition="b"))
    last = history.overwrite("f3", "f4", rows=2)
    source = feed(history)
    delivered, position = [], start
    while (end := source.advance(position, Limits(rows=5))) != position:
        delivered.append(marked(source, position, end))
        position = end
    assert position == at(last)
    assert delivered == [["-f1"], ["-f2", "f3"], ["f4"]]


def test_a_position_inside_is_not_taken_for_one_of_another_count(history):
    history.append("f1", "f2")
    start = at(history.append("f3"))
    history.overwrite("f4", "f5")
    middle = feed(history).advance(start, Limits(files=1))
    assert Position.from_dict(middle.to_dict()) == middle
    for other in ({"on_overwrite": "added"}, {"sort_partitions": True}):
        with pytest.raises(OptionError, match="stands inside of snapshot 3") as caught:
            feed(history, **other).advance(middle)
        assert "scan.on-overwrite" in caught.value.hint
    assert feed(history).advance(middle).files is None


def test_what_was_begun_under_another_policy_is_finished(history):
    history.append("f1")
    start = at(history.append("f2"))
    last = history.overwrite("f3", "f4")
    middle = feed(history, on_overwrite="added").advance(start, Limits(files=1))
    for policy in ("fail", "skip"):
        source = feed(history, on_overwrite=policy)
        assert marked(source, middle, source.advance(middle)) == ["f4"]
        assert source.advance(middle) == at(last)


def test_deleting_without_adding_is_delivered_too(history):
    history.append("f1")
    start = at(history.append("f2"))
    last = history.commit(Delta(("f1",), [], A, CommitKind.OVERWRITE))
    assert marked(feed(history), start, at(last)) == ["-f1"]
    assert marked(feed(history, on_overwrite="added"), start, at(last)) == []


def test_a_file_taken_away_and_added_again_is_no_change(history):
    history.append("f1", "f2")
    files = {f.file_name: f for f in history.live()}
    start = at(history.append("f3"))

    def entry(kind, name):
        return ManifestEntry(kind, A, 0, -1, files[f"{name}.parquet"])

    entries = [entry(FileKind.DELETE, "f1"), entry(FileKind.DELETE, "f2"), entry(FileKind.ADD, "f1")]
    last = history.foreign(history.append("f4"), entries)
    assert marked(feed(history), start, at(last)) == ["-f2"]
    assert marked(feed(history, on_overwrite="added"), start, at(last)) == []


@pytest.mark.parametrize("policy", ["fail", "skip", "added", "changes"])
def test_a_rewrite_of_another_engine_by_another_name_is_a_compaction(history, policy):
    history.append("f1", rows=2)
    start = at(history.append("f2", rows=3))
    big = history.compacted("big", ["f1", "f2"])
    last = history.foreign(history.commit(Delta(("f1", "f2"), [big], A, CommitKind.OVERWRITE)))
    source = feed(history, on_overwrite=policy)
    assert source.advance(start) == at(last)
    assert source.splits(start, at(last)) == []


def test_what_only_looks_like_a_rewrite_is_none(history):
    """Fewer rows, rows that were written, ours (a rollback brings back compacted files), another partition."""
    history.append("f1", rows=2)
    history.append("f2", rows=2)
    start = history.append("f3", rows=2)
    big = history.compacted("big", ["f1"])
    (found,) = [f for f in history.live() if f.file_name == "f2.parquet"]
    written = replace(found, file_name="f4.parquet")
    cases = [
        (("f1", "f3"), big, A, True),
        (("f1",), written, A, True),
        (("f1",), big, A, False),
        (("f1",), big, partition_row("b"), True),
    ]
    for sources, target, partition, foreign in cases:
        last = history.commit(Delta(sources, [target], partition, CommitKind.OVERWRITE))
        last = history.foreign(last) if foreign else last
        assert marked(feed(history), at(start), at(last)) != []
        with pytest.raises(OptionError, match="takes away rows"):
            feed(history, on_overwrite="fail").advance(at(start))
        history.remove(last.id)


def test_in_a_queue_changes_of_a_bucket_keep_their_order(tmp_path):
    history = History.new(tmp_path, bucket=2, bucket_key="id")
    history.write(history.message("a1", bucket=0), history.message("b1", bucket=1))
    history.append("a2", bucket=0)
    history.overwrite("a3", bucket=0)
    last = history.append("a4", bucket=0)
    splits = feed(history).splits(BEGINNING, at(last))
    assert names(splits) == [["a1", "a2", "a1", "a2", "a3", "a4"], ["b1", "b1"]]
    assert [f.removed for f in splits[0].files] == [False, False, True, True, False, False]
    assert [f.removed for f in splits[1].files] == [False, True]

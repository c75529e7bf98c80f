"""Batches of a former query, as commits tell them, in which state can be made again."""

import json
from types import SimpleNamespace

import pytest

from anabranch import NotFoundError
from anabranch.jobs.state import replay
from anabranch.jobs.state.point import Point
from anabranch.jobs.state.replay import former_batches, later_batches
from anabranch.lineage.model import STREAM_SOURCE, Engine, LineageEntry, SourceInput, TableInput
from anabranch.options import SCAN_START_OFFSET
from anabranch.streaming.offsets import Offset, Position

QUERY, TABLE, OTHER, BRANCH = "q", "t" * 32, "u" * 32, "b" * 32


def option(snapshot, table=TABLE, *, branch=BRANCH, full=False):
    position = Position(snapshot, None, 0 if full else None, full)
    return {SCAN_START_OFFSET.key: json.dumps(Offset(table, branch, "db.t", position).to_dict())}


def read(first, last, table=TABLE, branch=BRANCH):
    return TableInput("db.t", table, branch, Position(first, None), Position(last, None))


def batch(number, *reads, watermark=0):
    return LineageEntry(
        "job", None, None, Engine("spark", query=QUERY, batch=number), reads, watermark=watermark
    )


def store(*entries):
    commits = [SimpleNamespace(entry=entry) for entry in (None, *entries)]
    return SimpleNamespace(
        lines=lambda _: [SimpleNamespace(branch_uuid=BRANCH)], commits=lambda _: iter(commits)
    )


def batches(entries, begins, ends, moved=lambda offset: offset):
    point = Point(QUERY, max(entry.engine.batch for entry in entries))
    return former_batches(store(*entries), TABLE, point, begins=begins, ends=ends, moved=moved)


def ended(found):
    return [
        (
            {name: json.loads(one[SCAN_START_OFFSET.key])["snapshot"] for name, one in b.ends.items()},
            b.watermark,
        )
        for b in found
    ]


THREE = (batch(0, read(0, 2)), batch(1, watermark=5), batch(2, read(2, 4), watermark=5))


def test_each_batch_ends_where_it_did_under_its_watermark():
    found = batches([THREE[2], THREE[0], THREE[1], THREE[0]], {"a": option(0)}, {"a": option(4)})
    assert ended(found) == [({"a": 2}, 0), ({"a": 2}, 5), ({"a": 4}, 5)]


def test_what_comes_after_the_batch_whose_state_is_held():
    def later(after):
        found = later_batches(
            store(*THREE), TABLE, Point(QUERY, 2), after, ends={"a": option(4)}, moved=lambda offset: offset
        )
        return ended(found)

    assert later(0) == [({"a": 2}, 5), ({"a": 4}, 5)]
    assert later(1) == [({"a": 4}, 5)]


def test_batches_that_read_only_what_is_not_needed_are_left_out():
    begins, ends = {"a": option(2), "b": option(1, OTHER)}, {"a": option(4), "b": option(3, OTHER)}
    entries = [
        batch(0, read(0, 1), read(0, 1, OTHER)),
        batch(1, read(1, 2), read(1, 2, OTHER), watermark=1),
        batch(2, read(2, 4), read(2, 3, OTHER), watermark=2),
    ]
    assert ended(batches(entries, begins, ends)) == [({"b": 2}, 1), ({"a": 4, "b": 3}, 2)]
    assert ended(batches(entries, ends, ends)) == [({"a": 4, "b": 3}, 2)]


@pytest.mark.parametrize(
    ("entries", "begin", "why"),
    [
        ([THREE[0], THREE[2]], option(0), "no commit tells what batch 1"),
        ([*THREE, batch(0, read(0, 1))], option(0), "what batch 0 had read is not certain"),
        ([batch(0, read(0, 2), watermark=None)], option(0), "what batch 0 had read is not certain"),
        ([batch(0, read(0, 2, branch="c" * 32))], option(0), "on another branch"),
        (
            [batch(0, SourceInput("files", f"{STREAM_SOURCE}0", None, {"logOffset": 1}))],
            option(0),
            "cannot be read",
        ),
        (THREE, option(2, full=True), "left as one snapshot"),
    ],
)
def test_batches_that_are_not_known_for_certain_are_not_run_again(entries, begin, why):
    with pytest.raises(NotFoundError, match=why):
        batches(entries, {"a": begin}, {"a": option(4)})


def test_too_many_are_not_run_again(monkeypatch):
    monkeypatch.setattr(replay, "MOST", 2)
    with pytest.raises(NotFoundError, match="they are 3, and not more than 2"):
        batches(THREE, {"a": option(0)}, {"a": option(4)})

"""Sources that keep together in event time, on a clock of their own."""

import json
import logging
import random
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace

import pytest

from anabranch.errors import InvalidNameError, OptionError
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from anabranch.streaming.alignment import Alignment
from anabranch.streaming.group import AlignmentMember, Terms
from anabranch.streaming.offsets import BEGINNING, Position
from tests.support.lengths import first_short

DRIFT = 300
TIMEOUT = 60_000
TERMS = Terms("flights", DRIFT, TIMEOUT)


class Clock:
    """Time that passes when the test says so."""

    def __init__(self):
        self.seconds = 1_000_000.0

    def now_millis(self):
        return int(self.seconds * 1000)

    def monotonic(self):
        return self.seconds


@dataclass
class Ids:
    made: int = 0

    def uuid(self):
        self.made += 1
        return f"member-{self.made}"


@dataclass
class World:
    """One group in one warehouse."""

    storage: MemoryStorage
    clock: Clock = field(default_factory=Clock)
    ids: Ids = field(default_factory=Ids)

    def source(self, *watermarks, at=0, terms=TERMS):
        return Source(self, list(watermarks), at, terms)

    def files(self):
        return {info.path for info in self.storage.list("alignment", recursive=True)}


class Source:
    """A stream of snapshots with these watermarks, the first of which is snapshot 1."""

    def __init__(self, world, watermarks, at=0, terms=TERMS):
        self.world, self.watermarks, self.at = world, watermarks, at
        member = AlignmentMember(world.storage, terms, "db.t", Runtime(clock=world.clock, ids=world.ids))
        self.alignment = Alignment(member, self.find, world.clock)

    def find(self, number):
        if not 1 <= number <= len(self.watermarks):
            return None
        return SimpleNamespace(id=number, watermark=self.watermarks[number - 1])

    @property
    def watermark(self):
        return self.watermarks[self.at - 1] if self.at else None

    @property
    def position(self):
        return Position(self.at, "stamp", watermark=self.watermark) if self.at else BEGINNING

    def step(self, most=None):
        """One batch of at most so many snapshots: how many it took."""
        self.world.clock.seconds += 1
        last = self.alignment.until(self.position)
        taken = 0 if last is None else last - self.at
        taken = taken if most is None else min(taken, most)
        self.at += taken
        return taken

    def run(self):
        """As far as it may go."""
        while self.step():
            pass
        return self.watermark

    def restarted(self):
        """A new run of the same query; of the old one nothing was heard."""
        return Source(self.world, self.watermarks, self.at, self.alignment.member.terms)


@pytest.fixture
def world(request):
    return World(MemoryStorage(request.node.name))


def test_the_first_step_is_free_and_then_the_slower_one_is_waited_for(world):
    slow = world.source(0, 100, 200, 700, 900)
    fast = world.source(3600, 3700, 3800, 4000)
    assert slow.step() == 1
    assert fast.step() == 1
    assert fast.step() == 0
    assert slow.step() == 2  # up to 200: its own watermark of 0, and the drift
    assert slow.step() == 1  # 700 is more than the drift ahead of 200, but nobody is slower
    assert fast.step() == 0
    assert slow.step() == 1


def test_a_source_may_be_ahead_by_the_drift_and_no_more(world):
    slow = world.source(0, 1, 2, 150)
    fast = world.source(0, 299, 300, 301, 450, 451)
    slow.step(most=1)
    fast.step(most=1)
    assert fast.run() == 300
    slow.run()
    assert fast.run() == 450


def test_of_equals_both_may_go_on(world):
    one, other = world.source(0, 1000, 2000), world.source(0, 1000, 2000)
    one.step(), other.step()
    assert one.step() == 1
    assert one.step() == 0
    assert other.step() == 1


def test_one_that_is_alone_is_not_held_back(world):
    assert world.source(0, 5000, 5001, 9000, 20000).run() == 20000


def test_snapshots_without_a_watermark_hold_nobody_back(world):
    slow = world.source(0, 10)
    fast = world.source(5000, None, None, 6000)
    slow.step(most=1), fast.step()
    assert fast.step() == 2
    assert world.source(None, None, None).step() == 3


def test_the_rest_of_a_snapshot_is_not_held_back(world):
    slow = world.source(0, 10)
    fast = world.source(5000, 6000)
    slow.step(most=1)
    inside = Position(2, "stamp", files=3, watermark=5000)
    assert fast.alignment.until(inside) == 2


def test_at_the_end_of_a_table_there_is_nothing_to_hold_back(world):
    source = world.source(0)
    source.step()
    assert source.alignment.until(source.position) is None


def test_one_that_has_nothing_to_read_is_waited_for_until_the_timeout(world):
    slow = world.source(0)
    fast = world.source(5000, 6000)
    slow.step(), fast.step()
    slow.step()
    assert fast.step() == 0
    world.clock.seconds += TIMEOUT / 1000
    slow.step()
    assert fast.step() == 1
    slow.watermarks += [10, 20]  # it is written again, far behind
    fast.watermarks += [7000]
    assert slow.step(most=1) == 1
    slow.step(most=0)  # where Spark asks for the next batch
    assert fast.step() == 0


def test_one_that_is_silent_is_waited_for_until_the_timeout(world, caplog):
    slow = world.source(0, 10, 20)
    fast = world.source(5000, 6000, 7000)
    slow.step(most=1), fast.step()
    for _ in range(3):
        world.clock.seconds += TIMEOUT / 1000 - 5
        slow.alignment.member.beat()
        assert fast.step() == 0
    world.clock.seconds += TIMEOUT / 1000
    with caplog.at_level(logging.WARNING):
        assert fast.step() == 1
    assert "do not wait for the one of 'db.t' any more: it gave no sign of life for 61 s" in caplog.text
    assert world.files() == {"alignment/flights/member-2.json"}
    slow.alignment.member.beat()  # its process had only been put to sleep
    assert fast.step() == 0


def test_what_a_killed_run_left_behind_long_ago_holds_nobody_back(world):
    dead = world.source(0, 10)
    dead.step()
    world.clock.seconds += TIMEOUT / 1000
    late = world.source(5000, 6000)
    late.step()
    assert late.step() == 1


def test_what_a_killed_run_left_behind_just_now_is_waited_for_once(world):
    dead = world.source(0, 10, 20)
    fast = world.source(5000, 6000, 7000, 8000)
    dead.step(most=1), fast.step()
    again = dead.restarted()
    assert again.step() == 2
    again.watermarks += [4000]
    assert again.step() == 0, "it cannot know that the one who is slower was itself"
    world.clock.seconds += TIMEOUT / 1000
    again.alignment.member.beat()
    assert again.step() == 1
    assert fast.step() == 0


def test_who_leaves_is_forgotten_at_once(world):
    slow = world.source(0, 10)
    fast = world.source(5000, 6000)
    slow.step(), fast.step()
    slow.alignment.member.leave()
    slow.alignment.member.beat()
    assert fast.step() == 1
    assert world.files() == {"alignment/flights/member-2.json"}


def test_groups_do_not_know_of_each_other(world):
    slow = world.source(0, 10)
    other = world.source(5000, 6000, terms=Terms("others", DRIFT, TIMEOUT))
    slow.step()
    other.step()
    assert other.step() == 1


def test_a_member_that_is_not_understood_is_passed_over(world, caplog):
    source = world.source(0, 10)
    world.storage.put("alignment/flights/later.json", json.dumps({"version": 2}).encode())
    world.storage.put("alignment/flights/broken.json", b"{")
    world.storage.put("alignment/flights/readme.txt", b"hello")
    assert source.run() == 10
    assert "is not understood" in caplog.text


def test_a_sign_says_who_is_how_far(world):
    source = world.source(0, 10)
    source.run()
    assert json.loads(world.storage.get("alignment/flights/member-1.json")) == {
        "version": 1,
        "table": "db.t",
        "watermark": 10,
        "idle": False,
        "beat": 3,
        "at_millis": 1_000_003_000,
        "timeout": TIMEOUT,
    }


GROUP = {"scan.watermark.alignment.group": "g"}
DRIFTS = {"scan.watermark.alignment.max-drift": "5 min"}


def test_terms_come_from_the_options():
    assert Terms.of({}) is None
    assert Terms.of({**GROUP, **DRIFTS}) == Terms("g", 300_000, 60_000)
    given = Terms.of({**GROUP, **DRIFTS, "scan.watermark.alignment.timeout": "8 s"})
    assert given.timeout == 8000
    assert given.interval_seconds == 2
    for half in (GROUP, DRIFTS):
        with pytest.raises(OptionError, match="is set, but"):
            Terms.of(half)
    with pytest.raises(OptionError, match="no source would wait"):
        Terms.of({**GROUP, **DRIFTS, "scan.watermark.alignment.timeout": "0 s"})
    for name in ("a/b", "..", ""):
        with pytest.raises(InvalidNameError, match="cannot name a group"):
            Terms.of({"scan.watermark.alignment.group": name, **DRIFTS})


@pytest.mark.parametrize("seed", first_short(range(12), 4))
def test_several_sources_of_random_speed_that_stop_and_come_back(world, seed):
    chance = random.Random(seed)
    sources = [_random_source(world, chance) for _ in range(chance.randint(2, 5))]
    longest = max(b - a for s in sources for a, b in pairwise([s.watermarks[0], *s.watermarks]))
    silent_until = [0] * len(sources)
    moves = 0
    while any(s.at < len(s.watermarks) for s in sources):
        moves += 1
        assert moves < 50_000, "they hold each other back for ever"
        i = chance.randrange(len(sources))
        if moves < silent_until[i]:
            world.clock.seconds += 0.2
            continue
        match chance.random():
            case p if p < 0.01:
                sources[i] = sources[i].restarted()
            case p if p < 0.02:
                silent_until[i] = moves + chance.randint(1, 600)
            case p if p < 0.3:
                sources[i].alignment.member.beat()
            case _:
                _checked_step(sources, silent_until, moves, i, chance, longest)


def _random_source(world, chance):
    watermark = chance.randrange(0, 3000)
    watermarks = []
    for _ in range(chance.randint(20, 60)):
        watermark += chance.choice([0, 1, 20, 100, 250, 700])
        watermarks.append(watermark)
    return world.source(*watermarks)


def _checked_step(sources, silent_until, moves, i, chance, longest):
    """No step leads further from the slowest that is alive than the drift, or one snapshot beyond it."""
    source = sources[i]
    was_first = source.at == 0
    taken = source.step(most=chance.choice([1, 3, None]))
    if not taken or was_first:
        return
    # A source that had a word with the group not long ago, and has something to read, is waited for.
    others = [
        s for k, s in enumerate(sources) if k != i and s.at and _is_waited_for(s, silent_until[k], moves)
    ]
    if others:
        slowest = min(s.watermark for s in others)
        alone = taken == 1 and source.watermarks[source.at - 2] <= slowest
        assert source.watermark - slowest <= (longest if alone else DRIFT)


def _is_waited_for(source, silent_until, moves):
    sign = source.alignment.member._sign
    heard = sign is not None and source.world.clock.now_millis() - sign.at_millis < TIMEOUT
    return heard and moves >= silent_until and source.at < len(source.watermarks)

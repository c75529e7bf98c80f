"""Events of a pipeline, feed by feed: out of order, some twice, some far too late."""

from datetime import UTC, datetime, timedelta

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SPACING = 60
"""Seconds of event time that a feed covers."""
LAG = 20
"""How much older an event may be than one of an earlier feed, if it is not late altogether."""
KEYS = ("a", "b", "c")
LATE = "late"
"""The key of events that are older than all others by far; nothing else has it."""
EVENTS = "id BIGINT, k STRING, v BIGINT, ts TIMESTAMP_LTZ(6)"
COLUMNS = ("id", "k", "v", "ts")
FACTORS = "g BIGINT, f BIGINT"
FIRST_LATE_FEED = 2
_HOURS = 3600


def at(seconds):
    return BEGIN + timedelta(seconds=seconds)


def feed(random, number, before, late):
    """The events of a feed; `before` are those of the feed before."""
    begin = number * SPACING
    found = []
    for place in range(random.randint(4, 9)):
        seconds = begin + random.randint(-10, SPACING - 1)
        found.append(_event(number * 100 + place, random.choice(KEYS), random.randint(1, 60), seconds))
    young = [event for event in before if event["ts"] >= at(begin - LAG)]
    found += random.sample(young, min(len(young), random.randint(0, 2)))
    found += random.sample(found, random.randint(0, 2))
    if late and number >= FIRST_LATE_FEED:
        found.append(_event(number * 100 + 90, LATE, random.randint(1, 60), -_HOURS + number))
    random.shuffle(found)
    return found


def closing(number):
    """Events after which nothing is open any more, but what they opened themselves."""
    seconds = 100 * _HOURS
    return [_event(number * 100 + place, key, 60, seconds) for place, key in enumerate(KEYS)]


def is_closing(ts):
    """Whether a time is one of what the last events have opened: it need not have come out."""
    return ts is not None and ts >= at(50 * _HOURS)


def factors(number):
    """What is looked up for the events of a feed."""
    return [{"g": number, "f": 2 + number % 3}]


def _event(number, key, value, seconds):
    return {"id": number, "k": key, "v": value, "ts": at(seconds)}

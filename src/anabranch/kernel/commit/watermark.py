"""The watermark that a commit records: the event-time progress of the table.

By the table's definition (`anabranch.format.schema.watermark`) it is the newest event time of the rows written, less the
delay. A snapshot's is never lower than that of the snapshot before; a commit without rows carries it on. Only a commit
that restores the rows of another snapshot, or an explicit reset, sets it anew, also to a lower one.

Rows whose event time is further ahead of the writer's clock than `watermark.max-ahead` are ignored and counted.

Where rows come from several parallel *sources*, such as the partitions of a topic, it is the
lowest over them: a slow source would otherwise look late. The progress of each is kept in the property
`anabranch.watermark` of the snapshots, for each *producer*: a streaming query, or all batch writes of one job. Every
commit of ours carries it on, so it survives compactions and the expiry of older snapshots.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final, TypeAlias

from anabranch.errors import AnabranchError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.schema.watermark import WatermarkDefinition, watermark_definition
from anabranch.kernel.commit.commit_message import CommitMessage, EventTimes
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import AHEAD_PROPERTY, WATERMARK_PROPERTY, WATERMARK_SINCE_PROPERTY
from anabranch.options import (
    JOB,
    LEDGER_TIME_RETAINED,
    WATERMARK_IDLE_TIMEOUT,
    WATERMARK_MAX_AHEAD,
    WATERMARK_SOURCE_COLUMN,
)

_LOG = logging.getLogger(__name__)

_VERSION: Final = 1
_BATCH_PRODUCER: Final = "batch"
_MOST_LOOKED_AT: Final = 100
"""Most snapshots that are read to find the state of sources; each takes a request."""


@dataclass(frozen=True, slots=True)
class UnknownLimit:
    """Placeholder for a limit that exists but is not known."""


Limit: TypeAlias = int | UnknownLimit | None
"""Upper bound of a watermark: the progress of the data that the rows were made from."""


@dataclass(frozen=True)
class SourceProgress:
    """Progress of the sources of a commit, from which the watermark is computed on whatever base it lands on."""

    producer: str
    """Reader of the sources; its earlier progress counts too."""
    newest: Mapping[str, int]
    """Newest event time of each source that brought rows, epoch milliseconds."""
    delay_millis: int
    limit: Limit = None
    expected: frozenset[str] = frozenset()
    """Known sources, whether or not they ever brought rows; empty if not known."""
    idle_timeout: int | None = None
    """Milliseconds without rows after which a source no longer holds the watermark back; None if every source does."""
    kept_for: int = LEDGER_TIME_RETAINED.default
    """Milliseconds for which other producers that write nothing are remembered."""
    is_first: bool = False
    """Whether the producer certainly never committed before."""


@dataclass(frozen=True, slots=True)
class WithAhead:
    """A claim that comes with rows too far ahead of the clock to count."""

    claim: int | SourceProgress | None
    ahead: int
    """Number of such rows."""


Claim: TypeAlias = int | SourceProgress | WithAhead | None
"""A commit's claim about its watermark: the value, how to compute it on a base, or nothing."""


def claim(
    schema: TableSchema,
    options: Mapping[str, str],
    messages: Iterable[CommitMessage],
    *,
    producer: str | None = None,
    is_first: bool = False,
    limit: Limit = None,
    expected: frozenset[str] = frozenset(),
) -> Claim:
    """Return the watermark claim of these messages, by the definition in the schema they were written in.

    Args:
        options: of the table and the write.
        producer: the writing streaming query; None for a batch write.
        is_first: whether that query certainly never committed before.
        limit: what the watermark must not exceed.
        expected: known sources; used once one of them has brought rows, which shows that the names agree.

    Returns:
        None if the table has no watermark definition, or the rows have no event times.
    """
    definition = watermark_definition(schema)
    if definition is None:
        return None
    times = [message.event_times for message in messages if message.event_times is not None]
    ahead = sum(t.ahead for t in times)
    claimed: int | SourceProgress | None
    if WATERMARK_SOURCE_COLUMN.of(options) is not None:
        claimed = SourceProgress(
            producer or JOB.of(options) or _BATCH_PRODUCER,
            _highest_of_each(times),
            definition.delay_millis,
            limit,
            expected,
            WATERMARK_IDLE_TIMEOUT.of(options),
            LEDGER_TIME_RETAINED.of(options),
            is_first,
        )
    else:
        claimed = _limited(_own(definition, times), limit)
    return WithAhead(claimed, ahead) if ahead else claimed


@dataclass(frozen=True, slots=True)
class Recorded:
    """Event-time state that a snapshot records."""

    watermark: int | None
    properties: Mapping[str, str] = field(default_factory=dict)


def recorded(context: TableContext, previous: Snapshot | None, claimed: Claim, now: int) -> Recorded:
    """Return the event-time state for a snapshot on top of `previous`. Never raises, so that no commit fails by it.

    Args:
        claimed: the claim of the commit.
        now: its time, epoch milliseconds.
    """
    before = None if previous is None else previous.watermark
    carried = {} if previous is None else _carried(previous)
    if isinstance(claimed, WithAhead):
        _LOG.warning(
            "%d rows of '%s' have event times too far ahead of the clock: they are stored, and do not move the watermark; "
            "'%s' says how far they may be",
            *(claimed.ahead, context.title, WATERMARK_MAX_AHEAD.key),
        )
        found = recorded(context, previous, claimed.claim, now)
        return Recorded(found.watermark, {**found.properties, AHEAD_PROPERTY: str(claimed.ahead)})
    if isinstance(claimed, SourceProgress):
        try:
            states = _states_before(context, previous)
            watermark, text = _advanced(context, claimed, states, now)
            return Recorded(_highest(before, watermark), {**carried, WATERMARK_PROPERTY: text})
        except AnabranchError as error:
            _LOG.warning(
                "the watermark of '%s' stays: what its sources were is unknown: %s", context.title, error
            )
            claimed = None
    return Recorded(_highest(before, claimed), carried)


def given_back(previous: Snapshot | None, taken: Snapshot) -> Recorded:
    """Return the event-time state for a snapshot on `previous` with the rows, and so the watermark, of `taken`."""
    return _set_anew(previous, taken.watermark, taken.properties.get(WATERMARK_PROPERTY))


def reset(previous: Snapshot, to: int | None, latest: int) -> Recorded:
    """Return the event-time state for a snapshot on top of `previous` that resets the watermark.

    Args:
        to: the watermark from now on.
        latest: sources whose recorded progress is beyond this are forgotten, epoch milliseconds.
    """
    text = previous.properties.get(WATERMARK_PROPERTY)
    states = (None if text is None else _from_text(text)) or {}
    kept = {
        producer: {s: (newest, seen) for s, (newest, seen) in sources.items() if (newest or 0) <= latest}
        for producer, sources in states.items()
    }
    return _set_anew(previous, to, _to_text(kept) if kept else None)


def _set_anew(previous: Snapshot | None, watermark: int | None, known: str | None) -> Recorded:
    """Return the reset state. Unknown sources are recorded as such, as older snapshots describe other rows."""
    if previous is None:
        return Recorded(watermark, {} if known is None else {WATERMARK_PROPERTY: known})
    properties = _carried(previous)
    if known is not None or WATERMARK_PROPERTY in properties:
        properties[WATERMARK_PROPERTY] = known or _to_text({})
    if previous.watermark is not None and (watermark is None or watermark < previous.watermark):
        properties[WATERMARK_SINCE_PROPERTY] = str(previous.id + 1)
    return Recorded(watermark, properties)


def _carried(previous: Snapshot) -> dict[str, str]:
    """Return the event-time properties that the next snapshot carries on."""
    keys = (WATERMARK_PROPERTY, WATERMARK_SINCE_PROPERTY)
    return {key: previous.properties[key] for key in keys if key in previous.properties}


_Sources: TypeAlias = dict[str, tuple[int | None, int]]
"""Per source, the newest event time (None if it never had one), and when that came or the source became known."""

_States: TypeAlias = dict[str, _Sources]
"""Source states by producer."""


def _advanced(
    context: TableContext, claimed: SourceProgress, states: _States | None, now: int
) -> tuple[int | None, str]:
    """Return the watermark, and the updated states as text."""
    is_known = states is not None or claimed.is_first
    states = states or {}
    sources = _sources_after(claimed, states.get(claimed.producer, {}), now)
    kept = {
        producer: known
        for producer, known in states.items()
        if any(now - seen <= claimed.kept_for for _, seen in known.values())
    }
    text = _to_text({**kept, claimed.producer: sources})
    active = {
        source: newest
        for source, (newest, seen) in sources.items()
        if claimed.idle_timeout is None or now - seen <= claimed.idle_timeout
    }
    waiting = tuple(sorted(source for source, newest in active.items() if newest is None))
    if waiting:
        _say_who_is_waited_for(context.title, waiting)
        return None, text
    newest_of_each = [newest for newest in active.values() if newest is not None]
    # If a producer's history is gone, its lagging sources are unknown: the watermark stays this once.
    own = min(newest_of_each) - claimed.delay_millis if newest_of_each and is_known else None
    return _limited(own, claimed.limit), text


def _sources_after(claimed: SourceProgress, before: _Sources, now: int) -> _Sources:
    """Return the sources of a producer after a commit."""
    sources: _Sources = {s: (newest, seen) for s, (newest, seen) in before.items() if newest is not None}
    for source, newest in claimed.newest.items():
        known, _ = sources.get(source, (None, now))
        sources[source] = (newest if known is None else max(newest, known), now)
    if claimed.expected.isdisjoint(sources):
        return sources
    unheard = {source: before.get(source, (None, now)) for source in claimed.expected - sources.keys()}
    return {**sources, **unheard}


@lru_cache(maxsize=64)  # once, not with every batch
def _say_who_is_waited_for(title: str, sources: tuple[str, ...]) -> None:
    shown = ", ".join(sources[:5]) + (f" and {len(sources) - 5} more" if len(sources) > 5 else "")
    _LOG.warning(
        "the watermark of '%s' waits for sources that have brought no rows yet: %s; set '%s' to go on without them",
        *(title, shown, WATERMARK_IDLE_TIMEOUT.key),
    )


def _states_before(context: TableContext, previous: Snapshot | None) -> _States | None:
    """Return the source states of all producers; None if they may have expired, or lie too far back.

    The newest snapshot with states has all of them: our commits carry them on, and only those of other
    engines, which do not, may lie on top of it.
    """
    oldest: Snapshot | None = None
    history = () if previous is None else context.snapshots.backwards(previous)
    for snapshot in islice(history, _MOST_LOOKED_AT):
        text = snapshot.properties.get(WATERMARK_PROPERTY)
        if text is not None:
            return _from_text(text)
        oldest = snapshot
    return {} if oldest is None or oldest.id == 1 else None


def _to_text(states: _States) -> str:
    content = {
        "version": _VERSION,
        "producers": {
            producer: {s: list(of) for s, of in sources.items()} for producer, sources in states.items()
        },
    }
    return json.dumps(content, separators=(",", ":"), sort_keys=True)


def _from_text(text: str) -> _States | None:
    """Parse source states; None if the format is not ours."""
    try:
        content: Any = json.loads(text)
        if content["version"] != _VERSION:
            return None
        return {
            str(producer): {
                str(s): (None if newest is None else int(newest), int(seen))
                for s, (newest, seen) in sources.items()
            }
            for producer, sources in content["producers"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _own(definition: WatermarkDefinition, times: Iterable[EventTimes]) -> int | None:
    newest = max((t.newest for t in times if t.newest is not None), default=None)
    return None if newest is None else newest - definition.delay_millis


def _highest_of_each(times: Iterable[EventTimes]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in times:
        for source, newest in some.by_source.items():
            found[source] = max(newest, found.get(source, newest))
    return found


def _limited(watermark: int | None, limit: Limit) -> int | None:
    if watermark is None or isinstance(limit, UnknownLimit):
        return None
    return watermark if limit is None else min(watermark, limit)


def _highest(first: int | None, second: int | None) -> int | None:
    known = [value for value in (first, second) if value is not None]
    return max(known) if known else None

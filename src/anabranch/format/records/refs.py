"""Names and positions that hold on to snapshots: tags and consumers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from anabranch.format.records.snapshot import Snapshot
from anabranch.format.text.json_object import JsonObject, describe, to_bytes

_CREATE_TIME = "tagCreateTime"
_TIME_RETAINED = "tagTimeRetained"
_CREATED_MILLIS = "anabranch.created-millis"
_RETAINED_MILLIS = "anabranch.retained-millis"
_RENAMED = "anabranch.renamed"
_MARK = "anabranch.mark"
_OWN = (_CREATE_TIME, _TIME_RETAINED, _CREATED_MILLIS, _RETAINED_MILLIS, _RENAMED, _MARK)
"""Keys of a tag's file that are not its snapshot's."""
_OFFSET = "anabranchOffset"
UNREAD_FROM = "unreadFrom"
"""Key in a consumer's offset: the first snapshot with rows it has not read, if it keeps an earlier one."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FURTHEST_WEST = 12 * 3_600_000
"""The zone that is last to reach a local time: UTC-12."""
_FURTHEST_EAST = 14 * 3_600_000
"""The zone whose local time is furthest ahead: UTC+14."""
_LONGEST_RETENTION = 2**50
"""Milliseconds; what is longer is taken for this, which is 35,000 years and exact in seconds."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a snapshot, which it keeps from expiring; it holds the snapshot's content itself.

    The two times stand together in files of other engines; a tag without them never expires by age.

    Example:
        >>> tag = table.create_tag("month-end", retained="30 d")
        >>> tag.name, tag.snapshot.id
        ('month-end', 2)
    """

    name: str
    snapshot: Snapshot
    create_time: int | None = None
    """Local wall-clock time of the creator, in milliseconds, encoded as if it were UTC."""
    time_retained: int | None = None
    """How long the tag is kept after its creation, in milliseconds."""
    created_millis: int | None = None
    """When it was created, in epoch milliseconds; None in tags of other engines, which store the local time only."""
    is_renamed: bool = field(default=False, compare=False)
    """Whether the file is younger than the tag, so that `created_millis` is all there is to tell its age."""
    mark: str | None = field(default=None, compare=False, repr=False)
    """Who wrote it: unique, so that of several who write the same at once each knows its own."""

    def is_expired(self, now: int, stored: int | None = None) -> bool:
        """Whether it has been kept long enough.

        A tag of ours is as old as its file: the clock of whoever created it may have been wrong. A local time without its zone may be of any zone. Such a tag is taken to have been created as late as that
        allows: in the zone furthest west, but no later than its file was stored.

        Args:
            now: epoch milliseconds.
            stored: when its file was stored, in epoch milliseconds, if that is known.
        """
        if self.create_time is None or self.time_retained is None:
            return False
        return now > self.created(stored) + self.time_retained

    def created(self, stored: int | None) -> int:
        """Return when it was created, in epoch milliseconds, as exactly as known; for a tag with a time only.

        Args:
            stored: when its file was stored, if that is known.
        """
        assert self.create_time is not None, "asked of tags that expire"
        if self.created_millis is None:
            latest = self.create_time + _FURTHEST_WEST
            return latest if stored is None else min(latest, stored)
        if stored is None:
            return self.created_millis
        return min(self.created_millis, stored) if self.is_renamed else stored

    def to_json(self) -> bytes:
        """The content of the tag's file."""
        return to_bytes(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The JSON values of the tag's file.

        Other engines expire a tag when *their* local time is past `tagCreateTime` plus `tagTimeRetained`. For the one
        whose clock is furthest ahead of the creator's, the time to keep it is written longer by the difference; how
        long it was meant to be kept stands beside it.
        """
        values = self.snapshot.to_dict()
        if self.create_time is not None:
            values[_CREATE_TIME] = _to_parts(self.create_time)
        if self.time_retained is not None:
            values[_TIME_RETAINED] = self._retained_for_others() / 1000
        if self.created_millis is not None:
            values[_CREATED_MILLIS] = self.created_millis
            values[_RETAINED_MILLIS] = self.time_retained
        if self.is_renamed:
            values[_RENAMED] = True
        if self.mark is not None:
            values[_MARK] = self.mark
        return values

    def _retained_for_others(self) -> int:
        assert self.time_retained is not None
        if self.created_millis is None or self.create_time is None:
            return self.time_retained
        return self.time_retained + max(0, self.created_millis + _FURTHEST_EAST - self.create_time)

    @classmethod
    def from_json(cls, data: bytes, *, name: str, path: str) -> Tag:
        """A tag from its file; what it says below a millisecond is dropped.

        Raises:
            CorruptTableError: the file does not say what it must.
            UnsupportedFeatureError: it was written by a later version of the format.
        """
        content = JsonObject.parse(data, path=path)
        snapshot = Snapshot.from_object(content, besides=_OWN)
        created = content.optional_integer(_CREATED_MILLIS, minimum=0)
        retained = content.optional_integer(_RETAINED_MILLIS, minimum=0)
        is_own = created is not None and retained is not None
        return cls(
            name,
            snapshot,
            _create_time(content),
            retained if is_own else _time_retained(content),
            created if is_own else None,
            is_own and content.values.get(_RENAMED) is True,
            content.optional_text(_MARK),
        )


@dataclass(frozen=True, slots=True)
class Consumer:
    """The position of a named reader, which keeps from expiring what it has not read."""

    next_snapshot: int
    """Id of the snapshot it reads next; it may not exist yet."""
    offset: Mapping[str, Any] | None = None
    """The exact position, with the identity of the branch and the stamp of the snapshot; None from other engines."""

    @property
    def unread_from(self) -> int:
        """Id of the first snapshot it has not read whole: one later, if it keeps the one before that from expiring."""
        unread = (self.offset or {}).get(UNREAD_FROM)
        return unread if isinstance(unread, int) else self.next_snapshot

    def to_json(self) -> bytes:
        """The content of the consumer's file."""
        values: dict[str, Any] = {"nextSnapshot": self.next_snapshot}
        if self.offset is not None:
            values[_OFFSET] = dict(self.offset)
        return to_bytes(values)

    @classmethod
    def from_json(cls, data: bytes, *, path: str) -> Consumer:
        """A consumer from its file.

        Raises:
            CorruptTableError: the file is empty or cut off, perhaps because it is being written just now,
                or does not say what it must.
        """
        content = JsonObject.parse(data, path=path)
        offset = content.values.get(_OFFSET)
        known = offset if isinstance(offset, dict) else None
        return cls(content.integer("nextSnapshot", minimum=0), known)


def _to_parts(millis: int) -> list[int]:
    t = _EPOCH + timedelta(milliseconds=millis)
    return [t.year, t.month, t.day, t.hour, t.minute, t.second, t.microsecond * 1000]


def _create_time(content: JsonObject) -> int | None:
    """Year, month, day, hour, minute and perhaps second and nanosecond."""
    parts = content.values.get(_CREATE_TIME)
    if parts is None:
        return None
    if (
        not isinstance(parts, list)
        or not 5 <= len(parts) <= 7
        or not all(type(part) is int for part in parts)
    ):
        content.fail(
            f"'{_CREATE_TIME}' is {_shown(parts)}, expected 5 to 7 whole numbers, year to nanosecond"
        )
    year, month, day, hour, minute, second, nanosecond = (*parts, 0, 0)[:7]
    try:
        t = datetime(year, month, day, hour, minute, second, nanosecond // 1000, tzinfo=UTC)
    except (ValueError, OverflowError):
        content.fail(f"'{_CREATE_TIME}' is {_shown(parts)}, which is no time between the years 1 and 9999")
    return (t - _EPOCH) // _MILLISECOND


def _time_retained(content: JsonObject) -> int | None:
    """Seconds with a fraction."""
    seconds = content.values.get(_TIME_RETAINED)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        content.fail(f"'{_TIME_RETAINED}' is {describe(seconds)}, expected seconds above 0")
    if seconds > _LONGEST_RETENTION / 1000 or math.isinf(seconds):
        return _LONGEST_RETENTION
    return round(seconds * 1000)


def _shown(value: Any) -> str:
    return describe(value) if not isinstance(value, list) or len(str(value)) > 80 else str(value)

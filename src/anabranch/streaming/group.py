"""Members of an alignment group, as files in the warehouse that all of them can see.

Every source of a group has a file of its own in the warehouse, ``alignment/<group>/<member>.json``, which says how
far it is in event time. It writes the file again from time to time as a sign of life. A member that gives none for
its timeout, because its process was killed, say, is not waited for any more, and its file is removed; should it
come back, it writes the file anew.

How long ago a sign of life was given is measured by who looks, from when the file last changed under its eyes. Only
at the first look the times of two machines are compared: a file that was left behind long ago holds nobody back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Self

from anabranch.errors import CorruptTableError, NotFoundError, OptionError, UnsupportedFeatureError
from anabranch.format.text.names import check_group_name
from anabranch.format.text.record import JsonFile, Stored
from anabranch.options import ALIGNMENT_GROUP, ALIGNMENT_MAX_DRIFT, ALIGNMENT_TIMEOUT
from anabranch.runtime import Runtime
from anabranch.storage.protocol import Storage

_LOG = logging.getLogger(__name__)

_FOLDER: Final = "alignment"
_SUFFIX: Final = ".json"
_SIGNS_PER_TIMEOUT: Final = 4
_LONGEST_INTERVAL_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.5
"""Seconds for which the state of other members is cached; their watermarks only increase."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings that the members of a group share."""

    group: str
    max_drift: int
    """Milliseconds of event time that a member may be ahead of the slowest."""
    timeout: int
    """Milliseconds without a sign of life, or without anything to read, after which a member is not waited for."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self | None:
        """Parse the options ``scan.watermark.alignment.*``; None if they name no group.

        Raises:
            OptionError: one of group and drift is set without the other, or the timeout is 0.
            InvalidNameError: the group cannot be called so.
        """
        group, drift = ALIGNMENT_GROUP.of(options), ALIGNMENT_MAX_DRIFT.of(options)
        if group is None and drift is None:
            return None
        if group is None or drift is None:
            there, missing = ALIGNMENT_GROUP.key, ALIGNMENT_MAX_DRIFT.key
            if group is None:
                there, missing = missing, there
            raise OptionError(
                f"{there} is set, but {missing} is not",
                hint="sources of one group are aligned to within the drift: set both, or neither.",
            )
        check_group_name(group)
        timeout = ALIGNMENT_TIMEOUT.of(options)
        if not timeout:
            raise OptionError(
                f"{ALIGNMENT_TIMEOUT.key} is 0, so no source would wait for any other",
                hint="leave it out for a minute, or leave out scan.watermark.alignment.* altogether.",
            )
        return cls(group, drift, timeout)

    @property
    def interval_seconds(self) -> float:
        """Maximum interval between a member's signs of life, in seconds."""
        return min(_LONGEST_INTERVAL_SECONDS, self.timeout / 1000 / _SIGNS_PER_TIMEOUT)


@dataclass(frozen=True, slots=True)
class Sign(JsonFile):
    """Sign of life: the state that a member publishes to the others."""

    SNAKE: ClassVar = True

    table: str
    watermark: int | None
    """Watermark reached, in epoch milliseconds; None if there is none yet."""
    idle: bool
    """Whether the member has had nothing to read for its timeout, so that others need not wait."""
    beat: int
    """Counter of its signs of life."""
    at_millis: int
    """Time of this sign of life, by the member's own clock."""
    timeout: Annotated[int, Stored(minimum=0)]
    """Milliseconds after a sign of life for which the others wait for it."""


@dataclass(slots=True)
class _Seen:
    """Last observed state of another member."""

    sign: Sign
    since: float
    """Time of this sign of life, by our own monotonic clock."""


class AlignmentMember:
    """One source of a group, for the time that one object reads it. Safe for two threads."""

    def __init__(self, storage: Storage, terms: Terms, table: str, runtime: Runtime) -> None:
        """Create it; nothing is written before the first `tell`.

        Args:
            table: what the source reads, for people.
        """
        self.terms = terms
        self.name = runtime.ids.uuid()
        self._folder = storage.scoped(f"{_FOLDER}/{terms.group}")
        self._table = table
        self._clock = runtime.clock
        self._sign: Sign | None = None
        self._seen: dict[str, _Seen] = {}
        self._looked: float | None = None
        self._writing = threading.Lock()
        self._has_left = False

    def tell(self, watermark: int | None, *, idle: bool = False) -> None:
        """Publish this source's watermark, if it changed; joins the group at the first call."""
        sign = self._sign
        if sign is None or (sign.watermark, sign.idle) != (watermark, idle):
            self._write(watermark, idle=idle)

    def beat(self) -> None:
        """Give a sign of life."""
        sign = self._sign
        if sign is not None:
            self._write(sign.watermark, idle=sign.idle)

    def leave(self) -> None:
        """Leave the alignment group. Later calls of `tell` and `beat` write nothing."""
        with self._writing:
            if not self._has_left:
                self._has_left = True
                self._folder.delete(self.name + _SUFFIX)

    def slowest_other(self) -> int | None:
        """Return the lowest watermark of the others that are waited for, in epoch milliseconds; None if none."""
        now = self._clock.monotonic()
        if self._looked is None or now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._look(now)
        waited_for = (seen.sign for seen in self._seen.values())
        return min((s.watermark for s in waited_for if s.watermark is not None and not s.idle), default=None)

    def _write(self, watermark: int | None, *, idle: bool) -> None:
        with self._writing:
            if self._has_left:
                return
            beat = 1 if self._sign is None else self._sign.beat + 1
            at = self._clock.now_millis()
            sign = Sign(self._table, watermark, idle, beat, at, self.terms.timeout)
            self._folder.put(self.name + _SUFFIX, sign.to_json(), durable=False)
            self._sign = sign

    def _look(self, now: float) -> None:
        found = dict(self._others())
        self._seen = {name: self._recognised(name, sign, now) for name, sign in found.items()}
        for name, seen in list(self._seen.items()):
            silent = now - seen.since
            if silent * 1000 >= seen.sign.timeout:
                _LOG.warning(
                    "sources of the group '%s' do not wait for the one of '%s' any more: it gave no sign of life "
                    "for %.0f s",
                    self.terms.group,
                    seen.sign.table,
                    silent,
                )
                del self._seen[name]
                self._folder.delete(name + _SUFFIX)

    def _others(self) -> Iterator[tuple[str, Sign]]:
        for info in self._folder.list():
            name = info.path.removesuffix(_SUFFIX)
            if name in (self.name, info.path):
                continue
            try:
                yield name, Sign.from_json(self._folder.get(info.path), path=info.path)
            except NotFoundError:
                continue  # it has left since
            except (CorruptTableError, UnsupportedFeatureError) as error:
                _LOG.warning(
                    "the group '%s' has a member that is not understood: %s", self.terms.group, error
                )

    def _recognised(self, name: str, sign: Sign, now: float) -> _Seen:
        before = self._seen.get(name)
        if before is None:
            return _Seen(sign, now - max(0, self._clock.now_millis() - sign.at_millis) / 1000)
        return _Seen(sign, before.since if before.sign.beat == sign.beat else now)

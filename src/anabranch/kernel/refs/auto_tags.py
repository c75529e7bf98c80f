"""Tags and savepoints created automatically by commits; tags as in Paimon: `tag.automatic-creation`.

By time (``process-time``: of the commit; ``watermark``: of the table's event time), a tag stands for a *period*, a
day or some hours of a local clock, and is named after it: ``2026-01-31``. The first snapshot that comes
`tag.creation-delay` or later after the end of a period gets the tag of the period that has just passed; periods
without a commit get none, or with `tag.automatic-completion` the same snapshot. With ``batch``, the snapshot of each
batch write gets the tag of the day, which is replaced if there is one.

A branch tags the periods that pass after it began: those of before are main's.

Every committer checks what is due, and that follows from snapshots and tags alone: whoever comes second
finds the tag. A tag that was deleted is not made again: the file ``tag/AUTOMATIC`` remembers the newest tagged
period. It is only a hint; without it the newest tag tells.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from anabranch.errors import AlreadyExistsError, AnabranchError, NotFoundError, OptionError
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import of_snapshot
from anabranch.kernel.log.store_clock import SKEW_MILLIS, commit_time
from anabranch.kernel.log.tag_log import find_tag, find_tags, visible_names
from anabranch.kernel.refs.savepoints import due_savepoint
from anabranch.kernel.refs.tag_removal import remove_exactly
from anabranch.kernel.refs.tags import create_tag, expire_tags, replace_tag
from anabranch.kernel.refs.time_travel import find_border
from anabranch.options import (
    SINK_PROCESS_TIME_ZONE,
    SINK_WATERMARK_TIME_ZONE,
    TAG_AUTOMATIC_COMPLETION,
    TAG_AUTOMATIC_CREATION,
    TAG_BATCH_NAME,
    TAG_CREATION_DELAY,
    TAG_CREATION_PERIOD,
    TAG_DEFAULT_TIME_RETAINED,
    TAG_NUM_RETAINED_MAX,
    TAG_PERIOD_FORMATTER,
)
from anabranch.runtime import Clock

_HOUR = 3_600_000
_PERIODS = {"daily": 24 * _HOUR, "hourly": _HOUR, "two-hours": 2 * _HOUR}
_DAY_FORMS = {
    "with_dashes": "%Y-%m-%d",
    "without_dashes": "%Y%m%d",
    "without_dashes_and_spaces": "%Y%m%d",
}
_HOUR_FORMS = {
    "with_dashes": "%Y-%m-%d %H",
    "without_dashes": "%Y%m%d %H",
    "without_dashes_and_spaces": "%Y%m%d%H",
}
_BATCH_PREFIX = "batch-write-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def due_tags(context: TableContext, options: Mapping[str, str], newest: Snapshot | None = None) -> list[str]:
    """Create the automatic tags that are due, and remove surplus and expired ones.

    Cheap if nothing is due: one small read.

    Args:
        context: the branch.
        options: of the table, overridden by those of the job.
        newest: the snapshot up to which to look, such as one just committed; the newest if None.

    Returns:
        The names of the tags that this call made or replaced.

    Raises:
        OptionError: the options contradict each other.
    """
    mode = TAG_AUTOMATIC_CREATION.of(options)
    head = None if mode == "none" else newest or context.snapshots.head()
    if head is None:
        return []
    made = [_of_batch(context, options, head)] if mode == "batch" else _of_periods(context, options, head)
    made = [name for name in made if name]
    if made:
        _remove_surplus(context, options)
        if TAG_DEFAULT_TIME_RETAINED.of(options) is not None:
            expire_tags(context)
    return made


@dataclass(frozen=True, slots=True)
class Periods:
    """Division of time into named periods. Times are milliseconds of a local clock, as if UTC."""

    length: int
    delay: int
    form: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Periods:
        """Create the periods that the options describe. Raises `OptionError`."""
        length = _PERIODS[TAG_CREATION_PERIOD.of(options)]
        delay = TAG_CREATION_DELAY.of(options)
        if delay >= length:
            raise OptionError(
                f"{TAG_CREATION_DELAY.key} is {delay} ms, which is not less than the period of {length} ms",
                hint="choose a longer tag.creation-period or a shorter delay.",
            )
        forms = _DAY_FORMS if length == 24 * _HOUR else _HOUR_FORMS
        return cls(length, delay, forms[TAG_PERIOD_FORMATTER.of(options)])

    def passed_at(self, local: int) -> int:
        """Return the start of the last period that has passed, including the delay."""
        return (local - self.delay) // self.length * self.length - self.length

    def name(self, start: int) -> str:
        return (_EPOCH + timedelta(milliseconds=start)).strftime(self.form)

    def parse(self, name: str) -> int | None:
        """Return the start of the period that a tag is named after; None for a tag of another kind."""
        try:
            start = datetime.strptime(name, self.form).replace(tzinfo=UTC)
        except ValueError:
            return None
        millis = (start - _EPOCH) // timedelta(milliseconds=1)
        return millis if self.name(millis) == name else None


def _of_periods(context: TableContext, options: Mapping[str, str], head: Snapshot) -> list[str]:
    periods = Periods.of(options)
    hint = _Hint(context, periods)
    reached, now = hint.read(), _local_time(context, options, head)
    latest = _latest_period(context, options, periods)
    if reached is not None and latest is not None and reached > latest:
        reached = None  # a clock that was ahead made a tag of a period still to come
    if now is None or (reached is not None and periods.passed_at(now) <= reached):
        return []
    named = [start for name in visible_names(context) if (start := periods.parse(name)) is not None]
    tagged = [start for start in named if latest is None or start <= latest]
    newest = find_tag(context, periods.name(max(tagged))) if tagged else None
    first_id = context.snapshots.earliest_id() if newest is None else newest.snapshot.id + 1
    known = (*tagged, reached, _passed_at_fork(context, options, periods))
    last = max((start for start in known if start is not None), default=None)
    made = []
    for snapshot, start in _due(context, options, periods, range(first_id or 1, head.id + 1), last):
        names = [periods.name(period) for period in _completed(options, periods, last, start)]
        made += [name for name in names if _create(context, options, name, snapshot)]
        last = start
    if last is not None:
        hint.write(last)
    return made


def _passed_at_fork(context: TableContext, options: Mapping[str, str], periods: Periods) -> int | None:
    """Return the last period that had passed where a branch left main, whose commits tag it; None if that is not known."""
    begun = None if context.fork is None else context.snapshots.find(context.fork.snapshot.id)
    local = None if begun is None else _local_time(context, options, begun)
    return None if local is None else periods.passed_at(local)


def _latest_period(context: TableContext, options: Mapping[str, str], periods: Periods) -> int | None:
    """Return the last period that can have a tag by now; None with event time, which may be ahead."""
    if TAG_AUTOMATIC_CREATION.of(options) == "watermark":
        return None
    clock = context.runtime.clock
    skew = SKEW_MILLIS + periods.length  # of machines whose clocks are in order, or whose time zones differ
    return periods.passed_at(_on_clock(clock.now_millis() + skew, SINK_PROCESS_TIME_ZONE.of(options), clock))


def _completed(options: Mapping[str, str], periods: Periods, last: int | None, start: int) -> range:
    """Return the periods to tag a snapshot for: `start`, and with completion the untagged ones since `last`."""
    first = start
    if last is not None and TAG_AUTOMATIC_COMPLETION.of(options):
        first = last + periods.length
        most = TAG_NUM_RETAINED_MAX.of(options)
        if most is not None:  # no more than would stay
            first = max(first, start - (most - 1) * periods.length)
    return range(first, start + 1, periods.length)


def _due(
    context: TableContext,
    options: Mapping[str, str],
    periods: Periods,
    ids: range,
    last: int | None,
) -> Iterator[tuple[Snapshot, int]]:
    """Yield the first snapshot after each period later than `last`, with the start of the period."""
    while ids:

        def is_before(snapshot: Snapshot, last: int | None = last) -> bool:
            local = _local_time(context, options, snapshot)
            return local is None or (last is not None and periods.passed_at(local) <= last)

        found = find_border(context.snapshots, ids, is_before).after
        local = None if found is None else _local_time(context, options, found)
        if found is None or local is None:
            return
        last = periods.passed_at(local)
        yield found, last
        ids = range(found.id + 1, ids.stop)


def _local_time(context: TableContext, options: Mapping[str, str], snapshot: Snapshot) -> int | None:
    """Return the time of a snapshot on the clock used for tags; None if it has no watermark."""
    if TAG_AUTOMATIC_CREATION.of(options) == "watermark":
        zone = SINK_WATERMARK_TIME_ZONE.of(options)
        return (
            None if snapshot.watermark is None else _on_clock(snapshot.watermark, zone, context.runtime.clock)
        )
    time = commit_time(context, snapshot)
    return _on_clock(time, SINK_PROCESS_TIME_ZONE.of(options), context.runtime.clock)


def _on_clock(millis: int, zone: str | None, machine: Clock) -> int:
    if zone is None:
        return millis + machine.local_offset_millis(millis)
    if zone == "UTC":
        return millis
    try:
        offset = (_EPOCH + timedelta(milliseconds=millis)).astimezone(ZoneInfo(zone)).utcoffset()
    except OverflowError:
        return millis
    return millis + (offset or timedelta()) // timedelta(milliseconds=1)


def _of_batch(context: TableContext, options: Mapping[str, str], written: Snapshot) -> str | None:
    if written.commit_identifier != BATCH_COMMIT_IDENTIFIER:
        return None
    local = _on_clock(
        commit_time(context, written), SINK_PROCESS_TIME_ZONE.of(options), context.runtime.clock
    )
    day = (_EPOCH + timedelta(milliseconds=local)).strftime("%Y-%m-%d")
    name = TAG_BATCH_NAME.of(options) or f"{_BATCH_PREFIX}{day}"
    existing = find_tag(context, name)
    if existing is None:
        return name if _create(context, options, name, written) else None
    if existing.snapshot.id >= written.id:
        return None  # of a later write, which was faster
    replace_tag(context, name, of_snapshot(written))
    return name


def _create(context: TableContext, options: Mapping[str, str], name: str, snapshot: Snapshot) -> bool:
    """Whether this call made the tag; others may have made it, or the snapshot may have expired."""
    try:
        retained = TAG_DEFAULT_TIME_RETAINED.of(options)
        create_tag(context, name, of_snapshot(snapshot), retained=retained, automatic=True)
    except (AlreadyExistsError, NotFoundError):
        return False
    return True


def _remove_surplus(context: TableContext, options: Mapping[str, str]) -> None:
    """Remove the oldest automatic tags beyond `tag.num-retained-max`."""
    most = TAG_NUM_RETAINED_MAX.of(options)
    if most is None:
        return
    if TAG_AUTOMATIC_CREATION.of(options) == "batch":
        names = [name for name in visible_names(context) if name.startswith(_BATCH_PREFIX)]
    else:
        periods = Periods.of(options)
        names = [name for name in visible_names(context) if periods.parse(name) is not None]
    tags = sorted(find_tags(context, names), key=lambda tag: (tag.snapshot.id, tag.name))
    for tag in tags[: max(0, len(tags) - most)]:
        remove_exactly(context, tag)  # not one that replaced it just now


@dataclass(frozen=True, slots=True)
class _Hint:
    """Hint file with the start of the newest period that was tagged."""

    context: TableContext
    periods: Periods

    def read(self) -> int | None:
        """Read the hint; None if missing or unreadable."""
        try:
            text = self.context.storage.get(self._path).decode("ascii")
            return self.periods.parse(text)
        except (AnabranchError, UnicodeDecodeError):
            return None

    def write(self, start: int) -> None:
        """Write the hint; failure is ignored."""
        try:
            self.context.storage.put(self._path, self.periods.name(start).encode("ascii"), durable=False)
        except AnabranchError:
            return

    @property
    def _path(self) -> str:
        return f"{self.context.layout.tag_folder}/AUTOMATIC"


_LOG = logging.getLogger(__name__)


def keep_due(context: TableContext, options: Mapping[str, str], committed: Snapshot) -> None:
    """Create the tags and the savepoint that are due after this commit.

    Never fails the commit: errors are logged, and the next commit tries again.

    Args:
        context: the branch.
        options: of the table, overridden by those of the job.
    """
    try:
        for name in due_tags(context, options, committed):
            _LOG.info("%s: tag '%s' was made", context.title, name)
    except AnabranchError as error:
        _LOG.warning("%s: automatic tags were not made: %s", context.title, error)
    try:
        made = due_savepoint(context, options, committed)
        if made is not None:
            _LOG.info("%s: savepoint %d keeps snapshot %d", context.title, made.id, made.saved_snapshot_id)
    except AnabranchError as error:
        _LOG.warning("%s: the savepoint that is due was not made: %s", context.title, error)

"""Start of a stream: the option `scan.mode`, and the options that go with it.

| `scan.mode`          | first delivered                        | then                  |
|----------------------|----------------------------------------|-----------------------|
| `latest-full`, `full`| all rows of the newest snapshot        | what is added later   |
| `latest`             | nothing                                | what is added later   |
| `from-snapshot`      | what the named snapshot added          | what was added after  |
| `from-snapshot-full` | all rows of the named snapshot         | what was added after  |
| `from-timestamp`     | what the first snapshot committed at that time or later added | what was added after |

The snapshot is named by one of `scan.snapshot-id`, `scan.savepoint-id`, `scan.tag-name`, `scan.version` and
`scan.watermark` (the first one whose watermark is at least that); the time by `scan.timestamp` or
`scan.timestamp-millis`. `default` is the mode that goes with the option that is there, and `latest-full` without any:
naming a tag alone means ``from-snapshot``.

What a snapshot added needs its own file or a tag or savepoint that holds it; so do all its rows. What was added
after needs all later snapshots: a stream never begins before a gap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from anabranch.errors import NotFoundError, OptionError
from anabranch.format.records.snapshot import NO_LIST, CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import check_unambiguous, located_here
from anabranch.kernel.log.moment import Moment, time_text
from anabranch.kernel.log.properties import PARENT_PROPERTY
from anabranch.kernel.log.tag_log import find_tag
from anabranch.kernel.refs.moments import MOMENT_OPTIONS, named_moment, to_millis
from anabranch.kernel.refs.time_travel import retained_at
from anabranch.option_kinds import Option
from anabranch.options import (
    SCAN_BOUNDED_WATERMARK,
    SCAN_EXACT,
    SCAN_MODE,
    SCAN_SAVEPOINT_ID,
    SCAN_SNAPSHOT_ID,
    SCAN_TAG_NAME,
    SCAN_TIMESTAMP,
    SCAN_TIMESTAMP_MILLIS,
    SCAN_VERSION,
    SCAN_WATERMARK,
)
from anabranch.streaming.difference import crossing
from anabranch.streaming.history import History
from anabranch.streaming.limits import WatermarkBound
from anabranch.streaming.offsets import BEGINNING, Position

_NAMES: Final[tuple[Option[Any], ...]] = (
    SCAN_SNAPSHOT_ID,
    SCAN_SAVEPOINT_ID,
    SCAN_TAG_NAME,
    SCAN_VERSION,
    SCAN_WATERMARK,
)
_TIMES: Final[tuple[Option[Any], ...]] = (SCAN_TIMESTAMP, SCAN_TIMESTAMP_MILLIS)
_TOLD_BY: Final[Mapping[str, tuple[Option[Any], ...]]] = {
    "latest-full": (),
    "latest": (),
    "from-snapshot": _NAMES,
    "from-snapshot-full": _NAMES,
    "from-timestamp": _TIMES,
}
_NUMBER: Final = re.compile(r"(?:snapshot\.)?([1-9][0-9]{0,17})")


def first_position(context: TableContext, options: Mapping[str, str]) -> Position:
    """Return the position before the first row that a new stream delivers.

    All rows of a bounded stream (`scan.bounded.watermark`) are those of the newest snapshot within its bound.

    Raises:
        OptionError: the options contradict each other, or name a time that is still to come.
        NotFoundError: what to begin with has expired or does not exist yet; the error says from where one can.
    """
    asked, watermark = _asked_position(context, options), SCAN_BOUNDED_WATERMARK.of(options)
    snapshot = History(context).verified(asked) if asked.full and watermark is not None else None
    if snapshot is None or watermark is None:
        return asked
    bound = WatermarkBound(context, watermark)
    return bound.last_before(snapshot) if bound.excludes(snapshot) else asked


def scan_mode(options: Mapping[str, str]) -> str:
    """Return the effective mode, never ``default``. Raises `OptionError` if the options contradict each other."""
    mode = SCAN_MODE.of(options)
    given = [option for option in MOMENT_OPTIONS if option.key in options]
    if len(given) > 1:
        raise OptionError(
            f"a stream begins at one point, found {' and '.join(option.key for option in given)}",
            hint="give one of them only.",
        )
    if mode == "default":
        if not given:
            return "latest-full"
        return "from-timestamp" if given[0] in _TIMES else "from-snapshot"
    mode = "latest-full" if mode == "full" else mode
    told_by = _TOLD_BY[mode]
    if given and given[0] not in told_by:
        fitting = next(name for name, options_of in _TOLD_BY.items() if given[0] in options_of)
        takes = f"takes {_either(told_by)}" if told_by else "takes none"
        raise OptionError(
            f"scan.mode is '{mode}', which {takes}, but {given[0].key} is set to {options[given[0].key]}",
            hint=f"leave one of them out, or set scan.mode={fitting}.",
        )
    if told_by and not given:
        raise OptionError(
            f"scan.mode is '{mode}', but it is not said where: {told_by[0].key} is not set",
            hint=f"set {_either(told_by)}.",
        )
    return mode


def _asked_position(context: TableContext, options: Mapping[str, str]) -> Position:
    mode = scan_mode(options)
    match mode:
        case "from-timestamp":
            return _since(context, _asked_time(options))
        case "from-snapshot" | "from-snapshot-full":
            full = mode == "from-snapshot-full"
            place, options = _placed(context, options)
            number = _asked_number(place, options)
            if number is not None:
                return _whole(context, number) if full else _before(context, number)
            return _at_moment(context, _asked_moment(place, options), full=full)
    head = context.snapshots.head()
    if head is None:
        return BEGINNING
    return _at_all_of(head) if mode == "latest-full" else Position.after(head)


def _either(options: tuple[Option[Any], ...]) -> str:
    keys = [option.key for option in options]
    return f"{', '.join(keys[:-1])} or {keys[-1]}"


def _asked_time(options: Mapping[str, str]) -> int:
    text = SCAN_TIMESTAMP.of(options)
    millis = SCAN_TIMESTAMP_MILLIS.of(options) if text is None else to_millis(text)
    assert millis is not None, "scan_mode saw one of the two"
    return millis


def _placed(context: TableContext, options: Mapping[str, str]) -> tuple[TableContext, Mapping[str, str]]:
    """Return where to look for what the options name, and them without main's name before it."""
    version = SCAN_VERSION.of(options)
    if version is None:
        return context, options
    place, named = located_here(context, version)
    return place, {**options, SCAN_VERSION.key: named}


def _asked_number(context: TableContext, options: Mapping[str, str]) -> int | None:
    """Return the number of the snapshot, if the options give one."""
    version = SCAN_VERSION.of(options)
    named = None if version is None else _NUMBER.fullmatch(version)
    if version is not None and named is not None and find_tag(context, version) is None:
        number: int | None = int(named[1])
    else:
        number = SCAN_SNAPSHOT_ID.of(options)
    if number is not None:
        check_unambiguous(context, number)
    return number


def _asked_moment(context: TableContext, options: Mapping[str, str]) -> Moment:
    found = named_moment(context, {k: v for k, v in options.items() if k != SCAN_EXACT.key})
    assert found is not None, "scan_mode saw an option that names it"
    if not found.is_exact:
        raise _gone(context, f"at {found.asked}", f"what came before {found.name}")
    return found


def _since(context: TableContext, millis: int) -> Position:
    """Return the position after the newest snapshot that is older than the time."""
    now = context.runtime.clock.now_millis()
    if millis > now:
        raise OptionError(
            f"the stream is to begin at {time_text(millis)}, which is still to come: it is {time_text(now)}",
            hint="scan.mode=latest begins with whatever is committed next.",
        )
    asked = f"at {time_text(millis)}"
    last = _last_before(context, millis)
    if last is None and (context.snapshots.head() is None or context.snapshots.find(1) is not None):
        return BEGINNING
    if last is None or not last.is_exact:
        raise _gone(context, asked, "what may have been committed then")
    return _after(context, last.snapshot, asked)


def _last_before(context: TableContext, millis: int) -> Moment | None:
    try:
        return retained_at(context, millis - 1)
    except NotFoundError:
        return None


def _before(context: TableContext, number: int) -> Position:
    """Return the position before the rows that a snapshot added, which may be the next to be committed."""
    head = context.snapshots.head()
    newest = 0 if head is None else head.id
    if number > newest + 1:
        raise _not_yet(context, number, newest)
    found = context.snapshots.find(number)
    if found is None and number <= newest:
        raise _gone(context, f"with snapshot {number}", "which")
    if number <= 1:
        return BEGINNING
    previous = context.snapshots.find(number - 1)
    if previous is not None:
        return Position.after(previous)
    return Position(number - 1, None if found is None else found.properties.get(PARENT_PROPERTY))


def _whole(context: TableContext, number: int) -> Position:
    """Return the position before all rows of the snapshot of that number."""
    found = context.snapshots.find(number)
    if found is not None:
        return _at_all_of(found)
    head = context.snapshots.head()
    newest = 0 if head is None else head.id
    if number > newest:
        raise _not_yet(context, number, newest)
    raise _gone(context, f"with all rows of snapshot {number}", "which")


def _at_moment(context: TableContext, moment: Moment, *, full: bool) -> Position:
    """Return the position before what a moment's snapshot added, or all its rows; a tag or savepoint may hold it."""
    snapshot = moment.snapshot
    retained = context.snapshots.find(snapshot.id)
    if retained is not None and retained.stamp == snapshot.stamp:
        return _at_all_of(snapshot) if full else _before(context, snapshot.id)
    asked = f"at {moment.name} (snapshot {snapshot.id})"
    head = context.snapshots.head()
    if retained is not None or head is None or head.id < snapshot.id:
        raise NotFoundError(
            f"the stream is to begin {asked} of '{context.title}', but that snapshot is not in the history of the "
            "branch, which was rolled back since",
            hint=f"{moment.name} can be read as a batch; begin the stream with scan.mode=latest-full, or with "
            "scan.snapshot-id at a snapshot that is there.",
        )
    after = _after(context, snapshot, asked)
    if full:
        return _at_all_of(snapshot)
    if snapshot.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE):
        return after
    if snapshot.delta_manifest_list == NO_LIST:
        raise _gone(context, asked, "what that snapshot added")
    return Position(snapshot.id, snapshot.stamp, files=0)


def _at_all_of(snapshot: Snapshot) -> Position:
    return Position(snapshot.id, snapshot.stamp, files=0, full=True)


def _after(context: TableContext, snapshot: Snapshot, asked: str) -> Position:
    """Return the position after a snapshot. Raises `NotFoundError` if history does not go on right there."""
    head = context.snapshots.head()
    following = context.snapshots.find(snapshot.id + 1)
    if following is None and head is not None and head.id > snapshot.id:
        try:
            crossing(context, snapshot)
        except NotFoundError as error:
            what = f"what was added after it, from snapshot {snapshot.id + 1} on,"
            gone = _gone(context, asked, what)
            why = error.message.rpartition(": ")[2]
            raise NotFoundError(
                f"{gone.message}; it cannot be told from the files, {why}", hint=gone.hint
            ) from error
    parent = None if following is None else following.properties.get(PARENT_PROPERTY)
    if parent not in (None, snapshot.stamp):
        raise NotFoundError(
            f"the stream is to begin {asked} of '{context.title}', but snapshot {snapshot.id + 1} was not built on it",
            hint="begin it with scan.mode=latest-full, or at a snapshot that is retained.",
        )
    return Position.after(snapshot)


def _not_yet(context: TableContext, number: int, newest: int) -> NotFoundError:
    return NotFoundError(
        f"the stream is to begin with snapshot {number} of '{context.title}', but the newest is {newest}",
        hint="scan.mode=latest begins with whatever is committed next.",
    )


def _gone(context: TableContext, asked: str, what: str) -> NotFoundError:
    """Return the error for a start in an expired gap; it names the earliest possible one."""
    earliest = _earliest(context)
    if earliest is None:
        return NotFoundError(
            f"the stream is to begin {asked} of '{context.title}', {what} has expired",
            hint="set scan.mode=latest-full.",
        )
    return NotFoundError(
        f"the stream is to begin {asked} of '{context.title}', {what} has expired; "
        f"the earliest is {earliest.id}, committed at {time_text(earliest.time_millis)}",
        hint=f"set scan.mode=from-snapshot, scan.snapshot-id={earliest.id} for what was added from there on, "
        f"scan.mode=from-snapshot-full, scan.snapshot-id={earliest.id} for all rows up to there and what was added "
        "after, or scan.mode=latest-full for everything there is now.",
    )


def _earliest(context: TableContext) -> Snapshot | None:
    """Return the first snapshot with no gap from it to the newest."""
    ids = context.snapshots.ids()
    if not ids:
        return None
    there, earliest = set(ids), ids[-1]
    while earliest - 1 in there:
        earliest -= 1
    return context.snapshots.find(earliest)

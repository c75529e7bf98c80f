"""Resolves user input to a moment of a table: versions, times, and the options of a read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from anabranch.errors import InvalidInputError, NotFoundError, OptionError
from anabranch.expr.values import Timestamp, parse_timestamp, to_value
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.ledger import has_expired
from anabranch.kernel.log.main_branch import check_unambiguous, located_here, located_options
from anabranch.kernel.log.moment import Moment, of_savepoint, of_snapshot, of_tag
from anabranch.kernel.log.savepoint_log import find_savepoint, get_savepoint, is_of, savepoints
from anabranch.kernel.log.tag_log import find_tag, get_tag, visible_tags
from anabranch.kernel.refs.published import at_time, published_at
from anabranch.kernel.refs.time_travel import at_watermark
from anabranch.option_kinds import Option, parse_duration
from anabranch.options import (
    SCAN_EXACT,
    SCAN_PUBLISHED,
    SCAN_SAVEPOINT_ID,
    SCAN_SNAPSHOT_ID,
    SCAN_TAG_NAME,
    SCAN_TIMESTAMP,
    SCAN_TIMESTAMP_MILLIS,
    SCAN_VERSION,
    SCAN_WATERMARK,
)

MOMENT_OPTIONS: tuple[Option[Any], ...] = (
    SCAN_VERSION,
    SCAN_SNAPSHOT_ID,
    SCAN_SAVEPOINT_ID,
    SCAN_TAG_NAME,
    SCAN_TIMESTAMP,
    SCAN_TIMESTAMP_MILLIS,
    SCAN_WATERMARK,
)
"""The options that name the moment to read; at most one may be set."""

_LONGEST_NUMBER = 19
"""Number of digits of the largest snapshot id."""


def resolve_own(context: TableContext, version: str | int) -> Moment:
    """Resolve a version to a moment of the branch's own history, which can be referred to and rolled back to there.

    Main's may be named ``main.snapshot.5`` or ``main.good``, as after a replacement, where numbers alone are ambiguous.

    Raises as `resolve`, and `InvalidInputError` for a moment of a main that was replaced.
    """
    place, named = located_here(context, version)
    return resolve(place, named)


def resolve(context: TableContext, version: str | int, *, exact: bool = False) -> Moment:
    """Resolve a version to a moment.

    Args:
        version: a snapshot's id, ``snapshot.N``, ``savepoint.N``, ``watermark-N``, or the name of a tag.
        exact: as in `at_watermark`.

    Raises:
        NotFoundError: there is no such moment; the message lists what exists.
        InvalidInputError: the text is ambiguous; the message lists the meanings.
    """
    if isinstance(version, int) and not isinstance(version, bool):
        return _snapshot(context, version)
    if not isinstance(version, str):
        raise InvalidInputError(
            f"a version is the number of a snapshot or a name, found {type(version).__name__}",
            hint="write 5, 'snapshot.5', 'savepoint.2' or the name of a tag.",
        )
    tag = find_tag(context, version)
    kind, number = _parse(version)
    if tag is None:
        match kind:
            case "snapshot":
                return _snapshot(context, number, asked=version)
            case "savepoint":
                return of_savepoint(context, get_savepoint(context, number), version)
            case "watermark":
                return at_watermark(context, number, exact=exact)
            case _:
                return of_tag(get_tag(context, version))
    if kind is not None and _is_there(context, kind, number):
        raise InvalidInputError(
            f"'{version}' is ambiguous in '{context.title}': it names the tag '{version}' (of snapshot "
            f"{tag.snapshot.id}) and {kind} {number}",
            hint=f"say which: option scan.tag-name={version} for the tag, {_unmistakable(kind, number)} for the {kind}.",
        )
    return of_tag(tag)


def place_and_moment(context: TableContext, options: Mapping[str, str]) -> tuple[TableContext, Moment | None]:
    """Resolve the branch and moment that read options name; the given branch and None if they name none.

    Args:
        context: the branch to read if the options name no other.

    Raises `OptionError` if they name several, otherwise as `resolve`, `at_time`, `published_at` and `at_watermark`.
    """
    if not SCAN_PUBLISHED.of(options):
        place, named = located_options(context, options)
        return place, named_moment(place, named)
    time = _only([option for option in MOMENT_OPTIONS if option.key in options])
    if time not in (SCAN_TIMESTAMP, SCAN_TIMESTAMP_MILLIS):
        asked = "no time is named" if time is None else f"the read names {time.key}"
        raise OptionError(
            f"{SCAN_PUBLISHED.key} is about what readers saw at a time, but {asked}",
            hint=f"set {SCAN_TIMESTAMP.key} with it, or leave it out.",
        )
    return published_at(context, to_millis(time.of(options)), exact=SCAN_EXACT.of(options))


def _only(given: Sequence[Option[Any]]) -> Option[Any] | None:
    if len(given) > 1:
        raise OptionError(
            f"a read sees one moment, found {' and '.join(option.key for option in given)}",
            hint="give one of them only.",
        )
    return given[0] if given else None


def named_moment(context: TableContext, options: Mapping[str, str]) -> Moment | None:
    """Resolve the moment of a branch that read options name, or None if they name none.

    Raises `OptionError` if they name several, otherwise as `resolve`, `at_time` and `at_watermark`.
    """
    given = [option for option in MOMENT_OPTIONS if option.key in options]
    _only(given)
    exact = SCAN_EXACT.of(options)
    for option in given:
        value = option.of(options)
        match option.key:
            case SCAN_VERSION.key:
                return resolve(context, value, exact=exact)
            case SCAN_SNAPSHOT_ID.key:
                return _snapshot(context, value)
            case SCAN_SAVEPOINT_ID.key:
                return of_savepoint(context, get_savepoint(context, value))
            case SCAN_TAG_NAME.key:
                return of_tag(get_tag(context, value))
            case SCAN_WATERMARK.key:
                return at_watermark(context, value, exact=exact)
            case _:
                return at_time(context, to_millis(value), exact=exact)
    return None


def to_millis(moment: str | int | datetime) -> int:
    """Convert a time to milliseconds since the epoch, truncating finer units.

    Args:
        moment: milliseconds since the epoch, a datetime, or text such as ``2026-01-31 12:00:00``; without a zone
            UTC is meant. Where clocks are set back and an hour comes twice, the text means the first.

    Raises:
        InvalidInputError: not a valid time.
    """
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    parsed = None
    if isinstance(moment, datetime):
        parsed = to_value(moment)
    elif isinstance(moment, str):
        parsed = parse_timestamp(moment)
    if not isinstance(parsed, Timestamp):
        raise InvalidInputError(
            f"'{moment}' is no moment", hint="write 2026-01-31 12:00:00, with a zone if it is not UTC."
        )
    return parsed.nanos // 1_000_000


def _parse(version: str) -> tuple[str | None, int]:
    """Parse a version that is not the name of a tag, into its kind and number."""
    for kind, prefix in (("snapshot", "snapshot."), ("savepoint", "savepoint."), ("watermark", "watermark-")):
        number = _number(version.removeprefix(prefix))
        if version.startswith(prefix) and number is not None:
            return kind, number
    number = _number(version)
    return (None, 0) if number is None else ("snapshot", number)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def _is_there(context: TableContext, kind: str, number: int) -> bool:
    match kind:
        case "snapshot":
            return context.snapshots.find(number) is not None
        case "savepoint":
            found = find_savepoint(context, number)
            return found is not None and is_of(context, found)
        case _:
            try:
                at_watermark(context, number)
            except NotFoundError:
                return False
            return True


def _unmistakable(kind: str, number: int) -> str:
    match kind:
        case "snapshot":
            return f"scan.snapshot-id={number}"
        case "savepoint":
            return f"scan.savepoint-id={number}"
        case _:
            return f"scan.watermark={number}"


def _snapshot(context: TableContext, number: int, *, asked: str | None = None) -> Moment:
    check_unambiguous(context, number)
    found = context.snapshots.find(number) if number > 0 else None
    if found is not None and not _is_left_over(context, found):
        return of_snapshot(found, asked)
    ids = [one for one in context.snapshots.ids() if found is None or one != number]
    there = f"the earliest is {ids[0]}, the latest is {ids[-1]}" if ids else "it has no snapshots"
    beside = "" if found is None else ". What a late writer left under this number is no part of history"
    raise NotFoundError(
        f"snapshot {number} does not exist in '{context.title}': {there}{beside}",
        hint=_instead(context, number, ids),
    )


def _is_left_over(context: TableContext, found: Snapshot) -> bool:
    """Whether a late writer put a snapshot under a number that history has left, or above the newest."""
    left_over = context.snapshots.is_left_over(found)
    return has_expired(context, found.id) if left_over is None else left_over


def _instead(context: TableContext, number: int, ids: list[int]) -> str:
    """Return a hint of what to read instead of a missing snapshot."""
    saved = savepoints(context)
    holders = [f"savepoint.{s.id}" for s in saved if s.saved_snapshot_id == number]
    holders += [tag.name for tag in visible_tags(context) if tag.snapshot.id == number]
    if holders:
        return f"it is kept as '{holders[0]}': ask for that."
    near = []
    if ids:
        near.append(f"the nearest snapshot is {min(ids, key=lambda known: (abs(known - number), known))}")
    if saved:
        nearest = min(saved, key=lambda s: (abs(s.saved_snapshot_id - number), s.id))
        near.append(f"the nearest savepoint is {nearest.id}, of snapshot {nearest.saved_snapshot_id}")
    near.append("what expired can be read only through a tag or savepoint.")
    return "; ".join(near)


Cutoff = str | int | datetime
"""An age such as ``1 d``, or a time: text such as ``2026-01-31 12:00:00`` (UTC unless it names a zone), a datetime, or
epoch milliseconds."""


def cutoff_of(given: Cutoff, now_millis: int) -> int:
    """Return the moment in epoch milliseconds; an age counts back from now. Raises `InvalidInputError`."""
    if isinstance(given, str) and not given.strip().isdecimal():  # digits alone might be either, in any unit
        try:
            return now_millis - parse_duration(given)
        except ValueError:
            pass  # not an age, so a time
    try:
        return to_millis(given)
    except InvalidInputError:
        raise InvalidInputError(
            f"{given!r} is neither an age nor a time",
            hint="write an age such as '1 d' or '30 min', or a time such as '2026-01-31 12:00:00'.",
        ) from None

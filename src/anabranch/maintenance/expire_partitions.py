"""Expires partitions: takes those away whose time, or newest file, is older than `partition.expiration-time`.

It is one commit that replaces them by nothing. Rows appended meanwhile to a partition that is old by its values go with
it; a partition that is old by its files is spared if it got some. Snapshots from before keep the files until they expire.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from anabranch.errors import (
    CommitConflictError,
    CommitRetriesExhaustedError,
    InvalidInputError,
    OptionError,
    PredicateError,
    SealedBranchError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.expr.nodes import Column, ColumnExpression, Predicate, all_of, any_of
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import CommitIdentity, Snapshot, SnapshotRef
from anabranch.format.rows.binary_row import decode_row
from anabranch.format.rows.partition_path import partition_label, value_text
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import DataType
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.log.branch_log import newest_schema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import EXPIRED_PARTITIONS_PROPERTY
from anabranch.kernel.log.seals import check_open
from anabranch.kernel.log.store_clock import removal_time
from anabranch.kernel.scan.partitions import keys_of_rows
from anabranch.kernel.scan.pruning import partition_values
from anabranch.maintenance.mark_done import mark_again, unmark, unmark_again
from anabranch.options import (
    PARTITION_EXPIRATION_MAX_NUM,
    PARTITION_EXPIRATION_STRATEGY,
    PARTITION_EXPIRATION_TIME,
    PARTITION_TIMESTAMP_FORMATTER,
    PARTITION_TIMESTAMP_PATTERN,
)

_TRIES = 5


@dataclass(frozen=True, slots=True)
class ExpiredPartition:
    """A partition that was, or would be, taken away."""

    partition: str
    """Such as ``dt=2026-01-01/hour=5``."""
    time: datetime
    """The time its values stand for, or that of its newest file."""
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionExpiry:
    """Result of an expiry of partitions, or a preview."""

    partitions: tuple[ExpiredPartition, ...] = ()
    """Oldest first."""
    snapshot: Snapshot | None = None
    """The commit; None if nothing was due, and for a dry run."""
    dry_run: bool = False
    timeless: int = 0
    """Partitions whose values stand for no time, or lie outside of the years 1 to 9999, and which never expire."""

    def __str__(self) -> str:
        would = "would be " if self.dry_run else ""
        rows = sum(found.rows for found in self.partitions)
        return f"{len(self.partitions):,} partitions with {rows:,} rows {would}expired"


def expire_partitions(
    context: TableContext,
    options: Mapping[str, str],
    *,
    older_than_millis: int | None = None,
    dry_run: bool = False,
) -> PartitionExpiry:
    """Take away partitions that are older than `partition.expiration-time`. See `Table.expire_partitions`.

    Without the option and an age nothing expires. The options are those of the table, with those of the call over them.
    """
    age = PARTITION_EXPIRATION_TIME.of(options) if older_than_millis is None else older_than_millis
    if age is None:
        return PartitionExpiry(dry_run=dry_run)
    for _ in range(_TRIES):
        schema = newest_schema(context)
        if not schema.partition_keys and older_than_millis is not None:
            raise InvalidInputError(
                f"'{context.title}' has no partitions that could expire",
                hint="tables with partition columns have.",
            )
        head = context.snapshots.head()
        if head is None or not schema.partition_keys:
            return PartitionExpiry(dry_run=dry_run)
        due = _Due.of(context, schema, head, options, age)
        if dry_run or not due.expired:
            return PartitionExpiry(due.expired, None, dry_run, due.timeless)
        action = Overwrite.where([], any_of(due.conditions), schema)
        if due.by_files:
            action = Overwrite(
                (),
                target=action.target,
                condition=action.condition,
                unchanged_since=SnapshotRef(context.branch_uuid, head.id, head.stamp),
            )
        said = {EXPIRED_PARTITIONS_PROPERTY: json.dumps([found.partition for found in due.expired])}
        request = CommitRequest(action, CommitIdentity.batch(context.runtime), said)
        check_open(context, head)  # a main that was replaced keeps its rows, and the marks are the new one's
        # Marks go first: rows without a mark are waited for, a mark is believed.
        marks = unmark(context, schema, due.partitions)
        try:
            made = commit(context, request).snapshot
        except (CommitConflictError, CommitRetriesExhaustedError, SealedBranchError) as error:
            mark_again(context, marks)
            if not due.by_files or not isinstance(error, CommitConflictError):
                raise
            conflict = error
            continue
        if made is not None:
            with suppress(StorageError):  # what was to be done is done
                unmark_again(context, marks, made)
        return PartitionExpiry(due.expired, made, False, due.timeless)
    raise conflict


@dataclass(frozen=True)
class _Due:
    """Partitions that are due, oldest first."""

    expired: tuple[ExpiredPartition, ...]
    partitions: Sequence[bytes]
    conditions: Sequence[Predicate]
    timeless: int
    by_files: bool

    @classmethod
    def of(
        cls, context: TableContext, schema: TableSchema, head: Snapshot, options: Mapping[str, str], age: int
    ) -> _Due:
        live = context.manifests.entries(context.manifests.of_snapshot(head)).live()
        by_files = PARTITION_EXPIRATION_STRATEGY.of(options) == "update-time"
        times = PartitionTimes(schema.partition_keys, options)
        now = removal_time(context)
        limit = datetime.fromtimestamp(now / 1000, UTC) - timedelta(milliseconds=age)
        offset = timedelta(milliseconds=context.runtime.clock.local_offset_millis(now))
        found: list[tuple[ExpiredPartition, bytes, Predicate]] = []
        timeless = 0
        for rows in _grouped(live, schema):
            time = _newest(rows, offset) if by_files else times.of(_texts(rows, schema))
            if time is not None and time >= limit:
                continue
            condition = None if time is None else _condition(rows, schema)
            if time is None or condition is None:
                timeless += 1
            else:
                found.append((_expired(rows, schema, time), rows["partition"][0], condition))
        found.sort(key=lambda one: (one[0].time, one[0].partition))
        chosen = found[: PARTITION_EXPIRATION_MAX_NUM.of(options)]
        expired, partitions, conditions = zip(*chosen, strict=True) if chosen else ((), (), ())
        return cls(expired, partitions, conditions, timeless, by_files)


def _grouped(live: EntryFrame, schema: TableSchema) -> list[pl.DataFrame]:
    """Return the files of each partition, however its row is spelled in the manifests."""
    unique = live.df["partition"].unique(maintain_order=True)
    groups: dict[object, int] = {}
    numbers = [groups.setdefault(key, len(groups)) for key in keys_of_rows(unique, schema)]
    numbered = pl.DataFrame({"partition": unique, "__group": pl.Series(numbers, dtype=pl.Int64)})
    joined = live.df.join(numbered, on="partition", how="left", maintain_order="left")
    return joined.partition_by("__group", maintain_order=True, include_key=False)


def _texts(rows: pl.DataFrame, schema: TableSchema) -> dict[str, str | None]:
    fields = schema.partition_fields
    values = decode_row([f.type for f in fields], rows["partition"][0], where="a partition")
    return {f.name: _text(f.type, value) for f, value in zip(fields, values, strict=True)}


def _text(data_type: DataType, value: Any) -> str | None:
    """Return a value as text; None for null, and for one without a text, such as a date of the year 10000."""
    if value is None:
        return None
    try:
        return value_text(data_type, value, legacy_names=False)
    except UnsupportedFeatureError:
        return None


def _newest(rows: pl.DataFrame, offset: timedelta) -> datetime | None:
    """Return the time of the newest file; None if a file has none. Files record their writer's wall clock."""
    millis = rows["creation_time"]
    newest = None if millis.null_count() else millis.max()
    if not isinstance(newest, int):
        return None
    return datetime.fromtimestamp(newest / 1000, UTC) - offset


def _expired(rows: pl.DataFrame, schema: TableSchema, time: datetime) -> ExpiredPartition:
    fields = schema.partition_fields
    values = decode_row([f.type for f in fields], rows["partition"][0], where="a partition")
    return ExpiredPartition(
        partition_label(fields, values),
        time,
        int(rows["row_count"].sum()),
        rows.height,
        int(rows["file_size"].sum()),
    )


def _condition(rows: pl.DataFrame, schema: TableSchema) -> Predicate | None:
    """Return what selects a partition; None if it has a date or time that conditions cannot name."""
    values = partition_values(rows["partition"].head(1), schema)
    try:
        return all_of(
            ColumnExpression(Column((name,))).same_as(column[0].as_py())
            for name, column in zip(values.column_names, values.columns, strict=True)
        )
    except (OverflowError, ValueError, PredicateError):  # conditions have the years 1 to 9999
        return None


_FIELDS = {
    "yyyy": r"(?P<year>\d{4})",
    "MM": r"(?P<month>\d{2})",
    "M": r"(?P<month>\d{1,2})",
    "dd": r"(?P<day>\d{2})",
    "d": r"(?P<day>\d{1,2})",
    "HH": r"(?P<hour>\d{2})",
    "H": r"(?P<hour>\d{1,2})",
    "mm": r"(?P<minute>\d{2})",
    "m": r"(?P<minute>\d{1,2})",
    "ss": r"(?P<second>\d{2})",
    "s": r"(?P<second>\d{1,2})",
}
_FORMATTER = re.compile(r"'(?P<literal>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")
_USUAL = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.\d+)?)?)?"
)
_NAME = re.compile(r"\$(\w+)")


class PartitionTimes:
    """Reads the time of partitions from their values."""

    def __init__(self, keys: tuple[str, ...], options: Mapping[str, str]) -> None:
        """Args:
        keys: the partition columns.
        options: of the table.

        Raises `OptionError` for a formatter that is not understood, or a pattern with a column that is none.
        """
        self._keys = keys
        self._pattern = PARTITION_TIMESTAMP_PATTERN.of(options)
        formatter = PARTITION_TIMESTAMP_FORMATTER.of(options)
        self._format = _USUAL if formatter is None else _compiled(formatter)
        unknown = [name for name in _NAME.findall(self._pattern or "") if name not in keys]
        if unknown:
            raise OptionError(
                f"{PARTITION_TIMESTAMP_PATTERN.key} is '{self._pattern}', and '{unknown[0]}' is no partition column",
                hint=f"partition columns are: {', '.join(keys) or 'none'}.",
            )

    def of(self, values: Mapping[str, str | None]) -> datetime | None:
        """Return the time in UTC that a partition stands for; None if its values are none."""
        if self._pattern is None:
            text = values[self._keys[0]]
        elif any(values[name] is None for name in _NAME.findall(self._pattern)):
            text = None
        else:
            text = _NAME.sub(lambda found: str(values[found[1]]), self._pattern)
        match = None if text is None else self._format.fullmatch(text)
        if match is None:
            return None
        parts = {name: int(part) for name, part in match.groupdict().items() if part is not None}
        try:
            return datetime(**{"month": 1, "day": 1, **parts}, tzinfo=UTC)
        except ValueError:
            return None


def _compiled(formatter: str) -> re.Pattern[str]:
    text, place, seen = "", 0, set()
    while place < len(formatter):
        match = _FORMATTER.match(formatter, place)
        letters = None if match is None else match["letters"]
        if match is None or (letters is not None and (letters not in _FIELDS or letters[0] in seen)):
            raise OptionError(
                f"{PARTITION_TIMESTAMP_FORMATTER.key} is '{formatter}', in which '{formatter[place:]}' is not understood",
                hint="write yyyy, MM, dd, HH, mm and ss once each, other signs as they are and letters between quotes: "
                "yyyyMMdd, yyyy-MM-dd'T'HH.",
            )
        if letters is not None:
            seen.add(letters[0])
            text += _FIELDS[letters]
        else:
            literal = match["literal"]
            text += re.escape(match["other"] if literal is None else literal.replace("''", "'") or "'")
        place = match.end()
    if "y" not in seen:
        raise OptionError(
            f"{PARTITION_TIMESTAMP_FORMATTER.key} is '{formatter}', which has no year",
            hint="write yyyy in it: yyyyMMdd.",
        )
    return re.compile(text)

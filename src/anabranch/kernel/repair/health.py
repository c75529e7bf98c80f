"""Health of a table: its files, what compaction would make of them, and recommended actions."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from anabranch.errors import AnabranchError, CorruptTableError, StorageError
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.layout import consumer_id_of
from anabranch.format.records.main_pointer import former_main_name
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.shell import command_line
from anabranch.kernel.compaction.packing import PackingLimits
from anabranch.kernel.compaction.planning import Gain, full_outline, gain_of, minor_outline
from anabranch.kernel.compaction.selection import live_files
from anabranch.kernel.log.consumers import find_consumer
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.file_paths import odd_files
from anabranch.kernel.log.moment import time_text
from anabranch.kernel.log.parallel import each, tried
from anabranch.kernel.log.shared_past import sharing
from anabranch.kernel.log.store_clock import commit_time, is_ahead
from anabranch.kernel.provenance.job_states import JobState, job_states
from anabranch.kernel.repair.verify import look_at_history
from anabranch.kernel.scan.partitions import partition_text
from anabranch.options import (
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
    SNAPSHOT_TIME_RETAINED,
    WRITE_ONLY,
)
from anabranch.tabular import one_screen

_WORST: Final = 5
_SMALL_FILE_POINTS: Final = 60
_MANY_FILES: Final = 50
"""Number of surplus files from which on their share counts in full; few files are harmless whatever their size."""
_MANY_SNAPSHOTS: Final = 100
_NEWEST: Final = 100
"""Number of snapshots whose times are checked."""
_DAY_MILLIS: Final = 86_400_000
_CONSUMER_MILLIS: Final = _DAY_MILLIS
"""Age of a consumer from which health tells of it; later where snapshots are retained for longer."""
_MANY_PARTITIONS: Final = 100
_TINY_PARTITION: Final = 20
"""A partition is tiny if at least this many of them would fit into one file."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A possible improvement."""

    points: int
    """Points subtracted from the score."""
    why: str
    command: str | None
    """Command that fixes it, ready to run; None where only another table design helps."""
    is_upkeep: bool = False
    """Whether `maintain` fixes it as well."""


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """The files of one partition."""

    partition: str
    files: int
    small_files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class Health:
    """Health of a table at one snapshot. Its text lists what to do.

    Example:
        >>> health = table.health()
        >>> health.score
        100
        >>> health.findings
        ()
    """

    table: str
    snapshot_id: int | None
    score: int
    """From 0 to 100, where nothing is left to do."""
    findings: tuple[Finding, ...]
    """Reasons for the lost points, the worst first."""
    files: int
    small_files: int
    """Files below 7/10 of `target-file-size`."""
    files_compacted: int
    """Approximate number of files after a full compaction."""
    partitions: int
    rows: int
    bytes: int
    median_files: float
    """Median number of files per partition."""
    most_files: int
    """Largest number of files in a partition."""
    worst: tuple[PartitionHealth, ...]
    """The partitions with the most small files."""
    snapshots: int
    """Number of retained snapshots."""
    manifests: int
    """Number of manifests that a plan of the whole table reads."""
    states: tuple[JobState, ...] = ()
    """State that writing jobs keep for the table's tags."""

    @property
    def small_share(self) -> float:
        """Share of files that are small, from 0 to 1."""
        return self.small_files / self.files if self.files else 0.0

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def __repr__(self) -> str:
        return one_screen(str(self))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>-{f.points}</td><td>{html.escape(f.why)}</td>"
            f"<td><code>{html.escape(f.command or '')}</code></td></tr>"
            for f in self.findings
        )
        about = "<br>".join(map(html.escape, _about(self)))
        return f"<b>{html.escape(_title(self))}</b><br>{about}<table>{rows}</table>"


def health(
    context: TableContext, snapshot: Snapshot | None, schema: TableSchema, options: Mapping[str, str]
) -> Health:
    """Compute the health of a branch at a snapshot.

    Args:
        snapshot: None for a table that was never written.
        schema: of the table at that moment.
        options: of the table, overridden by those of the view.

    Raises `CorruptTableError`, `UnsupportedFeatureError`.
    """
    live = live_files(context, snapshot)
    # One file alone is never rewritten, and most tables of a large lake are that small.
    outline = full_outline(live, schema, options) if len(live) > 1 else []
    gain = gain_of(live, outline, options)
    partitions = _by_partition(live, PackingLimits.of(options))
    ids = context.snapshots.ids()
    newest, damaged = _newest(context, ids)
    findings = [
        *_damage(context, live, schema, damaged),
        *_small_files(context, live, gain, schema, options),
        *_snapshots(context, ids, options),
        *_old_consumers(context, ids, options),
        *_wrong_clocks(context, newest),
        *_tiny_partitions(partitions, options),
    ]
    return Health(
        table=context.title,
        snapshot_id=None if snapshot is None else snapshot.id,
        score=max(100 - sum(finding.points for finding in findings), 0),
        findings=tuple(sorted(findings, key=lambda finding: -finding.points)),
        files=len(live),
        small_files=int(partitions["small_files"].sum()),
        files_compacted=len(live) - gain.files_before + gain.files_after,
        partitions=partitions.height,
        rows=int(partitions["rows"].sum()),
        bytes=int(partitions["bytes"].sum()),
        median_files=_number(partitions["files"].median()),
        most_files=int(_number(partitions["files"].max())),
        worst=_worst(partitions, schema),
        snapshots=len(ids),
        manifests=0 if snapshot is None else len(context.manifests.of_snapshot(snapshot)),
        states=tuple(state for state in job_states(context) if state.kept),
    )


def _newest(context: TableContext, ids: list[int]) -> tuple[list[Snapshot], dict[int, AnabranchError]]:
    """Return the newest snapshots that can be read, and why others among them cannot."""
    damaged = dict[int, AnabranchError]()

    def find(number: int) -> Snapshot | None:
        return tried(number, lambda: context.snapshots.find(number), damaged.__setitem__)

    found = each(find, ids[-_NEWEST:])
    return [snapshot for snapshot in found if snapshot is not None], damaged


def _damage(
    context: TableContext, live: EntryFrame, schema: TableSchema, damaged: Mapping[int, AnabranchError]
) -> Iterator[Finding]:
    """Yield what `verify` would find in the newest snapshots, and in the files of the newest."""
    problems = look_at_history(context)
    told = {problem.snapshot_id for problem in problems}
    wrong = [problem.message for problem in problems if problem.severity == "error"]
    wrong += [error.message for number, error in sorted(damaged.items()) if number not in told]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        yield Finding(50, f"{wrong[0]}{more}", _whole(context, "repair"))
    odd = odd_files(context, live.df.filter(pl.col("external_path").is_null()), schema)
    for files, what in (
        (odd.filter(pl.col("there").is_null()), "is missing{more}: reading fails"),
        (
            odd.filter(pl.col("there").is_not_null()),
            "has {there:,} bytes, its manifest says {file_size:,}{more}: reading it may fail",
        ),
    ):
        if files.height:
            more = f", and {files.height - 1:,} more" if files.height > 1 else ""
            said = what.format(**files.row(0, named=True), more=more)
            yield Finding(100, f"data file {files['path'][0]} {said}", _whole(context, "verify"))


def _whole(context: TableContext, verb: str) -> str:
    return command_line(verb, context.name)


def _by_partition(live: EntryFrame, limits: PackingLimits) -> pl.DataFrame:
    return live.df.group_by("partition", maintain_order=True).agg(
        files=pl.len().cast(pl.Int64),
        small_files=(pl.col("file_size") < limits.small).sum().cast(pl.Int64),
        rows=pl.col("row_count").sum(),
        bytes=pl.col("file_size").sum(),
    )


def _worst(partitions: pl.DataFrame, schema: TableSchema) -> tuple[PartitionHealth, ...]:
    if partitions["small_files"].sum() < 2:
        return ()
    most = partitions.filter(pl.col("small_files") > 1).sort(
        "small_files", descending=True, maintain_order=True
    )
    return tuple(
        PartitionHealth(partition_text(row, schema), *counts)
        for row, *counts in most.head(_WORST).iter_rows()
    )


def _small_files(
    context: TableContext, live: EntryFrame, gain: Gain, schema: TableSchema, options: Mapping[str, str]
) -> Iterator[Finding]:
    too_many = gain.files_before - gain.files_after
    if too_many <= 0:
        return
    minor = gain_of(live, minor_outline(live, schema, options), options)
    does_most = minor.files_before - minor.files_after >= 0.5 * too_many
    left = len(live) - too_many
    points = round(_SMALL_FILE_POINTS * too_many / len(live) * min(1.0, too_many / _MANY_FILES))
    why = f"compaction would turn {len(live):,} files into {left:,}"
    if WRITE_ONLY.of(options):
        why += "; with write-only, the jobs that write leave it to another one"
    yield Finding(
        points, why, _command(context, "compact", *([] if does_most else ["--full"])), is_upkeep=does_most
    )


def _snapshots(context: TableContext, ids: list[int], options: Mapping[str, str]) -> Iterator[Finding]:
    least, most = SNAPSHOT_NUM_RETAINED_MIN.of(options), SNAPSHOT_NUM_RETAINED_MAX.of(options)
    oldest_kept = context.runtime.clock.now_millis() - SNAPSHOT_TIME_RETAINED.of(options)
    candidates = ids[: max(len(ids) - least, 0)]
    expired = max(_older(context, candidates, oldest_kept), len(ids) - max(most, least))
    if expired > _MANY_SNAPSHOTS:
        yield Finding(
            min(5 + expired // 200, 15),
            f"{expired:,} of {len(ids):,} snapshots have outlived their retention and keep files from being removed",
            _command(context, "expire-snapshots"),
            is_upkeep=True,
        )


def _old_consumers(context: TableContext, ids: list[int], options: Mapping[str, str]) -> Iterator[Finding]:
    """Yield consumers that have not moved for long and keep snapshots that would have expired otherwise.

    Of main, also consumers of former mains, which go on there.
    """
    kept_for = max(SNAPSHOT_TIME_RETAINED.of(options), _CONSUMER_MILLIS)
    yield from _old_consumers_of(context, context, None, ids, kept_for)
    try:
        formers = [*sharing(context)]
    except CorruptTableError as error:
        why = f"which branches were main cannot be read ({error.message}), so nothing expires: their consumers may hold it"
        yield Finding(5, why, _whole(context, "repair"))
        return
    for former, fork in formers:
        yield from _old_consumers_of(context, former, fork, ids, kept_for)


def _old_consumers_of(
    context: TableContext, holder: TableContext, fork: int | None, ids: list[int], kept_for: int
) -> Iterator[Finding]:
    """Yield the consumers in the folder of a branch, or of a former main that parted from it at `fork`."""
    now, folder = context.runtime.clock.now_millis(), holder.layout.consumer_folder
    of_former = [] if fork is None else ["--branch", former_main_name((holder.main_generation or 0) + 1)]
    of_whom = f" of {of_former[-1]}" if of_former else ""
    try:
        infos = sorted(context.storage.list(folder), key=lambda one: one.path)
    except StorageError as error:
        if error.retryable:
            raise
        yield Finding(5, f"{error.message}, so nothing expires: {error.hint}", None)
        return
    for info in infos:
        name = consumer_id_of(info.path)
        if name is None or now - info.modified_millis <= kept_for:
            continue
        try:
            consumer = find_consumer(holder, name)
        except CorruptTableError as error:
            yield Finding(
                5,
                f"consumer '{name}'{of_whom} cannot be read ({error.message}), so nothing expires: let its reader store its "
                "position anew, or let go of it",
                _command(context, "consumers", "--delete", name, *of_former),
            )
            continue
        held = 0
        if consumer is not None:
            needed = consumer.next_snapshot if fork is None else min(consumer.next_snapshot, fork + 1)
            held = sum(number >= needed for number in ids)
        if held > 1:
            days = (now - info.modified_millis) // _DAY_MILLIS
            yield Finding(
                5,
                f"consumer '{name}'{of_whom} has not moved for {days} days and keeps {held:,} snapshots from expiring: start its "
                "reader again, or let go of it",
                _command(context, "consumers", "--delete", name, *of_former),
            )


def _older(context: TableContext, ids: list[int], millis: int) -> int:
    """Count the snapshots made before that moment, assuming that times increase with ids."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        try:
            found = context.snapshots.find(ids[middle])
        except CorruptTableError:  # told as damage, and as old as any
            found = None
        if found is None or commit_time(context, found) < millis:
            low = middle + 1
        else:
            high = middle
    return low


def _wrong_clocks(context: TableContext, newest: Sequence[Snapshot]) -> Iterator[Finding]:
    """Find snapshots with a time in the future, among the newest."""
    now = context.runtime.clock.now_millis()
    ahead = [snapshot for snapshot in newest if is_ahead(snapshot, now)]
    if ahead:
        worst = max(ahead, key=lambda snapshot: snapshot.time_millis)
        yield Finding(
            5,
            f"snapshot {worst.id}{f' and {len(ahead) - 1:,} more' if len(ahead) > 1 else ''} of commit user "
            f"'{worst.commit_user}' {'say they were' if len(ahead) > 1 else 'says it was'} committed at "
            f"{time_text(worst.time_millis)}, which is still to come: set the clock of the machine that made it, or of "
            "this one. Until then it counts by the time at which it was stored",
            None,
        )


def _tiny_partitions(partitions: pl.DataFrame, options: Mapping[str, str]) -> Iterator[Finding]:
    if partitions.height < _MANY_PARTITIONS:
        return
    average = int(partitions["bytes"].sum()) // partitions.height
    if average < PackingLimits.of(options).target // _TINY_PARTITION:
        yield Finding(
            10,
            f"{partitions.height:,} partitions hold {size_text(average)} each on average; with coarser partition "
            "columns, the same rows were in fewer files",
            None,
        )


def _command(context: TableContext, verb: str, *flags: str) -> str:
    is_main = context.branch is None or context.main_generation is not None
    branch = [] if is_main else ["--branch", str(context.branch)]
    return command_line(verb, context.name, *flags, *branch)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _about(state: Health) -> list[str]:
    """Summarize the table in a line or two."""
    lines = [
        f"{state.files:,} files, {state.small_files:,} of them small ({state.small_share:.0%})",
        f"{state.rows:,} rows, {size_text(state.bytes)}",
        f"{state.snapshots:,} snapshots, {state.manifests:,} manifests",
    ]
    if state.partitions > 1:
        files = f"a median of {state.median_files:,.0f} files, {state.most_files:,} at most"
        lines.append(f"{state.partitions:,} partitions with {files}")
    for one in state.states:
        held = f"{len(one.tags)} tag{'s' if len(one.tags) > 1 else ''}"
        lines.append(f"state of job '{one.job}' kept for {held}: {one.files:,} files, {size_text(one.bytes)}")
    return lines


def _title(state: Health) -> str:
    at = "never written" if state.snapshot_id is None else f"at snapshot {state.snapshot_id}"
    return f"{state.table} {at}: {state.score} of 100"


def _lines(state: Health) -> list[str]:
    lines = [_title(state), *(f"  {line}" for line in _about(state))]
    for finding in state.findings:
        lines.append(f"  {-finding.points:>4}  {finding.why}")
        if finding.command is not None:
            lines.append(f"        {finding.command}")
    if state.findings and state.partitions > 1:
        lines += [
            f"  {one.partition}: {one.small_files:,} of {one.files:,} files are small" for one in state.worst
        ]
    return lines


def size_text(count: int) -> str:
    """Bytes for people: ``1.5 MB``, in powers of 1024."""
    size, units = float(count), ["bytes", "KB", "MB", "GB", "TB", "PB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:,.0f} {units[0]}" if size >= 100 or units[0] == "bytes" else f"{size:.1f} {units[0]}"

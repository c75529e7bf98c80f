"""Table maintenance, for the command line: one table, or all of a database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from anabranch.errors import AnabranchError, InvalidInputError, NotFoundError
from anabranch.format.rows.partition_path import parse_partition
from anabranch.kernel.expiry.candidates import DATA
from anabranch.kernel.expiry.expire import Expiry, Tally
from anabranch.kernel.repair.health import Health
from anabranch.kernel.repair.problem import Verification
from anabranch.kernel.repair.repair import Repair
from anabranch.lake import Lake, connect
from anabranch.maintenance.compact import CompactionResult
from anabranch.maintenance.maintain import Upkeep
from anabranch.maintenance.orphans import Cleaning
from anabranch.options import parse_duration
from anabranch.runtime import SYSTEM
from anabranch.service.tables import View, open_lake, open_table
from anabranch.table import Table

R = TypeVar("R")

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactionInfo:
    """Result of compacting one table."""

    table: str
    snapshot: int | None
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    given_up: int

    @classmethod
    def of(cls, table: str, done: CompactionResult) -> CompactionInfo:
        return cls(
            table,
            None if done.snapshot is None else done.snapshot.id,
            *(done.files_before, done.files_after, done.bytes_before, done.bytes_after),
            *(done.rows, done.given_up),
        )


@dataclass(frozen=True, slots=True)
class ExpiryInfo:
    """Files and references that an expiry removed from one table, or would remove."""

    table: str
    snapshots: int
    snapshots_left: int
    data_files: int
    metadata_files: int
    bytes: int
    removed: Mapping[str, Mapping[str, int]]
    """Files and bytes by kind."""
    held: Mapping[str, Mapping[str, int]]
    """Files kept although their snapshots were removed, by what holds them."""
    tags: tuple[str, ...]
    """Tags that were kept long enough."""
    consumers: tuple[str, ...]
    """Consumers that had not moved for too long."""
    states: tuple[str, ...]
    """State that jobs kept for these tags alone."""
    dry_run: bool

    @classmethod
    def of(cls, table: str, done: Expiry) -> ExpiryInfo:
        """Convert the result of an expiry."""
        data = done.removed.get(DATA, Tally())
        return cls(
            table,
            *(len(done.snapshots), done.left),
            *(data.files, done.files.height - data.files, int(done.files["bytes"].sum())),
            *(_counted(done.removed), _counted(done.held)),
            *(done.tags, done.consumers, done.states),
            done.dry_run,
        )


@dataclass(frozen=True, slots=True)
class CleaningInfo:
    """Files that a clean-up of one table moved and purged, or would."""

    table: str
    run: int | None
    """Number by which the moved files can be restored."""
    moved: int
    moved_bytes: int
    purged: int
    purged_bytes: int
    dry_run: bool
    foreign: tuple[str, ...]
    """Files left alone: with names that no engine uses, and linked folders."""

    @classmethod
    def of(cls, table: str, done: Cleaning) -> CleaningInfo:
        """Convert the result of a clean-up."""
        sizes = done.files["bytes"]
        return cls(
            table,
            done.run,
            len(sizes),
            int(sizes.sum()),
            done.purged.files,
            done.purged.bytes,
            done.dry_run,
            done.foreign,
        )


@dataclass(frozen=True, slots=True)
class UpkeepInfo:
    """Result of the maintenance of one table, or a preview, step by step."""

    table: str
    compaction: CompactionInfo
    """For a dry run `files_after` is an estimate, and `bytes_after` 0."""
    expiry: ExpiryInfo
    cleaning: CleaningInfo
    dry_run: bool
    text: str
    """Summary in one sentence."""
    left: tuple[str, ...] = ()
    """What health would still find afterwards."""


def partition_values(texts: Sequence[str]) -> list[dict[str, str]] | None:
    """Parse partitions from ``dt=2026-01-01/hour=3``; None for all. Raises `InvalidInputError`."""
    return [parse_partition(text) for text in texts] or None


@dataclass(frozen=True)
class CompactionJob:
    """Compaction of one table or of a database, once or repeatedly."""

    warehouse: str
    target: str
    branch: str | None = None
    full: bool = False
    partitions: Sequence[str] = ()
    idle: str | None = None
    master: str | None = None

    def rounds(self, every: str | None) -> Iterator[list[CompactionInfo]]:
        """Yield the result of each round; there is one, or with `every` one at each interval.

        With `every`, after a first good round only wrong usage ends it: other errors are logged, and the next round
        tries again.
        """
        pause = None if every is None else _duration(every) / 1000
        chosen = partition_values(self.partitions)

        def work(table: Table) -> CompactionInfo:
            return CompactionInfo.of(table.name, table.compact(self.full, chosen, self.idle))

        lake = _open(self.warehouse, self.master)
        yield _each(lake, self.target, self.branch, work)
        while pause is not None:
            SYSTEM.sleeper.sleep(pause)
            try:
                done = _each(lake, self.target, self.branch, work)
            except InvalidInputError:
                raise
            except AnabranchError as error:
                _LOG.warning("compaction of %s goes on after an error: %s", self.target, error)
            else:
                yield done


def sort_compact(
    warehouse: str,
    name: str,
    branch: str | None,
    *,
    by: Sequence[str],
    strategy: str,
    partitions: Sequence[str],
    master: str | None,
) -> CompactionInfo:
    """Sort a table, or some of its partitions, by columns."""
    table = open_table(_open(warehouse, master), View(name, branch))
    done = table.sort_compact(by, strategy=strategy, partitions=partition_values(partitions))
    return CompactionInfo.of(table.name, done)


def expire_snapshots(
    warehouse: str, target: str, branch: str | None, *, master: str | None, **how: Any
) -> list[ExpiryInfo]:
    """Expire snapshots of a table or of all tables of a database; `how` as `Table.expire_snapshots` takes it."""

    def work(table: Table) -> ExpiryInfo:
        return ExpiryInfo.of(table.name, table.expire_snapshots(**how))

    return _each(_open(warehouse, master), target, branch, work)


def remove_orphan_files(
    warehouse: str, target: str, *, older_than: str, dry_run: bool, master: str | None
) -> list[CleaningInfo]:
    """Clean up a table or all tables of a database."""

    def work(table: Table) -> CleaningInfo:
        return CleaningInfo.of(table.name, table.remove_orphan_files(older_than, dry_run))

    return _each(_open(warehouse, master), target, None, work)


def restore_orphan_files(warehouse: str, name: str, run: int) -> tuple[int, int]:
    """Restore what a run moved away: files and bytes. Raises `NotFoundError` if there was no such run."""
    tally = open_table(open_lake(warehouse), View(name)).restore_orphan_files(run)
    return tally.files, tally.bytes


def maintain(warehouse: str, target: str, *, dry_run: bool, master: str | None) -> list[UpkeepInfo]:
    """Compact, expire and clean up a table or all tables of a database."""

    def work(table: Table) -> UpkeepInfo:
        done: Upkeep = table.maintain(dry_run)
        name = table.name
        return UpkeepInfo(
            name,
            CompactionInfo.of(name, done.compaction),
            ExpiryInfo.of(name, done.expiry),
            CleaningInfo.of(name, done.cleaning),
            done.dry_run,
            f"{name}: {done}",
            tuple(finding.why for finding in done.left),
        )

    return _each(_open(warehouse, master), target, None, work)


def health(warehouse: str, target: str, branch: str | None) -> list[Health]:
    """Return the health of a table, or of each table of a database."""
    return _each(open_lake(warehouse), target, branch, lambda table: table.health())


def verify(
    warehouse: str, target: str, *, deep: bool, progress: Callable[[str], None], master: str | None
) -> list[Verification]:
    """Find what is wrong with a table, or with each table of a database."""
    work = lambda table: table.verify(deep, progress)  # noqa: E731
    return _each(_open(warehouse, master), target, None, work)


def repair(
    warehouse: str, target: str, *, dry_run: bool, progress: Callable[[str], None], master: str | None
) -> list[Repair]:
    """Repair a table, or each table of a database."""
    work = lambda table: table.repair(dry_run, progress)  # noqa: E731
    return _each(_open(warehouse, master), target, None, work)


def _open(warehouse: str, master: str | None) -> Lake:
    if master is None:
        return open_lake(warehouse)
    from anabranch.spark.sessions import session

    return connect(warehouse, spark=session(warehouse, master=master, app_name="anabranch maintenance"))


def _each(lake: Lake, target: str, branch: str | None, work: Callable[[Table], R]) -> list[R]:
    """Run `work` on a table, or on all tables if `target` is a database.

    Raises `AnabranchError` at the end if it failed for some tables of a database; the others are done then.
    """
    if "." in target:
        return [work(open_table(lake, View(target, branch)))]
    names = lake.tables(target)
    if not names:
        raise NotFoundError(f"database '{target}' has no tables", hint="anabranch tables lists them.")
    found, failed = [], []
    for name in names:
        try:
            table = open_table(lake, View(f"{target}.{name}", branch))
        except NotFoundError:
            continue  # it was dropped meanwhile, or has no such branch
        try:
            found.append(work(table))
        except AnabranchError as error:
            failed.append(f"{target}.{name}: {error}")
    if failed:
        raise AnabranchError(
            f"{len(failed)} of {len(names)} tables of '{target}' failed: " + "; ".join(failed),
            hint="the others are done; see to these and repeat it for them.",
        )
    return found


def _counted(tallies: Mapping[str, Tally]) -> dict[str, dict[str, int]]:
    return {name: {"files": tally.files, "bytes": tally.bytes} for name, tally in tallies.items()}


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidInputError(f"'{text}' is no duration", hint="write 30 s, 10 min or 1 h.") from error

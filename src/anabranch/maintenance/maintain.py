"""Runs all periodic maintenance of a table, in the order in which each step helps the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.engine import Engine
from anabranch.errors import AnabranchError, CorruptTableError, StorageError
from anabranch.kernel.branches.upkeep import BranchCare, tend_branches
from anabranch.kernel.compaction.planning import plan_minor
from anabranch.kernel.expiry.missing_refs import check_main_there
from anabranch.kernel.expiry.result import Expiry
from anabranch.kernel.log.branch_log import newest_schema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.repair.health import Finding, health
from anabranch.kernel.replacement.release import Releases, release_due
from anabranch.maintenance.compact import CompactionResult, compact, newest_files
from anabranch.maintenance.expire import expire_snapshots
from anabranch.maintenance.expire_partitions import PartitionExpiry, expire_partitions
from anabranch.maintenance.orphans import Cleaning, bring_back_needed_files, remove_orphan_files
from anabranch.options import REPLACED_MAIN_TIME_RETAINED, TARGET_FILE_SIZE


@dataclass(frozen=True)
class Upkeep:
    """Result of the maintenance of one table, or a preview."""

    compaction: CompactionResult
    expiry: Expiry
    cleaning: Cleaning
    branches: BranchCare = BranchCare()  # noqa: RUF009 - immutable
    """Expired branches that were deleted, and missing pins that were restored; of main only."""
    dry_run: bool = False
    mains: Releases = Releases()  # noqa: RUF009 - immutable
    """Replaced mains that were kept long enough; of main only."""
    partitions: PartitionExpiry = PartitionExpiry()  # noqa: RUF009 - immutable
    """Partitions that were old enough; of main only."""
    left: tuple[Finding, ...] = ()
    """What `health` would still find afterwards, the worst first."""

    def __str__(self) -> str:
        would = "would be " if self.dry_run else ""
        expired = sum(tally.files for tally in self.expiry.removed.values())
        branches = "".join(f"; {care}" for care in (self.branches, self.mains) if str(care))
        partitions = f"{self.partitions}; " if self.partitions.partitions else ""
        return (
            f"{partitions}{self.compaction.files_before:,} files {would}compacted into {self.compaction.files_after:,}; "
            f"{len(self.expiry.snapshots):,} snapshots {would}expired with {expired:,} files; "
            f"{self.cleaning.files.height:,} orphan files {would}moved away, {self.cleaning.purged.files:,} {would}purged{branches}"
            + "".join(f"; left: {_told(finding)}" for finding in self.left)
        )


def maintain(
    context: TableContext, options: Mapping[str, str], *, engine: Engine, dry_run: bool = False
) -> Upkeep:
    """Take old partitions away, compact, expire the snapshots that the options no longer keep, and move orphan files away.

    On main, expired branches are deleted first, and replaced mains that were kept long enough are dropped,
    so that what only they held is removed at once; and pins of branches that another engine removed are put back.

    Args:
        context: the branch.
        options: of the table, with those of the call over them.

    If there is no room to compact, that is tried again after the other steps. If something cannot be read as the
    cleaning of orphans had moved it away before its writer committed, it is brought back, and the steps begin anew.

    Raises what the three steps raise; what was done before an error stays done.
    """
    try:
        return _maintain(context, options, engine, dry_run=dry_run)
    except CorruptTableError:
        if dry_run or not bring_back_needed_files(context, engine=engine):
            raise
        return _maintain(context, options, engine, dry_run=False)


def _maintain(context: TableContext, options: Mapping[str, str], engine: Engine, *, dry_run: bool) -> Upkeep:
    branches, mains, partitions = BranchCare(), Releases(), PartitionExpiry(dry_run=dry_run)
    if _is_main(context):
        check_main_there(context)
        branches = tend_branches(context, dry_run=dry_run)
        mains = release_due(context, REPLACED_MAIN_TIME_RETAINED.of(options), dry_run=dry_run)
        partitions = expire_partitions(context, options, dry_run=dry_run)
    compaction: CompactionResult | None
    try:
        compaction = _would_compact(context, options) if dry_run else compact(context, options, engine=engine)
    except StorageError as error:
        if not error.out_of_space:
            raise
        compaction = None  # the next steps make room
    expiry = expire_snapshots(context, options, engine=engine, dry_run=dry_run)
    cleaning = remove_orphan_files(context, engine=engine, dry_run=dry_run)
    if compaction is None:
        compaction = compact(context, options, engine=engine)
    left = _left(context, options, is_done=not dry_run)
    return Upkeep(compaction, expiry, cleaning, branches, dry_run, mains, partitions, left)


def _left(context: TableContext, options: Mapping[str, str], *, is_done: bool) -> tuple[Finding, ...]:
    """Return what health finds and these steps do not fix."""
    schema = newest_schema(context)
    try:
        found = health(context, context.snapshots.head(), schema, {**schema.options, **options}).findings
    except AnabranchError:  # the steps are done; problems are left to `verify`
        return ()
    return tuple(finding for finding in found if is_done or not finding.is_upkeep)


def _told(finding: Finding) -> str:
    return finding.why if finding.command is None else f"{finding.why}: {finding.command}"


def _is_main(context: TableContext) -> bool:
    return context.branch is None or context.main_generation is not None


def _would_compact(context: TableContext, options: Mapping[str, str]) -> CompactionResult:
    """Return what compaction would begin with; its results are estimated by size."""
    live, schema = newest_files(context)
    limits = {**schema.options, **options}
    tasks = plan_minor(live, schema, limits)
    target = TARGET_FILE_SIZE.of(limits)
    return CompactionResult(
        files_before=sum(len(task.files) for task in tasks),
        files_after=sum(max(1, -(-task.size // target)) for task in tasks),
        bytes_before=sum(task.size for task in tasks),
        rows=sum(task.row_count for task in tasks),
        partitions=len({task.partition for task in tasks}),
        tasks=len(tasks),
    )

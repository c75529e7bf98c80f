"""Maintenance of a table: compaction, expiry, cleaning, verification and repair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError
from anabranch.kernel.log.branch_log import check_still_the_same, check_table_there
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import reading
from anabranch.option_kinds import parse_duration
from anabranch.table.view import TableView

if TYPE_CHECKING:
    from anabranch.kernel.compaction.selection import Partitions
    from anabranch.kernel.expiry.result import Expiry, Tally
    from anabranch.kernel.refs.moments import Cutoff
    from anabranch.kernel.repair.found import Verification
    from anabranch.kernel.repair.health import Health
    from anabranch.kernel.repair.repair import Repair
    from anabranch.maintenance.compact import CompactionResult
    from anabranch.maintenance.expire_partitions import PartitionExpiry
    from anabranch.maintenance.maintain import Upkeep
    from anabranch.maintenance.mark_done import DonePartition
    from anabranch.maintenance.orphans import Cleaning


class MaintenanceMethods(TableView):
    """Table methods for maintenance."""

    def compact(
        self, full: bool = False, partitions: Partitions | None = None, idle: str | None = None
    ) -> CompactionResult:
        """Rewrite small files as larger ones, while everybody keeps reading and writing.

        Where there is nothing to gain nothing is committed. Rows stay as they are, and those of a queue in
        their order.

        Args:
            full: leave no small file, however few there are, and none with other names or types of columns than today's.
            partitions: only these: a condition such as ``dt < '2026-01-01'``, or partition values as a dict or a
                list of dicts.
            idle: only partitions that have got no file for so long, such as ``1 h``.

        Raises:
            InvalidInputError: `partitions` or `idle` cannot be read, or this view is pinned.
            CommitError, StorageError: it could not be brought to its end; what was finished is committed.
        """
        from anabranch.maintenance.compact import compact

        return compact(
            self._to_tend(),
            self._options,
            engine=self._engine,
            full=full,
            partitions=partitions,
            idle_millis=None if idle is None else _duration(idle),
        )

    def sort_compact(
        self, by: str | Sequence[str], strategy: str = "zorder", partitions: Partitions | None = None
    ) -> CompactionResult:
        """Rewrite whole partitions with their rows sorted, so that queries on these columns skip most files.

        Rows stay the same and streams see nothing of it. What is appended meanwhile stays as it is; a partition
        of which others rewrote files meanwhile is given up, and it alone. Where nothing has changed since the same
        was done before, nothing is done; if that goes for all partitions, nothing is committed.

        Args:
            by: columns of atomic types, no partition columns.
            strategy: ``order`` sorts by the first column, then by the second and so on; ``zorder`` and ``hilbert``
                keep rows together that are near in all of them.
            partitions: only these, as `compact` takes them.

        Raises:
            SchemaError: a column does not exist or cannot be sorted by.
            InvalidInputError: `by`, `strategy` or `partitions` cannot be read, or this view is pinned.
            UnsupportedFeatureError: the table is a queue, whose order sorting would destroy.
            CommitError, StorageError: it could not be brought to its end; what was finished is committed.
        """
        from anabranch.maintenance.sort import sort_compact

        return sort_compact(
            self._to_tend(),
            self._options,
            engine=self._engine,
            by=by,
            strategy=strategy,
            partitions=partitions,
        )

    def expire_snapshots(
        self,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: Cutoff | None = None,
        dry_run: bool = False,
    ) -> Expiry:
        """Remove old snapshots of this branch, and the files that then no ref of any branch reaches.

        What tags, savepoints and branches reach stays; snapshots that a consumer has not read stay as well. At
        least two snapshots are kept. See the page on expiry.

        Args:
            retain_max: keep at most so many snapshots; the option ``snapshot.num-retained.max`` if None.
            retain_min: keep at least so many; ``snapshot.num-retained.min`` if None.
            older_than: expire what was replaced before: an age such as ``1 d``, a time such as ``2026-01-31 12:00:00``,
                a datetime or epoch milliseconds; ``snapshot.time-retained`` if None.
            dry_run: find out only.

        Raises:
            CorruptTableError: what stays cannot be read in full; nothing was deleted.
            UnsupportedFeatureError: the table uses something that this version does not know; nothing was deleted.
            InvalidInputError: an argument cannot be used.
        """
        from anabranch.maintenance.expire import expire_snapshots

        with reading(self._context.storage) as begin:
            begin(
                self._context.schemas.latest
            )  # looked at again for the options, in one round instead of two
            context = self._to_tend()
        return expire_snapshots(
            context,
            lambda: self.options,
            retain_max=retain_max,
            retain_min=retain_min,
            older_than=older_than,
            engine=self._engine,
            dry_run=dry_run,
        )

    def expire_partitions(self, older_than: str | None = None, dry_run: bool = False) -> PartitionExpiry:
        """Take partitions away that are older than the option ``partition.expiration-time`` says, in one commit.

        Their age is counted from the time that their values stand for (``partition.timestamp-pattern`` and
        ``-formatter``), in UTC, or with ``partition.expiration-strategy = update-time`` from their newest file. Partitions
        whose values stand for no time stay. Streams pass over the commit; moments before it still have the rows, until
        they expire. `maintain` does the same.

        Args:
            older_than: an age such as ``90 d``, instead of the option.
            dry_run: find out only.

        Raises:
            InvalidInputError: the table has no partitions, `older_than` is no age, or this view is pinned.
            OptionError: an option about the time of partitions is not understood.
            CommitError, StorageError: nothing was taken away.
        """
        from anabranch.maintenance.expire_partitions import expire_partitions

        return expire_partitions(
            self._to_tend(),
            self.options,
            older_than_millis=None if older_than is None else _duration(older_than),
            dry_run=dry_run,
        )

    def mark_partition_done(self, partitions: Partitions) -> tuple[DonePartition, ...]:
        """Tell whoever waits for them that the rows of partitions are complete, by a ``_SUCCESS`` file in their folders.

        As Paimon's action ``success-file`` does; marking again keeps the first time and moves the second. Partitions that
        expire lose their mark.

        Args:
            partitions: a condition such as ``dt < '2026-01-01'``, or partition values as a dict or a list of dicts.

        Raises:
            InvalidInputError: no partition is chosen that has rows, `partitions` cannot be read, this is a branch that is
                not main, or this view is pinned.
            StorageError: not all could be marked; doing it again marks the rest.
        """
        from anabranch.maintenance.mark_done import mark_partition_done

        return mark_partition_done(self._to_tend(), partitions)

    def remove_orphan_files(self, older_than: Cutoff = "1 d", dry_run: bool = False) -> Cleaning:
        """Set aside the files that no ref of any branch reaches, and purge those that were set aside before.

        Args:
            older_than: spares what was stored, and moved, since: an age, a time or epoch milliseconds, as in
                `expire_snapshots`. It must be longer than the longest write takes.
            dry_run: find out only.

        Raises:
            CorruptTableError: a ref, or what it names, cannot be read; nothing was moved.
            UnsupportedFeatureError: the table uses something that this version does not know; nothing was moved.
        """
        from anabranch.maintenance.orphans import remove_orphan_files

        self._check_unpinned()
        self._context.check_same_table()
        return remove_orphan_files(
            self._follow(), older_than=older_than, engine=self._engine, dry_run=dry_run
        )

    def restore_orphan_files(self, run: int) -> Tally:
        """Restore the files that a run of `remove_orphan_files` moved, if not purged yet. Raises `NotFoundError`."""
        from anabranch.maintenance.orphans import restore_orphan_files

        self._context.check_same_table()
        return restore_orphan_files(self._follow(), run, engine=self._engine)

    def maintain(self, dry_run: bool = False) -> Upkeep:
        """Expire partitions and snapshots, compact and clean up, as the table's options say. Raises what these raise.

        Args:
            dry_run: find out only.
        """
        from anabranch.maintenance.maintain import maintain

        return maintain(self._to_tend(), self.options, engine=self._engine, dry_run=dry_run)

    def verify(self, deep: bool = False, progress: Callable[[str], None] | None = None) -> Verification:
        """Check the table for damage, on all of its branches; nothing is changed.

        Looked at are history (what each snapshot was built on, gaps, leftovers above the newest, times in the future),
        tags, savepoints and branches, manifests against the counts of rows, and whether every data file that any of
        these reaches is there, in its size.

        Args:
            deep: also read every data file in full, with the checksums of its pages and footer, and compare its
                values with its statistics.
            progress: told what is being done.
        """
        from anabranch.maintenance.verify import verify

        self._check_unpinned()
        check_table_there(self._context)
        self._context.check_not_recreated()
        return verify(self._context, deep=deep, engine=self._engine, progress=progress or (lambda _: None))

    def repair(self, dry_run: bool = False, progress: Callable[[str], None] | None = None) -> Repair:
        """Repair what `verify` finds, as far as possible.

        Nothing is deleted that may hold rows. What cannot be brought back is in the result: lost rows with partition,
        time and job. Stop writers of other engines first; ours may go on.

        Args:
            dry_run: only say what would be done, step by step.
            progress: told what is being done.

        Raises `NotFoundError`: the table was dropped since it was opened.
        """
        from anabranch.maintenance.repair import repair

        self._check_unpinned()
        self._context.check_same_table()
        return repair(
            self._context, dry_run=dry_run, engine=self._engine, progress=progress or (lambda _: None)
        )

    def health(self) -> Health:
        """Return the table's health: small files, what compaction would gain, and the commands that help."""
        from anabranch.kernel.repair.health import health

        if self._pinned is None:
            self._to_tend()
        schema = self.schema
        snapshot = self._context.snapshots.head() if self._pinned is None else self._pinned.snapshot
        self._check_readable(schema, snapshot)
        return health(self._context, snapshot, schema, {**schema.options, **self._options})

    def _to_tend(self) -> TableContext:
        """Return the current state of the opened branch. Raises `NotFoundError`, `InvalidInputError`."""
        self._check_unpinned()
        while True:
            context = self._context
            with reading(context.storage) as begin:
                # Asked beside each other: as long as main was not replaced, what was checked is it.
                followed, checked = begin(self._follow), begin(partial(check_still_the_same, context))
                if followed() is context:
                    checked()
                    return context


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"'{text}' is no duration", hint="write a number and its unit: 30 s, 10 min, 1 h, 2 d."
        ) from error

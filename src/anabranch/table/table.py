"""The table facade: thin, over the kernel and the embedded engine.

Reading and writing are imported with it. What its other verbs call they import themselves, when they are called: each
of the many Python processes that Spark starts imports a table, and hardly any of them merges or audits one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from anabranch.errors import InvalidInputError
from anabranch.format.records.snapshot import CommitIdentity, SnapshotRef
from anabranch.format.schema.per_use import check_use
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import located
from anabranch.kernel.log.moment import Moment, of_tag
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.log.tag_log import get_tag
from anabranch.kernel.refs.moments import MOMENT_OPTIONS, place_and_moment, resolve, to_millis
from anabranch.kernel.refs.published import at_time, published_at
from anabranch.kernel.refs.time_travel import at_watermark
from anabranch.options import BRANCH
from anabranch.table.branching import BranchMethods
from anabranch.table.lineage import LineageMethods
from anabranch.table.maintenance import MaintenanceMethods
from anabranch.table.publishing import CompareMethods, PublishMethods
from anabranch.table.reading import ReadMethods
from anabranch.table.replacing import ReplaceMethods
from anabranch.table.tags import TagMethods
from anabranch.table.view import Once
from anabranch.table.writing import WriteMethods


class Table(
    PublishMethods,
    ReadMethods,
    WriteMethods,
    TagMethods,
    BranchMethods,
    CompareMethods,
    ReplaceMethods,
    MaintenanceMethods,
    LineageMethods,
):
    """One branch of a table, at its newest state or pinned to a moment.

    Example:
        >>> orders = lake.table("db.orders")
        >>> orders.append([{"id": 5, "day": "2026-01-03", "price": 1.5}]).id
        3
        >>> orders.scan("price >= 20 AND day < '2026-01-03'", columns=["id", "price"]).to_arrow().to_pylist()
        [{'id': 2, 'price': 20.0}, {'id': 3, 'price': 30.0}, {'id': 4, 'price': 40.0}]
        >>> orders.at("good").scan().count()
        2
        >>> orders.branches()
        ['fix']
    """

    def at(
        self,
        version: str | int | None = None,
        *,
        timestamp: str | int | datetime | None = None,
        watermark: int | None = None,
        exact: bool = False,
        published: bool = False,
    ) -> Table:
        """Return the table at a moment, with the schema of that moment. Its `moment` says what was found.

        Args:
            version: a snapshot id, ``snapshot.N``, ``savepoint.N``, ``watermark-N`` or a tag's name. With
                ``main@1.`` before it, it is that of the main which replacement 1 replaced.
            timestamp: text such as ``2026-01-01 00:00:00`` (UTC unless it names a zone), a datetime, or epoch
                milliseconds: the newest that was committed at that time or before it is taken, over snapshots
                and savepoints together.
            watermark: epoch milliseconds: the first whose watermark is at least that is taken.
            exact: refuse an answer by time or watermark if what has expired might be a better one, or if the past was
                changed since.
            published: with `timestamp`, what readers saw then, whatever replacements and rollbacks have changed since;
                without it, the history as it is now, with what was corrected.

        Raises:
            NotFoundError: nothing is there; the message says what is.
            InvalidInputError: the version names several things, or the timestamp is no time. A snapshot's id is
                refused (AMBIGUOUS_SNAPSHOT) where main had another one of that id before it was replaced.
        """
        if sum(asked is not None for asked in (version, timestamp, watermark)) != 1:
            raise InvalidInputError("at() takes either a version, a timestamp or a watermark")
        if published and timestamp is None:
            raise InvalidInputError(
                "published is about what readers saw at a time, but no time was given",
                hint="write at(timestamp=..., published=True).",
            )
        context = self._follow()
        if version is not None:
            context, version = located(context, version)
            found = resolve(context, version, exact=exact)
        elif timestamp is not None and published:
            context, found = published_at(context, to_millis(timestamp), exact=exact)
        elif timestamp is not None:
            found = at_time(context, to_millis(timestamp), exact=exact)
        else:
            assert watermark is not None
            found = at_watermark(context, watermark, exact=exact)
        return self._pinned_to(found, context)

    def tag(self, name: str) -> Table:
        """Return the table at a tag, by its exact name, whatever else has that name. Raises `NotFoundError`."""
        context = self._follow()
        return self._pinned_to(of_tag(get_tag(context, name)), context)

    def branch(self, name: str) -> Table:
        """Return the table on another branch: ``main``, one by its name, or ``main@1`` for what replacement 1 replaced.

        Raises `NotFoundError`.
        """
        with reading(self._context.storage) as begin:
            same_table = begin(self._context.check_not_recreated)
            found = open_branch(self._context, name)
            same_table()
        return Table(found, options=self._options, engine=self._engine, lineage=self._lineage_source)

    def with_options(self, options: Mapping[str, str]) -> Table:
        """Return the view with these options, which override its own: branch, moment, settings of a read.

        Raises `NotFoundError` if the branch, snapshot or tag does not exist, `OptionError` also for one that is unknown.
        """
        merged = {**self._options, **options}
        check_use(options)
        branch = BRANCH.of(options)
        view = self if branch is None else self.branch(branch)
        if any(option.key in options for option in MOMENT_OPTIONS):
            self._follow()
        context, pinned = place_and_moment(view.context, options)
        pinned = pinned or (self._pinned if branch is None else None)
        return Table(
            context,
            pinned=pinned,
            options=merged,
            engine=self._engine,
            lineage=self._lineage_source,
            once=self._once if context.branch_uuid == self.branch_uuid else None,
        )

    def _pinned_to(self, moment: Moment, context: TableContext) -> Table:
        return Table(
            context,
            pinned=moment,
            options=self._options,
            engine=self._engine,
            lineage=self._lineage_source,
        )


def committing_once(table: Table, identity: CommitIdentity, *, after: SnapshotRef) -> Table:
    """Return the view whose next append or overwrite is made once, whichever process makes it. For runs of batch jobs.

    In any other process, which was slower, it is a `CommitConflictError`. In place of following another main it raises
    `SealedBranchError`. Views of the branch that are made of it by options are the same in this.

    Args:
        table: a view of a branch.
        identity: of that commit. Its user makes no commits but such ones of this branch, with numbers that never fall.
        after: a snapshot of this branch that is older than all commits of that user.
    """
    made = table.with_options({})
    made._once = Once(identity, after)  # noqa: SLF001 - made here
    return made

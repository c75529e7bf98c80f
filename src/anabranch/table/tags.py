"""Tags, savepoints and consumers of a table, and rollback to a moment."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.branch_log import check_still_there
from anabranch.kernel.log.consumers import ConsumerLag, consumer_lags, forget_consumer, move_consumer
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import Moment, newest
from anabranch.kernel.log.parallel import OnUnread
from anabranch.kernel.log.savepoint_log import find_savepoint, is_of, savepoints
from anabranch.kernel.log.tag_log import find_tag, tag_names, visible_names
from anabranch.kernel.refs.moments import resolve_own, to_millis
from anabranch.kernel.refs.published import at_time
from anabranch.kernel.refs.savepoints import create_savepoint, delete_savepoint
from anabranch.kernel.refs.tags import create_tag, delete_tag, parse_retained, rename_tag, replace_tag
from anabranch.kernel.replacement.follow import on_main
from anabranch.table.savepoint_manager import SavepointManager
from anabranch.table.view import TableView

if TYPE_CHECKING:
    from anabranch.kernel.rollback.roll_back import RollbackResult


class TagMethods(TableView):
    """Table methods for tags, savepoints, consumers and rollback."""

    def tags(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of this branch's tags, sorted; internal ones only if asked for."""
        context = self._follow()
        found = visible_names(context)
        if include_internal:
            found = sorted({*found, *tag_names(context)})
        if not found:
            check_still_there(self._context)
        return found

    def savepoints(self, unread: OnUnread | None = None) -> list[Savepoint]:
        """Return the savepoints of this branch, by ascending number.

        Args:
            unread: called with the name of each damaged one, of whatever branch, and its error; such savepoints are left out.
                If None they raise `CorruptTableError`.
        """
        found = savepoints(self._follow(), unread)
        if not found:
            check_still_there(self._context)
        return found

    @property
    def savepoint_manager(self) -> SavepointManager:
        """Manager of this branch's savepoints, by id and by path."""
        return SavepointManager(self._follow())

    def create_tag(
        self,
        name: str,
        snapshot: str | int | None = None,
        *,
        timestamp: str | int | datetime | None = None,
        retained: str | int | None = None,
    ) -> Tag:
        """Create a tag: name a moment, which keeps it from expiring.

        Args:
            name: of the new tag.
            snapshot: what to name, as `at` takes it; by default what this view shows.
            timestamp: name the table as it was at this time instead, as `at` takes it.
            retained: how long to keep it, such as ``7 d``; option `tag.default-time-retained` if None.

        Raises:
            InvalidNameError: a new tag must not be called so.
            AlreadyExistsError: there is such a tag.
            NotFoundError: there is no such moment.
        """
        kept = parse_retained(retained)
        return on_main(
            self._context,
            lambda main: create_tag(main, name, self._moment(main, snapshot, timestamp), retained=kept),
            _has_tag,
        )

    def delete_tag(self, name: str) -> Tag:
        """Delete a tag. What only it kept goes with the next expiry of its snapshot, or else as orphans.

        Raises `NotFoundError`, and `InvalidNameError` for a tag of the table itself.
        """
        return on_main(
            self._context,
            lambda main: delete_tag(main, name),
            lambda main, deleted: find_tag(main, deleted.name) is None,
        )

    def rename_tag(self, name: str, new_name: str) -> Tag:
        """Rename a tag. Raises `NotFoundError`, `AlreadyExistsError`, `InvalidNameError`."""
        return on_main(
            self._context,
            lambda main: rename_tag(main, name, new_name),
            lambda main, renamed: _has_tag(main, renamed) and find_tag(main, name) is None,
        )

    def replace_tag(
        self,
        name: str,
        snapshot: str | int | None = None,
        *,
        timestamp: str | int | datetime | None = None,
        retained: str | int | None = None,
    ) -> Tag:
        """Move a tag to another moment, atomically. Arguments as for `create_tag`.

        Without `retained` it is kept as long as it was to be kept so far, from now on. Raises `NotFoundError`.
        """
        kept, replaced = parse_retained(retained), False

        def put(main: TableContext) -> Tag:
            nonlocal replaced
            moment = self._moment(main, snapshot, timestamp)
            if replaced and find_tag(main, name) is None:  # it names what a replacement of main left behind
                return create_tag(main, name, moment, retained=kept)
            tag = replace_tag(main, name, moment, retained=kept)
            replaced = True
            return tag

        return on_main(self._context, put, _has_tag)

    def create_savepoint(
        self, snapshot: str | int | None = None, *, timestamp: str | int | datetime | None = None
    ) -> Savepoint:
        """Create a savepoint: keep a moment for good, under the next number: ``at("savepoint.3")`` reads it.

        Args:
            snapshot: what to keep, as `at` takes it; by default what this view shows.
            timestamp: keep the table as it was at this time instead, as `at` takes it.

        Raises `NotFoundError`: there is no such moment.
        """
        return on_main(
            self._context,
            lambda main: create_savepoint(main, self._moment(main, snapshot, timestamp)),
            is_of,
        )

    def delete_savepoint(self, savepoint_id: int) -> Savepoint:
        """Delete a savepoint; its number is never reused. Raises `NotFoundError`."""
        return on_main(
            self._context,
            lambda main: delete_savepoint(main, savepoint_id),
            lambda main, deleted: find_savepoint(main, deleted.id) is None,
        )

    def consumers(self, unread: OnUnread | None = None) -> list[ConsumerLag]:
        """Return the consumers of this branch by name, and how far each is behind.

        Args:
            unread: called with the name of each damaged one and its error; such consumers are left out. If None they raise
                `CorruptTableError`.
        """
        found = consumer_lags(self._follow(), unread)
        if not found:
            check_still_there(self._context)
        return found

    def reset_consumer(self, name: str, next_snapshot: int | None = None) -> int:
        """Make a consumer read that snapshot next, or the next commit if None; return which that is.

        Raises `NotFoundError` if there is no such consumer, `InvalidInputError` if the snapshot is not retained.
        """
        return move_consumer(self._follow(), name, next_snapshot)

    def delete_consumer(self, name: str) -> None:
        """Delete a consumer, and let go of what was kept for it. Raises `NotFoundError`."""
        forget_consumer(self._follow(), name)

    def rollback(
        self, version: str | int, *, destructive: bool = False, force: bool = False, dry_run: bool = False
    ) -> RollbackResult:
        """Roll this branch back to an earlier moment.

        By default one new snapshot is committed whose live files are those of the moment: nothing of the history
        in between goes away, and rolling back can itself be rolled back. Rows are read under the newest schema;
        the watermark is that of the moment. What others append meanwhile is rolled away if it lands before, and stays if it
        lands after.

        Args:
            version: a snapshot's id, ``snapshot.N``, ``savepoint.N`` or the name of a tag.
            destructive: remove the snapshots after the moment for good instead. The schema stays the newest.
            force: of a destructive rollback, also remove what refers to them: tags, savepoints, branches and
                consumers; streaming queries that committed in between must start anew.
            dry_run: only return what would be done.

        Raises:
            NotFoundError: there is no such moment.
            CommitConflictError: data files of the moment are gone; or, if destructive, something refers to what
                would be removed (``conflicts`` lists it) or the moment is not part of the current history.
            CommitError: see `anabranch.errors`.
        """
        from anabranch.kernel.rollback.roll_back import rollback

        self._check_unpinned()
        self._context.check_same_table()
        return rollback(self._follow(), version, destructive=destructive, force=force, dry_run=dry_run)

    def reset_watermark(self, to: str | int | datetime | None = None) -> Snapshot | None:
        """Reset the watermark, also to a lower one, because a row from a wrong clock has moved it too far.

        The rows stay as they are. Commits that follow move it on from there.

        Args:
            to: a time as `at` takes it; None for the highest in the history that is not further ahead of the clock than
                `watermark.max-ahead`. If all are, there is none until rows are written.

        Returns:
            the newest snapshot, which is another only if that changed something.

        Raises:
            InvalidInputError: `to` is no time, or too far ahead of the clock.
            CommitError: see `anabranch.errors`.
        """
        from anabranch.kernel.actions.reset_watermark import reset_watermark

        self._check_unpinned()
        return reset_watermark(self._follow(), None if to is None else to_millis(to))

    def _moment(
        self,
        context: TableContext,
        version: str | int | None,
        timestamp: str | int | datetime | None,
    ) -> Moment:
        """Resolve the moment to keep. Raises `NotFoundError`, `InvalidInputError`."""
        if version is not None and timestamp is not None:
            raise InvalidInputError("a moment is named either by a snapshot or by a timestamp")
        if version is not None:
            return resolve_own(context, version)
        if timestamp is not None:
            return at_time(context, to_millis(timestamp))
        return self._pinned or newest(context)


def _has_tag(context: TableContext, made: Tag) -> bool:
    """Whether a branch has this very tag, and not another one of its name."""
    found = find_tag(context, made.name)
    return found is not None and found.mark == made.mark

"""Replacement of main by a branch, and its undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError
from anabranch.kernel.log.main_branch import as_main_by
from anabranch.option_kinds import parse_duration
from anabranch.options import REPLACED_MAIN_TIME_RETAINED
from anabranch.table.view import TableView

if TYPE_CHECKING:
    from anabranch.format.records.main_pointer import MainPointer
    from anabranch.kernel.replacement.request import ExpectedMain
    from anabranch.kernel.replacement.result import ReplaceResult


class ReplaceMethods(TableView):
    """Table methods that replace main."""

    def replace_main_branch(
        self,
        name: str,
        *,
        expect_main: ExpectedMain | None = None,
        mode: str = "pointer",
        wait: str | bool | None = None,
        force: bool = False,
        require_audit: str | bool | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> ReplaceResult:
        """Make a branch main, while everybody reads and writes. Repeating it after a failure finishes it.

        Whoever opens the table, or holds its main open, reads and writes the branch from then on. What was committed
        to the old main after the branch left it is kept as ``main@<number>`` for `branch.replaced-main.time-retained`.
        Streaming queries that wrote to the old main are stopped (`sink.on-replace`); streams that read it go on as
        `scan.on-replace` says.

        Args:
            name: of the branch.
            expect_main: main's newest snapshot; with another one nothing is done. A snapshot, such as `snapshot` of this
                table, or text such as ``57@0c1f9a2b``, which a dry run says: its number and the beginning of its stamp. A
                number alone is that of the main which this table has seen last.
            mode: ``pointer`` makes the branch main; ``commit`` makes main's rows those of the branch in one ordinary
                commit, for tables that other Paimon engines read or write too.
            wait: wait first until the branch has read from its sources what main has: for so long, such as ``10 min``,
                or an hour if True.
            force: go on although a check found something, or it is not known how far the branch is.
            require_audit: refuse unless the branch passed an audit as it is: of this name, or any if True.
            by: who does it, for people.
            reason: why, for people.
            dry_run: check everything, and only return what would be done.

        Raises:
            NotFoundError: there is no such branch.
            CommitConflictError: a check found something (``conflicts``), or the branch did not catch up in time; main is
                as it was.
            CommitError: see `anabranch.errors`.
        """
        from anabranch.kernel.replacement.content import replace_content
        from anabranch.kernel.replacement.release import release_due
        from anabranch.kernel.replacement.replace import planned, replace_main
        from anabranch.kernel.replacement.request import Expected, Replacement
        from anabranch.kernel.replacement.result import ReplaceResult
        from anabranch.lineage.coverage import coverage
        from anabranch.lineage.merging import replaced_origin
        from anabranch.lineage.only_on_main import only_on_main

        self._check_unpinned()
        is_main = self._context.main_generation is not None
        seen_as_main = self._context.branch_uuid if is_main else None
        wishes = Replacement(
            name,
            None if expect_main is None else Expected.of(expect_main, seen_as_main),
            wait_millis(wait),
            force,
            require_audit or False,
            by=by,
            reason=reason,
            coverage=coverage,
            gaps=only_on_main,
            origin=replaced_origin,
        )
        if mode not in ("pointer", "commit"):
            raise InvalidInputError(f"main can be replaced in the mode 'pointer' or 'commit', not '{mode}'")
        if dry_run or mode == "commit":
            self._context.check_same_table()
        if dry_run:
            return planned(self._follow(), wishes, as_commit=mode == "commit")
        if mode == "commit":
            return replace_content(self._follow(), wishes)
        made, repeated = replace_main(self._context, wishes)
        self._moved_on(made, is_newest=not repeated)
        if REPLACED_MAIN_TIME_RETAINED.of(self.options) == 0:
            release_due(self._context, 0)
        return ReplaceResult.of(made, repeated=repeated)

    def undo_replace(
        self,
        number: int | None = None,
        *,
        alone: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> ReplaceResult:
        """Undo the last replacement of main: what it replaced is main again.

        What was committed to main since stays on the branch that was main. Repeating it changes nothing.

        Args:
            number: of the replacement; only needed to go back further when the last one was taken back already.
            alone: take it back although it was made together with those of other tables, which stay replaced.
            by: who does it, for people.
            reason: why, for people.

        Raises:
            NotFoundError: main was not replaced, or what was replaced has been dropped.
            InvalidInputError: that is not the last replacement, or it was made together with those of other tables:
                `Lake.undo_group` takes all of them back.
        """
        from anabranch.kernel.replacement.replace import undo_replace
        from anabranch.kernel.replacement.result import ReplaceResult

        self._check_unpinned()
        self._context.check_same_table()
        made, repeated = undo_replace(self._context, number, alone=alone, by=by, reason=reason)
        self._moved_on(made, is_newest=not repeated)
        return ReplaceResult.of(made, repeated=repeated)

    def _moved_on(self, made: MainPointer, *, is_newest: bool) -> None:
        """Follow main after a decision; one that was made just now is the newest that is known."""
        if is_newest and self._context.main_generation is not None:
            self._context, self._last = as_main_by(self._context, made), None
        else:
            self._follow()


def wait_millis(wait: str | bool | None) -> int | None:
    """Parse a wait time to milliseconds; None for no wait. Raises `InvalidInputError`."""
    from anabranch.kernel.replacement.sealing import WAIT_BY_DEFAULT

    if wait is None or wait is False:
        return None
    if wait is True:
        return WAIT_BY_DEFAULT
    try:
        return parse_duration(wait)
    except ValueError as error:
        raise InvalidInputError(
            f"'{wait}' is no duration to wait", hint="write a number and its unit: 30 s, 10 min, 1 h."
        ) from error

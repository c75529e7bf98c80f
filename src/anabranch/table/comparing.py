"""Comparison of moments of a table, and audits of one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError
from anabranch.kernel.log.main_branch import main_of
from anabranch.lineage.recording import aside
from anabranch.table.view import TableView

if TYPE_CHECKING:
    from anabranch.audit import Checks, Verdict
    from anabranch.compare import Diff


class CompareMethods(TableView):
    """Table methods that compare and audit."""

    def diff(self, left: str = "main", right: str | None = None) -> Diff:
        """Compare two moments of the table. Only metadata is read, until rows are asked for.

        Args:
            left: a branch, such as ``main`` or ``fix``, at its newest state; or ``fix@good`` at a moment, named as `at`
                names it: ``fix@snapshot.5``, ``fix@savepoint.2``, or a tag. ``main@1`` is the main that replacement 1
                replaced, ``main@1.good`` a moment of it.
            right: the same; the branch of this view if None.

        Returns:
            A `Diff`: ``files``, ``schema``, ``partitions``, and ``rows()`` for exactly the rows that differ.

        Raises:
            NotFoundError: there is no such branch or moment; the message says what there is.
            InvalidInputError: the moment names several things, or what was given is no text.
        """
        from anabranch.compare import Diff
        from anabranch.kernel.branches.diff import side_of

        main = main_of(self._context)
        asked = self._own_name if right is None else right
        for side in (left, asked):
            if not isinstance(side, str):
                raise InvalidInputError(
                    f"{side!r} names no branch or moment to compare",
                    hint="write text: 'main', 'fix@good', 'main@snapshot.5'.",
                )
        return Diff(side_of(main, left), side_of(main, asked), self._engine)

    def audit(self, checks: str | os.PathLike[str] | Checks, *, by: str | None = None) -> Verdict:
        """Check the rows of this view, and record the verdict, which merging and replacing main can require.

        A verdict is bound to the snapshot that was looked at: commits after it make it void, compactions do not.

        Args:
            checks: a file of checks in YAML, see `anabranch.audit.run`; or its text, as ``Checks.parse`` reads it.
            by: who audits, for people.

        Returns:
            The verdict; truthy if it passed. It says of every check what was expected and found.

        Raises:
            InvalidInputError: the file of checks is not as it must be; the message names the line.
        """
        from anabranch.audit import Checks, Sides, audit
        from anabranch.kernel.branches.diff import DiffSide, side_of

        given = checks if isinstance(checks, Checks) else Checks.load(checks)
        snapshot, schema = self.snapshot, self.schema
        branch = DiffSide(self._own_name, self._context, snapshot, schema)
        main = main_of(self._context)
        is_main = main.branch_uuid == self._context.branch_uuid
        with aside():  # checks look at rows, and take none
            return audit(
                Sides(branch, None if is_main else side_of(main, "main"), self._engine), given, by=by
            )

    @property
    def _own_name(self) -> str:
        """Name of this view, in the syntax of `diff`."""
        context = self._context
        is_main = context.branch is None or context.main_generation is not None
        branch = context.known_as or ("main" if is_main else str(context.branch))
        return branch if self._pinned is None else f"{branch}@{self._pinned.name}"

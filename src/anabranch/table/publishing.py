"""Comparing a table with other states of it, and write-audit-publish: rows go to a branch first, and into main when they have
passed.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from anabranch.errors import (
    AlreadyExistsError,
    AnabranchError,
    CommitConflictError,
    InvalidInputError,
    StorageError,
)
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.parallel import reading
from anabranch.lineage.recording import aside
from anabranch.table.branching import BranchMethods
from anabranch.table.tags import TagMethods
from anabranch.table.view import TableView

if TYPE_CHECKING:
    from anabranch.audit import Checks, Verdict
    from anabranch.compare import Diff
    from anabranch.kernel.merge.result import MergeResult


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
        with reading(main.storage) as begin:
            same_table = begin(main.check_not_recreated)
            sides = side_of(main, left), side_of(main, asked)
            same_table()
        return Diff(*sides, self._engine)

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


T = TypeVar("T", bound="PublishMethods")


class PublishMethods(TagMethods, BranchMethods, CompareMethods):
    """Table methods that publish rows after an audit."""

    def publish(
        self, name: str, checks: str | os.PathLike[str] | Checks | None = None, *, by: str | None = None
    ) -> Publication[Self]:
        """Write to a branch that is merged if all is well: ``with t.publish("nightly", "checks.yml") as branch:``.

        At the beginning a branch is made of main's newest state. At the end it is audited, merged and deleted; readers
        of main see all of it at once or nothing. If the block raises, a check fails or the merge conflicts, main
        stays as it is and the branch is kept to be looked at.

        Args:
            name: of the branch.
            checks: a file of checks as `audit` takes it; without one the branch is merged as it is.
            by: who publishes, for people.

        Returns:
            A context manager that gives the branch, as a table. Afterwards its `verdict` and `merged` tell what came
            of it.

        Raises:
            InvalidInputError: this is not main, or the checks cannot be read.
            NotFoundError: nothing was ever written to main, of which branches are made.
            AlreadyExistsError: there is such a branch, perhaps one that was not published before.
            CommitConflictError: at the end: a check failed (``AUDIT_FAILED``), or main has changed so that the branch
                cannot be merged.
        """
        from anabranch.audit import Checks

        given = Checks.load(checks) if isinstance(checks, str | os.PathLike) else checks
        return Publication(self, name, given, by)


class Publication(Generic[T]):
    """Publication in progress: rows on their way into main, through a branch. Get one from `publish`."""

    verdict: Verdict | None = None
    """Result of the audit; None before it, and without checks."""
    merged: MergeResult | None = None
    """Result of the merge; None if there was none."""

    def __init__(self, table: T, name: str, checks: Checks | None, by: str | None) -> None:
        self._table = table
        self._name = name
        self._tag = f"publish-{name}"
        self._checks = checks
        self._by = by

    def __enter__(self) -> T:
        table, name = self._table, self._name
        if name in table.branches():
            raise AlreadyExistsError(
                f"branch '{name}' of '{table.name}' is there already, so nothing can be published through it",
                hint="if its rows are in main already, or are not wanted, remove it with `delete_branch`; else bring it in "
                "with `merge_branch`, which adds nothing twice; or choose another name.",
            )
        # A tag without a branch was left by a publication that died early.
        (table.replace_tag if self._tag in table.tags() else table.create_tag)(self._tag)
        table.create_branch(name, self._tag, created_by=self._by)
        return self._branch

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._publish()
        except BaseException as failed:
            error = failed
            raise
        finally:
            if error is not None and self.merged is None:
                error.add_note(self._kept)

    def _publish(self) -> None:
        table, name = self._table, self._name
        required = None
        if self._checks is not None:
            self.verdict = self._branch.audit(self._checks, by=self._by)
            if not self.verdict:
                raise self._refusal(self.verdict)
            required = self.verdict.record.name
        self.merged = table.merge_branch(name, require_audit=required)
        try:
            table.delete_branch(name)
            table.delete_tag(self._tag)
        except AnabranchError as error:
            raise StorageError(
                f"the rows of branch '{name}' are in main of '{table.name}', but the branch could not be removed: "
                f"{error.message}",
                hint=f"do not publish them again; remove branch '{name}' with `delete_branch`, and then its tag "
                f"'{self._tag}' with `delete_tag`.",
            ) from error

    @property
    def _branch(self) -> T:
        table = self._table
        context = open_branch(table.context, self._name)
        return type(table)(context, options=table._options, engine=table._engine)  # noqa: SLF001 - of the same class

    @property
    def _kept(self) -> str:
        name = self._name
        return (
            f"Branch '{name}' of {self._table.name} is kept: look at it with table.branch('{name}') and "
            f"table.diff('main', '{name}'); `merge_branch` publishes it, `delete_branch` removes it."
        )

    def _refusal(self, verdict: Verdict) -> CommitConflictError:
        from anabranch.kernel.commit.gates import AUDIT_FAILED

        failed = [check for check in verdict.failed if check.blocking]
        reasons = "; ".join(f"{c.name}: expected {c.expected}, found {c.found}" for c in failed)
        many = "a check" if len(failed) == 1 else f"{len(failed)} checks"
        message = f"'{self._name}' is not published to '{self._table.name}', {many} failed: {reasons}"
        hint = f"correct the rows on branch '{self._name}', `audit` it again, and bring it in with `merge_branch`."
        return CommitConflictError(message, conflicts=(Conflict(AUDIT_FAILED, message, hint),), hint=hint)

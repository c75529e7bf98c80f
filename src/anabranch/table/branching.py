"""Branches of a table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from anabranch.errors import InvalidInputError
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.refs.auto_tags import keep_due
from anabranch.kernel.refs.moments import resolve_own
from anabranch.kernel.refs.tags import parse_retained
from anabranch.kernel.replacement.follow import on_main
from anabranch.table.view import TableView

if TYPE_CHECKING:
    from anabranch.kernel.branches.branch_info import BranchInfo
    from anabranch.kernel.branches.delete import DeletedBranch
    from anabranch.kernel.merge.result import MergeResult
    from anabranch.kernel.provenance.coverage import JobOnMain
    from anabranch.lineage.lag import BranchLag


class BranchMethods(TableView):
    """Table methods that create branches, and bring them into main."""

    def create_branch(
        self,
        name: str,
        tag: str | None = None,
        *,
        snapshot: str | int | None = None,
        savepoint: int | None = None,
        created_by: str | None = None,
        retained: str | int | None = None,
    ) -> None:
        """Create a branch from a moment of main; `branch` opens it. No data is copied.

        A branch begins with a tag of main. Where a snapshot or savepoint is given, the tag is made, unless there is one
        of that name for it. Creating the same branch again after a failure brings it to its end.

        Args:
            name: of the new branch.
            tag: name of a tag of main; if a snapshot or savepoint is given, of the tag to make: that of the branch if
                None.
            snapshot: what to begin with, as `at` takes it.
            savepoint: number of the savepoint to begin with.
            created_by: who makes it, for people.
            retained: how long `maintain` keeps the branch, such as ``7 d``; for good if None.

        Raises:
            InvalidNameError: a branch, or a new tag, must not be called so.
            InvalidInputError: this is not the main branch, or it is not said what to begin with.
            AlreadyExistsError: there is such a branch, or the tag names another moment.
            NotFoundError: main has no such tag, snapshot or savepoint.
        """
        from anabranch.kernel.branches.create import create_branch

        if snapshot is not None and savepoint is not None:
            raise InvalidInputError("a branch begins either with a snapshot or with a savepoint")
        version = snapshot if savepoint is None else f"savepoint.{savepoint}"
        kept = parse_retained(retained)
        if tag is None and version is None:
            raise InvalidInputError(
                f"it is not said what branch '{name}' of '{self.name}' is to begin with",
                hint="name a tag of main, or a snapshot or savepoint of it.",
            )

        def create(main: TableContext) -> TableContext:
            moment = None if version is None else resolve_own(main, version)
            return create_branch(main, name, tag or name, moment=moment, created_by=created_by, retained=kept)

        on_main(self._context, create, lambda _main, made: made.read_fork() is not None)

    def delete_branch(self, name: str, *, dry_run: bool = False) -> DeletedBranch:
        """Remove a branch with its snapshots, tags, savepoints and schemas.

        What only it reached goes with the next cleaning. Who still has the branch open gets an error. To repeat it
        after a failure brings it to its end.

        Args:
            name: of the branch.
            dry_run: only say what would be removed.

        Raises `NotFoundError`, `InvalidInputError` for the branch that is main.
        """
        from anabranch.kernel.branches.delete import delete_branch

        self._context.check_same_table()
        return delete_branch(main_of(self._context), name, dry_run=dry_run)

    def merge_branch(
        self,
        name: str,
        *,
        resolve: str | Mapping[str, str] | None = None,
        allow_source_overlap: bool = False,
        require_audit: str | bool | None = None,
        dry_run: bool = False,
    ) -> MergeResult:
        """Merge a branch's changes since its last merge into main, as one new snapshot; no data file is read.

        Where only the branch changed a partition, main gets that; where both appended, main gets the branch's new files
        after its own. Anything else is a conflict, and all conflicts are reported at once. Compaction on either side
        is none. A branch may be merged again and again; where there is nothing to merge, nothing is committed. To
        repeat a merge after a failure brings it to its end.

        Args:
            name: of the branch.
            resolve: whose rows a partition with a conflict is to have: ``ours`` (main's) or ``theirs`` (the branch's). For
                all of them, or by partition, called as its folder is: ``{"dt=2026-01-01": "theirs"}``, with
                ``"*"`` for all others.
            allow_source_overlap: merge also if main took some of the same events from the same source: they will be there
                twice.
            require_audit: merge only if the branch, as it is now, has passed an audit: the name of its checks, or True
                for any.
            dry_run: only say what would be done; conflicts are in the result then.

        Raises:
            NotFoundError: there is no such branch.
            InvalidInputError: this is not main, the branch is, or `resolve` cannot be read.
            CommitConflictError: something stands against it; ``conflicts`` lists all of it. Nothing was merged.
            CommitError: see `anabranch.errors`.
        """
        from anabranch.kernel.log.merge_record import wishes_of
        from anabranch.kernel.merge.merge import merge_branch
        from anabranch.lineage.merging import merged_origin
        from anabranch.lineage.overlap import duplicate_sources

        self._check_unpinned()
        wishes = wishes_of(resolve, allow_source_overlap=allow_source_overlap)
        result = merge_branch(
            self._context,
            name,
            wishes,
            dry_run=dry_run,
            overlap=duplicate_sources,
            audit=require_audit,
            origin=merged_origin,
        )
        if result.snapshot is not None:
            with reading(self._context.storage) as begin:
                main, options = begin(partial(main_of, self._context)), begin(lambda: self.options)
                keep_due(main(), options(), result.snapshot)
        return result

    def branch_lag(self, name: str) -> BranchLag:
        """Return how far a branch is behind main, per source in offsets, according to the lineage of both.

        Raises `NotFoundError`: there is no such branch.
        """
        from anabranch.lineage.lag import branch_lag

        main = main_of(self._context)
        return branch_lag(main, open_branch(main, name))

    def branch_infos(self) -> list[BranchInfo]:
        """Return facts about main and each branch, main first: identity, fork, commits since, what only main has."""
        from anabranch.kernel.branches.branch_info import branch_infos
        from anabranch.lineage.only_on_main import only_on_main

        return branch_infos(main_of(self._context), only_on_main)

    def only_on_main(self, name: str) -> tuple[JobOnMain, ...]:
        """Return, job by job, what main has and a branch will not get by itself; replacing main by the branch drops it.

        A nightly backfill, rows appended by hand, the commits of a job that does not run on the branch. How far the
        branch is behind in what it reads as well is what `branch_lag` says.

        Raises `NotFoundError`: there is no such branch.
        """
        from anabranch.lineage.only_on_main import jobs_only_on_main

        main = main_of(self._context)
        return jobs_only_on_main(main, open_branch(main, name))

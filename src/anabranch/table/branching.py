"""Branches of a table."""

from __future__ import annotations

from anabranch.kernel.branches.create import create_branch
from anabranch.kernel.branches.delete import delete_branch
from anabranch.kernel.refs.tags import parse_retained
from anabranch.table.view import TableView


class Branching(TableView):
    """The part of a table that makes branches, and brings them into main."""

    def create_branch(
        self, name: str, tag: str, *, created_by: str | None = None, retained: str | int | None = None
    ) -> None:
        """Create a branch that begins as a tag of main is; `branch` opens it. No data is copied.

        Args:
            name: of the new branch.
            tag: name of a tag of main.
            created_by: who makes it, for people.
            retained: how long `maintain` keeps the branch, such as ``7 d``; for good if None.

        Raises:
            InvalidNameError: a branch must not be called so.
            InvalidInputError: this is not the main branch.
            AlreadyExistsError: there is such a branch.
            NotFoundError: main has no such tag.
        """
        create_branch(self._context, name, tag, created_by=created_by, retained=parse_retained(retained))

    def delete_branch(self, name: str) -> None:
        """Remove a branch with its snapshots, tags and schemas. What only it reached goes with the next cleaning.

        Raises `NotFoundError`, `InvalidInputError` for the branch that is main.
        """
        delete_branch(self._context, name)

"""The branches of a table, by name."""

from __future__ import annotations

from anabranch.errors import NotFoundError
from anabranch.kernel.context import TableContext
from anabranch.spec.layout import branch_name_of


def branch_names(context: TableContext) -> list[str]:
    """Names of all branches except main, sorted."""
    folders = context.storage.list_folders("branch")
    return sorted(name for folder in folders if (name := branch_name_of(folder)) is not None)


def open_branch(context: TableContext, branch: str) -> TableContext:
    """A branch of a table. Raises `NotFoundError` naming the branches there are."""
    found = context.on_branch(branch)
    if not found.schemas.ids():
        known = branch_names(context)
        raise NotFoundError(
            f"branch '{branch}' does not exist in '{context.name}'",
            hint=f"branches there are: main{''.join(f', {name}' for name in known)}.",
        )
    return found

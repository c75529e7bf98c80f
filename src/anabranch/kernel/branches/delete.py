"""Removing a branch: its metadata goes; data files that only it reached go with the next cleaning."""

from __future__ import annotations

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.kernel.branches.branch_log import branch_names
from anabranch.kernel.branches.create import FORK_PIN_PREFIX
from anabranch.kernel.context import TableContext
from anabranch.spec.fork import FORK_FILE, Fork


def delete_branch(main: TableContext, name: str) -> Fork | None:
    """Remove a branch, or what an interrupted removal left of it.

    Returns:
        how it began; None for a branch that another engine made.

    Raises:
        NotFoundError: there is no such branch.
        InvalidInputError: the branch is main now.
    """
    if name not in branch_names(main):
        known = ", ".join(branch_names(main)) or "none besides main"
        raise NotFoundError(
            f"branch '{name}' does not exist in '{main.name}'", hint=f"branches there are: {known}."
        )
    if main.branch == name:
        raise InvalidInputError(f"branch '{name}' is the main branch of '{main.name}' and cannot be deleted")
    branch = main.on_branch(name)
    fork, layout, storage = branch.fork, branch.layout, branch.storage
    for folder in (layout.snapshot_folder, layout.tag_folder, layout.consumer_folder, layout.schema_folder):
        storage.delete_folder(folder)
    fork_path = layout.branch_file_path(FORK_FILE)
    rest = [info.path for info in storage.list(layout.branch_root, recursive=True) if info.path != fork_path]
    storage.delete_many(rest)
    if fork is not None:
        storage.delete(main.layout.tag_path(f"{FORK_PIN_PREFIX}{fork.branch_uuid}"))
        storage.delete(fork_path)
    storage.delete_folder(layout.branch_root)
    return fork

"""The code version of a job, for lineage: the commit of its repository, and a hash of its file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from anabranch.lineage.code_version import code_version as commit_of

_SHORT = 12


def code_version(file: Path) -> str | None:
    """Return ``<commit>+sha256:<hash>``: the commit of the work tree, and the file's content, changed since or not.

    Only the hash outside of a work tree; None for a job without a file, such as one of a notebook.
    """
    if not file.is_file():
        return None
    digest = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()[:_SHORT]}"
    commit = commit_of(str(file))
    return digest if commit is None else f"{commit}+{digest}"

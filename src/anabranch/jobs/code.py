"""Which code a job runs, for lineage: the commit of its repository, and a hash of its file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from anabranch.lineage.code_version import code_version as commit_of

_SHORT = 12


def code_version(file: Path) -> str | None:
    """``<commit>+sha256:<hash>``: the commit that the work tree is at, and what the file holds, changed since or not.

    The hash alone where there is no work tree; None for a job that is in no file, such as one of a notebook.
    """
    if not file.is_file():
        return None
    digest = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()[:_SHORT]}"
    commit = commit_of(str(file))
    return digest if commit is None else f"{commit}+{digest}"

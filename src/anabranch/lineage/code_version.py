"""The version of a job's code: the commit checked out in a git work tree, read from its files, and a hash of its file.

Git is never run, because this happens while a job works; a few small files are read once per folder. Uncommitted
changes do not show.
"""

from __future__ import annotations

import hashlib
import re
import sys
from functools import lru_cache
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHORT = 12
"""Digits of a hash that are told."""
_DEEPEST = 5
"""Most references followed from one to the next."""


def git_commit(file: str | None = None) -> str | None:
    """Return the commit checked out in a file's work tree; None outside of one, or for a layout of git not understood.

    Args:
        file: the job's code; the program that runs if None.
    """
    path = file or getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:
        return None
    try:
        return _commit_of(Path(path).resolve().parent)
    except (OSError, ValueError):
        return None


def code_version(file: Path) -> str | None:
    """Return ``<commit>+sha256:<hash>``: the commit of the work tree, and the file's content, changed since or not.

    Only the hash outside of a work tree; None for a job without a file, such as one of a notebook.
    """
    if not file.is_file():
        return None
    digest = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()[:_SHORT]}"
    commit = git_commit(str(file))
    return digest if commit is None else f"{commit}+{digest}"


@lru_cache(maxsize=64)
def _commit_of(folder: Path) -> str | None:
    for parent in (folder, *folder.parents):
        found = parent / ".git"
        if found.is_dir():
            return _head(found)
        if found.is_file():  # of a linked work tree, or a submodule
            said = found.read_text().removeprefix("gitdir:").strip()
            return _head((parent / said).resolve())
    return None


def _head(git: Path) -> str | None:
    common = git / "commondir"
    shared = (git / common.read_text().strip()).resolve() if common.is_file() else git
    text = (git / "HEAD").read_text().strip()
    for _ in range(_DEEPEST):
        if not text.startswith("ref:"):
            return text if _COMMIT.fullmatch(text) else None
        name = text.removeprefix("ref:").strip()
        text = _reference(git, name) or _reference(shared, name) or _packed(shared, name) or ""
    return None


def _reference(git: Path, name: str) -> str | None:
    path = git / name
    return path.read_text().strip() if path.is_file() else None


def _packed(git: Path, name: str) -> str | None:
    path = git / "packed-refs"
    if not path.is_file():
        return None
    for line in path.read_text().splitlines():
        commit, _, named = line.partition(" ")
        if named == name:
            return commit
    return None

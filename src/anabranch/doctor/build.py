"""Which state of the code runs: the version, and the commit where it is no release."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import anabranch
from anabranch.version import __version__

_SHOWN = 12
"""Digits of a commit that are shown."""


def build_name() -> str:
    """Return the version; between releases with the commit, where pip or the clone that the code runs from tells it."""
    commit = (_of_pip() or _of_clone()) if ".dev" in __version__ else None
    return f"{__version__} (commit {commit[:_SHOWN]})" if commit else __version__


def _of_pip() -> str | None:
    """Return the commit that pip installed from a repository (PEP 610)."""
    try:
        text = metadata.distribution("anabranch").read_text("direct_url.json")
        commit = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    except (metadata.PackageNotFoundError, OSError, ValueError, AttributeError):
        return None
    return commit if isinstance(commit, str) else None


def _of_clone() -> str | None:
    """Return what HEAD of the clone is, without a program; None if the package is not in one."""
    root = Path(anabranch.__file__).parents[2]
    try:
        if not (root / "pyproject.toml").is_file():
            return None
        git = root / ".git"
        if git.is_file():  # a work tree beside the clone
            git = root / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = git / "commondir"
        shared = git / common.read_text().strip() if common.is_file() else git
        if (shared / name).is_file():
            return (shared / name).read_text().strip()
        packed = (line.split() for line in (shared / "packed-refs").read_text().splitlines())
        return next((words[0] for words in packed if words[1:] == [name]), None)
    except (OSError, UnicodeDecodeError):
        return None

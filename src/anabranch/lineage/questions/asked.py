"""The subject of a question: commits of a branch, named by their ids or by a moment."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.lineage.commit import CommitRef
from anabranch.lineage.content import Contents, Segment, Segments
from anabranch.lineage.store import CommitStore

_RANGE = re.compile(r"(.*?)\.\.(.*)", re.DOTALL)

Resolve = Callable[[str], CommitRef]
"""Resolves the name of a tag, savepoint or snapshot to a commit. Raises `NotFoundError`."""


@dataclass(frozen=True, slots=True)
class AskedCommits:
    """Commits that are asked about. Under ids up to its fork a branch has commits of the one that it left."""

    branch: str
    """Identity of the named branch."""
    segments: Segments
    text: str
    """For people: ``db.orders, snapshots 5..9``."""


def whole(store: CommitStore, branch: str) -> AskedCommits:
    """Return all commits that a branch has or ever had, whether it still contains them or not."""
    last = max(store.newest(branch), _begun_with(store, branch))
    return AskedCommits(branch, Contents(store).history(branch, 1, last), _title(store, branch))


def contained(store: CommitStore, moment: CommitRef, name: str) -> AskedCommits:
    """Return the commits that a table contained at a moment."""
    content = Contents(store).content(moment)
    return AskedCommits(moment.branch_uuid, content, f"{_title(store, moment.branch_uuid)} as of {name}")


def commits(store: CommitStore, branch: str, text: str, resolve: Resolve) -> AskedCommits:
    """Return one commit, or those of a range of ids.

    Args:
        branch: identity of the branch.
        text: ``5``, ``5..9``, ``5..``, ``..9``, also with names in place of numbers: ``good..``. Both ends are included.
        resolve: resolves numbers and names to commits.

    Raises:
        InvalidInputError: the range cannot be parsed, or it ends before it begins.
        NotFoundError: lineage knows no such commit.
    """
    found = Contents(store)
    newest = max(store.newest(branch), _begun_with(store, branch))
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        one = found.own(resolve(text.strip()))
        if store.commit(one) is None:
            raise NotFoundError(
                f"lineage knows no snapshot {one.snapshot} of '{_title(store, branch)}': the newest is {newest}",
                hint="`snapshots` lists those that are there; a range takes those that are known.",
            )
        return AskedCommits(
            branch, (Segment(one.branch_uuid, one.snapshot, one.snapshot),), _of(store, branch, text)
        )
    begin, end = match[1].strip(), match[2].strip()
    if not begin and not end:
        raise InvalidInputError(
            f"'{text}' names no snapshots",
            hint="write a snapshot such as 5 or a tag, or a range such as 5..9, 5.. or good..",
        )
    first = _on(found, branch, resolve(begin), begin) if begin else 1
    last = _on(found, branch, resolve(end), end) if end else newest
    if first > last:
        raise InvalidInputError(
            f"the range '{text}' of '{_title(store, branch)}' begins at snapshot {first} and ends at {last}",
            hint=f"the newest snapshot is {newest}.",
        )
    return AskedCommits(branch, found.history(branch, first, min(last, newest)), _of(store, branch, text))


def _on(contents: Contents, branch: str, ref: CommitRef, text: str) -> int:
    """Return the id of a commit in the history of a branch."""
    if contents.own(CommitRef(branch, ref.snapshot)) != contents.own(ref):
        raise InvalidInputError(
            f"'{text}' is snapshot {ref.snapshot} of another branch: a range is of one branch",
            hint="give the number of a snapshot.",
        )
    return ref.snapshot


def _begun_with(store: CommitStore, branch: str) -> int:
    line = store.line(branch)
    return 0 if line is None or line.fork is None else line.fork.snapshot


def _of(store: CommitStore, branch: str, text: str) -> str:
    what = "snapshots" if ".." in text else "snapshot"
    return f"{_title(store, branch)}, {what} {text}"


def _title(store: CommitStore, branch: str) -> str:
    line = store.line(branch)
    return branch if line is None else line.title

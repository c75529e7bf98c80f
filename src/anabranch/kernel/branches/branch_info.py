"""Summaries of branches: identity, fork, and how far the branch and main have moved since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from anabranch.errors import CorruptTableError
from anabranch.format.records.fork import Fork
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.fork_pins import fork_snapshot
from anabranch.kernel.log.parallel import each
from anabranch.kernel.provenance.coverage import Gaps, JobOnMain, by_job
from anabranch.tabular import Glance, Shown, time_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class BranchInfo(Shown):
    """Summary of one branch. Times are epoch milliseconds; unknown values are None.

    Example:
        >>> main, fix = table.branch_infos()
        >>> (fix.name, fix.tag, fix.is_main)
        ('fix', 'good', False)
    """

    name: str
    """``main``, or the name that opens it."""
    folder: str | None
    """The branch whose folder it lies in; None for the table's own. Differs from the name only for main."""
    state: BranchState
    is_main: bool
    uuid: str | None
    tag: str | None = None
    """The tag of main it was created from; None for main, and for branches of other engines."""
    fork_snapshot: int | None = None
    """The snapshot that the tag named."""
    fork_time: int | None = None
    """Commit time of the fork snapshot."""
    created: int | None = None
    created_by: str | None = None
    expires: int | None = None
    """Time from which `maintain` may delete it; None if never."""
    head: int | None = None
    """The newest snapshot."""
    head_time: int | None = None
    rows: int | None = None
    snapshots_ahead: int | None = None
    """Number of snapshots committed to it since its fork."""
    snapshots_behind: int | None = None
    """Number of snapshots committed to main since the fork."""
    rows_ahead: int | None = None
    """Number of rows it has grown by since the fork."""
    rows_behind: int | None = None
    """Number of rows main has grown by since the fork."""
    only_on_main: tuple[JobOnMain, ...] | None = None
    """Commits that main has and the branch will not get by itself, per job."""
    problem: str | None = None
    """Why not all of this is known: a file that cannot be read."""
    hint: str | None = None
    """What to do about the problem."""

    def __repr__(self) -> str:
        return f"<{self._glance().title}>"

    def _glance(self) -> Glance:
        none = "no snapshot" if self.problem is None else "newest snapshot cannot be read"
        head = none if self.head is None else f"snapshot {self.head}"
        known = (
            *(
                ("tag", self.tag),
                ("begins with snapshot", self.fork_snapshot),
                ("created", time_text(self.created)),
            ),
            *(("created by", self.created_by), ("expires", time_text(self.expires)), ("rows", self.rows)),
            *(("snapshots ahead", self.snapshots_ahead), ("snapshots behind", self.snapshots_behind)),
            *(("rows ahead", self.rows_ahead), ("rows behind", self.rows_behind)),
            *(("only main has", "; ".join(map(str, self.only_on_main or ()))), ("problem", self.problem)),
        )
        rows = [(name, value) for name, value in known if value not in (None, "")]
        return Glance(f"Branch {self.name}, {self.state.value}, {head}", (), ("", ""), rows)


def branch_infos(main: TableContext, gaps: Gaps | None = None) -> list[BranchInfo]:
    """Return main first, then the other branches by name; branches removed meanwhile are left out.

    What is damaged has a `problem`, and takes away nothing that can be read without it.

    Args:
        gaps: finds what only main has, by reading all commits since the oldest branch; None to skip that.
    """
    read = _Reader()
    of_main = BranchInfo(MAIN_BRANCH, main.branch, BranchState.READY, True, None, only_on_main=())
    of_main = replace(of_main, uuid=read(lambda: main.branch_uuid))
    head = read(main.snapshots.head)
    of_main = read.told(_at_head(of_main, head))
    names = [name for name in branch_names(main) if name != main.branch]
    found = each(partial(_info, main, head, gaps), names, at=main.storage)
    return [of_main, *(info for info in found if info.state is not BranchState.ABSENT)]


def _info(main: TableContext, main_head: Snapshot | None, gaps: Gaps | None, name: str) -> BranchInfo:
    branch, read = main.on_branch(name), _Reader()
    info = BranchInfo(name, name, state_of(branch), False, None)
    fork = read(lambda: branch.fork)
    if info.state is BranchState.READY and not read.has_failed:
        info = replace(info, uuid=read(lambda: branch.branch_uuid))
    head = read(branch.snapshots.head)
    info = _at_head(info, head)
    if fork is None:
        return read.told(info)
    begun = read(lambda: fork_snapshot(branch, main))
    info = _with_fork(info, fork, begun, head, main_head)
    # What is not whole is not compared: fewer commits than there are would look as if main had nothing of its own.
    if gaps is not None and info.state is BranchState.READY and not read.has_failed:
        only = read(lambda: by_job(gaps(main, branch), main.name, name))
        info = replace(info, only_on_main=only)
    return read.told(info)


class _Reader:
    """Reads parts of a summary one by one, each of which may be damaged; keeps the first error."""

    def __init__(self) -> None:
        self._error: CorruptTableError | None = None

    def __call__(self, part: Callable[[], T]) -> T | None:
        """Return a part; None if it cannot be read."""
        try:
            return part()
        except CorruptTableError as error:
            self._error = self._error or error
            return None

    @property
    def has_failed(self) -> bool:
        """Whether a part could not be read."""
        return self._error is not None

    def told(self, info: BranchInfo) -> BranchInfo:
        """Return the summary with its problem, if there is one; a branch whose identity is not known is damaged."""
        if self._error is None:
            return info
        state = info.state if info.uuid is not None else BranchState.DAMAGED
        return replace(info, state=state, problem=self._error.message, hint=self._error.hint)


def _with_fork(
    info: BranchInfo, fork: Fork, begun: Snapshot | None, head: Snapshot | None, main_head: Snapshot | None
) -> BranchInfo:
    return replace(
        info,
        uuid=fork.branch_uuid,
        tag=fork.tag,
        fork_snapshot=fork.snapshot.id,
        fork_time=None if begun is None else begun.time_millis,
        created=fork.created_millis,
        created_by=fork.created_by,
        expires=fork.expires_millis,
        snapshots_ahead=None if head is None else head.id - fork.snapshot.id,
        snapshots_behind=None if main_head is None else main_head.id - fork.snapshot.id,
        rows_ahead=_grown(begun, head),
        rows_behind=_grown(begun, main_head),
    )


def _at_head(info: BranchInfo, head: Snapshot | None) -> BranchInfo:
    if head is None:
        return info
    return replace(info, head=head.id, head_time=head.time_millis, rows=head.total_record_count)


def _grown(since: Snapshot | None, head: Snapshot | None) -> int | None:
    counts = [None if snapshot is None else snapshot.total_record_count for snapshot in (since, head)]
    return None if counts[0] is None or counts[1] is None else counts[1] - counts[0]

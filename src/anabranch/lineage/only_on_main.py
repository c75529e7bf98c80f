"""Commits only main has: made since a branch left it, missing from the branch, and not expected from any of its jobs.

A nightly backfill, rows appended by hand, the commits of a job that does not run on the branch. Replacing main by the
branch drops them. Commits of a stream on main that the branch reads as well are not among them, however far the
branch is behind: they are still to come, and `lag` says how many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import MERGE_USER, replace_facts
from anabranch.kernel.provenance.coverage import JobOnMain, OnlyOnMain, by_job
from anabranch.lineage.coverage import Content, Past, adds_rows, commits_since, title_of
from anabranch.lineage.model import Input, LineageEntry, TableInput, entry_or_none
from anabranch.lineage.overlap import Place, places

Why = Literal["origin", "source", "job"]


def jobs_only_on_main(
    main: TableContext, branch: TableContext, head: Snapshot | None = None, own_head: Snapshot | None = None
) -> tuple[JobOnMain, ...]:
    """Return the commits only main has, grouped by job. Takes the arguments of `only_on_main`."""
    return by_job(only_on_main(main, branch, head, own_head), main.name, branch.branch)


def only_on_main(
    main: TableContext, branch: TableContext, head: Snapshot | None = None, own_head: Snapshot | None = None
) -> list[OnlyOnMain]:
    """Return the commits of main that a branch lacks and is not going to have, oldest first.

    A commit that read on in sources which the branch also reads can still come, and so can all such commits while the
    branch has none of its own. Rows of a commit that read tables as they were at a moment come if that job runs on the
    branch. Commits that do not say what they read never come by themselves. Rolled back commits are left out, and so is
    what main has from the branch.

    Args:
        branch: another one of the table; nothing is known of one that another engine made.
        head: main as it was at this snapshot; None for now.
        own_head: the branch as it was at this snapshot; None for now.
    """
    fork = branch.fork
    if fork is None or branch.branch_uuid == main.branch_uuid:
        return []
    parted, in_main, in_branch = fork.snapshot.id, Content(), Content()
    since = _after_last_replacement(commits_since(main, parted, in_main, head), branch)
    own = _Own()
    for snapshot in commits_since(branch, parted, in_branch, own_head):
        own.take(snapshot)
    found = [only for snapshot in since if (only := _only(snapshot, branch, own)) is not None]
    if in_main.missing:
        found.insert(0, OnlyOnMain(parted + 1, None, None, "expired"))
    return found


@dataclass
class _Own:
    """The sources and reads recorded by the branch's commits."""

    has_commits: bool = False
    jobs: set[str] = field(default_factory=set)
    read_on: set[str] = field(default_factory=set)
    """Sources whose new rows it read."""

    def take(self, snapshot: Past) -> None:
        if not adds_rows(snapshot):
            return
        self.has_commits = True
        entry = entry_or_none(snapshot)
        if entry is not None:
            if not entry.is_of_no_job:
                self.jobs.add(entry.job)
            self.read_on |= (_sources(entry) or {}).keys()


def _after_last_replacement(commits: list[Past], branch: TableContext) -> list[Past]:
    """Return the commits after main's content was last replaced by the branch's in one commit."""
    for index in reversed(range(len(commits))):
        facts = replace_facts(commits[index])
        if facts is not None and facts.taken.branch_uuid == branch.branch_uuid:
            return commits[index + 1 :]
    return commits


def _only(snapshot: Past, branch: TableContext, own: _Own) -> OnlyOnMain | None:
    rows = snapshot.delta_record_count
    brings_nothing = snapshot.commit_kind == CommitKind.APPEND and rows == 0
    of_branch = snapshot.commit_user == f"{MERGE_USER}{branch.branch_uuid}"
    if not adds_rows(snapshot) or brings_nothing or of_branch:
        return None
    entry = entry_or_none(snapshot)
    sources = None if entry is None else _sources(entry)

    def only(why: Why, source: str | None = None) -> OnlyOnMain:
        job = None if entry is None or entry.is_of_no_job else entry.job
        return OnlyOnMain(snapshot.id, job, source, why, snapshot.time_millis, rows)

    if entry is None or sources is None:
        return only("origin")
    if sources:
        unread = sorted(sources.keys() - own.read_on) if own.has_commits else []
        return only("source", sources[unread[0]]) if unread else None
    if entry.engine.batch is not None or entry.job in own.jobs:
        return None
    return only("job")


def _sources(entry: LineageEntry) -> Mapping[str, str] | None:
    """Return the sources that the commit consumed, with their names; None if its reads are not known.

    Empty for a commit that only read tables as of a moment.
    """
    if not entry.knows_positions or entry.is_silent:
        return None
    found: dict[str, str] = {}
    for read in entry.consumed:
        at: Mapping[str, Place] | None = places(read, read.end)
        if at is None:
            return None
        if not (isinstance(read, TableInput) and read.is_state):
            found |= {key: _name(read, key) for key in at}
    return found


def _name(read: Input, key: str) -> str:
    kind, name = title_of(read, key)
    return f"{'topic' if kind == 'kafka' else kind} {name}"

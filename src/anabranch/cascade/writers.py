"""The writers of the commits that are taken out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from anabranch.lineage.commit import Commit, CommitRef
from anabranch.lineage.content import Segment, Segments
from anabranch.lineage.model import Engine, TableInput
from anabranch.lineage.store import CommitStore
from anabranch.version import __version__

_NAMED_AT_MOST = 5

EMPTYING = Engine("anabranch", __version__, query="anabranch-cascade")
"""The engine recorded for emptying a branch of a cascade. It brings no rows, so nobody has to repeat it."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A job, or other writers whose commits no job makes again."""

    job: str
    commits: int
    """Number of its commits that are taken out; 0 for a stream that made only others."""
    problem: str | None = None
    """Why they cannot be made again automatically."""
    tables: frozenset[str] = frozenset()
    """The tables that they took something from, by identity."""
    is_stream: bool = True
    """Whether a streaming query made some of its commits, as far as is known."""

    def __str__(self) -> str:
        return f"job '{self.job}' made {_times(self.commits)} of what is taken out"


def writers_of(store: CommitStore, made_anew: Segments, kept: Segments) -> tuple[Writer, ...]:
    """Return the writers of commits with rows, sorted by name; those that no job makes again last.

    Args:
        made_anew: the commits that have to be made again.
        kept: the earlier ones: streams that made these have to continue, too.
    """
    jobs: dict[str, set[tuple[str, int]]] = {}
    tables: dict[str, set[str]] = {}
    merges: dict[str, set[int]] = {}
    streams: set[str] = set()
    unsaid: list[int] = []
    for segment in made_anew:
        branch, first, last = segment
        by_hand: set[int] = set()
        for own in _with_rows(store, segment):
            if own.entry is None or own.entry.is_of_no_job:
                by_hand.add(own.snapshot)
            elif own.entry.taken is None and own.entry.engine.query != EMPTYING.query:
                # Also one that does not say what it read.
                jobs.setdefault(own.entry.job, set()).add((branch, own.snapshot))
        unsaid += sorted(by_hand)
        for newest in store.newest_inputs(branch, first, last):
            if newest.query != EMPTYING.query:
                streams |= {newest.job} if newest.query is not None else set()
                jobs.setdefault(newest.job, set()).add((branch, newest.snapshot))
                # Reads are known of commits with rows only; a job that has brought none yet has read its sources too.
                commit = store.commit(CommitRef(branch, newest.snapshot))
                inputs = () if commit is None or commit.entry is None else commit.entry.inputs
                read_from = {read.table_uuid for read in inputs if isinstance(read, TableInput)}
                tables.setdefault(newest.job, set()).update(read_from)
        for read in store.reads(branch, first, last):
            if read.snapshot in by_hand:
                pass  # no job makes it again, whatever it was made of
            elif read.kind == "merge":
                merges.setdefault(read.job, set()).add(read.snapshot)
            else:
                jobs.setdefault(read.job, set()).add((branch, read.snapshot))
                line = store.line(read.source)
                tables.setdefault(read.job, set()).add(read.source if line is None else line.table_uuid)
        for other in store.other_reads(branch, first, last):
            jobs.setdefault(other.job, set()).add((branch, other.snapshot))
    for branch, first, last in kept:
        for newest in store.newest_inputs(branch, first, last):
            if newest.query not in (None, EMPTYING.query):
                streams.add(newest.job)
                jobs.setdefault(newest.job, set())
    found = [
        Writer(job, len(commits), tables=frozenset(tables.get(job, ())), is_stream=job in streams)
        for job, commits in sorted(jobs.items())
    ]
    for job, snapshots in sorted(merges.items()):
        what = f"{_listed(snapshots)} brought in a branch ({job}): merge it into the new branch by hand"
        found.append(Writer(job, len(snapshots), what))
    if unsaid:
        verb = "was" if len(unsaid) == 1 else "were"
        what = f"{_listed(unsaid)} {verb} committed by hand, or by somebody who did not say from what"
        found.append(Writer("", len(unsaid), what))
    return tuple(found)


def _with_rows(store: CommitStore, segment: Segment) -> Iterator[Commit]:
    """Yield the commits of rows."""
    for commit in store.commits(segment.branch, segment.first):
        if commit.snapshot > segment.last:
            return
        if commit.has_rows:
            yield commit


def _times(number: int) -> str:
    return "1 commit" if number == 1 else f"{number} commits"


def _listed(snapshots: Iterable[int]) -> str:
    found = sorted(snapshots)
    what = "snapshot" if len(found) == 1 else "snapshots"
    more = f" and {len(found) - _NAMED_AT_MOST} more" if len(found) > _NAMED_AT_MOST else ""
    return f"{what} " + ", ".join(str(snapshot) for snapshot in found[:_NAMED_AT_MOST]) + more

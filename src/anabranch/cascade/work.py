"""A plan of a cascade with all that it was made from, and how the jobs of its tables read and begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anabranch.cascade.affected import Affected
from anabranch.cascade.correction import Correction, FromTag
from anabranch.cascade.starts import Corrected, JobStart, Stand, start_of
from anabranch.cascade.taken_away import Taking
from anabranch.cascade.values import CascadePlan
from anabranch.cascade.writers import Writer
from anabranch.errors import NotFoundError
from anabranch.jobs.checkpoint import IN_WAREHOUSE, Places
from anabranch.jobs.job import Job
from anabranch.jobs.source import Source
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.options import SCAN_ON_OVERWRITE
from anabranch.streaming.offsets import Position


@dataclass(frozen=True)
class Work:
    """A plan with everything it was made from, to carry it out."""

    plan: CascadePlan
    correction: Correction
    tables: tuple[Affected, ...]
    jobs: Mapping[str, Job]
    writers: Mapping[str, tuple[Writer, ...]]
    """By table."""
    stands: Mapping[str, Stand]
    """The state with which the branch of each table begins, by table."""
    mains: Mapping[str, TableContext]
    """The mains of all tables, by name."""
    warehouse: str
    """URL of the warehouse."""
    storage_options: Mapping[str, str]
    rows: Mapping[str, int]
    """Number of rows to be made again, by table."""
    took: Mapping[str, Mapping[str, int]]
    """Recorded milliseconds that the commits to be made again took, by table and job."""
    from_tag: FromTag | None
    """The tag at which the table itself begins again; None if its main was replaced already."""
    takings: Mapping[str, tuple[Taking, ...]]
    """Commits of former branches of the jobs' sources that took rows away before they became main, by table."""
    places: Places = IN_WAREHOUSE
    """Where the jobs' checkpoints are, beside those of the warehouse."""

    def corrected(self, *, made: bool) -> dict[str, Corrected]:
        """Return the tables whose branches are read in place of main, by name.

        Args:
            made: whether their branches must exist. Raises `NotFoundError` if one does not.
        """
        found = {}
        for one in self.tables:
            is_empty = one.fork is None or one.fork.is_empty
            fork = 0 if one.fork is None or is_empty else one.fork.snapshot
            branch = branch_there(one.main, self.plan.name, must=made)
            uuid = None if branch is None else branch.branch_uuid
            emptied = None if branch is None or not is_empty else _emptied(branch)
            found[one.main.name] = Corrected(one.main.name, one.main, self.plan.name, fork, uuid, emptied)
        return found

    def start(self, job: Job, one: Affected, corrected: Mapping[str, Corrected]) -> JobStart:
        """Return where a job begins. See `start_of`."""
        tables = {name: main.table_uuid for name, main in self._mains_of(job).items()}
        stand, is_batch = self.stands[one.main.name], self.is_batch(job)
        found = start_of(job, one.main, stand, self.read(job, corrected), tables, is_batch=is_batch)
        return replace(found, file_logs=stand.logs.get(job.name, {})) if job.reads_files else found

    def is_batch(self, job: Job) -> bool:
        """Whether a job has no stream among its sources. Of what a function returns only Spark can tell: its commits do here."""
        streams = [source.is_stream for source in job.sources.values()]
        made = [writer.is_stream for writer in self.writers.get(job.sink, ()) if writer.job == job.name]
        return True not in streams and (None not in streams or made == [False])

    def read(self, job: Job, corrected: Mapping[str, Corrected]) -> dict[str, Corrected]:
        """Return how a job's sources without a branch are read, by the name of the source."""
        return {
            name: replace(
                corrected.get(main.name) or Corrected(main.name, main, branch_uuid=main.branch_uuid),
                takings=self._takings(job.sources[name], main),
            )
            for name, main in self._mains_of(job).items()
            if not job.sources[name].names_branch
        }

    def _takings(self, source: Source, main: TableContext) -> tuple[Taking, ...]:
        """Return the commits that a job which reads a source cannot pass as it passes others that take rows away."""
        found = self.takings.get(main.name, ())
        if not found:
            return ()
        schema = main.schemas.latest()
        policy = SCAN_ON_OVERWRITE.of({**({} if schema is None else schema.options), **source.options})
        if policy == "changes":
            return ()
        return tuple(one for one in found if one.is_by_hand or policy != "added")

    def _mains_of(self, job: Job) -> dict[str, TableContext]:
        return {
            name: self.mains[source.table]
            for name, source in job.sources.items()
            if source.table is not None and source.table in self.mains
        }


def branch_there(main: TableContext, name: str, *, must: bool) -> TableContext | None:
    """Return a branch of a table; if it is not there, None, or `NotFoundError` if it must be."""
    try:
        return open_branch(main, name)
    except NotFoundError:
        if must:
            raise
        return None


def _emptied(branch: TableContext) -> Position | None:
    """Return the position after the snapshot that emptied a branch, the first of its own."""
    fork = branch.fork
    first = None if fork is None else branch.snapshots.find(fork.snapshot.id + 1)
    return None if first is None else Position.after(first)

"""OpenLineage events about commits, built with the official client's classes.

A commit is a completed run of the job it names, with the job's own run as the parent. Its id is derived from the commit
alone, so an event sent again adds nothing. An event for several commits takes the id of the newest.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    extraction_error_run,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    storage_dataset,
)

from anabranch.lineage.commit import Commit
from anabranch.lineage.joining import joined, made_of
from anabranch.lineage.model import Input, LineageEntry, TableInput
from anabranch.lineage.openlineage.facets import (
    PRODUCER,
    CommitsRunFacet,
    Facts,
    Name,
    Naming,
    RangesInputFacet,
    Written,
    job_facets,
    place_facets,
    schema_facet,
    version_facet,
)
from anabranch.version import __version__

_RUNS = uuid.UUID("0b0f63b4-5c9d-5c0e-9d55-0f6f8c1f3a52")
"""Namespace of run ids."""


@dataclass(frozen=True)
class Events:
    """Builds the events of one warehouse."""

    naming: Naming
    facts: Facts
    job_namespace: str

    def event(self, told: ReportedCommits) -> RunEvent:
        """Return the event for some commits of one job."""
        last = told.last
        entry = _entry(last)
        return RunEvent(
            eventType=RunState.COMPLETE,
            eventTime=_time(max(commit.time_millis for commit in told.commits)),
            producer=PRODUCER,
            run=Run(runId=commit_run(last), facets=self._run_facets(told)),
            job=Job(self.job_namespace, entry.job, facets=job_facets(entry)),
            inputs=self._inputs(told),
            outputs=[self._output(commits) for commits in _by_branch(told).values()],
        )

    # Facets

    def _run_facets(self, told: ReportedCommits) -> dict[str, RunFacet]:
        entry = _entry(told.last)
        sinks: list[dict[str, object]] = [
            {
                "table": self._title(branch),
                "first": commits[0].snapshot,
                "last": commits[-1].snapshot,
                "commits": len(commits),
            }
            for branch, commits in _by_branch(told).items()
        ]
        facets: dict[str, RunFacet] = {
            "anabranch_commits": CommitsRunFacet(len(told.commits), sinks, producer=PRODUCER)
        }
        parent = job_run(entry)
        if parent is not None:
            facets["parent"] = parent_run.ParentRunFacet(
                parent_run.Run(parent), parent_run.Job(self.job_namespace, entry.job), producer=PRODUCER
            )
        if entry.engine.version is not None:
            facets["processing_engine"] = processing_engine_run.ProcessingEngineRunFacet(
                entry.engine.version, entry.engine.name, __version__, producer=PRODUCER
            )
        problems = [(commit, text) for commit in told.commits for text in _entry(commit).problems]
        if problems:
            facets["extractionError"] = extraction_error_run.ExtractionErrorRunFacet(
                totalTasks=len(told.commits),
                failedTasks=len({commit.ref for commit, _ in problems}),
                errors=[
                    extraction_error_run.Error(text, task=f"snapshot {commit.snapshot}")
                    for commit, text in problems
                ],
                producer=PRODUCER,
            )
        return facets

    def _inputs(self, told: ReportedCommits) -> list[InputDataset]:
        """Return each dataset once, with all its ranges; its version is the newest of them."""
        ranges: dict[Name, list[dict[str, object]]] = defaultdict(list)
        versions: dict[Name, DatasetFacet] = {}
        for read in joined(read for commit in told.commits for read in inputs_of(_entry(commit))):
            if isinstance(read, TableInput):
                name = self.naming.of_table(read)
                ranges[name].append({"after": 0 if read.is_state else read.after, "through": read.through})
                versions[name] = version_facet(read.through, read.end.stamp)
                continue
            for name in self.naming.of_source(read, _entry(told.last).job):
                ends = {"after": read.start, "through": read.end}
                ranges[name].append({end: _of_topic(at, name.name) for end, at in ends.items()})
        return [
            InputDataset(
                name.namespace,
                name.name,
                facets=place_facets(name) | ({"version": versions[name]} if name in versions else {}),
                inputFacets={"anabranch_ranges": RangesInputFacet(found, producer=PRODUCER)},
            )
            for name, found in ranges.items()
        ]

    def _output(self, commits: Sequence[Commit]) -> OutputDataset:
        last = commits[-1]
        name = self.naming.of_branch(last.branch_uuid)
        facets = place_facets(name)
        facets["version"] = version_facet(last.snapshot, last.stamp)
        facets["storage"] = storage_dataset.StorageDatasetFacet("paimon", producer=PRODUCER)
        columns = self.facts.columns(last)
        if columns is not None:
            facets["schema"] = schema_facet(columns)
        lineage = self._column_lineage(_entry(last))
        if lineage is not None:
            facets["columnLineage"] = lineage
        if any(commit.kind == "OVERWRITE" for commit in commits):
            facets["lifecycleStateChange"] = lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                lifecycle_state_change_dataset.LifecycleStateChange.OVERWRITE, producer=PRODUCER
            )
        return OutputDataset(name.namespace, name.name, facets=facets, outputFacets=self._statistics(commits))

    def _statistics(self, commits: Sequence[Commit]) -> dict[str, OutputDatasetFacet]:
        total: Written | None = Written(0, 0, 0)
        for commit in commits:
            written = self.facts.written(commit)
            total = None if total is None or written is None else total.plus(written)
        if total is None:
            return {}
        facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            total.rows, total.bytes, total.files, producer=PRODUCER
        )
        return {"outputStatistics": facet}

    def _column_lineage(self, entry: LineageEntry) -> DatasetFacet | None:
        if not entry.columns:
            return None
        tables = {
            read.name: self.naming.of_table(read) for read in made_of(entry) if isinstance(read, TableInput)
        }
        fields = {}
        for origin in entry.columns:
            of_inputs = []
            for source in origin.sources:
                table, _, column = source.rpartition(".")
                name = tables.get(table) or self.naming.of_title(table)
                of_inputs.append(column_lineage_dataset.InputField(name.namespace, name.name, column))
            fields[origin.column] = column_lineage_dataset.Fields(of_inputs)
        return column_lineage_dataset.ColumnLineageDatasetFacet(fields, producer=PRODUCER)

    def _title(self, branch_uuid: str) -> str:
        line = self.naming.lines.get(branch_uuid)
        return branch_uuid if line is None else line.title


def commit_run(commit: Commit) -> str:
    """Return the run id of a commit, always the same: from the job's run, the batch and the commit's own identity."""
    entry = _entry(commit)
    known = (
        entry.run,
        entry.engine.query,
        entry.engine.batch,
        commit.branch_uuid,
        commit.snapshot,
        commit.stamp,
    )
    return str(uuid.uuid5(_RUNS, "/".join("" if part is None else str(part) for part in known)))


def job_run(entry: LineageEntry) -> str | None:
    """Return the id of the job's run that a commit belongs to, as a UUID; None if it is not known."""
    if entry.run is None:
        return None
    try:
        return str(uuid.UUID(entry.run))
    except ValueError:
        return str(uuid.uuid5(_RUNS, f"run/{entry.job}/{entry.run}"))


def inputs_of(entry: LineageEntry) -> tuple[Input, ...]:
    """Return the direct inputs of a commit's rows: for a merge the branch, whose own commits record theirs."""
    return made_of(entry)


def is_urgent(commit: Commit) -> bool:
    """Whether the commit records a problem, which no throttle may delay."""
    return bool(_entry(commit).problems)


def _entry(commit: Commit) -> LineageEntry:
    assert commit.entry is not None, "only commits that say where they come from are told"
    return commit.entry


def _by_branch(told: ReportedCommits) -> dict[str, list[Commit]]:
    found: dict[str, list[Commit]] = {}
    for commit in told.commits:
        found.setdefault(commit.branch_uuid, []).append(commit)
    return found


def _of_topic(end: object, topic: str) -> object:
    return end.get(topic) if isinstance(end, Mapping) else end


def _time(millis: int) -> str:
    return (
        dt.datetime.fromtimestamp(millis / 1000, dt.UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


# Groups commits by the event that reports them.
#
# Without a throttle each commit has its own. With one, the commits of a job within one interval are reported together
# by a summary event. Intervals begin at multiples of their length since the epoch, so that the same commits give the
# same events however often and in how many parts they are sent. Urgent commits are reported at once, and alone.


@dataclass(frozen=True, slots=True)
class ReportedCommits:
    """Commits of one job that an event reports, in the order in which they were found; at least one."""

    commits: tuple[Commit, ...]

    @property
    def last(self) -> Commit:
        return self.commits[-1]


@dataclass
class Windows:
    """Commits waiting for their interval to end, by job."""

    interval_millis: int
    """0 to report each commit by itself."""
    _waiting: dict[str, list[Commit]] = field(default_factory=dict)

    def add(self, commit: Commit, *, urgent: bool = False) -> list[ReportedCommits]:
        """Add a commit and return what is to be reported now; often nothing. An urgent commit is reported at once."""
        assert commit.entry is not None, "a commit without an entry has no job"
        job = commit.entry.job
        if urgent or not self.interval_millis:
            return [*self._taken(job), ReportedCommits((commit,))]
        waiting = self._waiting.get(job)
        done = [] if not waiting or self._window(waiting[0]) == self._window(commit) else self._taken(job)
        self._waiting.setdefault(job, []).append(commit)
        return done

    def due(self, now_millis: int) -> list[ReportedCommits]:
        """Return the commits waiting in intervals that are over."""
        over = now_millis // self.interval_millis if self.interval_millis else 0
        jobs = [job for job, waiting in self._waiting.items() if self._window(waiting[0]) < over]
        return [told for job in jobs for told in self._taken(job)]

    def rest(self) -> list[ReportedCommits]:
        """Return everything that is still waiting."""
        return [told for job in list(self._waiting) for told in self._taken(job)]

    def _window(self, commit: Commit) -> int:
        return commit.time_millis // self.interval_millis

    def _taken(self, job: str) -> list[ReportedCommits]:
        waiting = self._waiting.pop(job, None)
        return [ReportedCommits(tuple(waiting))] if waiting else []

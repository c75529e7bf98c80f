"""The graph of all jobs and tables: which job reads and writes what."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.lineage.commit import CommitRef
from anabranch.lineage.questions.walk import arranged
from anabranch.lineage.store import CommitStore, FlowSummary
from anabranch.lineage.trace import Dataset, Flow, Job, Trace


def topology(store: CommitStore, problems: Iterable[str] = ()) -> Trace:
    """Return whole tables, and what jobs ever took from one into another; including tables without readers or writers."""
    lines = {line.branch_uuid: line for line in store.lines()}
    flows = store.flows()
    seen = {flow.sink for flow in flows} | {line.branch_uuid for line in lines.values() if line.is_main}
    nodes: dict[str, Dataset] = {}
    for flow in flows:
        if flow.source not in lines:
            nodes[flow.source] = Dataset(flow.source, flow.source_kind, flow.source_name)
    for branch in sorted(seen | {flow.source for flow in flows if flow.source in lines}):
        line = lines.get(branch)
        name, table = (branch, None) if line is None else (line.title, line.table_uuid)
        nodes[branch] = Dataset(branch, "table", name, table)

    def by(node: str) -> tuple[str, ...]:
        return (nodes[node].name, node)

    order, depth = arranged([(flow.source, flow.sink) for flow in flows], (), nodes, by)
    place = {node: i for i, node in enumerate(order)}
    flows = sorted(flows, key=lambda f: (place[f.sink], place[f.source], f.job, f.is_merge))
    datasets = tuple(_at(nodes[node], depth[node]) for node in order)
    return Trace("all tables and jobs", datasets, tuple(map(_flow, flows)), tuple(problems))


def jobs(store: CommitStore) -> tuple[Job, ...]:
    """Return all jobs that ever wrote, by name."""
    found: dict[str, Job] = {}
    read: dict[str, set[str]] = {}
    for flow in store.flows():
        line = store.line(flow.source) if flow.source_kind == "table" else None
        read.setdefault(flow.job, set()).add(flow.source_name if line is None else line.title)
    for summary in sorted(store.jobs(), key=lambda one: (one.job, one.last_millis, one.sink)):
        newest = store.commit(CommitRef(summary.sink, summary.last_snapshot))
        entry = None if newest is None else newest.entry
        if entry is None or entry.taken is not None or entry.is_of_no_job:
            continue
        line, known = store.line(summary.sink), found.get(summary.job)
        sink = summary.sink if line is None else line.title
        found[summary.job] = Job(
            summary.job,
            summary.engine,
            entry.run,
            entry.code,
            tuple(sorted(read.get(summary.job, ()))),
            (sink,) if known is None else tuple(sorted({*known.sinks, sink})),
            summary.commits + (0 if known is None else known.commits),
            summary.first_millis if known is None else min(known.first_millis, summary.first_millis),
            summary.last_millis if known is None else max(known.last_millis, summary.last_millis),
        )
    return tuple(found.values())


def _at(dataset: Dataset, depth: int) -> Dataset:
    return Dataset(dataset.id, dataset.kind, dataset.name, dataset.table_uuid, depth=depth)


def _flow(flow: FlowSummary) -> Flow:
    return Flow(
        flow.source,
        flow.sink,
        flow.job,
        "merge" if flow.is_merge else "job",
        flow.commits,
        flow.first_millis,
        flow.last_millis,
    )

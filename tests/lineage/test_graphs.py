"""What lineage answers about random warehouses is exactly what is true of their rows."""

import random
from dataclasses import replace

import pytest

from anabranch.lineage.commit import CommitRef
from anabranch.lineage.memory import MemoryStore
from anabranch.lineage.questions.asked import contained, whole
from anabranch.lineage.questions.downstream import downstream, impact
from anabranch.lineage.questions.positions import positions
from anabranch.lineage.questions.topology import jobs, topology
from anabranch.lineage.questions.upstream import upstream
from anabranch.lineage.trace import Trace
from tests.lineage.chains import numbered
from tests.lineage.oracle import Graph
from tests.support.lengths import first_short


def graph_of(seed):
    graph = Graph(seed, f"memory://graph-{seed}", size=random.Random(seed).choice((2, 3, 3, 4, 5, 8, 12)))
    graph.run(40)
    return graph


def tables_of(graph):
    return [graph.lake.table(name).context for name in graph.main]


def check_all(graph, store):
    """All questions of a few kinds, for all branches."""
    rng = random.Random(graph.seed)
    check_topology(graph, store)
    for branch in graph.branches.values():
        history = graph.history(branch.uuid)
        if not history:
            continue
        check(graph, store, whole(store, branch.uuid), history)
        number = rng.randint(1, branch.known)
        check(graph, store, numbered(store, branch.uuid, str(number)), [history[number - 1]])
        first, last = sorted(rng.choices(range(1, branch.known + 1), k=2))
        check(graph, store, numbered(store, branch.uuid, f"{first}..{last}"), history[first - 1 : last])
        check(graph, store, numbered(store, branch.uuid, f"{first}.."), history[first - 1 :], depth=2)
        now = contained(store, CommitRef(branch.uuid, last), "then")
        check(graph, store, now, set(graph.content.get(history[last - 1], {}).values()), only_upstream=True)
        check_positions(graph, store, branch, last)


def check_topology(graph, store):
    """Who ever took from whom, and who wrote."""
    every = topology(store)
    taken = graph.flows(set(graph.direct), set(graph.rows))
    flows = {(f.source, f.sink, f.job, f.kind == "merge") for f in every.flows if ":" not in f.source}
    # What was read under the identity of a branch may have been rows from before its fork.
    assert {flow[1:] for flow in taken} == {flow[1:] for flow in flows}
    assert set(graph.main.values()) <= {dataset.id for dataset in every.datasets}
    written = {}
    for mark, job in graph.jobs.items():
        if mark not in graph.merges:
            written.setdefault(job, set()).add(mark)
    assert {job.name: job.commits for job in jobs(store)} == {job: len(made) for job, made in written.items()}


def check(graph, store, asked, commits, *, depth=None, only_upstream=False):
    """Both directions."""
    begun = {mark for mark in commits if graph.rows.get(mark)}
    up, down = upstream(store, asked, depth=depth), downstream(store, asked, depth=depth)
    wanted = graph.upstream(begun) if depth is None else steps(begun, graph.direct, depth)
    assert found(graph, up) == wanted, up.question
    check_flows(graph, up, wanted, begun, depth, against=True)
    if only_upstream:
        return
    readers = {}
    for sink, sources in graph.direct.items():
        for source in sources:
            readers.setdefault(source, set()).add(sink)
    wanted = graph.downstream(begun) if depth is None else steps(begun, readers, depth)
    assert found(graph, down) == wanted, down.question
    check_flows(graph, down, wanted, begun, depth, against=False)
    spoilt = impact(store, asked, depth=depth)
    assert replace(spoilt, question="") == replace(down, question="")


def steps(begun, edges, depth):
    """What can be reached in so many steps."""
    known, newest = set(begun), set(begun)
    for _ in range(depth):
        newest = set().union(*(edges.get(mark, set()) for mark in newest)) - known
        known |= newest
    return known


def found(graph, trace):
    """The commits of an answer. In its ranges there is nothing else but commits that brought no rows."""
    named = set()
    for dataset in trace.datasets:
        for first, last in dataset.snapshots:
            assert graph.rows.get((dataset.id, first)), dataset
            assert graph.rows.get((dataset.id, last)), dataset
            named |= {(dataset.id, number) for number in range(first, last + 1)}
    return {mark for mark in named if graph.rows.get(mark)}


def check_flows(graph, trace: Trace, wanted, begun, depth, *, against):
    """Which jobs took how often from where to where, and the order of what they took it from."""
    if depth is None:
        expected = graph.flows(wanted, wanted)
        flows = {
            (flow.source, flow.sink, flow.job, flow.kind == "merge"): flow.commits
            for flow in trace.flows
            if not flow.source.startswith("kafka")
        }
        assert flows == expected, trace.question
    place = {dataset.id: i for i, dataset in enumerate(trace.datasets)}
    depths = {dataset.id: dataset.depth for dataset in trace.datasets}
    if not is_cyclic(trace):
        assert all(place[flow.source] < place[flow.sink] for flow in trace.flows if flow.source != flow.sink)
        for flow in trace.flows:
            near, far = (flow.sink, flow.source) if against else (flow.source, flow.sink)
            assert near == far or depths[near] < depths[far]
    assert set(place) >= {flow.source for flow in trace.flows} | {flow.sink for flow in trace.flows}


def is_cyclic(trace):
    left = {(flow.source, flow.sink) for flow in trace.flows if flow.source != flow.sink}
    while left:
        sinks = {sink for _, sink in left}
        free = {edge for edge in left if edge[0] not in sinks}
        if not free:
            return True
        left -= free
    return False


def check_positions(graph, store, branch, number):
    """A job goes on after the newest of its commits that the table contained then."""
    carried = graph.content.get(graph.own(branch.uuid, number), {})
    contained = set().union(*(graph.marks[row, mark] for row, mark in carried.items()))
    answers = {answer.job: answer for answer in positions(store, CommitRef(branch.uuid, number))}
    for job in {graph.jobs.get(mark) for mark in carried.values()} - {None}:
        if not job.startswith("increment"):
            continue
        answer = answers[job]
        newest = answer.made_on, answer.commit
        ends = [graph.ends[mark] for mark in set(carried.values()) if graph.jobs.get(mark) == job]
        latest = max(ends, key=lambda end: sum(snapshot for _, snapshot in end.values()))
        read = {source.position["branch"]: source.position["snapshot"] for source in answer.sources}
        assert read == dict(latest.values()), (newest, contained)


def everything(store):
    """All that a store says."""
    said = {"flows": store.flows(), "jobs": store.jobs(), "lines": store.lines()}
    for line in store.lines():
        uuid, newest = line.branch_uuid, store.newest(line.branch_uuid)
        ranges = [(1, newest), (2, 3), (newest, newest + 5), (1, 2**62)]
        said[uuid] = {
            "line": store.line(uuid),
            "of table": store.lines(line.table_uuid),
            "newest": newest,
            "commits": [store.commit(CommitRef(uuid, number)) for number in range(newest + 2)],
            "breaks": list(store.breaks(uuid)),
            "gaps": list(store.gaps(uuid)),
            **{
                (name, first, last): found(getattr(store, name)(uuid, first, last))
                for first, last in ranges
                for name, found in {
                    "rowless": list,
                    "unsaid": list,
                    "problems": list,
                    "reads": list,
                    "other_reads": list,
                    "readers": sorted,
                    "newest_inputs": lambda rows: sorted(rows, key=repr),
                }.items()
            },
        }
    return said


def check_seed(seed, *, asks_index=True):
    """Exact from memory and from the index, which says the same when it was caught up, and when it was built anew."""
    graph = graph_of(seed)
    memory = MemoryStore.of_tables(tables_of(graph))
    check_all(graph, memory)
    said = everything(memory)
    lineage = graph.lake.lineage
    with lineage.reading() as known:
        assert everything(known.store) == said
        if asks_index:
            check_all(graph, known.store)
    lineage.rebuild()
    with lineage.reading() as known:
        assert everything(known.store) == said


@pytest.mark.parametrize("seed", first_short(range(5)))
def test_answers_are_exact(seed):
    check_seed(seed, asks_index=seed < 2)


@pytest.mark.long
@pytest.mark.parametrize("part", range(50))
def test_answers_are_exact_for_long(part):
    for seed in range(1000 + 10 * part, 1010 + 10 * part):
        check_seed(seed, asks_index=seed % 5 == 0)

"""Random graphs of jobs: after a cascade every table has exactly the rows that its jobs make of what is right."""

from random import Random

import pytest

from anabranch.cascade import run_cascade
from tests.cascade.embedded import run, streaming
from tests.cascade.story import correct, new_lake, plan, rows, values


class Graph:
    """Tables 0 to n-1, of which each but the first few is made by one job, or two, from earlier ones.

    Rows keep their id, and every job adds a mark of its own to the value, or drops some; so what a table must have is
    told from the rows of those it is made from.
    """

    def __init__(self, random):
        self.random = random
        self.count = random.randint(3, 8)
        self.roots = random.randint(1, 2)
        self.tables = ["db.orders", *(f"db.t{i}" for i in range(1, self.count))]
        self.jobs = []
        for number in range(self.roots, self.count):
            for part in range(random.choice((1, 1, 1, 2))):
                sources = random.sample(range(number), min(number, random.choice((1, 1, 2))))
                self.jobs.append(self._job(f"j{number}-{part}", sources, number))
        self.lake = new_lake(*self.tables)

    def _job(self, name, sources, sink):
        mark, dropped = self.random.randint(1, 9), self.random.choice((None, None, 50, 5))

        def function(*found):
            return [
                {"id": row["id"], "v": row["v"] * 10 + mark}
                for part in found
                for row in part
                if dropped is None or row["v"] % 100 < dropped
            ]

        made = streaming(name, [self.tables[s] for s in sources], self.tables[sink], function)
        made_of[made.name] = function
        return made

    def expected(self):
        """The rows of each table, told from those of the roots."""
        found = {table: self._rows(table) for table in self.tables[: self.roots]}
        for table in self.tables[self.roots :]:
            found[table] = [
                row
                for job in self.jobs
                if job.sink == table
                for row in made_of[job.name](*(found[source.table] for source in job.sources.values()))
            ]
        return {table: sorted((row["id"], row["v"]) for row in rows) for table, rows in found.items()}

    def _rows(self, table):
        return self.lake.table(table).scan().to_arrow().to_pylist()

    def step(self):
        """Some jobs, in order or not, each a batch of all there is."""
        for job in self.random.sample(self.jobs, self.random.randint(0, len(self.jobs))):
            run(job, self.lake)

    def all_steps(self):
        for _ in range(2):
            for job in self.jobs:
                run(job, self.lake)


made_of = {}


def check(seed):
    random = Random(f"cascade {seed}")
    graph = Graph(random)
    lake, good, bad = graph.lake, random.randint(1, 3), random.randint(1, 3)
    for number in range(good + bad):
        lake.table("db.orders").append(rows(2 * number, 2, factor=1 if number < good else 7))
        if number == good - 1:
            lake.table("db.orders").create_tag("good")
        if graph.roots > 1:
            lake.table("db.t1").append(rows(100 + number, 1))
        for _ in range(random.randint(0, 3)):
            graph.step()
    graph.all_steps()
    before = {table: values(lake, table) for table in graph.tables}
    assert before == graph.expected(), "the jobs do what is expected of them"
    correct(lake, good, bad)
    if random.random() < 0.5:
        for table in graph.tables[1:]:
            if lake.table(table).snapshot is not None:
                lake.table(table).compact(full=True)
    result = run_cascade(lake, "db.orders", graph.jobs, runner=run)
    assert result.waiting is None, result.waiting
    assert result.is_published
    assert plan(lake, graph.jobs).is_done
    untouched = set(graph.tables) - set(result.plan.tables)
    for table in untouched - {"db.orders"}:
        assert values(lake, table) == before[table]
    assert {table: values(lake, table) for table in graph.tables} == graph.expected()
    lake.table("db.orders").append(rows(1_000, 2))
    graph.all_steps()
    assert {table: values(lake, table) for table in graph.tables} == graph.expected()


@pytest.mark.long
@pytest.mark.parametrize(
    "seeds",
    [range(2), *(pytest.param(range(n, n + 20), marks=pytest.mark.long) for n in range(2, 202, 20))],
    ids=str,
)
def test_random_graphs(seeds):
    for seed in seeds:
        try:
            check(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error

"""A random pipeline: which jobs there are, what each reads, which of them is wrong for a while, and when."""

from dataclasses import dataclass, field
from random import Random

from tests.pipelines.events import LAG
from tests.pipelines.kinds import BUGS, KINDS, SLACK, STATELESS, declare

RAW, RAW_FACTORS, FACTORS = "db.raw", "db.raw_factors", "db.factors"
DOWNSTREAM = tuple(name for name in KINDS if name != "factors")
_FIRST = ("filter", "filter", "filter", "distinct", "lookup", "random", "windows", "pairs")
_NO_TIME = ("outer", "totals")
"""What else an aggregation over everything or a batch job may read."""


@dataclass(frozen=True)
class Step:
    """A job of a pipeline."""

    name: str
    kind: str
    sources: tuple[str, ...]
    sink: str
    delays: tuple[int, ...] = ()

    def job(self, change=None):
        return declare(self.name, KINDS[self.kind], self.sources, self.sink, self.delays, change)


@dataclass
class Pipeline:
    """What follows from a seed; how it is lived is in `life`."""

    seed: int
    steps: list[Step] = field(default_factory=list)
    wrong: Step | None = None
    """The job that is wrong for a while."""
    bug: str = ""
    feeds: int = 0
    tagged: int = 0
    """After this feed the table of that job is tagged."""
    bad: int = 0
    """From this feed on the job is wrong."""
    late: bool = False
    partitions: int = 1
    correct: str = "correct"
    """``correct``, or the single commands."""
    kills: list[tuple] = field(default_factory=list)
    undo: str | None = None
    """``stay`` or ``again`` after the correction was taken back; None if it is not."""
    backfill: str | None = None
    """The table that gets rows by hand after the tag."""
    prompt: set[str] = field(default_factory=set)
    """Tables whose rows are those of the newest events."""
    undeclared: str | None = None
    """A job that is first left out of what the correction is given, such as one that writes by ``foreachBatch``."""
    column: bool = False
    """Whether the correction adds a column."""

    @property
    def kinds(self):
        return sorted({step.kind for step in self.steps})

    @property
    def sinks(self):
        """The tables, each after all that it is made of."""
        places = {step.sink: place for place, step in enumerate(self.steps)}
        return sorted(places, key=places.get)

    def change(self, step, *, wrong, fixed):
        """What is different in a job while it is wrong, or once it is mended; None if nothing is."""
        if step is not self.wrong:
            return None
        return self.bug if wrong else "column" if fixed and self.column else None

    def below(self, table):
        """The tables that are made from a table, in order."""
        found = {table}
        for step in self.steps:
            if found & {*step.sources}:
                found.add(step.sink)
        return [step.sink for step in self.steps if step.sink in found - {table}]

    def __str__(self):
        jobs = "; ".join(f"{s.name} = {s.kind}({', '.join(s.sources)}) -> {s.sink}" for s in self.steps)
        told = f"{self.wrong.name} wrong by '{self.bug}' from feed {self.bad} of {self.feeds}, tag after {self.tagged}"
        more = f"{self.correct}, kills {self.kills}, undo {self.undo}, backfill {self.backfill}, undeclared {self.undeclared}, column {self.column}"
        return f"seed {self.seed}: {jobs}; {told}; {more}; late {self.late}"


def pipeline(seed, *, stateless=False):
    """The pipeline of a seed; only with jobs that keep no state if so wished."""
    random = Random(seed)
    fitting = []
    while not fitting:
        made = Pipeline(seed)
        _choose_steps(made, random, STATELESS if stateless else DOWNSTREAM)
        fitting = [step for step in made.steps if _may_be_wrong(step) and made.below(step.sink)]
    made.wrong = fitting[0] if random.random() < 0.6 or len(fitting) == 1 else random.choice(fitting)
    made.bug = random.choice([bug for bug in BUGS if bug not in ("wrong factors", "column")])
    made.bug = "wrong factors" if made.wrong.kind == "factors" else made.bug
    made.feeds = random.choice([3, 3, 4, 5])
    made.bad = random.randint(1, made.feeds - 1)
    made.tagged = made.bad - 1 if random.random() < 0.7 else random.randrange(made.bad)
    made.late = random.random() < 0.4
    made.partitions = random.randint(1, 2)
    made.correct = "correct" if random.random() < 0.75 else "commands"
    made.kills = [_kill(random) for _ in range(random.choice([0, 1, 1, 2]))]
    made.undo = random.choice([None, None, None, "stay", "again"])
    writers = [step for step in made.steps if step.sink == made.wrong.sink]
    made.column = KINDS[made.wrong.kind].is_events and len(writers) == 1 and random.random() < 0.2
    if random.random() < 0.12:
        affected = [made.wrong.sink, *made.below(made.wrong.sink)]
        fit = [table for table in affected if table in made.prompt]
        made.backfill = random.choice(fit) if fit else None
    elif random.random() < 0.12:
        sinks = [step.sink for step in made.steps]
        below = made.below(made.wrong.sink)
        alone = [step.name for step in made.steps if step.sink in below and sinks.count(step.sink) == 1]
        made.undeclared = random.choice(alone) if alone else None
    return made


def _may_be_wrong(step):
    kind = KINDS[step.kind]
    return kind.mode == "append" and (step.kind == "factors" or "v BIGINT" in kind.columns)


def _kill(random):
    kind = random.choice(["call", "call", "before job", "after job", "stop"])
    if kind == "call":
        return kind, random.randint(1, 900)
    return kind, random.randint(0, 5), random.randint(0, 1500)


def _choose_steps(made, random, kinds):
    tables = {RAW: LAG}  # with events, and how far their rows are in order; None if not at all
    others = []  # without
    holding = set()  # tables whose last rows never come
    count = random.choice([3, 3, 4, 4, 5, 6, 8])
    wished = [kinds[made.seed % len(kinds)]]
    while len(made.steps) < count:
        first = not made.steps
        if first:
            name = random.choice([name for name in _FIRST if name in kinds])
        else:
            name = wished.pop() if wished else random.choice(kinds)
        kind = KINDS[name]
        derived = [table for table in tables if table != RAW] or [RAW]
        fit = [t for t in derived if not kind.is_timed or tables[t] is not None]
        fit = fit if not kind.waits else [t for t in fit if t not in holding]
        sources = [RAW if first or not fit or random.random() < 0.15 else random.choice(fit)]
        if (kind.is_batch or name in ("totals", "threes")) and others and random.random() < 0.3:
            sources = [random.choice(others)]
        if kind.looks_up:
            sources.append(FACTORS)
            if not any(step.kind == "factors" for step in made.steps):
                made.steps.insert(0, Step("factors", "factors", (RAW_FACTORS,), FACTORS))
        elif kind.sources == 2:
            more = [t for t in tables if kind.is_timed is False or tables[t] is not None]
            more = more if not kind.waits else [t for t in more if t not in holding]
            sources.append(random.choice(more) if random.random() < 0.6 else sources[0])
            if not kind.is_timed and sources[0] == sources[1]:
                sources[1] = RAW if sources[0] != RAW else sources[1]
        lags = [tables.get(table) for table in sources]
        delays = tuple(lag + SLACK for lag in lags) if kind.is_timed else ()
        number = len(made.steps)
        sink = f"db.t{number}"
        shared = [t for t in derived if t != RAW and t not in sources]
        if kind.is_events and not first and shared and random.random() < 0.12:
            readers = {table for step in made.steps for table in step.sources}
            free = [t for t in shared if t not in readers]
            sink = random.choice(free) if free else sink
        made.steps.append(Step(f"j{number}", name, tuple(sources), sink, delays))
        if kind.is_events:
            is_in_order = (
                kind.lag is not None and None not in lags[: 1 if kind.looks_up else 2] and sink not in tables
            )
            tables[sink] = kind.lag(lags) if is_in_order else None
            if kind.closed is not None or kind.waits or holding & {*sources}:
                holding.add(sink)
            else:
                made.prompt.add(sink)
        elif kind.mode == "append" and name == "outer":
            others.append(sink)

"""The life of a pipeline: it runs, goes wrong, is corrected, killed meanwhile, maybe taken back, and goes on."""

import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from anabranch.cascade import CascadeOptions, run_cascade, run_correction, undo_cascade, undo_correction
from anabranch.errors import CommitConflictError
from anabranch.jobs.prepare import Run
from anabranch.lake import Lake
from tests.pipelines import events
from tests.pipelines.engines import create_if_absent
from tests.pipelines.kinds import KINDS
from tests.pipelines.oracle import Oracle, Wrong, rows_of
from tests.pipelines.pipeline import RAW, RAW_FACTORS
from tests.support.dying import Died, DyingStorage

_CASCADE = re.compile("`anabranch cascade (.+?) --plan`")


@dataclass
class Outcome:
    """What became of a pipeline."""

    told: str
    compared: int = 0
    """Tables that were compared with the oracle."""
    ways: Counter = field(default_factory=Counter)
    """How jobs got their state."""


class Life:
    """A pipeline in a warehouse of its own."""

    def __init__(self, pipeline, engine, tell=lambda _: None):
        self.pipeline = pipeline
        self.engine = engine
        self.tell = tell
        self.lake = engine.lake()
        self.random = Random(pipeline.seed * 7919 + 1)
        self.events, self.factors, self.extra = [], [], {}
        self.outcome = Outcome("")
        self.is_told = False
        """Whether the correction was refused for the job that it was not given."""

    def live(self):
        """Live through all of it. Raises `Wrong`, or whatever went wrong."""
        before = self.begin()
        if self.pipeline.column:
            self.lake.table(self.pipeline.wrong.sink).alter().add_column("w", "BIGINT").apply()
        written = [sink for sink in self.pipeline.sinks if self.lake.table(sink).snapshot is not None]
        reader = _Reader(Lake(self.engine.storage()), written)
        with reader:
            affected = self._correct_and_look(before)
            if self.pipeline.undo is not None:
                self._undo(before)
                if self.pipeline.undo == "stay":
                    return self._told("taken back")
                affected = self._correct_and_look(before)
        reader.check([affected])
        self._go_on()
        return self._told("corrected")

    def begin(self):
        """Live until something is to be corrected; what all tables hold then."""
        self._create()
        return self._go_wrong()

    def _told(self, what):
        self.outcome.told = f"{what}{' after ' + self.outcome.told if self.outcome.told else ''}"
        return self.outcome

    def _create(self):
        self.lake.create_table(RAW, events.EVENTS)
        self.lake.create_table(RAW_FACTORS, events.FACTORS)
        for step in self.pipeline.steps:
            self.lake.create_table(step.sink, KINDS[step.kind].columns, if_not_exists=True)

    def _feed(self, rows, factors):
        self.events += rows
        self.lake.table(RAW).append(rows)
        if factors:
            self.factors += factors
            self.lake.table(RAW_FACTORS).append(factors)

    def _go_wrong(self):
        """Feed and run until the last feed; returns what all tables hold then."""
        p, last = self.pipeline, []
        is_tagged = False
        for number in range(p.feeds):
            last = events.feed(self.random, number, last, p.late)
            self._feed(last, events.factors(number))
            is_bad = number >= p.bad and is_tagged
            is_due = number in (p.tagged, p.feeds - 1)
            if not is_due and self.random.random() < 0.5:
                continue  # the next run takes in several feeds
            must = {p.wrong, *(s for s in p.steps if s.kind == "factors")}
            share = 0.9 if is_due else 0.5
            chosen = [step for step in p.steps if step in must or self.random.random() < share]
            names = {step.name for step in chosen}
            self._run([job for job in self.engine.jobs(wrong=is_bad) if job.name in names])
            table = self.lake.table(p.wrong.sink)
            if not is_tagged and number >= p.tagged and table.snapshot is not None:
                table.create_tag("good")
                is_tagged = True
            if is_bad and number == p.feeds - 1 and p.backfill is not None:
                self._backfill(p.backfill, number)
        return self._found()

    def _backfill(self, table, number):
        rows = [
            {"id": number * 100 + 70 + i, "k": "a", "v": 5, "ts": events.at(number * 60 + i)}
            for i in range(2)
        ]
        self.lake.table(table).append(rows)
        self.extra[table] = [tuple(row.values()) for row in rows]

    def _run(self, jobs, *, may_lag=False):
        """Run jobs to their end; returns the tables that some had still to be told of that they were corrected."""
        statuses = self.engine.run(jobs, self.lake)
        hints = [_CASCADE.search(status.hint or "") for status in statuses]
        if may_lag and any(hints):
            return {hint[1] for hint in hints if hint is not None}
        bad = [
            (status.job, status.state.value, status.message)
            for status in statuses
            if status.state.value != "ended"
        ]
        if bad:
            raise Wrong(f"jobs did not end: {bad}")
        return set()

    def _cascade_again(self, tables):
        """What lagged behind a correction takes in the old rows, stops with that reason, and is corrected by a cascade."""
        for table in sorted(tables):
            if table not in self._tables_of_groups() | {self.pipeline.wrong.sink}:
                raise Wrong(f"a job stopped because '{table}' was corrected, and it was not")
            result = run_cascade(
                self.lake, table, self.engine.jobs(fixed=True), runner=self._runner(), tell=self.tell
            )
            if not result.is_published:
                raise Wrong(f"refused: {result.waiting} {[(s.job, s.message) for s in result.failed]}")
            self.outcome.told = f"{self.outcome.told} a cascade of {table}".strip()

    def _found(self):
        return {step.sink: rows_of(self.lake.table(step.sink), step) for step in self.pipeline.steps}

    def _correct_and_look(self, before):
        """Correct, killed as often as planned; the tables that were corrected."""
        wanted = {table: Counter(rows) for table, rows in before.items()}
        planned = None
        for kill in self.pipeline.kills:
            result = self._killed(kill)
            planned = planned or result
            if result is not None and result.group is not None:
                break
            if self.pipeline.correct == "correct" and not self._is_new():
                found = {table: Counter(rows) for table, rows in self._found().items()}
                if found != wanted:
                    raise Wrong(f"after {kill} readers see what was not published")
        result = self._correct(lambda: self.lake, self._runner())
        if result.group is None and not result.plan.is_done:
            result = self._refused(result)
        self.outcome.ways.update((s.begun or "none").split(":")[0] for s in result.statuses)
        together = self._tables_of_groups()
        stale = {*self.pipeline.sinks} - together - {self.pipeline.wrong.sink}
        try:
            self._compare(at_end=False, but=stale)
        except Wrong as error:
            raise Wrong(f"{error}\n{_how(result)}") from None
        return together

    def _is_new(self):
        return any(group.outcome == "replaced" for group in self.lake.groups())

    def _tables_of_groups(self):
        return {table for group in self.lake.groups() for table, _, _ in group.tables}

    def _correct(self, lake, runner, **options):
        p, jobs = self.pipeline, self.engine.jobs(fixed=True)
        if not self.is_told:
            jobs = [job for job in jobs if job.name != p.undeclared]
        how = CascadeOptions(**options)
        tell = self.tell
        if p.correct == "correct":
            return run_correction(lake(), p.wrong.sink, "good", jobs, how, runner=runner, tell=tell)
        table = lake().table(p.wrong.sink)
        if table.context.branch != "fix":
            if p.column:
                create_if_absent(table, "fix", "good")
            if p.column and "w" not in {field.name for field in table.branch("fix").schema.fields}:
                table.branch("fix").alter().add_column("w", "BIGINT").apply()
            for job in jobs:
                if job.sink == p.wrong.sink:
                    statuses = runner(job, lake(), Run(branch="fix", from_tag="good", create_branch=True))
                    bad = [(s.job, s.message) for s in statuses if s.state.value != "ended"]
                    if bad:
                        raise Wrong(f"on the branch: {bad}")
            self._replace(table)
        return run_cascade(lake(), p.wrong.sink, jobs, how, runner=runner, tell=tell)

    def _replace(self, table):
        """Put the branch in the place of main; what only main has stands against it until it is on the branch as well."""
        if self.pipeline.backfill != table.name:
            table.replace_main_branch("fix")
            return
        try:
            table.replace_main_branch("fix", wait="1 h")
        except CommitConflictError as error:
            if {one.kind for one in error.conflicts} - {"ONLY_ON_MAIN", "POSITIONS_UNKNOWN"}:
                raise Wrong(f"refused without reason: {error}") from error
        else:
            raise Wrong("rows that only main had were dropped without a word")
        self.outcome.told = "a refusal"
        self._by_hand(table.branch("fix"))
        table.replace_main_branch("fix")

    def _by_hand(self, branch):
        rows = self.extra[branch.context.name]
        if not {row[0] for row in rows} & {*branch.scan().to_arrow()["id"].to_pylist()}:
            branch.append([dict(zip(("id", "k", "v", "ts"), row, strict=True)) for row in rows])

    def _killed(self, kill):
        """One try that is killed; its result if it came to its end before."""
        storage, runner, lake = None, self._runner(), self.lake
        if kill[0] == "call":
            storage = DyingStorage(self.engine.storage(), kill[1])
            lake = self.engine.lake_on(storage)
        else:
            runner = self._runner(kill)
        try:
            return self._correct(lambda: lake, runner)
        except Died:
            self.tell(f"killed: {kill}")
            self.engine.after_death()
            return None

    def _runner(self, kill=None):
        calls = []

        def run(job, lake, how):
            due = kill is not None and kill[1] == len(calls)
            calls.append(job.name)
            if due and kill[0] == "before job":
                raise Died
            millis = kill[2] if due and kill[0] == "stop" else None
            statuses = self.engine.run_one(job, lake, how, millis)
            if due and kill[0] in ("after job", "stop"):
                raise Died
            return statuses

        return run

    def _refused(self, result):
        """Go on after a refusal that has its reason; otherwise raise `Wrong`."""
        p, step = self.pipeline, result.waiting
        if step is None:
            raise Wrong(f"refused: {[(s.job, s.state.value, s.message) for s in result.failed]}")
        left_out = [one.sink for one in p.steps if one.name == p.undeclared]
        if step.table in left_out and all(f"job '{p.undeclared}'" in problem for problem in step.problems):
            if not all("declared in no job file" in problem for problem in step.problems):
                raise Wrong(f"refused without reason: {step.table}: {step.problems}")
            self.outcome.told, self.is_told = "a refusal", True
            result = self._correct(lambda: self.lake, self._runner())
            if result.group is None:
                raise Wrong(f"refused though all jobs are given: {result.waiting} {result.failed}")
            return result
        by_hand = [problem for problem in step.problems if "committed by hand" in problem]
        if len(by_hand) != len(step.problems) or step.table != p.backfill:
            raise Wrong(f"refused without reason: {step.table}: {step.problems}")
        self.outcome.told = "a refusal"
        self._by_hand(self.lake.table(f"{step.table}$branch_{step.branch}"))
        result = self._correct(lambda: self.lake, self._runner(), by_hand=[step.table])
        if result.group is None:
            raise Wrong(f"refused though done by hand: {result.waiting} {result.failed}")
        return result

    def _undo(self, before):
        p = self.pipeline
        if p.correct == "correct":
            if self._is_new():  # otherwise the defect had touched no row: nothing was published
                undo_correction(self.lake, p.wrong.sink, "good")
        else:
            if self._is_new():
                undo_cascade(self.lake, table=p.wrong.sink)
            self.lake.table(p.wrong.sink).undo_replace()
        for table, rows in self._found().items():
            if Counter(rows) != Counter(before[table]):
                raise Wrong(f"{table} is not what it was before the correction that was taken back")

    def _go_on(self):
        """All jobs run on as they are now, over more events, and the last of all."""
        number = self.pipeline.feeds
        self._feed(events.feed(self.random, number, [], late=False), events.factors(number))
        self._feed(events.closing(number + 1), events.factors(number + 1))
        for _ in range(len(self.pipeline.steps)):
            behind = self._run(self.engine.jobs(fixed=True), may_lag=True)
            if not behind:
                break
            self._cascade_again(behind)
        else:
            raise Wrong(f"jobs do not go on: {behind}")
        self._compare(at_end=True)

    def _compare(self, *, at_end, but=()):
        if self.pipeline.column:
            self._check_column()
        oracle = Oracle(self.pipeline, self.events, self.factors, self.extra)
        try:
            self.outcome.compared += len(oracle.check(self._found(), at_end=at_end, but=but))
        except Wrong as error:
            raise Wrong(f"{'at the end' if at_end else 'after the correction'}:\n{error}") from None

    def _check_column(self):
        """What the mended job made has the new column; what is older has null there."""
        rows = self.lake.table(self.pipeline.wrong.sink).scan().to_arrow().to_pylist()
        bad = [row for row in rows if row["w"] not in (None, row["v"] * 2)]
        if bad:
            raise Wrong(f"the new column holds something else: {bad[:3]}")


def _how(result):
    """How each job began, for people who look for what went wrong."""
    begun = {(status.job, status.sink): status.begun for status in result.statuses}
    return "\n".join(
        f"  {step.table} from {step.fork}{' emptied' if step.is_empty else ''}: {part.job} "
        f"{[f'{one.name} {one.begins}' for one in part.sources]}, state {begun.get((part.job, f'{step.table}$branch_{step.branch}'))}"
        for step in result.plan.steps
        for part in step.jobs
    )


class _Reader:
    """Looks at all tables at once, all the time; each look must show all old or all new tables of a group."""

    def __init__(self, lake, tables):
        self.lake = lake
        self.tables = tables
        self.looks = []
        self.errors = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def _look(self):
        while not self.stop.wait(0.4):
            try:
                look = tuple(table.branch_uuid for table in self.lake.together(*self.tables))
            except Exception as error:  # told by the check
                self.errors.append(error)
                continue
            if not self.looks or self.looks[-1] != look:
                self.looks.append(look)

    def check(self, groups):
        if self.errors:
            raise Wrong(f"a reader failed: {self.errors[0]!r}")
        for group in groups:
            places = [place for place, table in enumerate(self.tables) if table in group]
            seen = {tuple(look[place] for place in places) for look in self.looks}
            for one in range(len(places)):
                if len({look[one] for look in seen}) != len(seen):
                    raise Wrong(f"readers saw some tables of {sorted(group)} corrected, and others not")


def live(pipeline, engine, tell=lambda _: None):
    """Live through a pipeline; its outcome, and how long it took."""
    begin = time.monotonic()
    outcome = Life(pipeline, engine, tell).live()
    return outcome, time.monotonic() - begin

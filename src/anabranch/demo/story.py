"""The demo: a stream goes wrong, the mistake is found, corrected on a branch and published, while all streams on.

Every command is run as a person would type it. State that the story depends on is read through the library.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from anabranch.demo import facts, jobs, source
from anabranch.demo.facts import Fact, show
from anabranch.demo.kafka import TOPIC, Airports, FlightFeed, complete_hours
from anabranch.demo.questions import ALL, GOOD, LATE_IN_WIND, QuestionRows, ask
from anabranch.demo.tables import prepare
from anabranch.demo.terminal import Program, Terminal
from anabranch.errors import AnabranchError, InvalidInputError, NotFoundError
from anabranch.lake import Lake, connect

TIMEOUT_SECONDS = 600
HERE = Path(__file__).parent
RIGHT = f"KM_PER_MILE = {jobs.KM_PER_MILE}"
WRONG = "KM_PER_MILE = 1.852"
"""Correct for nautical miles only, and the input has statute miles."""

# Parts of the year that have arrived: before the mistake, when it is noticed, and when it is corrected.
_WELL, _NOTICED = 0.25, 0.5
_SPARK = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
_SHARED = {"spark.cores.max": "2", "spark.executor.memory": "600m"}
"""Of a cluster, so that the four programs that run at once get their share."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Result of the demo."""

    facts: tuple[Fact, ...]
    """About the tables in their final state."""
    wrong: tuple[Fact, ...]
    """The same facts when the mistake was noticed, and after the correction was undone: not all of them may hold."""
    seconds: float
    warehouse: str
    answers: tuple[QuestionRows, ...]
    """The SQL queries and their answers."""

    @property
    def correct(self) -> bool:
        """Whether everything is right in the end, and was wrong before."""
        return facts.all_hold(self.facts) and not any(facts.all_hold([fact]) for fact in self.wrong)


def run_demo(
    *,
    days: int = 365,
    keep: str | None = None,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> DemoResult:
    """Run the whole story and check every row in the end.

    Args:
        days: number of days of the year that arrive.
        keep: an empty folder to run in, or a URL for the warehouse alone; a fresh temporary folder if None.
        master: of Spark. The machines of a cluster must see the folder into which the flights arrive.
        conf: further settings of Spark.

    Raises:
        InvalidInputError: the folder, or the warehouse, is not empty.
        AnabranchError: a command failed or something did not happen in time; the message tells where the log is.
    """
    console = Console(stderr=quiet, quiet=quiet)
    is_url = keep is not None and "://" in keep
    if is_url and keep and _has_tables(connect(keep)):
        raise InvalidInputError(
            f"there are tables in {keep}, and the demo begins without",
            hint="give --keep a place where nothing is.",
        )
    root = _empty(Path(keep)) if keep and not is_url else Path(tempfile.mkdtemp(prefix="anabranch-demo-"))
    started = time.monotonic()
    story = _Story(root, keep if is_url else None, days, (master, conf or {}), console)
    with story.told():
        story.begin()
        story.go_wrong()
        story.notice()
        story.correct()
        story.put_in_place()
        story.change_ones_mind()
        story.cascade()
        story.stream_on()
    result = story.result(time.monotonic() - started)
    show(result, console)
    return result


def _empty(folder: Path) -> Path:
    """Check that a folder is empty and return it. Raises `InvalidInputError`."""
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"'{folder}' is no folder", hint="give --keep a folder that is new or empty.")
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidInputError(
            f"the folder '{folder}' is not empty, and the demo begins with empty tables",
            hint="give --keep a folder that is new or empty.",
        )
    return folder


def _has_tables(lake: Lake) -> bool:
    try:
        return any(lake.tables(database) for database in lake.databases())
    except NotFoundError:  # no warehouse yet
        return False


class _Story:
    """The paths of one run, and its chapters."""

    def __init__(
        self,
        root: Path,
        warehouse: str | None,
        days: int,
        spark: tuple[str, Mapping[str, str]],
        console: Console,
    ) -> None:
        self.root = root
        self.warehouse = warehouse or str(root / "warehouse")
        self.lake: Lake = connect(self.warehouse)
        self.master, given = spark
        shared = {} if self.master.startswith("local") else _SHARED
        self.conf = {**_SPARK, **shared, **given}
        words = (word for key, value in self.conf.items() for word in ("--conf", f"{key}={value}"))
        self.spark = ("--master", self.master, *words)
        self.days = source.days_of(source.flights())[:days]
        self.flights = pa.concat_tables([rows for _, rows in self.days])
        self.airports = Airports.of_environment()
        topic = {} if self.airports is None else {TOPIC: self.airports.topic}
        # Spark may have no connector for the store: it works on a disk, and jobs copy what must outlive that.
        checkpoints = {} if warehouse is None else {"ANABRANCH_CHECKPOINTS": str(root / "checkpoints")}
        environment = {"ANABRANCH_WAREHOUSE": self.warehouse, **checkpoints, **topic}
        self.terminal = Terminal(console, root, environment)
        self.landing = root / "landing"
        self.feed = FlightFeed(self.days, self.landing, self.airports)
        self.wrong: list[Fact] = []

    @contextmanager
    def told(self) -> Iterator[None]:
        """Stop everything that is running when the block ends."""
        try:
            yield
        finally:
            self.feed.close()
            self.terminal.close()

    def begin(self) -> None:
        """Start a pipeline of four jobs that follows the year as it arrives."""
        say = self.terminal.say
        say("[bold]Anabranch demo[/bold]: the flights out of New York in 2013 arrive, a file for every day")
        self.landing.mkdir(parents=True)
        for name, rows in prepare(self.lake).items():
            say(f"  {name}: {rows:,} rows to look things up in")
        shutil.copy(HERE / "jobs.py", self.root)
        shutil.copy(HERE / "checks.yml", self.root)
        self.files = ["jobs.py"]
        if self.airports is not None:
            self.airports.prepare(self.lake)
            shutil.copy(HERE / "kafka_jobs.py", self.root)
            self.files.append("kafka_jobs.py")
        say(
            "  files -> demo.flights -> demo.delays -> demo.long_hauls and demo.days, by the jobs in jobs.py\n"
        )
        self.pipeline = self._run("pipeline.log")
        self.feed.start()
        there = self.feed.hurry_to(_WELL)
        self._wait(lambda: self._rows("demo.delays") >= there)
        say(f"  {self._rows('demo.delays'):,} flights with their delays: all is well. Let us remember that.")
        self.terminal.run("create-tag", "demo.delays", "--name", GOOD)

    def go_wrong(self) -> None:
        """Release jobs that take miles for nautical ones; the pipeline is killed for it."""
        self.pipeline.kill()
        self.terminal.say(
            "\n[red]kill -9[/red] the pipeline, and start release 2 of jobs.py; streams go on where they were"
        )
        before = self._rows("demo.delays")
        self._release(WRONG)
        self.pipeline = self._run("pipeline.log")
        there = self.feed.hurry_to(max(_NOTICED, self.feed.arrived / len(self.days) + 0.1))
        self._wait(lambda: self._rows("demo.delays") >= max(there, before + 1))

    def notice(self) -> None:
        """Show what is wrong: since when, by whom, and what came of it."""
        run, say = self.terminal.run, self.terminal.say
        say("\n[bold]1. Something is wrong[/bold]: nobody flies that far from New York")
        run("audit", "demo.delays", "checks.yml", expected=(1,))
        first = self._first_of_release_2()
        say(f"  Snapshot {first} is the first that another version of the code made. What is behind it?")
        run("lineage", "producer", f"demo.delays@{first}")
        run("lineage", "impact", f"demo.delays@{first}..")
        self.wrong += facts.kilometres(self.lake, self._arrived())[:2]

    def correct(self) -> None:
        """Run the corrected code on a branch, from exactly before the mistake, while main streams on."""
        run, say = self.terminal.run, self.terminal.say
        say(
            "\n[bold]2. Correct it on a branch[/bold], from the source positions of the tag, while main streams on"
        )
        self._release(RIGHT)
        run("create-savepoint", "demo.delays")
        run("create-branch", "demo.delays", "--name", "fix", "--tag", GOOD)
        correction = ("--job", "enrich-flights", "--branch", "fix", "--from-tag", GOOD)
        self.correction = self.terminal.start("run", "jobs.py", *correction, unsaid=self.spark, log="fix.log")
        self._wait(
            lambda: self._rows("demo.delays$branch_fix") >= 0.97 * self._rows("demo.delays"), self.correction
        )
        run("branches", "demo.delays", "--watch", "--times", "1")
        run("diff", "demo.delays", "main..fix", shown=14)
        run("audit", "demo.delays", "fix", "checks.yml")

    def put_in_place(self) -> None:
        """Make the branch main while it is in use."""
        self.terminal.say(
            "\n[bold]3. Put it in place[/bold]: readers follow, and the old job cannot write any more"
        )
        self.replace()

    def replace(self) -> None:
        """Make the branch main, as soon as it has read what main has."""
        self.terminal.run("replace-main-branch", "demo.delays", "--name", "fix", "--wait", "--yes")

    def change_ones_mind(self) -> None:
        """Undo the replacement and repeat it."""
        self.terminal.say("\n  Any doubts? It can be taken back, and put in place again.")
        self.terminal.run("undo-replace", "demo.delays", "--yes")
        self.wrong += facts.kilometres(self.lake, self._arrived())[1:2]
        self.replace()

    def cascade(self) -> None:
        """Make the derived tables anew, and publish them at once."""
        self.terminal.say(
            "\n[bold]4. Correct what came of it[/bold]: every table downstream, all of them at once"
        )
        self.terminal.run("cascade", "demo.delays", "--plan", "--jobs", "jobs.py")
        self.terminal.run("cascade", "demo.delays", "--run", "--jobs", "jobs.py", "--yes", unsaid=self.spark)

    def stream_on(self) -> None:
        """Restart the same pipeline, which continues with the corrected tables until the year is over."""
        self.terminal.say(
            "\n[bold]5. Stream on[/bold]: the same command as in the beginning goes on with the corrected tables"
        )
        self.pipeline.stop()
        self.correction.stop()
        self.pipeline = self._run("pipeline.log")
        self.feed.hurry_to(1.0)
        total = self.flights.num_rows
        long_hauls = int(facts.kilometres(self.lake, self.flights)[2].expected)
        days = facts.complete_days(self.flights).height
        wanted = {"demo.delays": total, "demo.long_hauls": long_hauls, "demo.days": days}
        self._wait(lambda: all(self._rows(name) >= rows for name, rows in wanted.items()))
        if self.airports is not None:
            hours = complete_hours(self.flights).height
            self._wait(lambda: self._rows("demo.hours") >= hours)
        self.pipeline.stop()

    def result(self, seconds: float) -> DemoResult:
        """Collect the final state, queried in SQL and checked against the source."""
        answers = tuple(ask(self.warehouse, ALL, self.root / "questions.log", self.master, self.conf))
        (windy,) = (answer for answer in answers if answer.statement == LATE_IN_WIND)
        found = facts.rows(self.lake, self.flights, sum(windy.column("flights")))
        if self.airports is not None:
            found += facts.through_kafka(self.lake, self.flights)
        return DemoResult(tuple(found), tuple(self.wrong), seconds, self.warehouse, answers)

    def _run(self, log: str) -> Program:
        return self.terminal.start("run", *self.files, unsaid=self.spark, log=log)

    def _release(self, unit: str) -> None:
        """Change one line of jobs.py."""
        old = (self.root / "jobs.py").read_text()
        before = WRONG if WRONG in old else RIGHT
        (self.root / "jobs.py").write_text(old.replace(before, unit))
        self.terminal.say(f"  [red]- {before}[/red]\n  [green]+ {unit}[/green]")

    def _first_of_release_2(self) -> int:
        made = self.lake.table("demo.delays").system("lineage").select(["snapshot_id", "code"])
        right = made["code"][pc.index(made["snapshot_id"], pc.min(made["snapshot_id"])).as_py()]
        return int(pc.min(made.filter(pc.not_equal(made["code"], right))["snapshot_id"]).as_py())

    def _arrived(self) -> pa.Table:
        """Return the flights that have arrived in `demo.delays`."""
        ids = self.lake.table("demo.delays").scan(columns=["flight_id"]).to_arrow()["flight_id"]
        return self.flights.filter(pc.is_in(self.flights["flight_id"], ids.combine_chunks()))

    def _rows(self, name: str) -> int:
        snapshot = self.lake.table(name).snapshot
        return 0 if snapshot is None else snapshot.total_record_count or 0

    def _wait(self, done: Callable[[], bool], *programs: Program) -> None:
        """Wait for a condition. Raises `AnabranchError` on timeout, or if a program it depends on ends."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not done():
            for program in (*programs, self.pipeline):
                program.check()
            _ = self.feed.arrived  # raises the error of a failed feed
            if time.monotonic() > deadline:
                raise AnabranchError(
                    "the demo's streams took too long", hint=f"their logs are in {self.root}."
                )
            time.sleep(0.2)

"""Ways to write rows, with what each must say of where they come from.

A way is a function of a `Ways`; it writes to ``w.sink`` what it reads of `db.a`, `db.b` and files. `reads` are the names that
its commits must have among their inputs, and no others unless a problem says that there may be more. `problem` says that it
cannot be known, which then must stand in the commit.
"""

from dataclasses import dataclass
from pathlib import Path

import anabranch
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from tests.spark.python_way import by_python

COLUMNS = "id BIGINT, v STRING"
A, B, BOTH, NONE = {"db.a"}, {"db.b"}, {"db.a", "db.b"}, set()


@dataclass(frozen=True)
class Way:
    name: str
    make: object
    reads: frozenset
    problem: bool
    short: bool
    silent: bool

    def __str__(self):
        return self.name


WAYS = []


def way(reads, *, problem=False, short=False, silent=False):
    """A way that is declared by a function; `silent` ones may have no entry, which is for `impact` to tell."""

    def add(function):
        WAYS.append(Way(function.__name__, function, frozenset(reads), problem, short, silent))
        return function

    return add


@dataclass
class Ways:
    """What a way works with."""

    spark: object
    lake: object
    place: str
    sink: str
    folder: Path

    @property
    def table(self):
        return self.lake.table(self.sink)

    @property
    def to(self):
        return f"ways.{self.sink}"

    def native(self, name="db.a"):
        return self.spark.table(f"ways.{name}")

    def portable(self, name="db.a"):
        with by_python(self.spark):
            return self.spark.read.format("anabranch").option("warehouse", self.place).load(name)

    def files(self):
        return self.spark.read.parquet(str(self.folder / "files"))

    def insert(self, query):
        self.spark.sql(f"INSERT INTO {self.to} {query}")

    def insert_frame(self, frame):
        frame.writeTo(self.to).append()

    def stream(self, door="portable", name="db.a"):
        if door == "native":
            return self.spark.readStream.table(f"ways.{name}")
        with by_python(self.spark):
            return self.spark.readStream.format("anabranch").option("warehouse", self.place).load(name)

    def run(self, frame, mode="append", each=None, to_table=False):
        writer = frame.writeStream.queryName(self.sink.replace(".", "_")).outputMode(mode)
        where = str(self.folder / "checkpoints" / self.sink)
        writer = writer.option("checkpointLocation", where).trigger(availableNow=True)
        if each is not None:
            query = writer.foreachBatch(each).start()
        elif to_table:
            query = writer.toTable(self.to)
        else:
            query = writer.format("anabranch").option("warehouse", self.place).start(self.sink)
        query.awaitTermination()

    def job(self, function, sources, **how):
        self.run_job(
            anabranch.job(self.sink.replace(".", "-"), sources=sources, sink=self.sink, **how)(function)
        )

    def run_job(self, declared):
        (status,) = run_jobs([declared], self.lake, None, Schedule(AVAILABLE_NOW, Policy(most=0)))
        assert status.state == "ended", status


def among(frame, rows):
    """The rows of a frame whose ids are among those of rows that a program has."""
    return frame.where(frame.id.isin([row["id"] for row in rows]))

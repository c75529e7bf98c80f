"""A small warehouse with everything in it that outlives a release, made once by each release and kept.

    python -m tests.compatibility.kept tests/data/releases/0.1.0.tar.gz

makes it by the code that is imported: a table with a schema that changed, tags, a savepoint, branches of which one is main and
one was merged, a consumer, a rollback, an expiry, checks and lineage; the lineage index; and checkpoints of jobs with and
without state. `EXPECTED`, what a reader must find, lies
beside it in the archive.
"""

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path

import anabranch
from anabranch.jobs.job import job
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule

EXPECTED = "expected.json"
WAREHOUSE = "warehouse"
FIRST, SECOND = ((1, 1), (2, 2), (1, 3)), ((2, 4), (3, 5), (1, 6))
"""Rows of the jobs' source: in the kept checkpoints, and after them."""


def firsts(events):
    """Keeps state: the keys that were there."""
    return events.dropDuplicates(["k"])


def copies(events):
    return events


JOBS = tuple(
    job(name, sources={"events": "db.events"}, sink=f"db.{name}")(function)
    for name, function in (("firsts", firsts), ("copies", copies))
)


def arrive(lake, given):
    lake.table("db.events").append([{"k": k, "v": v} for k, v in given])


def run(lake):
    """Let the jobs take what is there; how each ended."""
    return [one.state.value for one in run_jobs(JOBS, lake, None, Schedule(AVAILABLE_NOW, Policy(most=0)))]


def rows_of(table):
    """All rows, in an order of their own."""
    return sorted((list(one.values()) for one in table.scan().to_arrow().to_pylist()), key=repr)


def tables(lake):
    """Everything but the jobs, by the embedded engine."""
    t = lake.create_table("db.t", "id BIGINT, name STRING", partition_by=["name"])
    with lake.job("load", code="abc123"):
        t.append([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    t.alter().add_column("note", "STRING").apply()
    t = lake.table("db.t")
    with lake.job("load", code="abc123"):
        t.append([{"id": 3, "name": "a", "note": "x"}])
    t.create_tag("good")
    t.create_branch("fix", "good")
    t.create_branch("side", "good")
    t.branch("side").append([{"id": 10, "name": "c", "note": "side"}])
    t.merge_branch("side")
    t.append([{"id": -1, "name": "b", "note": "wrong"}])
    t.branch("fix").append([{"id": 4, "name": "b", "note": "right"}])
    t.replace_main_branch("fix", force=True)
    t = lake.table("db.t")
    t.append([{"id": 99, "name": "a", "note": "by mistake"}])
    t.create_savepoint()
    t.rollback(f"main.snapshot.{t.snapshot.id - 1}")
    made = lake.create_table("db.made", "id BIGINT")
    with lake.job("derive", code="def456"):
        made.append(lake.table("db.t").scan(columns=["id"]).to_arrow())
    t.append([{"id": 5, "name": "b", "note": None}])


def go_on(lake, code):
    """Work on the kept table that is done by whichever code comes next; it needs nothing but its argument."""
    table = lake.table("db.t")
    with lake.job("load", code=code):
        table.append([{"id": 6, "name": "d", "note": code}])
    table.branch("side").append([{"id": 11, "name": "c", "note": None}])
    table.merge_branch("side")
    table.create_branch("next", "good")
    table.branch("next").append([{"id": 12, "name": "a", "note": None}])
    # The warehouse of a release grows old: its replaced main, which may come back, would be dropped now.
    table.with_options({"branch.replaced-main.time-retained": "36500 d"}).maintain()


def after(expected, code):
    """What `go_on` leaves on main and on its branch. What `side` brought before was on the main that was replaced: it comes again."""
    new = [[6, "d", code], [10, "c", "side"], [11, "c", None]]
    on_branch = [*expected["good"], [12, "a", None]]
    return sorted([*expected["t"], *new], key=repr), sorted(on_branch, key=repr)


def truth(lake):
    """What a reader finds: rows at every ref, history, and lineage."""
    t = lake.table("db.t")
    return {
        "t": rows_of(t),
        "good": rows_of(t.at("good")),
        "tags": sorted(t.tags()),
        "savepoints": [one.id for one in t.savepoints()],
        "branches": sorted(t.branches()),
        "snapshots": [[one.id, str(one.commit_kind.value), one.total_record_count] for one in t.snapshots()],
        "made": rows_of(lake.table("db.made")),
        "lineage": lineage(lake),
        **{name: rows_of(lake.table(f"db.{name}")) for name in ("firsts", "copies")},
    }


def lineage(lake):
    """What `db.made` was made of, as the index says it."""
    upstream = lake.table("db.made").lineage.upstream()
    jobs = [[one.name, one.code, sorted(one.sources), sorted(one.sinks)] for one in lake.lineage.jobs()]
    return [
        jobs,
        sorted(f"{name}: {[str(one) for one in upstream.snapshots(name)]}" for name in upstream.tables),
    ]


def make(archive, spark_of):
    """Make the warehouse and what is expected of it, packed as one file."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / WAREHOUSE
        lake = anabranch.connect(str(place))
        tables(lake)
        lake.create_table("db.events", "k BIGINT, v BIGINT")
        for name in ("firsts", "copies"):
            lake.create_table(f"db.{name}", "k BIGINT, v BIGINT")
        arrive(lake, FIRST)
        ended = run(anabranch.connect(str(place), spark=spark_of(str(place))))
        assert ended == ["ended", "ended"], ended
        lake.lineage.rebuild()
        expected = Path(scratch) / EXPECTED
        expected.write_text(json.dumps({"version": anabranch.__version__, **truth(lake)}, indent=1) + "\n")
        pack(archive, place, expected)


def pack(archive, *paths):
    """Write an archive that says nothing of who made it."""
    with tarfile.open(archive, "w:gz") as packed:
        for path in paths:
            packed.add(path, path.name, filter=_anonymous)


def _anonymous(member):
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(archive, folder):
    """Unpack a release's archive; return its warehouse and what is expected of it."""
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):  # not in Python 3.11 before its fourth release
            packed.extraction_filter = tarfile.data_filter
        packed.extractall(folder)
    return folder / WAREHOUSE, json.loads((folder / EXPECTED).read_text())


def _spark(place):
    from anabranch.spark import session

    return session(
        place, master="local[2]", **{"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    )


if __name__ == "__main__":
    os.environ.setdefault("TZ", "UTC")
    make(Path(sys.argv[1]), _spark)

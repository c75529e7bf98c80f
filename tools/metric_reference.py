"""Writes docs/reference/metrics.md: the numbers that tables and jobs report, from the classes that hold them."""

import ast
import dataclasses
import inspect
import itertools
import textwrap

from anabranch.jobs import metrics
from anabranch.jobs.status import JobStatus
from anabranch.kernel.log import properties
from anabranch.kernel.log.consumers import ConsumerLag
from anabranch.kernel.repair.health import Health

PATH = "reference/metrics.md"
HEADER = """# Metrics

Numbers are in the tables themselves and in JSON, so any monitoring that runs a command or a query can take them; figures of jobs are
served for Prometheus as well ([how](../operating.md#monitoring)). This page is made from the classes that hold them.

| you want to know | ask |
|---|---|
| how far jobs are, and how fast | `anabranch run ... --json`: one object for each change, see below |
| what runs on a warehouse, where, how far behind, what failed | `anabranch jobs --json`, from any terminal; its exit code says whether all is well |
| how far readers are behind | `anabranch consumers db.t --json`, or the system table `db.t$consumers` |
| how far a branch is behind main | `anabranch branches db.t --watch --json`, or `t.branch_lag("fix")` |
| small files, snapshots, what to do | `anabranch health db.t --json`, or `t.health()` |
| rows, files and bytes of every table | `anabranch read sys.tables --json` |
| rows, kind, time and watermark of each commit | `db.t$snapshots` |
| which job wrote what, and how long its batches took | `db.t$lineage`, and the property `anabranch.lineage` of a snapshot |
| what a read opens | `scan.explain()`, or `anabranch explain` |
"""
GROUPS = (
    (
        JobStatus,
        "Of a job",
        (
            "`anabranch run --json`, and `run_jobs` in Python. In JSON also `time_millis`; `event`, which is `change` or `heartbeat`; and "
            "`behind`, by table `snapshots` that it has not read and `seconds` since the first of them was made."
        ),
    ),
    (ConsumerLag, "Of a consumer", "`anabranch consumers`."),
    (Health, "Of a table", "`anabranch health`, and `t.health()`."),
)
CLEARER = {
    "activity": "What it is doing while its state is `running`: `starting`, `working`, `idle` or `stuck`."
}
SPOKEN = {
    "job": "Name of the job.",
    "sink": "Table that it writes.",
    "state": "What it is doing, such as `running`, `held`, `failed`, `fenced` or `ended`.",
    "rows_per_second": "Rows a second of the last finished batch.",
    "restarts": "How often it was started again.",
    "hint": "What to do about the failure.",
    "last_hint": "What to do about the last failure.",
    "name": "Name of the consumer.",
    "next_snapshot": "The snapshot that it reads next.",
    "table": "Name of the table.",
    "snapshot_id": "The snapshot that was looked at.",
    "files": "Live data files.",
    "partitions": "Partitions with files.",
    "rows": "Rows.",
    "bytes": "Bytes of the data files.",
}


def page() -> str:
    """The page's text."""
    parts = [HEADER]
    for kind, title, where in GROUPS:
        rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in fields_of(kind))
        parts.append(f"\n## {title}\n\n{where}\n\n| field | meaning |\n|---|---|\n{rows}")
    rows = "".join(f"| `{getattr(properties, name)}` | {meaning} |\n" for name, meaning in _properties())
    parts.append(
        "\n## Of a commit\n\nProperties of a snapshot, in the column `properties` of `db.t$snapshots`.\n\n"
        f"| property | meaning |\n|---|---|\n{rows}"
    )
    rows = "".join(
        f"| `{name}` | {kind} | {meaning} |\n" for name, (kind, meaning) in metrics.FIGURES.items()
    )
    parts.append(
        "\n## For Prometheus\n\nServed by `anabranch run --metrics PORT`, with the labels `job_name` and `sink`; the state also with `state`, "
        "and how far a job is behind with `source`.\n\n"
        f"| figure | type | meaning |\n|---|---|---|\n{rows}"
    )
    return "".join(parts)


def fields_of(kind):
    """Fields of a dataclass with what stands below each; else what is said here."""
    told = dict(_told(ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body))
    for name in (field.name for field in dataclasses.fields(kind)):
        yield (
            name,
            CLEARER.get(name)
            or told.get(name)
            or SPOKEN.get(name)
            or f"{name.replace('_', ' ').capitalize()}.",
        )


def _properties():
    for name, meaning in _told(ast.parse(inspect.getsource(properties)).body):
        if name.endswith("_PROPERTY"):
            yield name, meaning


def _told(body):
    for one, after in itertools.pairwise(body):
        target = getattr(one, "target", None) or next(iter(getattr(one, "targets", ())), None)
        text = after.value if isinstance(after, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield target.id, " ".join(text.value.split())

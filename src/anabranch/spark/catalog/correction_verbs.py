"""The procedures of the catalog that correct several tables as one: `correct`, and `cascade` after a replacement of main.

They run jobs of a file in the session that calls them. The answer has a row for each table, in the order in which they
feed each other, with what the Python verbs return.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from anabranch.errors import InvalidInputError
from anabranch.format.records.group import GROUPS_FOLDER
from anabranch.spark.catalog.verb import Arguments, Parameter, Row, Verb
from anabranch.spark.context.attached import options_of
from anabranch.spark.tasks.engine import SparkEngine
from anabranch.storage.open import open_storage
from anabranch.system_tables.definition import as_json
from anabranch.table import Table

if TYPE_CHECKING:
    from anabranch.cascade import CascadePlan, CascadeResult
    from anabranch.kernel.replacement.group_result import GroupResult
    from anabranch.lake import Lake

_COLUMNS: Final = (
    "table STRING, branch STRING, is_there BOOLEAN, fork BIGINT, is_empty BOOLEAN, bad STRING, anew BIGINT, rows BIGINT, "
    "jobs STRING, problems STRING, notes STRING, done BOOLEAN, published BOOLEAN, group_number BIGINT, message STRING"
)
_JOBS: Final = Parameter("jobs", "STRING", "the file that declares the jobs, on the driver")
_RUN: Final = Parameter("run", "BOOLEAN", "do it; only the plan is told if left out")
_UNDO: Final = Parameter("undo", "BOOLEAN", "take back what was published, in all tables at once")
_NAME: Final = Parameter("name", "STRING", "of the branches; told from table and tag if left out")


def _correct(table: Table, given: Arguments) -> Iterable[Row]:
    lake, name = _lake(table), given.get("name")
    _check_one_of(given)
    if given.get("undo"):
        from anabranch.cascade.correct import undo_correction

        return _undone(undo_correction(lake, table.name, given["from_tag"], name=name))
    if given.get("jobs") is None:
        raise InvalidInputError(
            f"'{table.name}' cannot be corrected without jobs",
            hint="write jobs => 'jobs.py', the corrected jobs.",
        )
    from anabranch.cascade.correct import plan_correction, run_correction
    from anabranch.jobs.load import load

    jobs = load(given["jobs"]).jobs
    if not given.get("run"):
        return _told(plan_correction(lake, table.name, given["from_tag"], jobs, name=name), None)
    checks = given.get("checks")
    made = run_correction(lake, table.name, given["from_tag"], jobs, name=name, checks=checks)
    return _told(made.plan, made)


def _cascade(table: Table, given: Arguments) -> Iterable[Row]:
    from anabranch.cascade import plan_cascade, run_cascade, undo_cascade
    from anabranch.jobs.load import load

    lake = _lake(table)
    _check_one_of(given)
    if given.get("undo"):
        return _undone(undo_cascade(lake, table=table.name))
    jobs = () if given.get("jobs") is None else load(given["jobs"]).jobs
    if not given.get("run"):
        return _told(plan_cascade(lake, table.name, jobs), None)
    made = run_cascade(lake, table.name, jobs)
    return _told(made.plan, made)


def _check_one_of(given: Arguments) -> None:
    if given.get("run") and given.get("undo"):
        raise InvalidInputError("it can be done, or taken back", hint="give one of run and undo.")


def _lake(table: Table) -> Lake:
    """The warehouse of a table, with the session that the procedure was called in."""
    from anabranch.lake import Lake

    engine, groups = table._engine, table.context.groups  # noqa: SLF001 - who opened it gave it
    if not isinstance(engine, SparkEngine) or groups is None:
        raise InvalidInputError(
            f"'{table.name}' was not opened by its name in a warehouse",
            hint="name it db.t in a catalog of the lake.",
        )
    options = options_of(engine.spark, table.name)
    url = groups.url.rstrip("/").removesuffix(f"/{GROUPS_FOLDER}")
    # The thread that Spark calls in has no session yet, by which it would find data sources.
    engine.spark.createDataFrame([], "a INT")
    return Lake(open_storage(url, options), spark=engine.spark, options=options)


def _told(plan: CascadePlan, made: CascadeResult | None) -> list[Row]:
    messages = {} if made is None else {status.job: status.message for status in made.failed}
    group = None if made is None or made.group is None else made.group.number
    published = made is not None and made.is_published
    rows: list[Row] = []
    for step in plan.steps:
        failed = [f"job '{p.job}': {messages[p.job]}" for p in step.jobs if p.job in messages]
        waits = made is not None and made.waiting == step
        message = "; ".join(failed) or ("it has to be made by hand before it goes on" if waits else None)
        parts = [asdict(part) for part in step.jobs]
        rows.append(
            (
                *(step.table, step.branch, step.is_there, step.fork, step.is_empty, as_json(step.bad)),
                *(step.anew, step.rows, as_json(parts), as_json(step.problems), as_json(step.notes)),
                *(made is not None and step.table in made.done, published, group, message),
            )
        )
    return rows


def _undone(group: GroupResult) -> list[Row]:
    nothing = (None,) * 9
    return [
        (name, made.branch, *nothing, False, False, group.number, "taken back") for name, made in group.tables
    ]


CORRECTION_VERBS: Final = (
    Verb(
        "correct",
        "Correct a table from a tag, and all that was made from it, by corrected jobs, and publish them together.",
        (
            Parameter("from_tag", "STRING", "the tag up to which it is right", required=True),
            _JOBS,
            Parameter(
                "checks", "STRING", "file of checks that the table must pass before anything is published"
            ),
            _RUN,
            _NAME,
            _UNDO,
        ),
        _COLUMNS,
        _correct,
    ),
    Verb(
        "cascade",
        "After main of a table was replaced: correct the tables that were made from it, and publish them together.",
        (_JOBS, _RUN, _UNDO),
        _COLUMNS,
        _cascade,
    ),
)

"""Verbs that say how a table is, and mend it: health, verify, repair."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.format.text.shell import command_line
from anabranch.verbs.answer import Answer
from anabranch.verbs.parameters import DryRun
from anabranch.verbs.subject import Each, EachBranch
from anabranch.verbs.upkeep import UPKEEP
from anabranch.verbs.verb import Called, Confirm, Progress, option, verb

if TYPE_CHECKING:
    from anabranch.kernel.repair.found import Problem


@verb(
    UPKEEP,
    "Table.health",
    columns="score INT, files BIGINT, small_files BIGINT, snapshots BIGINT, points INT, finding STRING, command STRING",
)
def health(tables: EachBranch, *, caller: Called) -> Answer:
    """Say how a table is: small files, what compaction would gain, and the command that mends it."""
    found = tables.each(lambda table: table.health())
    nothing: tuple[Any, ...] = (None, None, None)
    rows = (
        (*(one.score, one.files, one.small_files, one.snapshots), *finding)
        for one in found
        for finding in [(f.points, f.why, f.command) for f in one.findings] or [nothing]
    )
    values = [asdict(one) for one in found]
    for finding in (finding for value in values for finding in value["findings"]):
        finding["command"] = finding["command"] and caller.runnable(finding["command"])
    return Answer(values, *map(str, found), rows=rows)


@verb(
    UPKEEP,
    "Table.verify",
    columns="severity STRING, kind STRING, problem STRING, path STRING, branch STRING, snapshot_id BIGINT, "
    "partition STRING, rows BIGINT, time_millis BIGINT, job STRING, repair STRING",
)
def verify(
    tables: Each,
    deep: Annotated[bool, option("Also read every data file in full, with its checksums.", "--deep")] = False,
    *,
    progress: Progress,
) -> Answer:
    """Find what is wrong with a table: history, refs, manifests, missing files. Ends with 1 if anything is."""
    found = tables.each(lambda table: table.verify(deep, progress))
    is_well = all(one.ok for one in found)
    repair = command_line("repair", tables.name, "--dry-run")
    return Answer(
        [{**asdict(one), "ok": one.ok} for one in found],
        *map(str, found),
        *(() if is_well else (f"{repair} says what can be done",)),
        rows=(_problem(problem) for one in found for problem in one.problems),
        code=0 if is_well else 1,
    )


def _problem(p: Problem) -> tuple[Any, ...]:
    return (
        *(p.severity, p.kind.value, p.message, p.path, p.branch, p.snapshot_id),
        *(p.partition, p.rows, p.time_millis, p.job, p.repair),
    )


@verb(
    UPKEEP,
    "Table.repair",
    columns="what STRING, kind STRING, text STRING, path STRING, partition STRING, rows BIGINT, time_millis BIGINT, "
    "job STRING",
    changes=True,
)
def repair(tables: Each, dry_run: DryRun = False, *, ask: Confirm, progress: Progress) -> Answer:
    """Bring a table back from what verify finds; say what cannot be. Ends with 1 if something is left."""
    ask(f"repair {tables.name}? --dry-run says what would be done")
    done = tables.each(lambda table: table.repair(dry_run, progress))
    rows = [
        row
        for one in done
        for row in (
            *(("step", step.kind.value, step.what, step.path, *(None,) * 4) for step in one.steps),
            *(
                ("left", p.kind.value, p.message, p.path, p.partition, p.rows, p.time_millis, p.job)
                for p in one.left
            ),
        )
    ]
    is_left = any(problem.severity == "error" for one in done for problem in one.left)
    return Answer(done, *map(str, done), rows=rows, code=1 if is_left else 0)

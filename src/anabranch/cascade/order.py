"""The order in which the tables of a cascade are made again: each after those that its jobs read.

What the given jobs declare decides, for they are what will run: a corrected job may read others than it did, or the
same ones the other way round. Only of jobs that nobody gave is it taken from lineage what they read; where the given
jobs leave a choice, tables come in the order in which they were made before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from anabranch.cascade.affected import Affected
from anabranch.cascade.writers import Writer
from anabranch.errors import InvalidInputError
from anabranch.jobs.job import Job

_BY_HAND = "correct them by hand, each on a branch, and publish them with `Lake.replace_group`."


def in_order(
    tables: Sequence[Affected], writers: Mapping[str, Sequence[Writer]], jobs: Mapping[str, Job]
) -> tuple[Affected, ...]:
    """Return tables so that each comes after those that feed it, otherwise in the order in which they are given.

    Args:
        tables: to be corrected.
        writers: who made what is to be made again, by table.
        jobs: those that were given, by name.

    Raises `InvalidInputError` if they feed each other in a circle.
    """
    names = {one.main.table_uuid: one.main.name for one in tables}
    feeding: dict[str, set[str]] = {}
    before: dict[str, set[str]] = {}
    unsaid: dict[tuple[str, str], str] = {}
    for table in names.values():
        needed, was_read = set[str](), set[str]()
        for writer in writers[table]:
            given, read = _given(writer, table, jobs), {names[uuid] for uuid in writer.tables & names.keys()}
            was_read |= read
            needed |= read if given is None else {*_reads(given)}
            if given is None:
                unsaid |= {(table, source): writer.job for source in read}
        feeding[table] = needed & {*names.values()} - {table}
        before[table] = (was_read | feeding[table]) - {table}
    left, ordered = list(tables), list[Affected]()
    while left:
        made = {one.main.name for one in ordered}
        free = next((one for one in left if before[one.main.name] <= made), None)
        if free is None:
            free = next((one for one in left if feeding[one.main.name] <= made), None)
        if free is None:
            raise _circle({one.main.name: feeding[one.main.name] - made for one in left}, unsaid)
        left.remove(free)
        ordered.append(free)
    return tuple(ordered)


def _given(writer: Writer, table: str, jobs: Mapping[str, Job]) -> Job | None:
    job = jobs.get(writer.job)
    return job if job is not None and job.sink == table else None


def _reads(job: Job) -> Iterator[str]:
    """Yield the tables whose corrected form a job reads."""
    for source in job.sources.values():
        if source.table is not None and not source.names_branch:
            yield source.table


def _circle(feeding: Mapping[str, set[str]], unsaid: Mapping[tuple[str, str], str]) -> InvalidInputError:
    try:
        TopologicalSorter(feeding).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]  # each feeds the next one; the first is also the last
    named = ", ".join(sorted({*circle}))
    message = f"these tables feed each other in a circle, so there is no order to correct them in: {named}"
    pairs = zip(circle[1:], circle[:-1], strict=True)
    asked = sorted({unsaid[pair] for pair in pairs if pair in unsaid})
    if not asked:
        return InvalidInputError(message, hint=_BY_HAND)
    jobs = ", ".join(f"'{job}'" for job in asked)
    return InvalidInputError(
        f"{message}, as far as lineage knows what was ever read: {jobs} made some of their rows, and such a job is "
        "declared in no job file that was given",
        hint=f"give these jobs as well: then counts what they read now. Or {_BY_HAND}",
    )

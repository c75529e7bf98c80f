"""Texts about a cascade: what it would do or did, what that guarantees, and the next command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from anabranch.cascade.result import CascadeResult
from anabranch.cascade.values import CascadePlan, CascadeStep
from anabranch.format.text.shell import command_line
from anabranch.kernel.log.moment import duration_text
from anabranch.kernel.replacement.result import GroupInfo, GroupResult
from anabranch.lineage.trace import Range


def told_plan(plan: CascadePlan, files: Iterable[str] = (), more: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of a plan; `files` are the given job files, `more` what else the next command must say."""
    yield from _beside(plan)
    if plan.is_done:
        yield _nothing(plan)
        return
    what = f"replacement {plan.number} of main of {plan.table} took out"
    if plan.tag is not None:
        what = f"the correction of {plan.table} from tag '{plan.tag}' takes out"
    yield f"{what} {_taken_out(plan)}; {_count(len(plan.steps), 'table')} to correct, in this order:"
    for place, step in enumerate(plan.steps, 1):
        yield from _told_step(place, step)
    yield "Nothing is changed by this plan. `--run` changes no main before all of them, at once."
    given = list(files)
    if any(step.problems for step in plan.steps) and not given:
        yield "Name the files that declare the jobs: --jobs FILE."
        given = ["FILE"]
    yield f"next: {command_of(plan, given, *more)}"


def told_result(
    result: CascadeResult, files: Iterable[str] = (), more: Sequence[str] = (), kept: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the lines of a result; arguments as for `told_plan`, and `kept` says where checkpoints are, also to `run`."""
    plan = result.plan
    files, more = list(files), [*more, *kept]
    again = command_of(plan, files, *more)
    yield from _beside(plan)
    if plan.is_done:
        yield _nothing(plan)
    elif result.group is not None:
        yield from told_group(result.group)
        yield from (f"{one.job}: state {one.begun}" for one in result.statuses if one.begun is not None)
        yield "All readers see the corrected tables from one moment on. Jobs that wrote to the old mains are stopped."
        # A batch job has done its work: run again, one that appends would write its rows a second time.
        jobs = dict.fromkeys(part.job for step in plan.steps for part in step.jobs if not part.is_batch)
        if jobs:
            named = [word for job in jobs for word in ("--job", job)]
            yield "Those that ran on the branches go on where they are:"
            yield f"next: {command_line('run', *(files or ['FILE']), *named, *kept)}"
        back = (
            ("cascade", "--undo", f"{result.group.number}") if plan.tag is None else (*_verb(plan), "--undo")
        )
        yield f"to take all of it back: {command_line(*back)}"
    elif result.waiting is not None:
        step = result.waiting
        yield f"{step.table} waits for somebody: {'; '.join(step.problems)}"
        yield (
            f"Nothing is published. Write these rows to {step.table}$branch_{step.branch}, made from the branches of the same "
            "name of what it is made from."
        )
        yield f"next: {command_of(plan, files, *more, '--by-hand', step.table)}"
    elif result.failed:
        for status in result.failed:
            yield f"{status.job}: {status.state.value}{'' if status.message is None else f': {status.message}'}"
            if status.hint:
                yield f"  hint: {status.hint}"
        yield "Nothing is published: all mains are as they were. What is done stays, and is gone on with."
        yield f"next: {again}"
    else:
        done = ", ".join(result.done) or "nothing"
        yield f"made again on branch {plan.name}: {done}. Nothing is published: all mains are as they were."
        for table in result.done:
            yield f"look at it: {command_line('diff', table, f'main..{plan.name}')}"
        yield f"next: {again}"


def _nothing(plan: CascadePlan) -> str:
    if plan.tag is None:
        return f"nothing to do: no table contains anything of what was taken out of {plan.table}"
    return (
        f"nothing to do: {plan.table} has nothing after tag '{plan.tag}', or branch {plan.name}, which corrected it from there, "
        "is main already; --name NAME corrects it anew"
    )


def command_of(plan: CascadePlan, files: Iterable[str], *more: str) -> str:
    """Return the command that does what a plan says, with these job files."""
    jobs = [word for file in files for word in ("--jobs", file)]
    return command_line(*_verb(plan), "--run", *jobs, *more)


def _verb(plan: CascadePlan) -> tuple[str, ...]:
    """Return the words of the command that made the plan."""
    if plan.tag is None:
        return "cascade", plan.table
    return "correct", plan.table, "--from-tag", plan.tag, *(("--name", plan.name) if plan.is_named else ())


def told_group(group: GroupResult) -> Iterator[str]:
    """Yield lines about what was published or undone."""
    yield from str(group).splitlines()


def told_groups(groups: Iterable[GroupInfo]) -> Iterator[str]:
    """Yield the log of groups, in lines."""
    for group in groups:
        tables = ", ".join(f"{table} ({branch})" for table, branch, _ in group.tables)
        undoes = "" if group.undoes is None else f", takes back group {group.undoes}"
        reason = "" if group.reason is None else f": {group.reason}"
        yield f"group {group.number}, {group.outcome}{undoes}: {tables}{reason}"


def _told_step(place: int, step: CascadeStep) -> Iterator[str]:
    if step.fork is None:
        begins = "it cannot begin again"
    elif step.is_empty:
        begins = "its branch begins empty, because it was spoilt from the beginning"
    else:
        begins = f"its branch begins with snapshot {step.fork}"
    there = ", and is there already" if step.is_there else ""
    yield (
        f"{place}. {step.table}: {_spoilt(step)}; {begins}{there}; "
        f"{_count(step.anew, 'commit')} ({_count(step.rows, 'row')}) made again on branch {step.branch}"
    )
    for part in step.jobs:
        sources = ", ".join(f"{source.name} {source.begins}" for source in part.sources)
        yield f"   job {part.job} from {sources}"
        if part.state is not None:
            yield f"     state: {part.state}"
        if part.took_millis is not None:
            yield f"     time: its batches took {duration_text(part.took_millis)} or more the first time"
        yield from (f"     note: {notice}" for notice in part.notices)
    yield from (f"   note: {note}" for note in step.notes)
    yield from (f"   by hand: {problem}" for problem in step.problems)


def _beside(plan: CascadePlan) -> Iterator[str]:
    yield from (f"note: {warning}" for warning in plan.warnings)
    if plan.beside:
        yield f"note: branches that are spoilt too, and stay as they are: {', '.join(plan.beside)}"


def _taken_out(plan: CascadePlan) -> str:
    """Return ``snapshots 3..4 of main@1, 7 of main@2``: with the main, because the current one reuses these numbers."""
    mains = dict.fromkeys(plan.taken_from)
    of = {
        name: [r for r, main in zip(plan.taken_out, plan.taken_from, strict=True) if main == name]
        for name in mains
    }
    told = ", ".join(f"{_ranges(ranges)} of {name}" for name, ranges in of.items())
    return f"{'snapshot' if _is_one(plan.taken_out) else 'snapshots'} {told}"


def _spoilt(step: CascadeStep) -> str:
    return (
        f"snapshot {_ranges(step.bad)} is spoilt"
        if _is_one(step.bad)
        else f"snapshots {_ranges(step.bad)} are spoilt"
    )


def _is_one(ranges: Iterable[Range]) -> bool:
    return sum(last - first + 1 for first, last in ranges) == 1


def _ranges(ranges: Iterable[Range]) -> str:
    return ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in ranges) or "none"


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"

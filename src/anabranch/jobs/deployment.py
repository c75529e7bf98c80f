"""What a job was when it last started from a checkpoint, and whether that checkpoint fits what it is now.

Spark finds out only when a batch runs, in words about logs and schemas of state, or not at all: operators of the same kind in
another order read each other's state. So each start is compared with the last one before the query begins. Code and
filters may change; sources that are added, taken away or exchanged, and operators with state that are others, need
another checkpoint, and `Run.renew` makes one that goes on after the job's last commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from anabranch.errors import InvalidInputError
from anabranch.format.text.record import JsonFile
from anabranch.jobs.checkpoint import JobCheckpoint
from anabranch.jobs.definition import definition_of
from anabranch.jobs.job import Job
from anabranch.jobs.state.operators import Operators

if TYPE_CHECKING:
    from anabranch.lake import Lake

_FILE: Final = "anabranch/deployed.json"
_SHORT: Final = 12
_CHANCE: Final = re.compile(r"@[0-9a-f]+\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""What differs between starts: addresses of objects, and identities made for one."""
_NAMED: Final = re.compile(r" AS `?[\w.]+`?(#\d+L?)?")


@dataclass(frozen=True, slots=True)
class Deployment(JsonFile):
    """A job as it was started."""

    SNAKE: ClassVar = True

    code: str | None
    """Version of its code."""
    definition: str | None
    """See `anabranch.jobs.definition`; None if it cannot be told."""
    mode: str
    sources: Mapping[str, str] = field(default_factory=dict)
    """Streams by name: what they read, by identity where there is one."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """The same for people."""
    state: tuple[str, ...] | None = ()
    """Operators with state, without what may change; None if that is not known."""


@dataclass(frozen=True, slots=True)
class StartChanges:
    """What is different in a job since its last start."""

    told: tuple[str, ...] = ()
    """For people, one each; empty if nothing is."""
    misfits: tuple[str, ...] = ()
    """Those for which its checkpoint cannot be used."""

    @property
    def fits(self) -> bool:
        """Whether the job goes on with its checkpoint."""
        return not self.misfits


def deployment_of(job: Job, lake: Lake, code: str | None, operators: Operators | None) -> Deployment:
    """Describe a job as it is now.

    Args:
        operators: those with state; None if the job has none.
    """
    streams = {name: source for name, source in job.sources.items() if source.kind != "static"}
    identities = {
        name: lake.table(source.name).table_uuid if source.is_table else f"{source.kind} {source.name}"
        for name, source in streams.items()
    }
    shown = {name: str(source) for name, source in streams.items()}
    texts = () if operators is None else operators.texts
    state = None if texts is None else tuple(map(_shape, texts))
    return Deployment(code, definition_of(job), job.mode, identities, shown, state)


def deployed(checkpoint: JobCheckpoint) -> Deployment | None:
    """Return what the job was when it last started here; None before that. Raises `CorruptTableError`."""
    return Deployment.find(checkpoint.storage, _FILE, whole=True)


def changes(before: Deployment | None, now: Deployment, *, knows_state: bool = True) -> StartChanges:
    """Compare two starts of a job.

    Args:
        before: the last one; None if there is none to compare with.
        now: this one.
        knows_state: whether the operators of this one are known: without Spark they are not.
    """
    if before is None:
        return StartChanges()
    told, misfits = [], [*_of_sources(before, now)]
    if before.code != now.code:
        told.append(f"its code is {_short(now.code)}, was {_short(before.code)}")
    if before.definition is None or now.definition is None:
        if before.code != now.code:
            told.append("it cannot be told whether what the job does has changed")
    elif before.definition != now.definition:
        told.append("what the job does has changed")
    elif before.code != now.code:
        told.append("the job does the same")
    if knows_state and before.state != now.state and None not in (before.state, now.state):
        misfits.append(_of_state(before, now))
    if before.mode != now.mode and (before.state or now.state):
        misfits.append(f"its mode is {now.mode}, was {before.mode}")
    return StartChanges((*told, *misfits), tuple(misfits))


def deploy(checkpoint: JobCheckpoint, now: Deployment, job: str) -> tuple[str, ...]:
    """Record a start before its query begins, and return what has changed since the last one.

    Raises `InvalidInputError` if the checkpoint does not fit; then nothing is recorded.
    """
    before = deployed(checkpoint) if checkpoint.is_in_use else None
    found = changes(before, now)
    if not found.fits:
        raise InvalidInputError(
            f"the checkpoint {checkpoint.location} does not fit job '{job}' any more: {'; '.join(found.misfits)}",
            hint=renew_hint(job),
        )
    if before != now:
        checkpoint.storage.put(_FILE, now.to_json())
    return found.told


def renew_hint(job: str) -> str:
    """What to do about a checkpoint that does not fit."""
    return (
        f"run it with --renew {job}: it goes on after its last commit with a new checkpoint, its state made anew from its "
        "sources, and the old checkpoint is kept aside. Or run the code that it fits."
    )


def _of_sources(before: Deployment, now: Deployment) -> Iterator[str]:
    if sorted(before.sources.values()) == sorted(now.sources.values()):
        return  # perhaps under other names
    for name, what in now.sources.items():
        if name not in before.sources:
            yield f"source '{name}' ({now.shown.get(name)}) is new"
        elif before.sources[name] != what:
            was, shown = before.shown.get(name), now.shown.get(name)
            other = "another table of that name" if was == shown else f"was {was}"
            yield f"source '{name}' is {shown}, {other}"
    for name in before.sources.keys() - now.sources.keys():
        yield f"source '{name}' ({before.shown.get(name)}) is gone"


def _of_state(before: Deployment, now: Deployment) -> str:
    def kinds(state: tuple[str, ...] | None) -> str:
        return ", ".join(text.split(" ", 1)[0] for text in state or ()) or "none"

    was, is_now = kinds(before.state), kinds(now.state)
    if was != is_now:
        return f"its operators with state are {is_now}, were {was}"
    return f"its operators with state ({is_now}) have other keys or results"


def _shape(text: str) -> str:
    """Return an operator without the names of its results, which Spark does not ask for, and with ids by first use."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return "#" + numbers.setdefault(match[0], str(len(numbers)))

    return re.sub(r"#\d+L?", number, _CHANCE.sub("", _NAMED.sub("", text)))


def _short(code: str | None) -> str:
    """Return a version of code as people compare it: the commit's first letters, and those of the file's hash."""
    if code is None:
        return "unknown"
    commit, _, file = code.partition("+")
    return "+".join(part[:_SHORT] if ":" not in part else part for part in (commit, file) if part)

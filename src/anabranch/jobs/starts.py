"""Where the sources of a job begin, so that they go on at recorded positions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.errors import InvalidInputError
from anabranch.jobs.positions import KnownPositions, RecordedPosition
from anabranch.jobs.source import Source
from anabranch.jobs.state.point import Point


@dataclass(frozen=True, slots=True)
class Starts:
    """Positions where the sources of a job begin."""

    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source: options that replace those for its start."""
    notices: tuple[str, ...] = ()
    """Notes for people."""
    point: Point | None = None
    """The batch after which the sources begin there, which determines the state to use."""


def starts_at(known: KnownPositions, sources: Mapping[str, Source], tables: Mapping[str, str]) -> Starts:
    """Return options with which the sources of a job begin at recorded positions.

    Args:
        known: the positions.
        sources: those of the job, by name.
        tables: identity of the table of each source that is one, by the name of the source.

    Raises `InvalidInputError`: the owner of a position is uncertain, or a source cannot begin at one.
    """
    options: dict[str, dict[str, str]] = {}
    missing: list[str] = []
    taken: set[RecordedPosition] = set()
    for name, source in sources.items():
        if source.kind == "static":
            continue
        matching = [one for one in known.positions if _is_of(one, source, tables.get(name))]
        if len(matching) > 1:
            raise InvalidInputError(
                f"source '{name}' ({source}) was read twice, up to different positions: {_listed(matching)}",
                hint="it is not certain which one is meant: begin without --from-tag, with positions in the options "
                "of the sources.",
            )
        if not matching:
            missing.append(name)
            continue
        taken.add(matching[0])
        options[name] = _options(matching[0])
    looked_up = {tables.get(name) for name, source in sources.items() if source.kind == "static"}
    left = [
        one
        for one in known.positions
        if one not in taken and not (one.kind == "table" and one.identity in looked_up)
    ]
    for name in missing:
        _check_is_new(name, sources[name], left)
        if not known.is_complete:
            raise InvalidInputError(
                f"it is not known how far source '{name}' ({sources[name]}) was read: the commits that would tell have "
                "expired",
                hint="choose a later tag, or begin without --from-tag, with positions in the options of the sources.",
            )
    notices = [f"source '{name}' was not read by then: it begins as it is declared" for name in missing]
    notices += [f"what was read of {one} is not a source of the job any more" for one in left]
    return Starts(options, tuple(notices), known.point)


def _is_of(recorded: RecordedPosition, source: Source, table_uuid: str | None) -> bool:
    match recorded.kind, source.kind:
        case "table", "table":
            return recorded.identity == table_uuid
        case "kafka", "kafka":
            return _reads_topics(source, recorded)
        case _:
            return False


def _reads_topics(source: Source, recorded: RecordedPosition) -> bool:
    options = {key.lower(): value for key, value in source.options.items()}
    position: Mapping[str, Mapping[str, int]] = json.loads(recorded.position)
    if "subscribepattern" in options:
        return all(re.fullmatch(options["subscribepattern"], topic) for topic in position)
    if "assign" in options:
        wanted = json.loads(options["assign"])
        return {t: {str(n) for n in numbers} for t, numbers in wanted.items()} == {
            t: {n for n in partitions if n.isdigit()} for t, partitions in position.items()
        }
    return set(position) <= {topic.strip() for topic in options.get("subscribe", "").split(",")}


def _options(recorded: RecordedPosition) -> dict[str, str]:
    key = "scan.start-offset" if recorded.kind == "table" else "startingOffsets"
    return {key: recorded.position}


def _check_is_new(name: str, source: Source, left: Sequence[RecordedPosition]) -> None:
    """Raise `InvalidInputError` if a recorded position may belong to this source after all."""
    kinds = {"files": ("files", "unknown"), "function": ("files", "unknown", "kafka", "table")}
    similar = [one for one in left if one.kind in kinds.get(source.kind, (source.kind,))]
    if not similar:
        return
    if source.kind in kinds:
        raise InvalidInputError(
            f"source '{name}' ({source}) cannot begin at a recorded position: Spark's {source.kind} have no option for it",
            hint="only tables and topics can: write what arrives into a table first.",
        )
    raise InvalidInputError(
        f"no recorded position is certain to be that of source '{name}' ({source}); found were {_listed(similar)}",
        hint="name the source as it was, or begin without --from-tag.",
    )


def _listed(found: Iterable[RecordedPosition]) -> str:
    return "; ".join(f"{one} at {one.position}" for one in found)

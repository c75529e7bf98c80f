"""Sources of a Spark Connect frame, from the plan that the client sends: it names them, but not their snapshots.

The server finds these when it carries out the plan. So what is the newest is looked up before and after: where nothing
was committed meanwhile, that is what was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.lineage.joining import joined
from anabranch.lineage.model import SourceInput, TableInput
from anabranch.spark.context.attached import options_of
from anabranch.spark.context.options import spelled
from anabranch.spark.lineage.plan_inputs import PlanInputs, kafka_input, look_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILES = ("parquet", "orc", "json", "csv", "text", "avro", "xml")


def plan_of(frame: Any) -> Any:
    """Return the plan of a frame as a protobuf message."""
    return frame._plan.to_proto(frame._session.client)  # noqa: SLF001 - the client keeps it to itself


def statement_of(plan: Any) -> str | None:
    """Return the SQL statement of a plan; None if it is not one."""
    return next((str(message.query) for name, message in _messages(plan) if name == "SQL"), None)


def sources_of(frame: DataFrame, plan: Any) -> PlanInputs:
    """Return the sources that the plan names, at their newest snapshots."""
    found = PlanInputs()
    for name, message in _messages(plan):
        match name:
            case "DataSource":
                _source(frame, message, found)
            case "NamedTable":
                found.problems.append(f"Spark Connect does not say what '{message.unparsed_identifier}' is")
            case "LocalRelation" | "CachedLocalRelation" | "ChunkedCachedLocalRelation":
                found.has_rows_of_program = True
            case "CachedRemoteRelation":
                found.has_rows_of_rdd = True
    found.inputs = list(joined(found.inputs))
    return found


def settled(before: PlanInputs, after: PlanInputs) -> PlanInputs:
    """Return what was read, given the sources before and after; a commit in between becomes a problem."""
    moved = [read for read in after.inputs if isinstance(read, TableInput) and read not in before.inputs]
    problems = [
        f"'{read.name}' was committed to while the rows were read: they may be of an older snapshot than "
        f"{read.through}"
        for read in moved
    ]
    return replace(after, problems=[*after.problems, *problems])


def _source(frame: DataFrame, message: Any, found: PlanInputs) -> None:
    given = {str(key): str(value) for key, value in message.options.items()}
    kind, paths = str(message.format).lower(), [str(path) for path in message.paths]
    places = paths or [given[key] for key in ("path",) if key in given]
    if kind == "anabranch":
        for path in places:
            look_up(
                {**options_of(frame.sparkSession, path), **spelled({**given, "path": path}, is_checked=True)},
                found,
            )
    elif kind in ("kafka", "anabranch-kafka"):
        found.inputs.append(kafka_input(given))
    elif kind in _FILES:
        found.inputs += [SourceInput("files", path, None, None) for path in places]
    else:
        found.inputs.append(SourceInput("unknown", f"{kind} {' '.join(places)}".strip(), None, None))


def _messages(message: Any) -> Iterator[tuple[str, Any]]:
    """Yield all messages nested in a message, with the names of their types."""
    yield message.DESCRIPTOR.name, message
    for descriptor, value in message.ListFields():
        if descriptor.type != descriptor.TYPE_MESSAGE:
            continue
        if not hasattr(value, "ListFields"):
            values = value.values() if hasattr(value, "values") else value
            for inner in values:
                if hasattr(inner, "ListFields"):
                    yield from _messages(inner)
        else:
            yield from _messages(value)

"""Sources of a Spark Connect frame, from the plan that the client sends: it names them, but not their snapshots.

The server finds these when it carries out the plan. So what is the newest is looked up before and after: where nothing
was committed meanwhile, that is what was read.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle

from anabranch.lineage.joining import joined
from anabranch.lineage.model import SourceInput, TableInput
from anabranch.lineage.program_text import is_part_of_text, is_written, shown
from anabranch.spark.context.attached import options_of
from anabranch.spark.context.options import spelled
from anabranch.spark.lineage.function_data import has_data
from anabranch.spark.lineage.literal_times import KINDS, is_time_written
from anabranch.spark.lineage.plan_inputs import PlanInputs, kafka_input, look_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)
_SQL_LITERAL: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\b\d+(?:\.\d+)?\b")
_CONDITIONS: Final = ("scan.filter", "query", "dbtable")
"""Options of readers that are SQL."""
_OF_PLACES: Final = ("path", "url", "user", "password", "driver")
"""Options of readers that say where rows are, and not which."""
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


def holds_values(plan: Any, statement: str | None) -> bool:
    """Whether a plan may hold values that the program computed, such as ids that it has collected before. Never raises.

    What the program has collected is known to the server alone, so each value counts that does not stand in its text.

    Args:
        plan: as the client sends it.
        statement: the SQL that it was made of, where the plan has another form of it.
    """
    try:
        return any(_holds(name, message, statement) for name, message in _messages(plan))
    except Exception as error:  # whatever Spark's client is made of
        _LOG.debug("it cannot be seen which values a plan holds: %s", error)
        return True


def _holds(name: str, message: Any, statement: str | None) -> bool:
    match name:
        case "Literal":
            kind = message.WhichOneof("literal_type")
            if kind in (None, "null", "boolean", "array", "map", "struct"):
                return False  # what is in one is told by itself
            value = getattr(message, kind)
            if kind in KINDS:
                return not is_time_written(kind, value)
            return not is_written(shown(value.value if kind == "decimal" else value))
        case "SQL":
            return _is_computed(str(message.query) if statement is None else statement)
        case "ExpressionString":
            return _is_computed(str(message.expression))
        case "Limit" | "Tail" | "Offset":
            return not is_written(str(message.offset if name == "Offset" else message.limit))
        case "Range":
            bounds = {message.start, message.end, message.step} - {0, 1}  # which Spark's client adds itself
            return not all(is_written(str(bound)) for bound in bounds)
        case "DataSource":
            given = {str(key).lower(): str(value) for key, value in message.options.items()}
            return any(map(_is_computed, message.predicates)) or any(
                _is_given(str(message.format).lower(), key, value) for key, value in given.items()
            )
        case "PythonUDF" | "PythonUDTF":
            return has_data(cloudpickle.loads(message.command))  # of this process itself
        case "ScalarScalaUDF" | "JavaUDF":
            return True
    return False


def _is_given(source: str, key: str, value: str) -> bool:
    """Whether an option of a reader may hold a value that the program computed.

    Those of tables and topics say where reading begins and ends, which the sources of the commit tell.
    """
    if key in _CONDITIONS:
        return not is_written(value) and _is_computed(value)
    if source.startswith("anabranch") or source == "kafka" or key in _OF_PLACES:
        return False
    return value.lower() not in ("", "true", "false") and not is_written(value)


def _is_computed(text: str) -> bool:
    """Whether a number or a text in a statement does not stand in the program's text."""
    return any(not is_part_of_text(text, *match.span()) for match in _SQL_LITERAL.finditer(text))


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

"""Whether a plan of Spark may hold values that the program computed, such as ids it has collected from a table before.

Such values leave no source in a plan: they are literals, parameters and variables of statements, and what functions of the
program carry along. Literals that stand in the program's own text, and functions without data, are none of them. What
cannot be seen counts as computed.

A look at a plan costs some questions to the JVM for each expression: 5 ms of CPU in Python for a statement with one filter, 85 ms
for 20 steps over up to 12 columns. It is taken only where the process had read something that the plan does not name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkContext, cloudpickle

from anabranch.errors import AnabranchError
from anabranch.lineage.model import Input
from anabranch.lineage.program_text import (
    is_argument,
    is_part_of_text,
    is_written_at,
)
from anabranch.lineage.recording import unknown_rows
from anabranch.lineage.spark_offsets import inputs_between
from anabranch.spark.context.options import CHECKPOINT
from anabranch.spark.context.running import context_of
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.lineage import plans
from anabranch.spark.lineage.checkpoint import Checkpoint
from anabranch.spark.lineage.function_data import has_data
from anabranch.spark.lineage.plan_inputs import found_in
from anabranch.spark.lineage.plans import class_name, each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)
_MOST_EXPRESSIONS: Final = 3000
_MOST_LITERALS: Final = 200
_LONGEST_FUNCTION: Final = 1 << 20
_MOST_RUNS: Final = 200

_BEFORE_QUERY: Final = (
    "values or functions in the plan of the query may be made of what this process had read before it was started: {}; read in "
    "a function of foreachBatch, or declare a job and read in its function"
)
_GIVEN: Final[dict[str, list[str]]] = {}
"""Per run of a query, the problem of its plan; empty if it has none."""

OF_JOBS: Final[set[str]] = set()
"""Names of queries of declared jobs, which look at what was read before when their function is called."""

_OWN_NUMBERS: Final = ("count", "window", "session_window")
_DEFAULTS: Final = {"regexp_replace": "1", "split": "-1", "locate": "1"}
"""Values that functions of Spark add by themselves."""
_NUMBERED: Final = {
    "GlobalLimit": ("limit", "head", "take", "first"),
    "LocalLimit": ("limit", "head", "take", "first"),
    "Offset": ("offset",),
    "Tail": ("tail",),
    "CaseWhen": ("replace", "fillna", "fill"),
    "CaseKeyWhen": ("replace", "fillna", "fill"),
}
"""Functions whose numbers stand in a plan without a word of who put them there, by the node above."""


def holds_values(plan: Any) -> bool:
    """Whether a logical plan may hold values that the program computed. Never raises."""
    try:
        return _Look().is_given(plan)
    except Exception as error:  # whatever Spark is made of
        _LOG.debug("it cannot be seen which values a plan holds: %s", error)
        return True


def may_hold_values(frame: DataFrame) -> bool:
    """Whether a frame may hold values, or rows, that the program computed. Never raises."""
    if context_of(frame.sparkSession) is None:
        return True
    found = found_in(Jvm(frame.sparkSession), lambda: plans.static_leaves(frame))
    return found.has_others or holds_values(plans.plan_of(frame))


def given_before(jvm: Jvm, query: str, batch: int, named: Sequence[Input]) -> list[str]:
    """Return the problem that a query's plan may hold values which the program had read before it was started.

    A plan stays what it is while its query runs: the first batch tells what the program had read by then.

    Args:
        query: id of the query.
    """
    running = plans.streaming_query(jvm, query)
    run = "" if running is None else str(running.runId().toString())
    if run not in _GIVEN:
        found = [] if running is None else _of_query(jvm, running, query, batch, named)
        if found is None:
            return []  # another batch is running by now, of which it is asked in its turn
        _GIVEN[run] = found
        while len(_GIVEN) > _MOST_RUNS:
            del _GIVEN[next(iter(_GIVEN))]
    return _GIVEN[run]


def _of_query(jvm: Jvm, running: Any, query: str, batch: int, named: Sequence[Input]) -> list[str] | None:
    """Return the problem of a query, if it has one; None if its plan is not there to be looked at."""
    if str(running.name()) in OF_JOBS or unknown_rows(None, of_jobs=False) is None:
        return []
    streams: list[Input] = []
    with suppress(AnabranchError, ValueError):
        checkpoint = Checkpoint.of({CHECKPOINT: str(running.resolvedCheckpointRoot())})
        streams += inputs_between(None, checkpoint.batch_offsets(batch), {})
    before = unknown_rows(None, but=[*named, *streams], of_jobs=False)
    if before is None:
        return []
    plan = plans.batch_plan(jvm, query, batch)
    if plan is None:
        return None
    if not holds_values(plan):
        return []
    return [_BEFORE_QUERY.format(before)]


class _Look:
    def __init__(self) -> None:
        self._expressions = 0
        self._literals = 0

    def is_given(self, plan: Any) -> bool:
        parts = [plan, *each(plan.subqueriesAll())]
        while parts:
            node = parts.pop()
            kind = class_name(node)
            if kind == "LocalRelation" and not node.isStreaming() and _is_computed_table(node):
                return True
            if any(self._in_expression(one, kind) for one in each(node.expressions())):
                return True
            parts += each(node.children())
        return False

    def _in_expression(self, expression: Any, parent: str) -> bool:
        self._expressions += 1
        if self._expressions > _MOST_EXPRESSIONS:
            return True
        kind = class_name(expression)
        match kind:
            case "Literal":
                self._literals += 1
                return self._literals > _MOST_LITERALS or _is_computed(expression, parent)
            case "VariableReference":
                return True
            case "AttributeReference":
                return False  # most expressions are such, and each question to the JVM costs
            case _ if kind.startswith("Python") and _has_data_of_python(expression):
                return True
        return any(self._in_expression(one, kind) for one in each(expression.children()))


def _is_computed_table(rows: Any) -> bool:
    """Whether the literal rows of a statement do not stand in the text of the program."""
    origin = rows.origin()
    text, start, end = origin.sqlText(), origin.startIndex(), origin.stopIndex()
    if not (text.isDefined() and start.isDefined() and end.isDefined()):
        return True
    return not is_part_of_text(str(text.get()), int(start.get()), int(end.get()) + 1, around=0)


def _is_computed(literal: Any, parent: str) -> bool:
    """Whether a literal does not stand in the text of the program."""
    value = str(literal.toString())
    if value in ("null", "true", "false"):
        return False
    origin = literal.origin()
    if origin.sqlText().isDefined():
        start, end = origin.startIndex(), origin.stopIndex()
        if not (start.isDefined() and end.isDefined()):
            return True
        text, first, last = str(origin.sqlText().get()), int(start.get()), int(end.get()) + 1
        if text[first] in ":?":  # a parameter, whose value comes beside the text
            return not is_argument(value, "sql")
        return not is_part_of_text(text, first, last)
    place = origin.pysparkErrorContext()
    if place.isDefined():
        function, at = (str(place.get().productElement(part)) for part in (0, 1))
        file, _, line = at.rpartition(":")
        if line.isdigit():
            return not is_written_at(value, file, int(line))
        return not is_argument(value, function)
    context = origin.context()
    if str(context.contextType()) == "DataFrame":
        function = str(context.fragment())
        if parent == "Count" or function in _OWN_NUMBERS or _DEFAULTS.get(function) == value:
            return False
        return not is_argument(value, None if function == "lit" else function)
    # Spark itself adds numbers to windows and the like; of a program are only these.
    return parent in _NUMBERED and not any(is_argument(_plain(value), name) for name in _NUMBERED[parent])


def _plain(value: str) -> str:
    return value.removesuffix(".0")


def _has_data_of_python(expression: Any) -> bool:
    function = expression.func()
    if function.broadcastVars() is not None and function.broadcastVars().size():
        return True
    if _takes_programs_of_others():
        return True  # a function in the plan may be a client's, and is not to be read here
    command = function.command()
    code = command if isinstance(command, bytes) else command.unsafeArray()
    if len(code) > _LONGEST_FUNCTION:
        return True
    return has_data(cloudpickle.loads(bytes(code)))


def _takes_programs_of_others() -> bool:
    """Whether the Spark of this process serves Spark Connect too."""
    running = SparkContext.getOrCreate()  # there is one, for there is a plan
    return "SparkConnectPlugin" in str(running.getConf().get("spark.plugins", ""))

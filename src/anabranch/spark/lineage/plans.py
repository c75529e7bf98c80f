"""What Spark's plans say of the sources that they read: internals of Spark, each with a test.

A plan that was carried out names the very snapshots it read, also where Spark looked for newer ones than the frame was
made with, or took cached rows. Where something is not as expected, the source counts as not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from anabranch.spark.context.running import context_of
from anabranch.spark.jvm.proxy import Jvm

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

PROXY = "$Proxy"
"""In the names of classes that stand for objects of Python."""

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
_EXECUTION_ID = "spark.sql.execution.id"
_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"


def executed_leaves(frame: DataFrame) -> list[Any]:
    """What the plan of a frame reads, after it was carried out, with its subqueries."""
    return list(_leaves(frame._jdf.queryExecution().optimizedPlan()))  # noqa: SLF001 - the way into the JVM


def lookup_leaves(jvm: Jvm, query: str, batch: int) -> list[Any] | None:
    """What the plan of a micro-batch that is under way reads besides its streams; None if that batch is not the one.

    The plan is the one that was given to the optimiser: a table of which a filter leaves nothing was looked up too.
    """
    running = streaming_query(jvm, query)
    execution = None if running is None else running.lastExecution()
    if execution is None or int(execution.currentBatchId()) != batch:
        return None
    plan = execution.withCachedData()
    return [
        source
        for part in (plan, *_each(plan.subqueriesAll()))
        for leaf in _each(part.collectLeaves())
        if not leaf.isStreaming()
        for source in _sources(leaf)
    ]


def streaming_query(jvm: Jvm, query: str) -> Any:
    """The execution of an active query by its id; None if there is none."""
    running = jvm.session.sharedState().activeStreamingQueries()
    return running.get(jvm.of("java.util.UUID").fromString(query))


def command_leaves(jvm: Jvm) -> list[Any] | None:
    """The same of the command that this thread is carrying out; None if it is not known.

    Its plan is not optimised yet.
    """
    number = jvm.spark.sparkContext.getLocalProperty(_EXECUTION_ID)
    if number is None:
        return None
    running = jvm.of("org.apache.spark.sql.execution.SQLExecution").getQueryExecution(int(number))
    return None if running is None else list(_leaves(running.analyzed()))


def command_text(jvm: Jvm) -> str | None:
    """The statement that this thread is carrying out, if it was given as one."""
    number = jvm.spark.sparkContext.getLocalProperty(_EXECUTION_ID)
    if number is None:
        return None
    running = jvm.of("org.apache.spark.sql.execution.SQLExecution").getQueryExecution(int(number))
    return None if running is None else _text(running.logical())


def statement_text(frame: DataFrame) -> str | None:
    """The statement in SQL that a frame was made by, if it was."""
    return _text(frame._jdf.queryExecution().logical())  # noqa: SLF001


def class_name(item: Any) -> str:
    """Name of the class, without its package."""
    return str(item.getClass().getName()).rpartition(".")[2]


def options_of(leaf: Any) -> dict[str, str]:
    """The options of a read, of a relation of a table."""
    given = leaf.options()
    if given.isEmpty():
        return {}
    # An iterator of Java ends with an exception, which PySpark takes dozens of calls to understand.
    entries = given.entrySet().toArray()
    return {str(entry.getKey()): str(entry.getValue()) for entry in entries}


def root_paths(jvm: Jvm, location: Any) -> list[str]:
    """The paths that a ``FileIndex`` was made with."""
    paths = jvm.of("scala.jdk.javaapi.CollectionConverters").asJava(location.rootPaths())
    return [str(path.toString()) for path in paths]


def python_source(table: Any) -> Any:
    """The object of a data source in Python that Spark asked for the columns of a table, with what it remembered then."""
    source = _field(_field(table, "ds"), "dataSourceInPython")
    return cloudpickle.loads(bytes(source.dataSource()))


def python_source_name(table: Any) -> str:
    """The name under which it is registered."""
    return str(_field(table, "shortName"))


def batch_of_thread(context: SparkContext) -> tuple[str, int] | None:
    """Query and number of the micro-batch that this thread works on; None if it works on none."""
    query = context.getLocalProperty(_QUERY_ID)
    number = None if query is None else context.getLocalProperty(_BATCH_ID)
    return None if query is None or number is None else (query, int(number))


@dataclass(frozen=True, slots=True)
class Doing:
    """What a thread of the JVM is at."""

    is_planning: bool
    """It waits for the process in which a data source of Python is planned."""
    is_command: bool
    """It carries out a statement that hands no rows to the program, such as one that writes them."""
    is_function: bool
    """It runs a function of ``foreachBatch``."""


def is_command(jvm: Jvm) -> bool:
    """Whether this thread carries out a statement that hands no rows to the program, such as one that writes them."""
    number = jvm.spark.sparkContext.getLocalProperty(_EXECUTION_ID)
    if number is None:
        return False
    running = jvm.of("org.apache.spark.sql.execution.SQLExecution").getQueryExecution(int(number))
    command = jvm.once(
        _COMMAND, lambda: jvm.of("org.apache.spark.util.Utils").classForName(_COMMAND, True, False)
    )
    if running is None or not command.isInstance(running.logical()):
        return False
    return not class_name(running.logical()).startswith("CacheTable")


def doing(jvm: Jvm, thread: Any) -> Doing:
    """What a thread is at. Where Spark has other names for it, nothing of that is found."""
    found = jvm.of("org.apache.spark.util.Utils").getThreadDumpForThread(thread.getId())
    stack = str(found.get().stackTrace().toString()) if found.isDefined() else ""
    return Doing(
        ".PythonPlannerRunner." in stack,
        ".eagerlyExecuteCommands" in stack.replace("$", ".") and ".CacheTable" not in stack,
        ".ForeachBatchSink." in stack,
    )


def batches(jvm: Jvm) -> list[tuple[Any, str, int]]:
    """Of each streaming query that runs: its thread, its id and the number of its micro-batch."""
    running = jvm.session.sharedState().activeStreamingQueries().elements()
    found = []
    for query in jvm.of("java.util.Collections").list(running):
        execution = query.lastExecution()
        if execution is not None:
            number = int(execution.currentBatchId())
            found.append((query.queryExecutionThread(), str(query.id().toString()), number))
    return found


class Batch:
    """The micro-batch that a thread works on, as in ``foreachBatch``."""

    def __init__(self, spark: SparkSession, query: str, batch: int, run: str) -> None:
        self.query = query
        self.batch = batch
        self.run = run
        self._spark = spark

    @classmethod
    def current(cls, spark: SparkSession) -> Batch | None:
        """That of this thread; None if it works on none."""
        context = context_of(spark)
        if context is None:
            return None
        found, run = batch_of_thread(context), context.getLocalProperty(_RUN_ID)
        return None if found is None or not run else cls(spark, *found, run)

    @property
    def checkpoint(self) -> str:
        """Where the query's checkpoint is."""
        return str(streaming_query(Jvm(self._spark), self.query).resolvedCheckpointRoot())


def _leaves(plan: Any) -> Iterator[Any]:
    for part in (plan, *_each(plan.subqueriesAll())):
        for leaf in _each(part.collectLeaves()):
            yield from _sources(leaf)


def _sources(leaf: Any) -> Iterator[Any]:
    """What a leaf of a plan reads: itself, or what was read when its rows were kept."""
    match class_name(leaf):
        case "InMemoryRelation":
            yield from _leaves(leaf.cacheBuilder().cachedPlan())
        case "InMemoryTableScanExec":
            yield from _leaves(leaf.relation().cacheBuilder().cachedPlan())
        case "AdaptiveSparkPlanExec":
            yield from _leaves(leaf.initialPlan())
        case _:
            yield leaf


def _each(items: Any) -> Iterator[Any]:
    """The items of a sequence of Scala."""
    for place in range(items.length()):
        yield items.apply(place)


def _text(plan: Any) -> str | None:
    text = plan.origin().sqlText()
    return str(text.get()) if text.isDefined() else None


def _field(item: Any, name: str) -> Any:
    """A field that has no method."""
    field = item.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(item)

"""Sources in Spark's plans: internals of Spark, each with a test.

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
"""Part of the class names of proxies for Python objects."""

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
_EXECUTION_ID = "spark.sql.execution.id"
_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
_METADATA_COLUMN = "__metadata_col"
"""By which Spark marks a metadata column in a plan."""
_KEEPING = ("CacheTable", "SetVariable", "CreateVariable")
"""Commands whose rows or values the session keeps for what comes later."""


def executed_leaves(frame: DataFrame) -> list[Any]:
    """Return the sources in the executed plan of a frame, including its subqueries."""
    return list(_leaves(frame._jdf.queryExecution().optimizedPlan()))  # noqa: SLF001 - the way into the JVM


def static_leaves(frame: DataFrame) -> list[Any]:
    """Return the non-streaming sources in the plan of a frame, not optimised, including its subqueries."""
    return [leaf for leaf in _leaves(plan_of(frame)) if not leaf.isStreaming()]


def lookup_leaves(jvm: Jvm, query: str, batch: int) -> list[Any] | None:
    """Return the non-streaming sources in the plan of a running micro-batch; None if another batch is running.

    The plan is the one that was given to the optimiser: a table of which a filter leaves nothing was looked up too.
    """
    running = streaming_query(jvm, query)
    execution = None if running is None else running.lastExecution()
    if execution is None or int(execution.currentBatchId()) != batch:
        return None
    plan = execution.withCachedData()
    return [
        source
        for part in (plan, *each(plan.subqueriesAll()))
        for leaf in each(part.collectLeaves())
        if not leaf.isStreaming()
        for source in _sources(leaf)
    ]


def streaming_query(jvm: Jvm, query: str) -> Any:
    """Return the execution of an active query by its id; None if there is none."""
    running = jvm.session.sharedState().activeStreamingQueries()
    return running.get(jvm.of("java.util.UUID").fromString(query))


def command_leaves(jvm: Jvm) -> list[Any] | None:
    """Return the sources of the command that this thread is executing; None if they are not known.

    Its plan is not optimised yet.
    """
    plan = command_plan(jvm)
    return None if plan is None else list(_leaves(plan))


def command_plan(jvm: Jvm) -> Any:
    """Return the plan of the command that this thread is executing, not optimised; None if it is not known."""
    number = jvm.spark.sparkContext.getLocalProperty(_EXECUTION_ID)
    if number is None:
        return None
    running = jvm.of("org.apache.spark.sql.execution.SQLExecution").getQueryExecution(int(number))
    return None if running is None else running.analyzed()


def command_text(jvm: Jvm) -> str | None:
    """Return the SQL statement that this thread is executing, if it was given as one."""
    number = jvm.spark.sparkContext.getLocalProperty(_EXECUTION_ID)
    if number is None:
        return None
    running = jvm.of("org.apache.spark.sql.execution.SQLExecution").getQueryExecution(int(number))
    return None if running is None else _text(running.logical())


def batch_plan(jvm: Jvm, query: str, batch: int) -> Any:
    """Return the plan of a running micro-batch, not optimised; None if another batch is running."""
    running = streaming_query(jvm, query)
    execution = None if running is None else running.lastExecution()
    if execution is None or int(execution.currentBatchId()) != batch:
        return None
    return execution.analyzed()


def statement_text(frame: DataFrame) -> str | None:
    """Return the SQL statement that a frame was made by, if it was."""
    return _text(frame._jdf.queryExecution().logical())  # noqa: SLF001


def plan_of(frame: DataFrame) -> Any:
    """Return the plan of a frame, not optimised."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001


def class_name(item: Any) -> str:
    """Return the name of the class, without its package."""
    return str(item.getClass().getName()).rpartition(".")[2]


def options_of(leaf: Any) -> dict[str, str]:
    """Return the read options of a table relation."""
    given = leaf.options()
    if given.isEmpty():
        return {}
    # A Java iterator ends with an exception, which PySpark makes dozens of calls to convert.
    entries = given.entrySet().toArray()
    return {str(entry.getKey()): str(entry.getValue()) for entry in entries}


def root_paths(jvm: Jvm, location: Any) -> list[str]:
    """Return the paths that a ``FileIndex`` was made with."""
    paths = jvm.of("scala.jdk.javaapi.CollectionConverters").asJava(location.rootPaths())
    return [str(path.toString()) for path in paths]


def python_source(table: Any) -> Any:
    """Return the Python data source object that gave Spark a table's columns, with the state it kept then."""
    source = _field(_field(table, "ds"), "dataSourceInPython")
    return cloudpickle.loads(bytes(source.dataSource()))


def python_source_name(table: Any) -> str:
    """Return the name under which it is registered."""
    return str(_field(table, "shortName"))


def stream_columns(jvm: Jvm, checkpoint: str) -> list[str]:
    """Return the columns of DataSource V2 streams that the query of a checkpoint reads, those of metadata included.

    Args:
        checkpoint: folder of one of the query's sources.
    """
    running = jvm.session.sharedState().activeStreamingQueries().elements()
    return [
        str(column.name())
        for query in jvm.of("java.util.Collections").list(running)
        if checkpoint.startswith(f"{query.resolvedCheckpointRoot()}/")
        for leaf in each(query.analyzedPlan().collectLeaves())
        if class_name(leaf) == "StreamingRelationV2"
        for column in each(leaf.output())
        if column.metadata().contains(_METADATA_COLUMN)
    ]


def batch_of_thread(context: SparkContext) -> tuple[str, int] | None:
    """Return query and number of the micro-batch that this thread works on; None if there is none."""
    query = context.getLocalProperty(_QUERY_ID)
    number = None if query is None else context.getLocalProperty(_BATCH_ID)
    return None if query is None or number is None else (query, int(number))


@dataclass(frozen=True, slots=True)
class Doing:
    """Current activity of a JVM thread."""

    is_planning: bool
    """Whether it waits for the process in which a Python data source is planned."""
    is_command: bool
    """Whether it executes a statement that returns no rows to the program, such as a write."""
    is_function: bool
    """Whether it runs a function of ``foreachBatch``."""


def is_command(jvm: Jvm) -> bool:
    """Whether this thread executes a statement that returns no rows to the program, such as a write."""
    number = jvm.spark.sparkContext.getLocalProperty(_EXECUTION_ID)
    if number is None:
        return False
    running = jvm.of("org.apache.spark.sql.execution.SQLExecution").getQueryExecution(int(number))
    command = jvm.once(
        _COMMAND, lambda: jvm.of("org.apache.spark.util.Utils").classForName(_COMMAND, True, False)
    )
    if running is None or not command.isInstance(running.logical()):
        return False
    return not class_name(running.logical()).startswith(_KEEPING)


def doing(jvm: Jvm, thread: Any) -> Doing:
    """Return a thread's activity, from its stack. Everything is False if Spark's class names have changed."""
    found = jvm.of("org.apache.spark.util.Utils").getThreadDumpForThread(thread.getId())
    stack = str(found.get().stackTrace().toString()) if found.isDefined() else ""
    return Doing(
        ".PythonPlannerRunner." in stack,
        ".eagerlyExecuteCommands" in stack.replace("$", ".")
        and not any(f".{kind}" in stack for kind in _KEEPING),
        ".ForeachBatchSink." in stack,
    )


def batches(jvm: Jvm) -> list[tuple[Any, str, int]]:
    """Return thread, id and micro-batch number of each running streaming query."""
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
        """Return the batch of this thread; None if there is none."""
        context = context_of(spark)
        if context is None:
            return None
        found, run = batch_of_thread(context), context.getLocalProperty(_RUN_ID)
        return None if found is None or not run else cls(spark, *found, run)

    @property
    def checkpoint(self) -> str:
        """Location of the query's checkpoint."""
        return str(streaming_query(Jvm(self._spark), self.query).resolvedCheckpointRoot())


def _leaves(plan: Any) -> Iterator[Any]:
    for part in (plan, *each(plan.subqueriesAll())):
        for leaf in each(part.collectLeaves()):
            yield from _sources(leaf)


def _sources(leaf: Any) -> Iterator[Any]:
    """Yield the sources of a plan's leaf: itself, or those of the cached plan behind it."""
    match class_name(leaf):
        case "InMemoryRelation":
            yield from _leaves(leaf.cacheBuilder().cachedPlan())
        case "InMemoryTableScanExec":
            yield from _leaves(leaf.relation().cacheBuilder().cachedPlan())
        case "AdaptiveSparkPlanExec":
            yield from _leaves(leaf.initialPlan())
        case _:
            yield leaf


def each(items: Any) -> Iterator[Any]:
    """Yield the items of a Scala sequence."""
    for place in range(items.length()):
        yield items.apply(place)


def _text(plan: Any) -> str | None:
    text = plan.origin().sqlText()
    return str(text.get()) if text.isDefined() else None


def _field(item: Any, name: str) -> Any:
    """Return a field that has no accessor method."""
    field = item.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(item)

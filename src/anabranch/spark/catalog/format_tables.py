"""``format("anabranch")`` in classic sessions: its tables are read and written as those of the catalog are.

Spark plans and commits what a Python data source reads and writes in processes of their own, and its tasks hand every
row to Python. The tables here are objects of the driver instead, whose rows Spark's own tasks read and write; what these
cannot, and all of Spark Connect, is left to the data source. Options, columns and results are the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError

from anabranch.expr.bind import bind
from anabranch.expr.parse import parse
from anabranch.options import PATH, SCAN_FILTER
from anabranch.runtime import SYSTEM
from anabranch.scan.scan import Scan
from anabranch.spark.catalog import java
from anabranch.spark.catalog.source import TableLocation, source_stream
from anabranch.spark.catalog.tables import LakeTable, note_read
from anabranch.spark.catalog.writes import batch_write, known_origin, stream_write
from anabranch.spark.context.attached import known_options
from anabranch.spark.context.options import INCREMENTAL, refuse_catalog_options, refuse_incremental, spelled
from anabranch.spark.context.table_state import TableState
from anabranch.spark.context.tables import first_view
from anabranch.spark.jvm.callbacks import compiled, start_callbacks
from anabranch.spark.jvm.proxy import JavaProxy, Jvm, WithoutMetrics
from anabranch.spark.lineage.batch_reads import reading
from anabranch.spark.native.compiled import NotCompiledError, driver_class
from anabranch.spark.native.scan_builder import ScanBuilder
from anabranch.spark.source.data_source import check_columns, fields_of, refuse_added
from anabranch.spark.source.system_tables import system_read
from anabranch.spark.types.columns import spark_schema_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_WRITE = f"{java.CONNECTOR}.write"


def register_format(spark: SparkSession, defaults: Mapping[str, str]) -> None:
    """Let ``format("anabranch")`` of a session find the tables here before it asks the data source.

    Args:
        spark: a classic session.
        defaults: options of the session, which those of a read or write override.
    """
    start_callbacks(spark)
    jvm = Jvm(spark)
    try:
        driver_class(jvm, "DefaultSource")
        jvm.of("anabranch.DefaultSource").register(jvm.session, _Opener(jvm, defaults))
    except NotCompiledError as error:
        _LOG.info("format('anabranch') works by processes of Python in this session: %s", error)


class _Opener(JavaProxy):
    """Callback that opens the table of a read or write; None leaves it to the data source."""

    class Java:
        implements = ["java.util.function.BiFunction"]  # noqa: RUF012 - Py4J reads it so

    def __init__(self, jvm: Jvm, defaults: Mapping[str, str]) -> None:
        self.jvm = jvm
        self._defaults = spelled(defaults, is_checked=True)

    def apply(self, columns: Any, given: Any) -> FormatTable | None:
        asked = java.python_map(given)
        refuse_catalog_options(asked)
        options = {**self._defaults, **spelled(asked, besides=self._defaults, incremental=True)}
        if not PATH.of(options) or system_read(options) is not None:
            return None
        return FormatTable(self.jvm, options, columns)


class FormatTable(LakeTable):
    """A table that the options of a read or write name.

    Args:
        options: theirs and the session's.
        columns: a ``StructType`` of the JVM: of the rows to write, or what somebody says that the table has; None to
            take the table's.
    """

    def __init__(self, jvm: Jvm, options: Mapping[str, str], columns: Any) -> None:
        # A state is shared by all reads of its snapshot: what one of them asks besides is not part of it.
        view, self._missing = first_view({k: v for k, v in options.items() if k not in INCREMENTAL})
        super().__init__(
            jvm,
            TableState(view.table, view.snapshot, view.schema, is_named=True),
            TableLocation("", options[PATH.key], options),
            columns or jvm.struct(spark_schema_json(fields_of(view.schema, options))),
        )
        self._given = options

    def newScanBuilder(self, _options: Any) -> ScanBuilder:  # noqa: N802
        def streamed(checkpoint: str) -> Any:
            refuse_incremental(self._given)
            return source_stream(self.jvm, self.place, self._java_schema, self._given, checkpoint)

        return ScanBuilder(
            self.jvm, self._rows, columns=self._java_schema, keeps_order=True, streams=streamed
        )

    def newWriteBuilder(self, info: Any) -> FormatWrite:  # noqa: N802
        refuse_incremental(self._given)
        return FormatWrite(self.jvm, self, info)

    def _abilities(self) -> tuple[str, ...]:
        return "BATCH_READ", "MICRO_BATCH_READ", "BATCH_WRITE", "STREAMING_WRITE", "TRUNCATE"

    def _rows(self) -> Scan:
        """What a batch reads: the rows there were when Spark asked for the table, whenever it is carried out."""
        if self._missing is not None:
            raise self._missing
        refuse_added(self._given)
        seen = self.seen.by({key: self._given[key] for key in INCREMENTAL if key in self._given})
        check_columns(seen.schema, java.python_struct(self._java_schema), self._given)
        with reading(self.jvm.spark) as is_planned:
            note_read(seen, is_planned=is_planned)
        condition = SCAN_FILTER.of(self._given)
        if condition is None:
            return seen.scan
        return replace(seen.scan, predicate=bind(parse(condition), seen.schema.fields))


class FormatWrite(WithoutMetrics):
    """A write into such a table, and what Spark builds it with."""

    class Java:
        implements = [f"{_WRITE}.SupportsTruncate", f"{_WRITE}.Write"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, into: FormatTable, info: Any) -> None:
        self.jvm = jvm
        self._into = into
        self._info = info
        self._overwrite = False

    def truncate(self) -> FormatWrite:
        self._overwrite = True
        return self

    def build(self) -> FormatWrite:
        return self

    def description(self) -> str:
        return f"anabranch {self._into.place.name}"

    def toBatch(self) -> Any:  # noqa: N802
        into = self._into
        options = {**into.place.options, **known_origin(self.jvm, into.table)}
        return batch_write(self.jvm, into.place, self._info, options, overwrite=self._overwrite)

    def toStreaming(self) -> Any:  # noqa: N802
        into = self._into
        return stream_write(self.jvm, into.place, self._info, into.place.options, overwrite=self._overwrite)


# Inheritance of catalogs by sessions made from one that has them: by ``newSession``, or by streams for batches.
#
# Spark makes the catalogs of each session anew, from names of classes in its configuration, and ours is an object. So the
# first session that gets one also gets an extension, which Spark hands on to all sessions made from it: a rule of the
# analyzer, which tells of a session before it looks for the tables of its first statement. What the session's configuration
# says it has then, or the first session has, it gets.

_PLACES: dict[str, tuple[str, Mapping[str, str]]] = {}
"""Names and options of the catalogs of this process, by the random token that identifies each in the configuration."""
_ADDING = threading.Lock()
_INHERITING: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
"""Session extensions with our catalogs, per JVM gateway."""
_SOURCES = ("anabranch", "anabranch-scan", "anabranch-kafka")

Put = Callable[["SparkSession", str, Mapping[str, str]], object]
"""Function that gives a session a catalog: the session, the name, warehouse and credentials."""


def place_key(name: str) -> str:
    """The setting that holds the token of a catalog's warehouse; copies of the session inherit it."""
    return f"spark.sql.catalog.{name}.anabranch-place"


def place_of(name: str, options: Mapping[str, str]) -> str:
    """Return the random token of a catalog. It reveals nothing and cannot be guessed."""
    with _ADDING:
        for word, known in _PLACES.items():
            if known == (name, options):
                return word
        word = SYSTEM.ids.uuid()
        _PLACES[word] = (name, dict(options))
        return word


def hand_on(jvm: Jvm, first: str, put: Put) -> None:
    """Let sessions that are made from this one have its catalogs.

    Args:
        jvm: of the session.
        first: the word of the catalog that they have in any case.
        put: see `Put`.
    """
    known = _INHERITING.setdefault(jvm.gateway, [])
    try:
        extensions = jvm.session.extensions()
        if not any(extensions.equals(each) for each in known):
            known.append(extensions)
            arguments = jvm.list([_Heir(jvm, first, put)]).toArray()
            extensions.injectHintResolutionRule(compiled(jvm.root, "HandedOn").newInstance(arguments))
    except (Py4JError, TypeError) as error:
        _LOG.info("sessions made from this one do not know its catalogs: %s", str(error).partition("\n")[0])


class _Heir(JavaProxy):
    """Callback that Spark invokes for each session made from one that has a catalog."""

    class Java:
        implements: ClassVar = ["scala.Function1"]

    def __init__(self, jvm: Jvm, first: str, put: Put) -> None:
        self.jvm = jvm
        self._first = first
        self._put = put

    def apply(self, session: Any) -> None:
        try:
            self._inherit(session)
        except Exception as error:  # the session is as good as Spark itself makes it
            _LOG.warning("a session made from another does not know its catalogs: %s", error)

    def _inherit(self, session: Any) -> None:
        from pyspark.sql import SparkSession

        state = session.sessionState()
        settings, there = state.conf(), state.catalogManager()
        with _ADDING:
            places = dict(_PLACES)  # other threads attach sessions while Spark is asked
        wanted = {
            word for word, (name, _) in places.items() if settings.getConfString(place_key(name), "") == word
        }
        made = None
        for word in wanted or {self._first}:
            name, options = places[word]
            if name in _names(there) or (not wanted and settings.contains(f"spark.sql.catalog.{name}")):
                continue
            made = made or SparkSession(self.jvm.spark.sparkContext, session)
            self._put(made, name, options)
        sources, ours = state.dataSourceManager(), self.jvm.session.sessionState().dataSourceManager()
        for name in _SOURCES:
            if made is not None and not sources.dataSourceExists(name) and ours.dataSourceExists(name):
                sources.registerDataSource(name, ours.lookupDataSource(name))
        if made is not None:
            register_format(made, known_options(self.jvm.spark))


def _names(manager: Any) -> set[str]:
    """Names of the catalogs that a session has created so far."""
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    return {str(name) for name in field.get(manager).keySet().mkString("\n").split("\n")}

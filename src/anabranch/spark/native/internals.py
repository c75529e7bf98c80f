"""Spark's internals that native reading rests on, all in this module, each with a test.

None of this is a promise of Spark's. `unsupported` says where it is known not to be; where a class or a method is
missing all the same, Py4J raises, and reading goes through the portable door.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.kernel.cache import MetadataCache
from anabranch.spark.engine import context_of
from anabranch.spark.native.bulk import each, member_texts, pairs, read_json, text_array
from anabranch.spark.native.handles import Handles, class_of, described
from anabranch.spark.native.proxy import Jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DATASOURCES = "org.apache.spark.sql.execution.datasources"
_ROW = "org.apache.spark.sql.catalyst.InternalRow"
_FILE_STATUS = "org.apache.hadoop.fs.FileStatus"
_LITERAL = "org.apache.spark.sql.connector.expressions.LiteralValue"
_COALESCE = "org.apache.spark.sql.catalyst.expressions.Coalesce"
_STRUCT, _CONF = "org.apache.spark.sql.types.StructType", "org.apache.spark.sql.internal.SQLConf"
_OBJECT, _TEXT = "Ljava/lang/Object;", "Ljava/lang/String;"
_ARRAY_SEQ = "scala.collection.immutable.ArraySeq"
_OLDEST, _NEWEST = (4, 1), (4, 3)
_BLOCK = 128 << 20
_SIZES = 1 << 20
"""The most that descriptions of columns may be of which sizes are kept."""
_ROW_BYTES = 8
"""What Spark adds for each row to what the columns of it need."""

READ_OPTIONS: Mapping[str, str] = {
    # Days and moments in our files are of the calendar that Spark uses, whatever the session says of files in general.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
}
"""Options of Spark's Parquet reader for our files."""

FileRow = tuple[str, int, int]
"""Path as Hadoop spells it, bytes, time of its making in milliseconds."""


@dataclass(frozen=True)
class Partitions:
    """Folders with the values that partition columns have in them."""

    columns: StructType
    folders: Sequence[str]
    """Paths as Hadoop spells them."""
    values: Any
    """A Scala ``Seq[InternalRow]``: one for each folder."""


def unsupported(spark: SparkSession) -> str | None:
    """Why sessions of this kind cannot read natively; None if they can."""
    if context_of(spark) is None:
        return "the session is one of Spark Connect, whose server cannot call this process"
    version = tuple(int(part) for part in spark.version.split(".")[:2])
    if not _OLDEST <= version <= _NEWEST:
        return f"Spark is {spark.version}, and native reading was tried with {_text(_OLDEST)} to {_text(_NEWEST)}"
    return None


def missing(jvm: Jvm) -> str | None:
    """What of the internals is not as expected in this JVM; None if nothing. It is tried once.

    A frame has been given out before Spark asks its index for files, so what is wrong must be known before.
    """
    from py4j.protocol import Py4JError

    if jvm.gateway not in _TRIED:
        try:
            _try(jvm)
        except Py4JError as error:
            _TRIED[jvm.gateway] = f"Spark's internals are not as expected: {_reason(error)}"
        else:
            _TRIED[jvm.gateway] = None
    return _TRIED[jvm.gateway]


_TRIED: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()


def _try(jvm: Jvm) -> None:
    """Make of each kind of internal one that holds a file which need not be there."""
    columns, keys = StructType().add("a", "integer"), StructType().add("p", "integer")
    files: list[FileRow] = [("file:/t/p=1/data-1.parquet", 1, 0)]
    rows = internal_rows(jvm, pa.record_batch({"p": pa.array([1], pa.int32())}), keys)
    partition_directories(jvm, rows, [files])
    partitions = Partitions(keys, ["file:/t/p=1"], rows)
    for found in (partitions, None):
        index = filled_index(jvm, files, columns, found, identity="file:/t")
        whole = StructType([*columns, *([] if found is None else keys)])
        parquet_scan(jvm, index, whole.json(), columns.json()).toBatch()
    joined(jvm, jvm.seq([])).toJSON()
    for name in ("HadoopFsRelation", "parquet.ParquetFileFormat"):
        class_of(jvm, jvm.of(f"{_DATASOURCES}.{name}")._fqn)  # noqa: SLF001


def hadoop_path(jvm: Jvm, path: str) -> Any:
    """A ``Path`` of Hadoop. In `path` nothing is escaped, but it has a scheme."""
    return jvm.of("org.apache.hadoop.fs.Path")(path)


def file_statuses(jvm: Jvm, groups: Sequence[Iterable[FileRow]]) -> Any:
    """Files in groups as a ``FileStatus[][]``, all of them in one call."""
    return read_json(jvm, [[_status(*row) for row in group] for group in groups], f"[[L{_FILE_STATUS};")


def internal_rows(jvm: Jvm, rows: pa.RecordBatch, schema: StructType) -> Any:
    """Rows as a Scala ``Seq[InternalRow]``, in few calls and without a job.

    Args:
        jvm: of the session.
        rows: in the Arrow types in which Spark takes rows of Python.
        schema: the same columns in Spark's types.
    """
    batches = jvm.seq([rows.serialize().to_pybytes()]).iterator()
    utils = jvm.of("org.apache.spark.sql.api.python.PythonSQLUtils")
    frame = utils.toDataFrame(batches, schema.json(), jvm.session)
    plan = frame.queryExecution().analyzed()
    if plan.getClass().getSimpleName() == "LocalRelation":
        return plan.data()
    # The session lets nothing be local; then it is a job of one task.
    return jvm.of(_ARRAY_SEQ).unsafeWrapArray(frame.queryExecution().executedPlan().executeCollect())


def empty_rows(jvm: Jvm, count: int) -> Any:
    """A Scala ``Seq[InternalRow]`` of rows without columns."""
    return jvm.seq_of(jvm.of("java.util.Collections").nCopies(count, jvm.of(_ROW).empty()))


def partition_directories(jvm: Jvm, values: Any, groups: Sequence[Iterable[FileRow]]) -> Any:
    """Groups of files that share the values of partition columns, as a Scala ``Seq[PartitionDirectory]``.

    Args:
        jvm: of the session.
        values: a ``Seq[InternalRow]``, one for each group.
        groups: the files.
    """
    statuses = jvm.of(_ARRAY_SEQ).unsafeWrapArray(file_statuses(jvm, groups))
    return pairs(jvm, f"{_DATASOURCES}.PartitionDirectory", values, statuses, of=(_ROW, f"[L{_FILE_STATUS};"))


def relation_frame(jvm: Jvm, index: Any, columns: StructType, partition_columns: StructType) -> DataFrame:
    """A DataFrame of the files that a ``FileIndex`` lists, by Spark's Parquet reader; partition columns come last."""
    from pyspark.sql import DataFrame

    relation = jvm.of(f"{_DATASOURCES}.HadoopFsRelation")(
        index,
        jvm.struct(partition_columns),
        jvm.struct(columns),
        jvm.none(),
        jvm.of(f"{_DATASOURCES}.parquet.ParquetFileFormat")(),
        jvm.scala_map(READ_OPTIONS),
        jvm.session,
    )
    return DataFrame(jvm.session.baseRelationToDataFrame(relation), jvm.spark)


def parquet_scan(
    jvm: Jvm, index: Any, whole: str, columns: str, *, filters: Any = None, read: Any = None
) -> Any:
    """The ``Scan`` of Spark's own Parquet source over an ``InMemoryFileIndex``.

    Args:
        jvm: of the session.
        index: the files.
        whole: all columns as Spark's JSON, partition columns last.
        columns: those in the files.
        filters: a Scala ``Seq`` of expressions by which row groups may be skipped; None for none.
        read: the ``StructType`` to read; all columns if None.
    """
    every = jvm.struct(whole)
    return jvm.once("parquet scan", lambda: _parquet_scan(jvm)).apply(
        index,
        every,
        jvm.struct(columns),
        jvm.once("no filters", lambda: jvm.seq([])) if filters is None else filters,
        every if read is None else read,
    )


def _parquet_scan(jvm: Jvm) -> Any:
    """``(index, whole, columns, filters, read) -> scan``, with the builder that Spark has between them."""
    handles, builder = Handles(jvm), f"{_DATASOURCES}.v2.parquet.ParquetScanBuilder"
    seq, struct = "Lscala/collection/immutable/Seq;", described(_STRUCT)
    steps = f"({described(builder)}{seq}{struct})"
    push = handles.method(builder, "pushFilters", f"({seq}){seq}")
    prune = handles.method(builder, "pruneColumns", f"({struct})V")
    build = handles.method(builder, "build", f"(){described(f'{_DATASOURCES}.v2.parquet.ParquetScan')}")
    scan = handles.after(
        handles.among(push, f"{steps}{seq}", 0, 1),
        handles.after(handles.among(prune, f"{steps}V", 0, 2), handles.among(build, f"{steps}{_OBJECT}", 0)),
    )
    made = jvm.of("org.apache.spark.sql.util.CaseInsensitiveStringMap")(jvm.map(READ_OPTIONS))
    new = handles.given(handles.given(handles.only_constructor(builder), 4, made), 0, jvm.session)
    return handles.function(handles.through(scan, 0, new))


def joined(jvm: Jvm, expressions: Any) -> Any:
    """A ``Seq`` of Catalyst expressions as the children of one, so that the JVM tells of all of them in one call.

    It has no meaning of its own and is never evaluated.
    """
    return jvm.of(_COALESCE)(expressions)


def expressions_json(jvm: Jvm, expressions: Any) -> str:
    """A Scala ``Seq`` of Catalyst expressions as JSON, as children of one."""

    def made() -> Any:
        handles = Handles(jvm)
        new = handles.constructor(_COALESCE, "(Lscala/collection/immutable/Seq;)V")
        return handles.function(handles.through(handles.method(_COALESCE, "toJSON", f"(){_TEXT}"), 0, new))

    return str(jvm.once("expressions as JSON", made).apply(expressions))


def literal_texts(jvm: Jvm, children: Any) -> tuple[str, list[str]] | None:
    """The literals that follow the first child of a predicate of DataSource V2: their type as JSON, and their texts.

    It takes few calls however many there are. None if they are of several types, or no texts can be had.
    """
    literals = jvm.of(_ARRAY_SEQ).unsafeWrapArray(children).tail()
    types = each(jvm, _LITERAL, "dataType", literals, gives="org.apache.spark.sql.types.DataType").distinct()
    texts = member_texts(each(jvm, _LITERAL, "value", literals, gives="java.lang.Object"))
    if texts is None or types.length() != 1:
        return None
    return str(types.head().json()), texts


def filled_index(
    jvm: Jvm,
    files: Sequence[FileRow],
    columns: StructType,
    partitions: Partitions | None = None,
    *,
    identity: str,
) -> Any:
    """An ``InMemoryFileIndex`` that holds the given files and lists nothing, made in few calls however many they are.

    Args:
        jvm: of the session.
        files: all of them.
        columns: of the files.
        partitions: the folders in which they directly lie; None for a table without partition columns.
        identity: a path that stands for exactly these files, and under which Spark finds them all. Indexes of the
            same paths are the same to Spark, which then reads one of them only.
    """
    cache = jvm.of(f"{_DATASOURCES}.SharedInMemoryCache")(_ENDLESS, -1).createForNewClient()
    root = hadoop_path(jvm, identity)
    (statuses,) = file_statuses(jvm, [files])
    cache.putLeafFiles(root, statuses)
    spec = jvm.none()
    if partitions is not None:
        paths = jvm.of(_ARRAY_SEQ).unsafeWrapArray(text_array(jvm, partitions.folders))
        made = pairs(
            jvm, f"{_DATASOURCES}.PartitionPath", partitions.values, paths, of=(_ROW, "java.lang.String")
        )
        spec = jvm.some(jvm.of(f"{_DATASOURCES}.PartitionSpec")(jvm.struct(partitions.columns), made))
    return jvm.of(f"{_DATASOURCES}.InMemoryFileIndex")(
        jvm.session,
        jvm.seq([root]),
        # Of files that are not of partitions Spark would take only those directly in the path.
        jvm.scala_map({"recursiveFileLookup": "true"} if partitions is None else {}),
        jvm.some(jvm.struct(columns)),
        cache,
        spec,
        jvm.none(),
    )


def estimated_bytes(jvm: Jvm, size: int, read: str, whole: str) -> int:
    """What Spark takes some columns of files to need, as it estimates those of its own tables.

    Args:
        jvm: of the session.
        size: bytes of the files.
        read: the columns as Spark's JSON; there may be none.
        whole: all columns of the table.
    """
    factor = float(_conf(jvm).fileCompressionFactor())
    some, every = (_ROW_BYTES + _default_size(jvm, columns) for columns in (read, whole))
    return int(size * factor) * some // every


def _default_size(jvm: Jvm, columns: str) -> int:
    kept: MetadataCache = jvm.once("default sizes", lambda: MetadataCache(_SIZES))
    return kept.get_or((columns,), lambda: int(jvm.struct(columns).defaultSize()), lambda _: len(columns))


def is_columnar(jvm: Jvm, columns: Any) -> bool:
    """Whether Spark's Parquet reader gives batches of these columns, a ``StructType``, and not rows.

    Its factory of readers would say the same, but making one sends the settings of Hadoop to all executors.
    """
    return bool(jvm.once("is columnar", lambda: _is_columnar(jvm)).apply(_conf(jvm), columns))


def _is_columnar(jvm: Jvm) -> Any:
    """``(conf, columns)``: whether batches of them can be read, and are, and these are not too many."""
    handles, parquet = Handles(jvm), f"{_DATASOURCES}.parquet.ParquetUtils"
    kind, type_ = f"({described(_CONF)}{described(_STRUCT)})Z", "Lorg/apache/spark/sql/types/DataType;"
    can = handles.static(parquet, "isBatchReadSupportedForSchema", kind)
    whole = handles.among(handles.method(_CONF, "wholeStageEnabled", "()Z"), kind, 0)
    too_many = handles.typed(
        handles.static(
            "org.apache.spark.sql.execution.WholeStageCodegenExec",
            "isTooManyFields",
            f"({described(_CONF)}{type_})Z",
        ),
        kind,
    )
    no = handles.among(handles.constant("()Z", False), kind)
    return handles.function(handles.choice(can, handles.choice(too_many, no, whole), no))


def _conf(jvm: Jvm) -> Any:
    """The settings of the session as they are now, always."""
    return jvm.once("conf", lambda: jvm.session.sessionState().conf())


def reachable(jvm: Jvm, path: str, size: int) -> str | None:
    """Why Hadoop does not find a file of that many bytes at the path; None if it does."""
    from py4j.protocol import Py4JError

    try:
        place = hadoop_path(jvm, path)
        system = place.getFileSystem(jvm.session.sessionState().newHadoopConf())
        found = int(system.getFileStatus(place).getLen())
    except Py4JError as error:
        return f"Hadoop, through which Spark reads files, does not reach {path}: {_reason(error)}"
    return None if found == size else f"Hadoop finds {found} bytes at {path}, which has {size}"


_ENDLESS = 1 << 42
"""Bytes that a cache may hold which must not forget."""


def _reason(error: Any) -> str:
    thrown = getattr(error, "java_exception", None)
    return str(error if thrown is None else thrown.toString()).partition("\n")[0]


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _status(path: str, size: int, millis: int) -> dict[str, Any]:
    """The fields of a ``FileStatus`` that are not as its constructor leaves them."""
    return {"path": path, "length": size, "blocksize": _BLOCK, "modification_time": millis}

"""Spark's internals that native reading rests on, all in this module, each with a test.

None of this is a promise of Spark's. `unsupported` says where it is known not to be; where a class or a method is
missing all the same, Py4J raises, and reading goes through the portable door.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.spark.engine import context_of
from anabranch.spark.native.proxy import Jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DATASOURCES = "org.apache.spark.sql.execution.datasources"
_OLDEST, _NEWEST = (4, 1), (4, 3)
_BLOCK = 128 << 20

READ_OPTIONS: Mapping[str, str] = {
    # Days and moments in our files are of the calendar that Spark uses, whatever the session says of files in general.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
}
"""Options of Spark's Parquet reader for our files."""

FileRow = tuple[str, int, int]
"""Path as Hadoop spells it, bytes, time of its making in milliseconds."""


def unsupported(spark: SparkSession) -> str | None:
    """Why sessions of this kind cannot read natively; None if they can."""
    if context_of(spark) is None:
        return "the session is one of Spark Connect, whose server cannot call this process"
    version = tuple(int(part) for part in spark.version.split(".")[:2])
    if not _OLDEST <= version <= _NEWEST:
        return f"Spark is {spark.version}, and native reading was tried with {_text(_OLDEST)} to {_text(_NEWEST)}"
    return None


def hadoop_path(jvm: Jvm, path: str) -> Any:
    """A ``Path`` of Hadoop. In `path` nothing is escaped, but it has a scheme."""
    return jvm.of("org.apache.hadoop.fs.Path")(path)


def file_statuses(jvm: Jvm, groups: Sequence[Iterable[FileRow]]) -> Any:
    """Files in groups as a ``FileStatus[][]``, all of them in one call."""
    text = json.dumps([[_status(*row) for row in group] for group in groups])
    return _json_mapper(jvm).readValue(text, _class(jvm, "[[Lorg.apache.hadoop.fs.FileStatus;"))


def text_array(jvm: Jvm, texts: Sequence[str]) -> Any:
    """A ``String[]``, in one call."""
    return _json_mapper(jvm).readValue(json.dumps(texts), _class(jvm, "[Ljava.lang.String;"))


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
    return jvm.of("scala.collection.immutable.ArraySeq").unsafeWrapArray(
        frame.queryExecution().executedPlan().executeCollect()
    )


def empty_row(jvm: Jvm) -> Any:
    """An ``InternalRow`` without columns."""
    return jvm.of("org.apache.spark.sql.catalyst.InternalRow").empty()


def partition_directory(jvm: Jvm, values: Any, statuses: Any) -> Any:
    """A ``PartitionDirectory``: files that share the values of partition columns."""
    return jvm.of(f"{_DATASOURCES}.PartitionDirectory").apply(values, statuses)


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


def parquet_scan_builder(jvm: Jvm, index: Any, columns: StructType, partition_columns: StructType) -> Any:
    """The ``ScanBuilder`` of Spark's own Parquet source over an ``InMemoryFileIndex``."""
    whole = StructType([*columns.fields, *partition_columns.fields])
    options = jvm.of("org.apache.spark.sql.util.CaseInsensitiveStringMap")(jvm.map(READ_OPTIONS))
    return jvm.of(f"{_DATASOURCES}.v2.parquet.ParquetScanBuilder")(
        jvm.session, index, jvm.struct(whole), jvm.struct(columns), options
    )


def filled_index(
    jvm: Jvm,
    folders: Sequence[tuple[str, Any, Any]],
    columns: StructType,
    partition_columns: StructType,
    *,
    identity: str,
) -> Any:
    """An ``InMemoryFileIndex`` that holds the given files and lists nothing.

    Args:
        jvm: of the session.
        folders: path, partition values (``InternalRow``) and ``FileStatus[]`` of each folder; all files of a folder
            lie directly in it.
        columns: of the files.
        partition_columns: those of the values.
        identity: a path without files that stands for exactly these files. Indexes of the same paths are the same
            to Spark, which then reads one of them only; without it two snapshots of a table would be.
    """
    cache = jvm.of(f"{_DATASOURCES}.SharedInMemoryCache")(_ENDLESS, -1).createForNewClient()
    mark = hadoop_path(jvm, identity)
    cache.putLeafFiles(mark, jvm.array("org.apache.hadoop.fs.FileStatus", []))
    paths, partitions = [mark], []
    for path, values, statuses in folders:
        folder = hadoop_path(jvm, path)
        cache.putLeafFiles(folder, statuses)
        paths.append(folder)
        partitions.append(jvm.of(f"{_DATASOURCES}.PartitionPath")(values, folder))
    spec = jvm.of(f"{_DATASOURCES}.PartitionSpec")(jvm.struct(partition_columns), jvm.seq(partitions))
    return jvm.of(f"{_DATASOURCES}.InMemoryFileIndex")(
        jvm.session,
        jvm.seq(paths),
        jvm.scala_map({}),
        jvm.some(jvm.struct(columns)),
        cache,
        jvm.some(spec),
        jvm.none(),
    )


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
    return {
        "path": path,
        "length": size,
        "isdir": False,
        "block_replication": 1,
        "blocksize": _BLOCK,
        "modification_time": millis,
        "access_time": 0,
        "owner": "",
        "group": "",
        "attr": [],
    }


def _class(jvm: Jvm, name: str) -> Any:
    return jvm.of("org.apache.spark.util.Utils").classForName(name, True, False)


def _json_mapper(jvm: Jvm) -> Any:
    """Jackson as Spark ships it, setting the fields of objects themselves."""
    annotation = "com.fasterxml.jackson.annotation"
    mapper = jvm.of("com.fasterxml.jackson.databind.ObjectMapper")()
    accessors = jvm.of(f"{annotation}.PropertyAccessor")
    visibility = jvm.of(f"{annotation}.JsonAutoDetect$Visibility")
    mapper.setVisibility(accessors.ALL, visibility.NONE)
    mapper.setVisibility(accessors.FIELD, visibility.ANY)
    mapper.setVisibility(accessors.CREATOR, visibility.ANY)
    return mapper

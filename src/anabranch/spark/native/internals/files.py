"""Files and partition values in the form that Spark's file sources use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.spark.jvm.connectors import connector_for
from anabranch.spark.jvm.handles import pairs, read_json, text_array
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.compiled import NotCompiledError, driver_class, made_by

_DATASOURCES = "org.apache.spark.sql.execution.datasources"
_ROW = "org.apache.spark.sql.catalyst.InternalRow"
_FILE_STATUS = "org.apache.hadoop.fs.FileStatus"
_ARRAY_SEQ = "scala.collection.immutable.ArraySeq"
_BLOCK = 128 << 20
_ENDLESS = 1 << 42
"""Cache size in bytes for a cache that must never evict."""
_LACKS_CONNECTOR = re.compile(
    r"ClassNotFoundException: Class org\.apache\.hadoop\.fs\.|No FileSystem for scheme"
)

_MANY = 2_000
"""Files from which on it pays to compile what makes them in the JVM."""


@dataclass(frozen=True)
class FilesOf:
    """Files that lie directly in one folder."""

    path: str
    """Path of the folder in Hadoop's form."""
    names: Sequence[str]
    sizes: Sequence[int]
    """In bytes."""
    modified_millis: int

    def paths(self) -> Iterator[str]:
        """Yield the paths of the files in Hadoop's form."""
        return (f"{self.path}/{name}" for name in self.names)


@dataclass(frozen=True)
class Partitions:
    """Folders with the values of their partition columns."""

    columns: StructType
    folders: Sequence[str]
    """Paths in Hadoop's form."""
    values: Any
    """A Scala ``Seq[InternalRow]``: one row per folder."""


def hadoop_path(jvm: Jvm, path: str) -> Any:
    """Return a Hadoop ``Path``. `path` must have a scheme and no escapes."""
    return jvm.of("org.apache.hadoop.fs.Path")(path)


def file_statuses(jvm: Jvm, groups: Sequence[FilesOf]) -> Any:
    """Return groups of files as a ``FileStatus[][]``, in few calls."""
    listed = _listed(jvm, groups)
    return (
        _by_jackson(jvm, [list(_fields(group)) for group in groups]) if listed is None else listed.folders()
    )


def _all_statuses(jvm: Jvm, groups: Sequence[FilesOf]) -> Any:
    """Return the files of all groups as a ``FileStatus[]``, in few calls."""
    listed = _listed(jvm, groups)
    if listed is not None:
        return listed.all()
    (found,) = _by_jackson(jvm, [[fields for group in groups for fields in _fields(group)]])
    return found


def _listed(jvm: Jvm, groups: Sequence[FilesOf]) -> Any:
    """Return the ``ListedFiles`` of our Java; None for few files, or where it is not compiled."""
    if not are_many(sum(len(group.names) for group in groups)):
        return None
    make = files_class(jvm, "ListedFiles")
    if make is None:
        return None
    texts = [
        [group.path, "/".join(group.names), ",".join(map(str, group.sizes)), str(group.modified_millis)]
        for group in groups
    ]
    return made_by(jvm, make, read_json(jvm, texts, "[[Ljava.lang.String;"))


def are_many(files: int) -> bool:
    """Whether so many files are worth what is compiled for them."""
    return files >= _MANY


def files_class(jvm: Jvm, name: str) -> Any:
    """Return the constructor of a class in ``java/files``; None where this version of Spark does not compile it."""

    def found() -> Any:
        try:
            return driver_class(jvm, name, part="files").getConstructors()[0]
        except NotCompiledError:
            return None

    return jvm.once(f"class {name}", found)


def _by_jackson(jvm: Jvm, groups: Sequence[Sequence[Mapping[str, Any]]]) -> Any:
    return read_json(jvm, groups, f"[[L{_FILE_STATUS};")


def _fields(files: FilesOf) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of each ``FileStatus`` that differ from its constructor's defaults."""
    for path, size in zip(files.paths(), files.sizes, strict=True):
        yield {
            "path": path,
            "length": size,
            "blocksize": _BLOCK,
            "modification_time": files.modified_millis,
        }


def internal_rows(jvm: Jvm, rows: pa.RecordBatch, schema: StructType) -> Any:
    """Convert rows to a Scala ``Seq[InternalRow]``, in few calls and without a job.

    Args:
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
    """Return a Scala ``Seq[InternalRow]`` of rows without columns."""
    return jvm.seq_of(jvm.of("java.util.Collections").nCopies(count, jvm.of(_ROW).empty()))


def partition_directories(jvm: Jvm, values: Any, groups: Sequence[FilesOf]) -> Any:
    """Return groups of files that share partition values as a Scala ``Seq[PartitionDirectory]``.

    Args:
        values: a ``Seq[InternalRow]``, one for each group.
    """
    statuses = jvm.of(_ARRAY_SEQ).unsafeWrapArray(file_statuses(jvm, groups))
    return pairs(jvm, f"{_DATASOURCES}.PartitionDirectory", values, statuses, of=(_ROW, f"[L{_FILE_STATUS};"))


def filled_index(
    jvm: Jvm,
    files: Sequence[FilesOf],
    columns: StructType,
    partitions: Partitions | None = None,
    *,
    identity: str,
) -> Any:
    """Return an ``InMemoryFileIndex`` of the given files that lists nothing, made in few calls for any number.

    Args:
        columns: of the files.
        partitions: the folders in which they directly lie; None for a table without partition columns.
        identity: a path that stands for exactly these files, and under which Spark finds them all. Indexes of the
            same paths are the same to Spark, which then reads one of them only.
    """
    cache = jvm.of(f"{_DATASOURCES}.SharedInMemoryCache")(_ENDLESS, -1).createForNewClient()
    root = hadoop_path(jvm, identity)
    cache.putLeafFiles(root, _all_statuses(jvm, files))
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


def reachable(jvm: Jvm, path: str, size: int) -> str | None:
    """Return why Hadoop does not find a file of that size at the path; None if it does."""
    from py4j.protocol import Py4JError

    try:
        place = hadoop_path(jvm, path)
        system = place.getFileSystem(jvm.session.sessionState().newHadoopConf())
        found = int(system.getFileStatus(place).getLen())
    except Py4JError as error:
        reason, connector = reason_of(error), connector_for(path)
        if connector is not None and _LACKS_CONNECTOR.search(reason):
            return (
                f"{connector.name}, through which Spark reads {path.partition(':')[0]}://, is not installed"
            )
        return f"Hadoop, through which Spark reads files, does not reach {path}: {reason}"
    return None if found == size else f"Hadoop finds {found} bytes at {path}, which has {size}"


def reason_of(error: Any) -> str:
    """Return the first line of the JVM's exception."""
    thrown = getattr(error, "java_exception", None)
    return str(error if thrown is None else thrown.toString()).partition("\n")[0]

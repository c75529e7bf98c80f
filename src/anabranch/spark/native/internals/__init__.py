"""Spark's internals that native reading rests on, all in this package, each with a test.

None of this is a promise of Spark's. `unsupported` says where it is known not to be; where a class or a method is
missing all the same, Py4J raises, and reading goes through the portable door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql.types import StructType

from anabranch.spark.context.running import context_of
from anabranch.spark.jvm.handles import class_of
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.internals.expressions import expressions_json, joined, literal_texts
from anabranch.spark.native.internals.files import (
    FilesOf,
    Partitions,
    empty_rows,
    file_statuses,
    filled_index,
    hadoop_path,
    internal_rows,
    partition_directories,
    reachable,
    reason_of,
)
from anabranch.spark.native.internals.reader import (
    READ_OPTIONS,
    estimated_bytes,
    is_columnar,
    parquet_scan,
    relation_frame,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "READ_OPTIONS",
    "FilesOf",
    "Partitions",
    "empty_rows",
    "estimated_bytes",
    "expressions_json",
    "file_statuses",
    "filled_index",
    "hadoop_path",
    "internal_rows",
    "is_columnar",
    "joined",
    "literal_texts",
    "missing",
    "parquet_scan",
    "partition_directories",
    "reachable",
    "relation_frame",
    "unsupported",
]

_DATASOURCES = "org.apache.spark.sql.execution.datasources"
_OLDEST, _NEWEST = (4, 1), (4, 3)


def unsupported(spark: SparkSession) -> str | None:
    """Return why sessions of this kind cannot read natively; None if they can."""
    if context_of(spark) is None:
        return "the session is one of Spark Connect, whose server cannot call this process"
    version = tuple(int(part) for part in spark.version.split(".")[:2])
    if not _OLDEST <= version <= _NEWEST:
        return f"Spark is {spark.version}, and native reading was tried with {_text(_OLDEST)} to {_text(_NEWEST)}"
    return None


def missing(jvm: Jvm) -> str | None:
    """Return what part of Spark's internals is not as expected; None if all are. Tested once per JVM.

    A frame has been given out before Spark asks its index for files, so what is wrong must be known before.
    """
    from py4j.protocol import Py4JError

    if jvm.gateway not in _TRIED:
        try:
            _try(jvm)
        except Py4JError as error:
            _TRIED[jvm.gateway] = f"Spark's internals are not as expected: {reason_of(error)}"
        else:
            _TRIED[jvm.gateway] = None
    return _TRIED[jvm.gateway]


_TRIED: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()


def _try(jvm: Jvm) -> None:
    """Construct each kind of internal object once, over a file that need not exist."""
    columns, keys = StructType().add("a", "integer"), StructType().add("p", "integer")
    files = FilesOf("file:/t/p=1", ["data-1.parquet"], [1], 0)
    rows = internal_rows(jvm, pa.record_batch({"p": pa.array([1], pa.int32())}), keys)
    partition_directories(jvm, rows, [files])
    partitions = Partitions(keys, ["file:/t/p=1"], rows)
    for found in (partitions, None):
        index = filled_index(jvm, [files], columns, found, identity="file:/t")
        whole = StructType([*columns, *([] if found is None else keys)])
        scan = parquet_scan(jvm, index, whole.json(), columns.json(), verify=True)
        scan.toBatch()
        is_columnar(jvm, scan.readSchema())
    joined(jvm, jvm.seq([]))
    expressions_json(jvm, jvm.seq([]))
    for name in ("HadoopFsRelation", "parquet.ParquetFileFormat"):
        class_of(jvm, jvm.of(f"{_DATASOURCES}.{name}")._fqn)  # noqa: SLF001


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))

"""Access to Spark's own Parquet reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from anabranch.kernel.log.cache import MetadataCache
from anabranch.spark.jvm.handles import Handles, described
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.compiled import made_by
from anabranch.spark.native.internals.files import are_many, files_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DATASOURCES = "org.apache.spark.sql.execution.datasources"
_STRUCT, _CONF = "org.apache.spark.sql.types.StructType", "org.apache.spark.sql.internal.SQLConf"
_OBJECT = "Ljava/lang/Object;"
_SIZES = 1 << 20
"""Cache limit for the descriptions of columns whose sizes are kept."""
_ROW_BYTES = 8
"""Bytes that Spark adds per row to the sizes of the columns."""

READ_OPTIONS: Mapping[str, str] = {
    # Days and moments in our files are of the calendar that Spark uses, whatever the session says of files in general.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
}
"""Options of Spark's Parquet reader for our files."""


def read_options(*, verify: bool) -> Mapping[str, str]:
    """Return `READ_OPTIONS` plus page checksum verification; Spark passes options on as Hadoop settings."""
    return {**READ_OPTIONS, "parquet.page.verify-checksum.enabled": str(verify).lower()}


def relation_frame(
    jvm: Jvm, index: Any, columns: StructType, partition_columns: StructType, files: int, *, verify: bool
) -> DataFrame:
    """Return a DataFrame of a ``FileIndex``'s files, by Spark's Parquet reader; partition columns come last.

    Args:
        files: about how many there are.
    """
    from pyspark.sql import DataFrame

    ours = files_class(jvm, "PlannedParquet") if are_many(files) else None

    relation = jvm.of(f"{_DATASOURCES}.HadoopFsRelation")(
        index,
        jvm.struct(partition_columns),
        jvm.struct(columns),
        jvm.none(),
        jvm.of(f"{_DATASOURCES}.parquet.ParquetFileFormat")() if ours is None else made_by(jvm, ours),
        jvm.scala_map(read_options(verify=verify)),
        jvm.session,
    )
    return DataFrame(jvm.session.baseRelationToDataFrame(relation), jvm.spark)


def parquet_scan(
    jvm: Jvm, index: Any, whole: str, columns: str, *, verify: bool, filters: Any = None, read: Any = None
) -> Any:
    """Return the ``Scan`` of Spark's own Parquet source over an ``InMemoryFileIndex``.

    Args:
        whole: all columns as Spark's JSON, partition columns last.
        columns: those in the files.
        verify: whether to check the checksums of pages.
        filters: a Scala ``Seq`` of expressions by which row groups may be skipped; None for none.
        read: the ``StructType`` to read; all columns if None.
    """
    every = jvm.struct(whole)
    name = "checked parquet scan" if verify else "parquet scan"
    return jvm.once(name, lambda: _parquet_scan(jvm, verify=verify)).apply(
        index,
        every,
        jvm.struct(columns),
        jvm.once("no filters", lambda: jvm.seq([])) if filters is None else filters,
        every if read is None else read,
    )


def _parquet_scan(jvm: Jvm, *, verify: bool) -> Any:
    """Return a function ``(index, whole, columns, filters, read) -> scan``, which uses Spark's scan builder."""
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
    made = jvm.of("org.apache.spark.sql.util.CaseInsensitiveStringMap")(jvm.map(read_options(verify=verify)))
    new = handles.given(handles.given(handles.first_constructor(builder), 4, made), 0, jvm.session)
    return handles.function(handles.through(scan, 0, new))


def estimated_bytes(jvm: Jvm, size: int, read: str, whole: str) -> int:
    """Estimate the memory for some columns of files as Spark does for its own tables.

    Args:
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
    """Return a function ``(conf, columns)``: whether Spark reads batches of them, by type, setting and number."""
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
    """Return a live view of the session's settings."""
    return jvm.once("conf", lambda: jvm.session.sessionState().conf())

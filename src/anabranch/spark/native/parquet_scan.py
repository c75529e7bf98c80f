"""Spark's own DataSource V2 Parquet scan over our files, for the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.scan.scan import Scan
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.native import internals
from anabranch.spark.native.planned_files import Folder, apart, spark_index
from anabranch.spark.types.columns import spark_schema_json

_READ = "org.apache.spark.sql.connector.read"


class FileScan(Protocol):
    """Methods that we use of a JVM ``Scan``, under their Java names."""

    def readSchema(self) -> Any: ...  # noqa: N802

    def toBatch(self) -> Any: ...  # noqa: N802


def parquet_scan(
    jvm: Jvm,
    scan: Scan,
    folders: Sequence[Folder],
    fields: Sequence[Field],
    *,
    filters: Any = None,
    columns: Any = None,
) -> FileScan:
    """Return Spark's ``ParquetScan`` over files that are read by name, or several combined into one.

    Args:
        fields: the columns that the files give, with partition columns or without.
        filters: a Scala ``Seq`` of expressions by which row groups may be skipped; None for none.
        columns: the ``StructType`` to read, of `fields` and partition columns; all of them if None.
    """
    data = [f for f in fields if f.name not in scan.schema.partition_keys]
    whole = spark_schema_json([*data, *scan.schema.partition_fields])
    made = []
    for group in apart(folders):
        index = spark_index(jvm, scan, group, fields)
        made.append(
            internals.parquet_scan(
                jvm,
                index,
                whole,
                spark_schema_json(data),
                verify=scan.verify,
                filters=filters,
                read=columns,
            )
        )
    return made[0] if len(made) == 1 else _ScansAsOne(jvm, made)


class _ScansAsOne:
    """Several scans of the same columns over different files, combined into one."""

    def __init__(self, jvm: Jvm, scans: Sequence[Any]) -> None:
        self._scans = scans
        self._batch = _BatchesAsOne(jvm, [scan.toBatch() for scan in scans])

    def readSchema(self) -> Any:  # noqa: N802
        return self._scans[0].readSchema()

    def toBatch(self) -> Any:  # noqa: N802
        return self._batch


class _BatchesAsOne(JavaProxy):
    """Several batches that are read alike, combined into one."""

    class Java:
        implements: ClassVar = [f"{_READ}.Batch"]

    def __init__(self, jvm: Jvm, batches: Sequence[Any]) -> None:
        self.jvm = jvm
        self._batches = batches

    def planInputPartitions(self) -> Any:  # noqa: N802
        found = [part for batch in self._batches for part in batch.planInputPartitions()]
        return self.jvm.array(f"{_READ}.InputPartition", found)

    def createReaderFactory(self) -> Any:  # noqa: N802
        return self._batches[0].createReaderFactory()


def read_fields(schema: TableSchema, names: Sequence[str]) -> list[Field]:
    """Return the columns of those names and all partition columns, in the order of the table."""
    wanted = {*names, *schema.partition_keys}
    return [f for f in schema.fields if f.name in wanted]

"""Files as a ``Scan`` of Spark's own Parquet source for DataSource V2, as the catalog needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.scan import Scan
from anabranch.spark.native.internals import parquet_scan_builder
from anabranch.spark.native.planned_files import Folder, spark_index
from anabranch.spark.native.proxy import Jvm
from anabranch.spark.types import spark_schema_json
from anabranch.spec.schema import TableSchema
from anabranch.spec.types import Field


def parquet_scan(
    jvm: Jvm,
    scan: Scan,
    folders: Sequence[Folder],
    fields: Sequence[Field],
    *,
    filters: Any = None,
    columns: Any = None,
) -> Any:
    """A ``ParquetScan`` of the JVM, which is its own ``Batch``, over files that are read by name.

    Args:
        jvm: of the session.
        scan: whose files they are.
        folders: the files.
        fields: the columns that the files give, with partition columns or without.
        filters: a Scala ``Seq`` of expressions by which row groups may be skipped; None for none.
        columns: the ``StructType`` to read, of `fields` and partition columns; all of them if None.
    """
    index = spark_index(jvm, scan, folders, fields)
    data = [f for f in fields if f.name not in scan.schema.partition_keys]
    whole = spark_schema_json([*data, *scan.schema.partition_fields])
    builder = parquet_scan_builder(jvm, index, whole, spark_schema_json(data))
    if filters is not None:
        builder.pushFilters(filters)
    if columns is not None:
        builder.pruneColumns(columns)
    return builder.build()


def read_fields(schema: TableSchema, names: Sequence[str]) -> list[Field]:
    """The columns of those names and all partition columns, in the order of the table."""
    wanted = {*names, *schema.partition_keys}
    return [f for f in schema.fields if f.name in wanted]

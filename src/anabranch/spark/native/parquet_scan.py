"""Files as a ``Scan`` of Spark's own Parquet source for DataSource V2, as the catalog needs it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from anabranch.scan import Scan
from anabranch.spark.native.expressions import columns_in
from anabranch.spark.native.generations import Obstacle
from anabranch.spark.native.internals import file_statuses, filled_index, parquet_scan_builder
from anabranch.spark.native.planned_files import Folder, PartitionRows, hadoop_root
from anabranch.spark.native.proxy import Jvm
from anabranch.spark.types import spark_schema
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
) -> Any | Obstacle:
    """A ``ParquetScan`` of the JVM, which is its own ``Batch``, over files that are read by name.

    Args:
        jvm: of the session.
        scan: whose files they are.
        folders: the files.
        fields: the columns that the files give, partition columns not among them.
        filters: a Scala ``Seq`` of expressions by which row groups may be skipped; None for none.
        columns: the ``StructType`` to read, of `fields` and partition columns; all of them if None.
    """
    partition_columns = spark_schema(scan.schema.partition_fields)
    data_columns = spark_schema(fields)
    statuses = file_statuses(jvm, [f.files for f in folders])
    values = PartitionRows(jvm, scan.schema).of([f.partition for f in folders])
    index = filled_index(
        jvm,
        [(f.path, value, statuses[i]) for i, (f, value) in enumerate(zip(folders, values, strict=True))],
        data_columns,
        partition_columns,
        identity=f"{hadoop_root(scan.context.storage.url)}/.planned/{_digest(folders)}",
    )
    count = sum(len(f.files) for f in folders)
    if index.allFiles().length() != count:
        return Obstacle(f"Spark's index of files took {index.allFiles().length()} of {count}")
    builder = parquet_scan_builder(jvm, index, data_columns, partition_columns)
    if filters is not None:
        builder.pushFilters(filters)
    if columns is not None:
        builder.pruneColumns(columns)
    return builder.build()


def unshielded(jvm: Jvm, filters: Any, shields: frozenset[str]) -> Any:
    """Of expressions in a Scala ``Seq`` those for which footers may be asked."""
    if not shields:
        return filters
    parts = [filters.apply(i) for i in range(filters.length())]
    return jvm.seq([part for part in parts if not columns_in(part) & shields])


def read_fields(schema: TableSchema, names: Sequence[str]) -> list[Field]:
    """The columns of those names and all partition columns, in the order of the table."""
    wanted = {*names, *schema.partition_keys}
    return [f for f in schema.fields if f.name in wanted]


def _digest(folders: Sequence[Folder]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path, _, _ in folder.files:
            digest.update(path.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()

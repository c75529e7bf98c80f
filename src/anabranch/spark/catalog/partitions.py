"""Partitioned tables: SHOW PARTITIONS, and dropping or truncating one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from anabranch.errors import UnsupportedFeatureError
from anabranch.expr.nodes import Column, ColumnExpression, Predicate, all_of, any_of
from anabranch.kernel.scan.partitions import in_order_of_values
from anabranch.kernel.scan.pruning import partition_values
from anabranch.spark.catalog import java
from anabranch.spark.catalog.tables import LakeTable
from anabranch.spark.native.planned_files import partition_rows
from anabranch.spark.types.columns import spark_schema

_CATALOG = f"{java.CONNECTOR}.catalog"


class PartitionedTable(LakeTable):
    """A table with partition columns. A partition exists while it has rows; several can be dropped in one commit."""

    class Java:
        implements = [*LakeTable.Java.implements, f"{_CATALOG}.SupportsAtomicPartitionManagement"]  # noqa: RUF012

    def partitionSchema(self) -> Any:  # noqa: N802
        return self.jvm.struct(spark_schema(self._schema.partition_fields))

    def listPartitionIdentifiers(self, names: Any, values: Any) -> Any:  # noqa: N802
        found = [row for _, row in self._partitions() if self._matcher(list(names), values)(row)]
        return self.jvm.array("org.apache.spark.sql.catalyst.InternalRow", found)

    def partitionExists(self, values: Any) -> bool:  # noqa: N802
        return self._partition(values) is not None

    def createPartition(self, *_arguments: Any) -> None:  # noqa: N802
        raise self._refused("added: it comes with its first rows", "INSERT rows of that partition.")

    def createPartitions(self, *_arguments: Any) -> None:  # noqa: N802
        self.createPartition()

    def dropPartition(self, values: Any) -> bool:  # noqa: N802
        return self.dropPartitions([values])

    def dropPartitions(self, several: Any) -> bool:  # noqa: N802
        found = [self._partition(values) for values in several]
        there = [self._is(partition) for partition in found if partition is not None]
        if there:
            self.table.replace([], any_of(there))
        return bool(there)

    def purgePartitions(self, several: Any) -> bool:  # noqa: N802
        return self.dropPartitions(several)

    def truncatePartitions(self, several: Any) -> bool:  # noqa: N802
        return self.dropPartitions(several)

    def purgePartition(self, values: Any) -> bool:  # noqa: N802
        return self.dropPartition(values)

    def truncatePartition(self, values: Any) -> bool:  # noqa: N802
        return self.dropPartition(values)

    def replacePartitionMetadata(self, *_arguments: Any) -> None:  # noqa: N802
        raise self._refused("given properties", "set them on the table.")

    def loadPartitionMetadata(self, _values: Any) -> Any:  # noqa: N802
        return self.jvm.map({})

    def renamePartition(self, *_arguments: Any) -> bool:  # noqa: N802
        raise self._refused("renamed", "INSERT its rows under the other value, and drop it.")

    def _partitions(self) -> list[tuple[bytes, Any]]:
        """Partitions with rows in the order of their values, as metadata bytes and as Spark rows."""
        partitions = in_order_of_values(
            self.seen.scan.plan().files["partition"].unique(), self._schema
        ).to_list()
        rows = partition_rows(self.jvm, self._schema, partitions)
        return [(partition, rows.apply(place)) for place, partition in enumerate(partitions)]

    def _partition(self, values: Any) -> bytes | None:
        is_it = self._matcher(self._schema.partition_keys, values)
        return next((partition for partition, row in self._partitions() if is_it(row)), None)

    def _matcher(self, names: Sequence[str], values: Any) -> Callable[[Any], bool]:
        """Return a function that tells whether a Spark row has these values in the named columns."""
        types = [field.dataType() for field in self.partitionSchema().fields()]
        places = [self._schema.partition_keys.index(name) for name in names]
        wanted = [values.get(i, types[place]) for i, place in enumerate(places)]

        def matches(row: Any) -> bool:
            return all(row.get(p, types[p]) == value for p, value in zip(places, wanted, strict=True))

        return matches

    def _is(self, partition: bytes) -> Predicate:
        columns = partition_values(pl.Series([partition], dtype=pl.Binary), self._schema)
        values = zip(self._schema.partition_keys, (column[0].as_py() for column in columns), strict=True)
        return all_of(ColumnExpression(Column((name,))).same_as(value) for name, value in values)

    def _refused(self, what: str, hint: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"a partition of '{self.place.name}' cannot be {what}", feature="partition-management", hint=hint
        )

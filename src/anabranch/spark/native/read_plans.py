"""Read paths of a query: files read by Spark's own Parquet reader, or through the portable door.

A scan by DataSource V2 has one set of names for all its files. Where they would need several, as after a column was
renamed, the portable door reads them until compaction has rewritten them; `native_frame` can join several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from py4j.protocol import Py4JError

from anabranch.errors import UnsupportedFeatureError
from anabranch.expr.bound import ALWAYS, BoundPredicate, conjunction
from anabranch.lazy import lazy
from anabranch.scan.metadata import columns_named, metadata_columns
from anabranch.scan.scan import Scan
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.catalyst import Filters
from anabranch.spark.native.door import native_generations, not_as_expected, tell
from anabranch.spark.native.expressions import predicate_of
from anabranch.spark.native.generations import Generation, Obstacle, shielded
from anabranch.spark.native.internals import estimated_bytes, is_columnar
from anabranch.spark.native.parquet_scan import parquet_scan, read_fields
from anabranch.spark.native.planned_files import Folder, PlannedFiles, folders_matching
from anabranch.spark.types.columns import spark_schema_json

Portable = Callable[[Scan, Any], Any]
"""Function that returns a JVM ``Scan`` for the portable door; its arguments are the Anabranch scan, with columns
and filter, and its columns as a ``StructType`` of the JVM."""


@dataclass(frozen=True)
class Query:
    """Part of a table that one query reads."""

    find: Callable[[], Scan]
    filters: Filters | None
    """Filters on the rows; None for all rows."""
    columns: Any
    """A ``StructType`` of the JVM; None for all columns."""
    keeps_order: bool = False
    """Whether the rows of a bucket of a queue table come in the order they were written in."""

    @lazy
    def scan(self) -> Scan:
        """Scan of the table as it was when the query named it."""
        return self.find()

    @lazy
    def predicate(self) -> BoundPredicate | None:
        """The filters, as far as the planner understands them."""
        return None if self.filters is None else predicate_of(self.filters, self.scan.schema.fields)

    @property
    def filtered(self) -> Scan:
        """The scan with these filters as its own."""
        both = conjunction(p for p in (self.scan.predicate, self.predicate) if p is not None)
        return replace(self.scan, predicate=None if both == ALWAYS else both)

    @lazy
    def names(self) -> list[str]:
        """Columns that the query needs, in Spark's order."""
        if self.columns is None:
            return [f.name for f in self.scan.schema.fields]
        return list(self.metadata)

    @lazy
    def metadata(self) -> dict[str, dict[str, Any]]:
        """Metadata that Spark attaches to each requested column."""
        asked = [] if self.columns is None else json.loads(self.columns_json)["fields"]
        return {str(field["name"]): dict(field["metadata"]) for field in asked}

    @lazy
    def columns_json(self) -> str:
        """The requested columns as Spark's JSON."""
        if self.columns is None:
            return spark_schema_json(self.scan.schema.fields)
        return str(self.columns.json())


class ReadPlan(Protocol):
    """Read path of a scan."""

    @property
    def inner(self) -> Any:
        """Return the ``Scan`` of the JVM."""
        ...

    @property
    def files(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...


@dataclass(frozen=True)
class NativePlan:
    """Native read path: files read by Spark's own reader."""

    jvm: Jvm
    scan: Scan
    columns: str
    """Columns that are read, as Spark's JSON."""
    read: Callable[[Sequence[Folder]], Any]
    """Function that returns a JVM ``Scan`` of some folders as the query asks."""
    planned: Sequence[Folder]
    """Folders before runtime filters."""
    folders: Sequence[Folder]
    inner: Any

    @classmethod
    def of(cls, jvm: Jvm, query: Query, generation: Generation) -> NativePlan:
        """Plan the files of a query. Raises ``Py4JError`` and `UnsupportedFeatureError` if Spark rejects them."""
        filters = None
        if query.filters is not None:
            asked = {name for part in query.filters.parts for name in part.columns}
            filters = query.filters.without(shielded(query.scan, generation, asked))
        files = PlannedFiles(query.scan, generation.schema, generation.schema_ids)
        folders = files.matching(query.predicate)
        read = partial(
            parquet_scan, jvm, query.scan, fields=generation.fields, filters=filters, columns=query.columns
        )
        return cls(jvm, query.scan, query.columns_json, read, folders, folders, read(folders))

    def only(self, runtime: BoundPredicate) -> NativePlan:
        """Return this without the partitions that runtime filters exclude; can be applied repeatedly."""
        folders = folders_matching(self.planned, runtime, self.scan.schema)
        return replace(self, folders=folders, inner=self.read(folders))

    @property
    def files(self) -> int:
        return sum(len(folder.names) for folder in self.folders)

    @property
    def rows(self) -> int:
        return sum(folder.rows for folder in self.folders)

    @lazy
    def bytes(self) -> int:
        """Estimated size of the columns that are read, in bytes."""
        size = sum(sum(folder.sizes) for folder in self.folders)
        return estimated_bytes(self.jvm, size, self.columns, spark_schema_json(self.scan.schema.fields))

    @lazy
    def is_columnar(self) -> bool:
        """Whether the rows come in batches."""
        return is_columnar(self.jvm, self.schema)

    @lazy
    def schema(self) -> Any:
        """Columns that are read, as a ``StructType`` of the JVM."""
        return self.inner.readSchema()


@dataclass(frozen=True)
class PortablePlan:
    """Portable read path: files read by Python."""

    jvm: Jvm
    asked: Scan
    inner: Any
    reason: str
    """Why the files are not read natively."""

    @property
    def files(self) -> int:
        return self.asked.plan().files.height

    @property
    def rows(self) -> int:
        return self.asked.plan().report.rows

    @lazy
    def bytes(self) -> int:
        """Estimated size of the columns that are read, in bytes."""
        size, whole = self.asked.plan().report.bytes, spark_schema_json(self.asked.schema.fields)
        read = spark_schema_json(columns_named(self.asked.columns or (), self.asked.schema))
        return estimated_bytes(self.jvm, size, read, whole)


def way_of(jvm: Jvm, query: Query, portable: Portable) -> ReadPlan:
    """Choose the read path of a query: native where possible, else portable, with a warning."""
    found = _natively(jvm, query)
    if not isinstance(found, Obstacle):
        return found
    tell(query.scan.context, found)
    scan = query.scan
    # Rows without any column cannot travel from a Python process.
    chosen = tuple(query.names or [scan.schema.fields[0].name])
    asked = replace(query.filtered, columns=chosen)
    columns = jvm.struct(spark_schema_json(columns_named(chosen, scan.schema)))
    return PortablePlan(jvm, asked, portable(asked, columns), found.reason)


def _natively(jvm: Jvm, query: Query) -> NativePlan | Obstacle:
    scan = query.scan
    if scan.predicate is not None or scan.limit is not None:
        return Obstacle("the scan filters or limits rows itself")
    if metadata_columns(query.names, scan.schema):
        return Obstacle("metadata columns are asked for")
    if query.keeps_order and scan.schema.bucket > 0:
        return Obstacle("rows of a bucket keep their order")
    made = native_generations(jvm.spark, scan, read_fields(scan.schema, query.names))
    if isinstance(made, Obstacle):
        return made
    if len(made) > 1 or not made[0].is_plain:
        return Obstacle("there are files from before columns were renamed or given other types")
    try:
        return NativePlan.of(jvm, query, made[0])
    except (Py4JError, UnsupportedFeatureError) as error:
        return Obstacle(not_as_expected(error))

"""Our plans as Spark takes them: folders of files with the values of their partition."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import polars as pl
import pyarrow as pa

from anabranch.errors import UnsupportedFeatureError
from anabranch.expr.bind import BoundPredicate
from anabranch.kernel.scan.pruning import partition_values
from anabranch.kernel.scan.request import ScanRequest
from anabranch.lazy import lazy
from anabranch.scan import Scan
from anabranch.spark.arrow_values import to_schema
from anabranch.spark.native.internals import (
    FileRow,
    empty_row,
    file_statuses,
    filled_index,
    internal_rows,
    partition_directory,
)
from anabranch.spark.native.proxy import Jvm
from anabranch.spark.types import arrow_schema, spark_schema
from anabranch.spec.layout import Layout
from anabranch.spec.schema import TableSchema
from anabranch.spec.types import Field

_HADOOP_SCHEMES = {"file": "file", "s3": "s3a", "s3a": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}


def hadoop_root(url: str) -> str | None:
    """The place of a store as Hadoop spells it, without escapes; None if it has no such spelling."""
    parts = urlsplit(url)
    scheme = _HADOOP_SCHEMES.get(parts.scheme)
    if scheme is None:
        return None
    if scheme == "file":
        return "file:" + unquote(parts.path, errors="surrogateescape").rstrip("/")
    return f"{scheme}://{parts.netloc}{parts.path}".rstrip("/")


@dataclass(frozen=True)
class Folder:
    """Files that lie side by side, in one bucket of one partition."""

    path: str
    """As Hadoop spells it."""
    partition: bytes
    rows: int
    files: tuple[FileRow, ...]


@dataclass(frozen=True)
class PlannedFiles:
    """The files of a scan that were written with certain schemas, planned under the names of one of them."""

    scan: Scan
    schema: TableSchema
    schema_ids: frozenset[int]

    @lazy
    def whole(self) -> pl.DataFrame:
        """All files there are, with the columns of a plan; no filter of Spark's has left out any."""
        return self._of_ours(self.scan.plan().files)

    @property
    def bytes(self) -> int:
        """Size of all of them."""
        return int(self.whole["file_size"].sum())

    def matching(self, predicate: BoundPredicate | None) -> list[Folder]:
        """The files that may hold rows for which a predicate on `schema` is TRUE."""
        scan = self.scan
        if predicate is None:
            plan, frame = scan.plan(), self.whole
        else:
            plan = ScanRequest(scan.context, scan.snapshot, self.schema, predicate, None, scan.options).plan()
            frame = self._of_ours(plan.files)
            if scan.predicate is not None or scan.limit is not None:
                frame = frame.join(self.whole, on=_KEY, how="semi", maintain_order="left")
        return [*self._folders(frame, plan.folders)]

    def _of_ours(self, files: pl.DataFrame) -> pl.DataFrame:
        return files.filter(pl.col("schema_id").is_in(sorted(self.schema_ids)))

    def _folders(self, frame: pl.DataFrame, folders: Sequence[str]) -> Iterator[Folder]:
        root = hadoop_root(self.scan.context.storage.url)
        millis = 0 if self.scan.snapshot is None else self.scan.snapshot.time_millis
        for part in frame.partition_by("folder", "bucket", maintain_order=True):
            partition, folder, bucket = part.select("partition", "folder", "bucket").row(0)
            path = f"{root}/{Layout().bucket_path(folders[folder], bucket)}"
            files = part.select("file_name", "file_size").iter_rows()
            yield Folder(
                path,
                partition,
                int(part["row_count"].sum()),
                tuple((f"{path}/{name}", size, millis) for name, size in files),
            )


_KEY = ["partition", "bucket", "file_name"]
"""What makes a file one, in every plan of a snapshot."""


class PartitionRows:
    """Values of partition columns as rows of the JVM, each made once."""

    def __init__(self, jvm: Jvm, schema: TableSchema) -> None:
        self._jvm = jvm
        self._schema = schema
        self._rows: dict[bytes, Any] = {}

    def of(self, partitions: Sequence[bytes]) -> list[Any]:
        """An ``InternalRow`` for each partition."""
        fields = self._schema.partition_fields
        if not fields:
            return [empty_row(self._jvm)] * len(partitions)
        unknown = [p for p in dict.fromkeys(partitions) if p not in self._rows]
        if unknown:
            values = partition_values(pl.Series(unknown, dtype=pl.Binary), self._schema)
            batch = to_schema(_one_batch(values), arrow_schema(fields))
            rows = internal_rows(self._jvm, batch, spark_schema(fields))
            self._rows.update((p, rows.apply(i)) for i, p in enumerate(unknown))
        return [self._rows[p] for p in partitions]


def directories(jvm: Jvm, folders: Sequence[Folder], rows: PartitionRows) -> Any:
    """Folders as a Scala ``Seq[PartitionDirectory]``."""
    statuses = file_statuses(jvm, [f.files for f in folders])
    values = rows.of([f.partition for f in folders])
    return jvm.seq(partition_directory(jvm, value, statuses[i]) for i, value in enumerate(values))


def spark_index(
    jvm: Jvm, scan: Scan, folders: Sequence[Folder], rows: PartitionRows, fields: Sequence[Field]
) -> Any:
    """An ``InMemoryFileIndex`` of exactly these folders.

    Raises `UnsupportedFeatureError` if Spark's index does not take all files, as it passes over some names.
    """
    keys = scan.schema.partition_keys
    statuses = file_statuses(jvm, [f.files for f in folders])
    values = rows.of([f.partition for f in folders])
    index = filled_index(
        jvm,
        [(f.path, value, statuses[i]) for i, (f, value) in enumerate(zip(folders, values, strict=True))],
        spark_schema([f for f in fields if f.name not in keys]),
        spark_schema(scan.schema.partition_fields),
        identity=f"{hadoop_root(scan.context.storage.url)}/planned-{_digest(folders)}",
    )
    found, wanted = index.allFiles().length(), sum(len(f.files) for f in folders)
    if found != wanted:
        raise UnsupportedFeatureError(
            f"table '{scan.context.title}': Spark's index of files holds {found} of the {wanted} files of a plan",
            feature="native-scan",
            hint="read the table with spark.read.format('anabranch').",
        )
    return index


def _digest(folders: Sequence[Folder]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path, _, _ in folder.files:
            digest.update(path.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch

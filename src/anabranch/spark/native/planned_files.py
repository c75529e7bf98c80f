"""Our plans in Spark's form: folders of files with the values of their partition."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

import polars as pl
import pyarrow as pa

from anabranch.errors import UnsupportedFeatureError
from anabranch.expr.bound import BoundPredicate
from anabranch.format.records.layout import Layout
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.scan.pruning import partition_values, partitions_match
from anabranch.kernel.scan.request import ScanRequest
from anabranch.lazy import lazy
from anabranch.scan.scan import Scan
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.internals import (
    FilesOf,
    Partitions,
    empty_rows,
    filled_index,
    internal_rows,
    partition_directories,
)
from anabranch.spark.types.arrow_values import to_schema
from anabranch.spark.types.columns import arrow_schema, spark_schema, spark_schema_json
from anabranch.streaming.offsets import FeedFile, FeedSplit

_HADOOP_SCHEMES = {"file": "file", "s3": "s3a", "s3a": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
_INDEX_BYTES = 64 << 20
"""Approximate limit of the JVM memory for Spark's file indexes that are kept for later queries."""
_FILE_BYTES = 512
"""Approximate bytes per file in an index, and in a plan here."""
_MATCHING = MetadataCache(64 << 20)
"""Files by plan and predicate: a table that nobody writes to is planned once per predicate."""


def hadoop_root(url: str) -> str | None:
    """Return the location of a store in Hadoop's form, without escapes; None if there is no such form."""
    parts = urlsplit(url)
    scheme = _HADOOP_SCHEMES.get(parts.scheme)
    if scheme is None:
        return None
    if scheme == "file":
        return "file:" + unquote(parts.path, errors="surrogateescape").rstrip("/")
    return f"{scheme}://{parts.netloc}{parts.path}".rstrip("/")


@dataclass(frozen=True)
class Folder(FilesOf):
    """Files in one folder: of one bucket of one partition."""

    partition: bytes
    rows: int


@dataclass(frozen=True)
class PlannedFiles:
    """The files of a scan that were written with certain schemas, planned under the names of one of them."""

    scan: Scan
    schema: TableSchema
    schema_ids: frozenset[int]

    @lazy
    def whole(self) -> pl.DataFrame:
        """All files, with the columns of a plan, before any filter of Spark's."""
        return self._of_ours(self.scan.plan().files)

    @property
    def bytes(self) -> int:
        """Total size in bytes."""
        return int(self.whole["file_size"].sum())

    def matching(self, predicate: BoundPredicate | None) -> Sequence[Folder]:
        """Return the files that may hold rows for which the predicate is TRUE; cached for later queries."""
        whole = self.scan.plan()
        key = (str(id(whole)), str(self.schema.id), str(sorted(self.schema_ids)), repr(predicate))
        kept = _MATCHING.get(key)
        if kept is not None and kept[0] is whole:
            known: Sequence[Folder] = kept[1]
            return known
        found = self._matching(predicate)
        _MATCHING.put(key, (whole, found), len(key[-1]) + _FILE_BYTES * (1 + whole.files.height))
        return found

    def _matching(self, predicate: BoundPredicate | None) -> Sequence[Folder]:
        scan = self.scan
        if predicate is None:
            plan, frame = scan.plan(), self.whole
        elif scan.between is not None:
            plan = replace(scan, schema=self.schema, predicate=predicate).plan()
            frame = self._of_ours(plan.files)
            if scan.predicate is not None:
                frame = frame.join(self.whole, on=_KEY, how="semi", maintain_order="left")
        else:
            plan = ScanRequest(scan.context, scan.snapshot, self.schema, predicate, None, scan.options).plan()
            frame = self._of_ours(plan.files)
            if scan.predicate is not None or scan.limit is not None or scan.only is not None:
                frame = frame.join(self.whole, on=_KEY, how="semi", maintain_order="left")
        return tuple(self._folders(frame, plan.folders))

    def _of_ours(self, files: pl.DataFrame) -> pl.DataFrame:
        return files.filter(pl.col("schema_id").is_in(sorted(self.schema_ids)))

    def _folders(self, frame: pl.DataFrame, folders: Sequence[str]) -> Iterator[Folder]:
        root = hadoop_root(self.scan.context.storage.url)
        millis = 0 if self.scan.snapshot is None else self.scan.snapshot.time_millis
        grouped = frame.group_by("partition", "folder", "bucket", maintain_order=True).agg(
            "file_name", "file_size", pl.col("row_count").sum()
        )
        for partition, folder, bucket, names, sizes, rows in grouped.iter_rows():
            path = f"{root}/{Layout().bucket_path(folders[folder], bucket)}"
            yield Folder(path, names, sizes, millis, partition, rows)


def folders_matching(
    folders: Sequence[Folder], predicate: BoundPredicate, schema: TableSchema
) -> list[Folder]:
    """Return the folders whose partition may satisfy a predicate on partition columns."""
    numbered = pl.DataFrame(
        {"number": range(len(folders)), "partition": [folder.partition for folder in folders]},
        schema={"number": pl.Int64, "partition": pl.Binary},
    )
    return [folders[number] for number in partitions_match(numbered, predicate, schema)["number"]]


def apart(folders: Sequence[Folder]) -> list[list[Folder]]:
    """Divide folders into as few groups as possible so that no group has a path twice.

    Null, an empty text and blanks are partitions of their own that lie in one folder, that of the default name.
    """
    groups: list[list[Folder]] = []
    met: dict[str, int] = {}
    for folder in folders:
        number = met[folder.path] = met.get(folder.path, -1) + 1
        if number == len(groups):
            groups.append([])
        groups[number].append(folder)
    return groups or [[]]


def folders_of(context: TableContext, splits: Iterable[FeedSplit]) -> list[Folder]:
    """Return the files of a stream's step, grouped by folder."""
    root = hadoop_root(context.storage.url)
    found: dict[str, list[FeedFile]] = {}
    partitions: dict[str, bytes] = {}
    for split in splits:
        for file in split.files:
            folder = f"{root}/{file.file.path.rpartition('/')[0]}"
            found.setdefault(folder, []).append(file)
            partitions[folder] = split.partition
    return [
        Folder(
            folder,
            [f.file.path.rpartition("/")[2] for f in files],
            [f.file.size for f in files],
            0,
            partitions[folder],
            sum(f.file.row_count for f in files),
        )
        for folder, files in found.items()
    ]


_KEY = ["partition", "bucket", "file_name"]
"""Columns that identify a file in every plan of a snapshot."""


def partition_rows(jvm: Jvm, schema: TableSchema, partitions: Sequence[bytes]) -> Any:
    """Return partition values as a Scala ``Seq[InternalRow]``, one row per partition."""
    fields = schema.partition_fields
    if not fields or not partitions:
        return empty_rows(jvm, len(partitions))
    values = partition_values(pl.Series(partitions, dtype=pl.Binary), schema)
    return internal_rows(jvm, to_schema(_one_batch(values), arrow_schema(fields)), spark_schema(fields))


def directories(jvm: Jvm, schema: TableSchema, folders: Sequence[Folder]) -> Any:
    """Return folders as a Scala ``Seq[PartitionDirectory]``."""
    rows = partition_rows(jvm, schema, [f.partition for f in folders])
    return partition_directories(jvm, rows, folders)


def spark_index(jvm: Jvm, scan: Scan, folders: Sequence[Folder], fields: Sequence[Field]) -> Any:
    """Return an ``InMemoryFileIndex`` of exactly these folders, from the cache if the files are the same.

    By its path the index knows the partition of a file, so that no path may be there twice: see `apart`. Raises
    `UnsupportedFeatureError` if Spark's index does not take all files, as it passes over some names.
    """
    keys = scan.schema.partition_fields
    data = [f for f in fields if f.name not in scan.schema.partition_keys]
    identity = f"{hadoop_root(scan.context.storage.url)}/planned-{_digest(folders)}"
    count = sum(len(folder.names) for folder in folders)

    def made() -> Any:
        partitions = None
        if keys:
            rows = partition_rows(jvm, scan.schema, [f.partition for f in folders])
            partitions = Partitions(spark_schema(keys), [f.path for f in folders], rows)
        index = filled_index(jvm, folders, spark_schema(data), partitions, identity=identity)
        found = index.allFiles().length()
        if found != count:
            raise UnsupportedFeatureError(
                f"table '{scan.context.title}': Spark's index of files holds {found} of the {count} files of a plan",
                feature="native-scan",
                hint="read the table with spark.read.format('anabranch').",
            )
        return index

    # Making one takes many calls of the JVM, some milliseconds together.
    kept = jvm.once("indexes of files", lambda: MetadataCache(_INDEX_BYTES))
    key = (identity, spark_schema_json(data), spark_schema_json(keys))
    return kept.get_or(key, made, lambda _: _INDEX_BYTES // 256 + _FILE_BYTES * count)


def _digest(folders: Sequence[Folder]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        digest.update(folder.partition)  # a stream's are not those of its folders: it adds a column
        for text in (folder.path, "/".join(folder.names)):
            digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch

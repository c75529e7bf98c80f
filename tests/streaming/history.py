"""Histories of tables whose data files do not exist: enough to test what a stream would read."""

from dataclasses import dataclass, replace

from anabranch.catalog import FilesystemCatalog, Identifier
from anabranch.format.records.data_file import EMPTY_STATS, DataFileMeta, FileKind, FileSource, ManifestEntry
from anabranch.format.records.snapshot import CommitIdentity, CommitKind
from anabranch.format.rows.binary_row import encode_row, with_arity
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.types.data_types import VarCharType
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.commit.base import Change
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.commit.manifest_writer import ManifestWriter
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.log.context import TableContext
from anabranch.runtime import SYSTEM
from anabranch.storage.open import open_storage

ROW_BYTES = 10


@dataclass
class History:
    """A table `dt STRING, id BIGINT` partitioned by dt; files are named by tests."""

    context: TableContext

    @classmethod
    def new(cls, path, **options) -> "History":
        catalog = FilesystemCatalog(open_storage(str(path)))
        fields = parse_columns("dt STRING NOT NULL, id BIGINT")
        options = {key.replace("_", "-"): str(value) for key, value in options.items()}
        return cls(catalog.create_table(Identifier("db", "t"), fields, partition_by=["dt"], options=options))

    @property
    def schema(self):
        return self.context.schemas.latest()

    def message(self, *names, partition="a", bucket=0, rows=1, created=None):
        total = self.schema.bucket
        files = tuple(_file(name, rows, creation_time=created) for name in names)
        return CommitMessage(partition_row(partition), bucket, total, files)

    def append(self, *names, watermark=None, **where):
        return self.write(self.message(*names, **where), watermark=watermark)

    def write(self, *messages, watermark=None):
        """One commit of files in several partitions or buckets."""
        return self.commit(Append(list(messages)), watermark)

    def overwrite(self, *names, watermark=None, **where):
        return self.commit(Overwrite([self.message(*names, **where)], dynamic=True), watermark)

    def compact(self, *names, into, partition="a"):
        return self.commit(Delta(names, [self.compacted(into, names)], partition_row(partition)))

    def compacted(self, name, sources):
        """A file that holds the rows of others."""
        live = {f.file_name.removesuffix(".parquet"): f for f in self.live()}
        return _file(name, sum(live[s].row_count for s in sources), file_source=FileSource.COMPACT)

    def live(self):
        head = self.context.snapshots.head()
        manifests = self.context.manifests
        return [e.file for e in manifests.entries(manifests.of_snapshot(head)).live().to_entries()]

    def commit(self, action, watermark=None):
        request = CommitRequest(action, CommitIdentity.batch(SYSTEM), watermark=watermark)
        return commit(self.context, request).snapshot

    def foreign(self, snapshot, entries=None):
        """The snapshot as another engine would have made it: without our properties, and with these entries."""
        made = replace(snapshot, properties={})
        if entries is not None:
            writer = ManifestWriter(self.context, self.schema, {})
            delta, size = writer.manifest_list(writer.manifests(entries))
            self.context.storage.put_many(writer.objects)
            made = replace(made, delta_manifest_list=delta, delta_manifest_list_size=size)
        self.context.storage.put(self.context.layout.snapshot_path(snapshot.id), made.to_json())
        return made

    def remove(self, *snapshot_ids):
        """As an expiry does, or a rollback of another engine, which moves the hint first."""
        left = [number for number in self.context.snapshots.ids() if number not in snapshot_ids]
        if left:
            self.context.snapshots.take_back_hint(left[-1])
        for number in snapshot_ids:
            self.context.storage.delete(self.context.layout.snapshot_path(number))


@dataclass(frozen=True)
class Delta:
    """A commit of any kind that takes away files by their names and adds others to bucket 0 of a partition."""

    sources: tuple[str, ...]
    targets: list[DataFileMeta]
    partition: bytes
    kind: CommitKind = CommitKind.COMPACT
    depends_on_base = True

    def on(self, base):
        live = [
            e for e in base.live.to_entries() if e.file.file_name.removesuffix(".parquet") in self.sources
        ]
        removed = [
            ManifestEntry(FileKind.DELETE, e.partition, e.bucket, e.total_buckets, e.file) for e in live
        ]
        total = base.schema.bucket
        added = [ManifestEntry(FileKind.ADD, self.partition, 0, total, file) for file in self.targets]
        return Change(self.kind, [*removed, *added])


def _file(name, rows, **more):
    return DataFileMeta(f"{name}.parquet", rows * ROW_BYTES, rows, EMPTY_STATS, 0, rows - 1, 0, **more)


def partition_row(value):
    return with_arity(1, encode_row([VarCharType()], [value]))


def names(splits):
    """Names of the files, split by split."""
    return [
        [f.path.rpartition("/")[2].removesuffix(".parquet") for f in split.split.files] for split in splits
    ]

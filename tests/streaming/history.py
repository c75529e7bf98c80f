"""Histories of tables whose data files do not exist: enough to test what a stream would read."""

from dataclasses import dataclass

from anabranch.catalog import FilesystemCatalog, Identifier
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.commit.base import Change
from anabranch.kernel.commit.commit_message import CommitMessage
from anabranch.kernel.commit.identity import CommitIdentity
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.context import TableContext
from anabranch.runtime import SYSTEM
from anabranch.spec.binary_row import encode_row, with_arity
from anabranch.spec.data_file import EMPTY_STATS, DataFileMeta, FileKind, ManifestEntry
from anabranch.spec.ddl import parse_columns
from anabranch.spec.snapshot import CommitKind
from anabranch.spec.types import VarCharType
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

    def message(self, *names, partition="a", bucket=0, rows=1):
        total = self.schema.bucket
        files = tuple(_file(name, rows) for name in names)
        return CommitMessage(_partition(partition), bucket, total, files)

    def append(self, *names, **where):
        return self.commit(Append([self.message(*names, **where)]))

    def overwrite(self, *names, **where):
        return self.commit(Overwrite([self.message(*names, **where)], dynamic=True))

    def compact(self, *names, into, partition="a"):
        return self.commit(_Compact(tuple(names), into, _partition(partition)))

    def commit(self, action):
        return commit(self.context, CommitRequest(action, CommitIdentity.batch(SYSTEM))).snapshot

    def remove(self, *snapshot_ids):
        for number in snapshot_ids:
            self.context.storage.delete(self.context.layout.snapshot_path(number))


@dataclass(frozen=True)
class _Compact:
    sources: tuple[str, ...]
    target: str
    partition: bytes
    depends_on_base = True

    def on(self, base):
        live = [
            e for e in base.live.to_entries() if e.file.file_name.removesuffix(".parquet") in self.sources
        ]
        removed = [
            ManifestEntry(FileKind.DELETE, e.partition, e.bucket, e.total_buckets, e.file) for e in live
        ]
        total = sum(e.file.row_count for e in live)
        added = ManifestEntry(FileKind.ADD, self.partition, 0, -1, _file(self.target, total))
        return Change(CommitKind.COMPACT, [*removed, added])


def _file(name, rows):
    return DataFileMeta(f"{name}.parquet", rows * ROW_BYTES, rows, EMPTY_STATS, 0, rows - 1, 0)


def _partition(value):
    return with_arity(1, encode_row([VarCharType()], [value]))


def names(splits):
    """Names of the files, split by split."""
    return [[f.path.rpartition("/")[2].removesuffix(".parquet") for f in split.files] for split in splits]

"""Live files that exist in manifests only, each with the rows it would hold, and what rewriting makes of them."""

from dataclasses import dataclass, field

import polars as pl

from anabranch.format.records.data_file import EMPTY_STATS, DataFileMeta, FileKind, ManifestEntry
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.rows.binary_row import encode_row, with_arity
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import VarCharType
from anabranch.kernel.compaction.planning import PLAN_COLUMNS

ROW_BYTES = 10
TARGET = 1000


def partition_row(value):
    return with_arity(1, encode_row([VarCharType()], [value]))


def schema_of(ddl="dt STRING, id BIGINT", partition_by=("dt",), **options):
    options = {key.replace("_", "-"): str(value) for key, value in options.items()}
    return TableSchema.create(parse_columns(ddl), partition_keys=partition_by, options=options, time_millis=0)


@dataclass
class LiveFiles:
    """A table of files with ROW_BYTES a row; a file of the target size holds TARGET / ROW_BYTES rows."""

    total_buckets: int = -1
    target: int = TARGET
    entries: list = field(default_factory=list)
    rows: dict = field(default_factory=dict)  # file name -> ids of its rows, in order
    _files: int = 0
    _next_row: int = 0

    @property
    def frame(self):
        return EntryFrame(EntryFrame.from_entries(self.entries).df.select(PLAN_COLUMNS))

    @property
    def sizes(self):
        return [e.file.file_size for e in self.entries]

    def append(self, rows, *, partition="a", bucket=0, numbered=True):
        """A new file; not `numbered` as a writer does that gives every file the numbers 1 to 1."""
        row = partition if isinstance(partition, bytes) else partition_row(partition)
        ends = [e.file.max_sequence_number for e in self.entries if (e.partition, e.bucket) == (row, bucket)]
        first = max(ends, default=-1) + 1 if numbered else 1
        last = first + rows - 1 if numbered else 1
        ids = range(self._next_row, self._next_row + rows)
        self._next_row += rows
        return self._add(row, bucket, first, last, ids)

    def _add(self, partition, bucket, first, last, ids):
        name = f"data-{self._files}.parquet"
        self._files += 1
        file = DataFileMeta(
            name, len(ids) * ROW_BYTES, len(ids), EMPTY_STATS, first, last, 0, creation_time=self._files
        )
        self.entries.append(ManifestEntry(FileKind.ADD, partition, bucket, self.total_buckets, file))
        self.rows[name] = list(ids)
        return name

    def carry_out(self, task):
        """Rewrite the task's files as a writer does that closes a file at the target size."""
        names = [f.file_name for f in task.files]
        assert set(names) <= {e.file.file_name for e in self.entries}, "only live files"
        self.entries = [e for e in self.entries if e.file.file_name not in names]
        ids = [row for name in names for row in self.rows[name]]
        first, most = task.files[0].min_sequence_number, self.target // ROW_BYTES
        for start in range(0, len(ids), most):
            part = ids[start : start + most]
            begin = first + (start if self.total_buckets > 0 else 0)
            self._add(task.partition, task.bucket, begin, begin + len(part) - 1, part)

    def read(self, partition="a", bucket=0):
        """Ids of the rows of a bucket in the order they are read."""
        row = partition if isinstance(partition, bytes) else partition_row(partition)
        mine = [e for e in self.entries if (e.partition, e.bucket) == (row, bucket)]
        ordered = sorted(mine, key=lambda e: e.file.min_sequence_number)
        return [i for e in ordered for i in self.rows[e.file.file_name]]


def names_of(tasks):
    return [[f.file_name for f in task.files] for task in tasks]


def fenced(frame, fences):
    """The frame with a fence for each file by name."""
    values = [fences.get(name) for name in frame.df["file_name"]]
    return EntryFrame(frame.df.with_columns(fence=pl.Series(values, dtype=pl.Int64)))

"""A table of very many files that exist in its manifests only, for measuring plans."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import anabranch
from anabranch.format.records.data_file import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    ManifestFileMeta,
    SimpleStats,
)
from anabranch.format.records.layout import Layout, data_file_name, manifest_list_name, manifest_name
from anabranch.format.records.manifest import encode_manifest
from anabranch.format.records.manifest_list import encode_manifest_list
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.records.stats import partition_stats
from anabranch.format.rows.binary_row import encode_row, with_arity
from anabranch.format.schema.table_schema import TableSchema

FILES_PER_PARTITION = 200
ROWS_PER_FILE = 1_000
ENTRIES_PER_MANIFEST = 10_000
BATCH_COMMIT = 2**63 - 1
TIME_MILLIS = 1_700_000_000_000
COLUMNS = "id BIGINT, p INT, price DOUBLE, category STRING, ts TIMESTAMP(6), quantity INT"


def write_large_table(warehouse: Path, name: str, files: int) -> None:
    """Create `db.<name>`, partitioned by `p`, as one commit of that many files with full statistics.

    Ids ascend over the files, so one id lies in one file; manifests hold whole partitions.
    """
    table = anabranch.connect(str(warehouse)).create_table(f"db.{name}", COLUMNS, partition_by=["p"])
    root, layout, names = warehouse / "db.db" / name, Layout(), _Names(files)
    for folder in ("manifest", "snapshot"):
        (root / folder).mkdir(exist_ok=True)
    commit = names.uuid()
    metas = []
    for number, start in enumerate(range(0, files, ENTRIES_PER_MANIFEST)):
        numbers = range(start, min(start + ENTRIES_PER_MANIFEST, files))
        data = encode_manifest(_entries(table.schema, numbers, names))
        manifest = manifest_name(commit, number)
        (root / layout.manifest_path(manifest)).write_bytes(data)
        metas.append(_manifest_meta(table.schema, manifest, len(data), numbers))
    lists = [encode_manifest_list([]), encode_manifest_list(metas)]
    list_names = [manifest_list_name(commit, number) for number in range(2)]
    for list_name, data in zip(list_names, lists, strict=True):
        (root / layout.manifest_path(list_name)).write_bytes(data)
    snapshot = Snapshot(
        id=1,
        schema_id=0,
        base_manifest_list=list_names[0],
        base_manifest_list_size=len(lists[0]),
        delta_manifest_list=list_names[1],
        delta_manifest_list_size=len(lists[1]),
        commit_user=names.uuid(),
        commit_identifier=BATCH_COMMIT,
        commit_kind=CommitKind.APPEND,
        time_millis=TIME_MILLIS,
        total_record_count=files * ROWS_PER_FILE,
        delta_record_count=files * ROWS_PER_FILE,
    )
    (root / layout.snapshot_path(1)).write_bytes(snapshot.to_json())
    (root / layout.latest_hint_path).write_text("1")


class _Names:
    """Unique names, the same in every run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


def _entries(schema: TableSchema, numbers: range, names: _Names) -> Iterator[ManifestEntry]:
    types = [field.type for field in schema.fields]
    p_type = [schema.field("p").type]
    for number in numbers:
        p, first = number // FILES_PER_PARTITION, number * ROWS_PER_FILE
        bounds = [
            (first, p, 1.25, "category-00", _nanos(first), 1),
            (first + ROWS_PER_FILE - 1, p, 999.75, "category-39", _nanos(first + ROWS_PER_FILE - 1), 100),
        ]
        low, high = (with_arity(len(types), encode_row(types, row)) for row in bounds)
        file = DataFileMeta(
            file_name=data_file_name(names.uuid(), 0, "parquet"),
            file_size=40_000 + number % 1_000,
            row_count=ROWS_PER_FILE,
            value_stats=SimpleStats(low, high, (0,) * len(types)),
            min_sequence_number=0,
            max_sequence_number=ROWS_PER_FILE - 1,
            schema_id=0,
            creation_time=TIME_MILLIS + number,
        )
        yield ManifestEntry(FileKind.ADD, with_arity(1, encode_row(p_type, [p])), 0, -1, file)


def _manifest_meta(schema: TableSchema, name: str, size: int, numbers: range) -> ManifestFileMeta:
    partitions = sorted({number // FILES_PER_PARTITION for number in numbers})
    stats = partition_stats([schema.field("p").type], [(p,) for p in partitions])
    return ManifestFileMeta(name, size, len(numbers), 0, stats, 0, 0, 0, 0, 0)


def _nanos(row: int) -> int:
    return TIME_MILLIS * 10**6 + row * 10**6

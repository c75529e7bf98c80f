"""Anabranch expiring snapshots: a long history over a large table, and the calls its store gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anabranch
from anabranch.format.records.data_file import EMPTY_STATS, DataFileMeta, FileKind, ManifestEntry
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.layout import data_file_name
from anabranch.format.records.snapshot import CommitIdentity, CommitKind
from anabranch.format.rows.binary_row import encode_row, with_arity
from anabranch.kernel.commit.attempt import Attempts
from anabranch.kernel.commit.base import Base, Change
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.file_paths import bucket_folders
from anabranch.runtime import SYSTEM
from benchmarks.large_table import FILES_PER_PARTITION, write_large_table
from benchmarks.workers.counting import CountingStorage
from benchmarks.workers.harness import Clock, main

FILES_PER_COMMIT = 2


def expire(clock: Clock, home: str, files: int, snapshots: int) -> dict[str, Any]:
    """Expire all but the newest ten; every snapshot replaced the files of the one before it."""
    write_large_table(Path(home), "large", files)
    table = anabranch.connect(home).table("db.large")
    _replace_again_and_again(table, snapshots + 9)
    store = CountingStorage(table.context.storage)
    cold = replace(table.context, storage=store, cache=MetadataCache())
    with clock.lap():
        done = anabranch.Table(cold).expire_snapshots(retain_max=10)
    assert len(done.snapshots) == snapshots, "as many as were asked for"
    left = anabranch.Table(replace(table.context, cache=MetadataCache()))
    assert left.scan().plan().files.height == files + FILES_PER_COMMIT, "what is live stays"
    removed = {kind: tally.files for kind, tally in done.removed.items()}
    assert removed["data"] == (snapshots - 1) * FILES_PER_COMMIT, "what was replaced went"
    return {
        "snapshots": snapshots,
        "removed": sum(removed.values()) + snapshots,
        "calls": store.calls.total(),
        **{f"calls of {name}": count for name, count in sorted(store.calls.items())},
    }


def _replace_again_and_again(table: anabranch.Table, commits: int) -> None:
    """Commits that each add a few files and delete those of the commit before, without looking at all the others."""
    context, schema = table.context, table.schema
    head, before = table.snapshot, []
    for number in range(commits):
        row = with_arity(1, encode_row([schema.field("p").type], [number % FILES_PER_PARTITION]))
        added = [ManifestEntry(FileKind.ADD, row, 0, -1, _file(number, i)) for i in range(FILES_PER_COMMIT)]
        folders = bucket_folders(EntryFrame.from_entries(added).df, schema)
        context.storage.put_many(
            {f"{f}/{entry.file.file_name}": b"data" for f, entry in zip(folders, added, strict=True)}
        )
        attempts = Attempts(context, CommitIdentity.batch(SYSTEM), {}, None)
        deleted = [replace(entry, kind=FileKind.DELETE) for entry in before]
        change = Change(CommitKind.OVERWRITE, [*deleted, *added])
        head = attempts.prepare(Base(context, head, schema), change, reuse_delta=False)
        assert context.storage.put_if_absent(context.layout.snapshot_path(head.id), head.to_json())
        attempts.published()
        before = added
    context.snapshots.write_hint(head.id)


def _file(number: int, place: int) -> DataFileMeta:
    name = data_file_name(SYSTEM.ids.uuid(), place, "parquet")
    return DataFileMeta(name, 4, 1, EMPTY_STATS, 0, 0, 0, creation_time=number)


if __name__ == "__main__":
    main({"expire": expire})

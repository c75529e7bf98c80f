"""What may become unreachable when snapshots expire.

A data file was last visible in the snapshot before the one that deleted it, so it may go when that one is
gone: candidates are the files deleted by the snapshots that expire and by the one after them, but for those
that the first of them deleted, which were candidates when the one before it went. Of metadata, everything that
the expiring snapshots name. Whether a candidate goes is for the refs that are left to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.kernel.context import TableContext
from anabranch.kernel.expiry.reachability import ENTRY_COLUMNS, index_files
from anabranch.kernel.file_paths import bucket_folders
from anabranch.kernel.parallel import each
from anabranch.spec.data_file import ManifestFileMeta
from anabranch.spec.schema import TableSchema
from anabranch.spec.snapshot import Snapshot

COLUMNS = {"path": pl.String(), "file_name": pl.String(), "kind": pl.String(), "bytes": pl.Int64()}
"""One row a file. `bytes` is what the metadata says, 0 where it does not."""


def no_files() -> pl.DataFrame:
    """None, with the columns of `COLUMNS`."""
    return pl.DataFrame(schema=COLUMNS)


DATA, INDEX, MANIFEST, MANIFEST_LIST, STATISTICS = "data", "index", "manifest", "manifest-list", "statistics"


@dataclass(frozen=True)
class Candidates:
    """Files that the expiring snapshots reach and others may not."""

    files: pl.DataFrame
    """With the columns of `COLUMNS`, each path once."""
    unreadable: int
    """Manifest lists and manifests of expiring snapshots that are missing or damaged; what only they name
    is left for the cleaning of orphans."""


def candidates(
    context: TableContext, schema: TableSchema, expiring: Sequence[Snapshot], following: Snapshot
) -> Candidates:
    """Collect them; nothing is changed. `following` is the first snapshot that stays."""
    reader = _Reader(context, schema)
    reader.read([*expiring, following], keep=following)
    frames = [*reader.deleted(), pl.DataFrame(reader.metadata, schema=COLUMNS, orient="row")]
    return Candidates(pl.concat(frames).unique("path", keep="first", maintain_order=True), reader.unreadable)


class _Reader:
    def __init__(self, context: TableContext, schema: TableSchema) -> None:
        self._context = context
        self._schema = schema
        self._deltas: list[ManifestFileMeta] = []
        self.metadata: list[tuple[str, str, str, int]] = []
        self.unreadable = 0

    def read(self, snapshots: Sequence[Snapshot], *, keep: Snapshot) -> None:
        names = [
            name for s in snapshots for name in _lists(s) if s is not keep or name == s.delta_manifest_list
        ]
        lists = dict(zip(names, each(self._list, names), strict=True))
        manifests: dict[str, ManifestFileMeta] = {}
        for snapshot in snapshots:
            if snapshot is not snapshots[0]:
                self._deltas += [m for m in lists[snapshot.delta_manifest_list] if m.num_deleted_files]
            if snapshot is keep:
                continue
            for name, size in _lists(snapshot).items():
                self._add(MANIFEST_LIST, name, size)
                manifests.update((meta.file_name, meta) for meta in lists[name])
            self._read_others(snapshot)
        for meta in manifests.values():
            self._add(MANIFEST, meta.file_name, meta.file_size)
            for sidecar in meta.extra_files:
                self._add(MANIFEST, sidecar, 0)

    def deleted(self) -> Iterator[pl.DataFrame]:
        """The data files that the deltas delete, and what lies beside them."""
        for frame in self._entries():
            # Files of an external path lie outside of the table; they are not ours to remove.
            gone = frame.filter((pl.col("kind") == 1) & pl.col("external_path").is_null())
            gone = gone.with_columns(folder=bucket_folders(gone, self._schema))
            beside = gone.select("folder", file_name="extra_files").explode("file_name").drop_nulls()
            yield _rows(gone.select("folder", "file_name", bytes="file_size"), DATA)
            yield _rows(beside.with_columns(bytes=pl.lit(0, pl.Int64)), INDEX)

    def _entries(self) -> Iterator[pl.DataFrame]:
        manifests = self._context.manifests
        try:
            yield manifests.entries(self._deltas, only=ENTRY_COLUMNS).df
        except CorruptTableError:
            for meta in self._deltas:
                try:
                    yield manifests.entries([meta], only=ENTRY_COLUMNS).df
                except CorruptTableError:
                    self.unreadable += 1

    def _list(self, name: str) -> tuple[ManifestFileMeta, ...]:
        try:
            return self._context.manifests.read_list(name)
        except CorruptTableError:
            self.unreadable += 1
            return ()

    def _read_others(self, snapshot: Snapshot) -> None:
        layout = self._context.layout
        if snapshot.statistics is not None:
            path = layout.statistics_path(snapshot.statistics)
            self.metadata.append((path, snapshot.statistics, STATISTICS, 0))
        if snapshot.index_manifest is not None:
            self._add(INDEX, snapshot.index_manifest, 0)
            try:
                files = index_files(self._context, snapshot.index_manifest)
            except CorruptTableError:
                self.unreadable += 1
                return
            self.metadata += [(layout.index_path(n), n, INDEX, size) for n, size in files.items()]

    def _add(self, kind: str, name: str, size: int) -> None:
        self.metadata.append((self._context.layout.manifest_path(name), name, kind, size))


def _lists(snapshot: Snapshot) -> dict[str, int]:
    """The manifest lists of a snapshot and their sizes."""
    found = {
        snapshot.base_manifest_list: snapshot.base_manifest_list_size,
        snapshot.delta_manifest_list: snapshot.delta_manifest_list_size,
    }
    return {name: size or 0 for name, size in found.items()}


def _rows(frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    path = pl.concat_str("folder", "file_name", separator="/")
    return frame.select(
        path=path, file_name="file_name", kind=pl.lit(kind), bytes=pl.col("bytes").cast(pl.Int64)
    )

"""Files that may become unreachable when snapshots expire.

A data file was last visible in the snapshot before the one that deleted it, so it may be removed when that one is
gone: candidates are the files deleted by the expiring snapshots and by the one after them, except those
deleted by the first of them, which were candidates when the one before it expired. Of metadata, everything that
the expiring snapshots name. The remaining refs decide whether a candidate is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.expiry.list_index import ListIndex
from anabranch.kernel.expiry.reachability import ENTRY_COLUMNS, index_files
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.file_paths import bucket_folders
from anabranch.kernel.log.parallel import Reading

COLUMNS = {"path": pl.String(), "file_name": pl.String(), "kind": pl.String(), "bytes": pl.Int64()}
"""One row per file. `bytes` is from the metadata, 0 if unknown."""


def no_files() -> pl.DataFrame:
    """Return an empty frame with the columns of `COLUMNS`."""
    return pl.DataFrame(schema=COLUMNS)


_DELTAS_REMEMBERED = 5_000
"""Most snapshots whose delta lists go through the cache: what branches must know of them is read from these next."""
_ROWS_AT_ONCE = 50_000
"""Most rows held as Python objects, which take ten times as much as columns."""

DATA, INDEX, MANIFEST, MANIFEST_LIST, STATISTICS = "data", "index", "manifest", "manifest-list", "statistics"


@dataclass(frozen=True)
class Candidates:
    """Files that the expiring snapshots reach and others may not."""

    snapshots: int
    """Number of snapshots that were processed: all, unless they delete more files than are held at once."""
    files: pl.DataFrame
    """With the columns of `COLUMNS`, each path once."""
    unreadable: int
    """Manifest lists and manifests of expiring snapshots that are missing or damaged; what only they name
    is left for the cleaning of orphans."""

    @property
    def in_manifests(self) -> pl.Series:
        """Names of the candidates that manifests may contain."""
        return self.files.filter(pl.col("kind").is_in([DATA, INDEX]))["file_name"]


def candidates(
    context: TableContext,
    schema: TableSchema,
    history: Sequence[Snapshot],
    lists: ListIndex,
    *,
    staying: Collection[str] = (),
    most: int | None = None,
    ahead: tuple[Reading, int | None] | None = None,
) -> Candidates:
    """Collect the candidates; nothing is changed.

    Args:
        schema: the table's newest.
        history: the expiring snapshots, oldest first, at least one; and the first that stays.
        lists: the index of manifest lists.
        staying: names of lists that the refs which stay name too: they go into the index, to be read once.
        most: number of data files after which to stop; at least one snapshot is processed.
        ahead: begins to fetch the manifests of the changes after that snapshot, which are asked for next; None not to.
    """
    reader = _Reader(context, schema, lists, most=most, staying=frozenset(staying), ahead=ahead)
    taken = reader.read(history)
    frames = [*reader.deleted(), *reader.metadata()]
    files = pl.concat(frames).unique("path", keep="first", maintain_order=True)
    return Candidates(taken, files, reader.unreadable)


class _Reader:
    def __init__(
        self,
        context: TableContext,
        schema: TableSchema,
        known: ListIndex,
        *,
        most: int | None,
        staying: frozenset[str],
        ahead: tuple[Reading, int | None] | None,
    ) -> None:
        self._context = context
        self._schema = schema
        self._known = known
        self._most = most
        self._staying = staying
        self._ahead = ahead
        self._deltas: list[ManifestFileMeta] = []
        self._frames: list[pl.DataFrame] = []
        self._rows: list[tuple[str, str, str, int]] = []
        self._manifests: set[str] = set()
        self.unreadable = 0

    def read(self, snapshots: Sequence[Snapshot]) -> int:
        """Read the snapshots' metadata, but of the last one only its deletes; return how many were read.

        Fewer than all but the last if they delete too many files: then the one after them counts as the last.
        """
        deleted, last = 0, snapshots[-1]
        named = [[s.delta_manifest_list] if s is last else [*_lists(s)] for s in snapshots]
        missing = [name for names in named for name in names if name not in self._known]
        is_short = len(snapshots) <= _DELTAS_REMEMBERED
        read = zip(missing, self._context.manifests.read_lists(missing, keep=False), strict=True)
        for number, (snapshot, names) in enumerate(zip(snapshots, named, strict=True)):
            lists = {
                name: self._list(name, read, remember=is_short and name == snapshot.delta_manifest_list)
                for name in names
            }
            if self._ahead is not None and is_short and snapshot is not last:
                begin, after = self._ahead
                if after is not None and snapshot.id > after:
                    begin(partial(self._context.manifests.fetch, lists[snapshot.delta_manifest_list]))
            if number:
                delta = [m for m in lists[snapshot.delta_manifest_list] if m.num_deleted_files]
                self._deltas += delta
                deleted += sum(meta.num_deleted_files for meta in delta)
            if snapshot is last or (number and self._most is not None and deleted > self._most):
                return number
            self._read_metadata(snapshot, lists)
        return 0

    def _read_metadata(self, snapshot: Snapshot, lists: Mapping[str, Sequence[ManifestFileMeta]]) -> None:
        for name, size in _lists(snapshot).items():
            self._add(MANIFEST_LIST, name, size)
            for meta in lists[name]:
                if meta.file_name not in self._manifests:
                    self._manifests.add(meta.file_name)
                    self._add(MANIFEST, meta.file_name, meta.file_size)
                    for sidecar in meta.extra_files:
                        self._add(MANIFEST, sidecar, 0)
        self._read_others(snapshot)
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._flush()

    def metadata(self) -> list[pl.DataFrame]:
        """Return the manifests, lists, index files and statistics that the snapshots name."""
        self._flush()
        return self._frames

    def _flush(self) -> None:
        self._frames.append(pl.DataFrame(self._rows, schema=COLUMNS, orient="row"))
        self._rows = []

    def deleted(self) -> Iterator[pl.DataFrame]:
        """Yield the data files that the deltas delete, and their extra files."""
        for frame in self._entries():
            # Files at an external path lie outside of the table and are not ours to remove.
            gone = frame.filter((pl.col("kind") == 1) & pl.col("external_path").is_null())
            gone = gone.with_columns(folder=bucket_folders(gone, self._schema))
            beside = gone.select("folder", file_name="extra_files").explode("file_name").drop_nulls()
            yield _rows(gone.select("folder", "file_name", bytes="file_size"), DATA)
            yield _rows(beside.with_columns(bytes=pl.lit(0, pl.Int64)), INDEX)

    def _entries(self) -> Iterator[pl.DataFrame]:
        manifests = self._context.manifests
        try:
            yield manifests.entries(self._deltas, only=ENTRY_COLUMNS, keep=False).df
        except CorruptTableError:
            for meta in self._deltas:
                try:
                    yield manifests.entries([meta], only=ENTRY_COLUMNS, keep=False).df
                except CorruptTableError:
                    self.unreadable += 1

    def _list(
        self,
        name: str,
        read: Iterator[tuple[str, tuple[ManifestFileMeta, ...] | CorruptTableError]],
        *,
        remember: bool,
    ) -> tuple[ManifestFileMeta, ...]:
        """Return the manifests of a list, which is known or else the next that is read.

        Args:
            name: of the list.
            read: yields those that are not known yet, in the order in which they are asked for.

        None, counted as unreadable, if it cannot be read.
        """
        if name in self._known:
            return self._known.metas(name)
        asked, found = next(read)
        while asked != name:  # it was asked for before it was known
            asked, found = next(read)
        if isinstance(found, CorruptTableError):
            self.unreadable += 1
            return ()
        if name in self._staying:
            self._known.add(name, found)
        if remember:
            self._context.manifests.remember_list(name, found)
        return found

    def _read_others(self, snapshot: Snapshot) -> None:
        layout = self._context.layout
        if snapshot.statistics is not None:
            path = layout.statistics_path(snapshot.statistics)
            self._rows.append((path, snapshot.statistics, STATISTICS, 0))
        if snapshot.index_manifest is not None:
            self._add(INDEX, snapshot.index_manifest, 0)
            try:
                files = index_files(self._context, snapshot.index_manifest)
            except CorruptTableError:
                self.unreadable += 1
                return
            self._rows += [(layout.index_path(n), n, INDEX, size) for n, size in files.items()]

    def _add(self, kind: str, name: str, size: int) -> None:
        self._rows.append((self._context.layout.manifest_path(name), name, kind, size))


def _lists(snapshot: Snapshot) -> dict[str, int]:
    """Return the manifest lists of a snapshot and their sizes."""
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

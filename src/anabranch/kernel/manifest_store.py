"""Manifests and manifest lists of a table, read through the cache and written once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import polars as pl

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.kernel.cache import MetadataCache
from anabranch.spec.data_file import ManifestFileMeta
from anabranch.spec.entry_frame import COLUMNS, EntryFrame
from anabranch.spec.layout import Layout
from anabranch.spec.manifest import decode_manifest_list, decode_manifests
from anabranch.spec.snapshot import NO_LIST, Snapshot
from anabranch.storage.protocol import Storage

_PARALLEL_READS = 16
_META_WEIGHT = 400  # bytes that one ManifestFileMeta takes, about


class ManifestStore:
    """Reads manifests by name. Their names are unique, so what was seen once stays true."""

    def __init__(self, storage: Storage, cache: MetadataCache) -> None:
        self._storage = storage
        self._cache = cache

    def of_snapshot(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """All manifests of a snapshot in the order of their commits: its base list, then its delta list."""
        return [*self.read_list(snapshot.base_manifest_list), *self.read_list(snapshot.delta_manifest_list)]

    def read_list(self, name: str) -> tuple[ManifestFileMeta, ...]:
        """The manifests that a manifest list names."""
        if name == NO_LIST:
            return ()
        path = Layout().manifest_path(name)
        return self._cache.get_or(
            (self._storage.url, "list", name),
            lambda: tuple(decode_manifest_list(self._read(path), path=path)),
            lambda metas: _META_WEIGHT * (1 + len(metas)),
        )

    def entries(
        self, metas: Sequence[ManifestFileMeta], *, only: tuple[str, ...] | None = None
    ) -> EntryFrame:
        """All entries of these manifests, in order; of their columns only those named, if any are."""
        names = [meta.file_name for meta in metas]
        columns = tuple(COLUMNS) if only is None else only
        frames: dict[str, EntryFrame] = {}
        for name in names:
            found: EntryFrame | None = self._cache.get((self._storage.url, "entries", name))
            if found is not None and set(columns) <= set(found.df.columns):
                frames[name] = EntryFrame(found.df.select(columns))
        missing = [name for name in names if name not in frames]
        if missing:
            paths = [Layout().manifest_path(name) for name in missing]
            expected = {meta.file_name: _entries_of(meta) for meta in metas}
            decoded, counts = decode_manifests(
                [*zip(paths, self._raw_all(missing), strict=True)],
                only=columns,
                counts=[expected[name] for name in missing],
            )
            decoded = EntryFrame(decoded.df.select(columns))
            start = 0
            for name, count in zip(missing, counts, strict=True):
                frames[name] = decoded.slice(start, count)
                weight = frames[name].df.estimated_size()
                self._cache.put((self._storage.url, "entries", name), frames[name], int(weight))
                start += count
            if len(missing) == len(names):
                _check_counts(metas, frames)
                return decoded
        _check_counts(metas, frames)
        if not names:
            return EntryFrame(EntryFrame.empty().df.select(columns))
        return EntryFrame(pl.concat([frames[name].df for name in names], rechunk=False))

    def raw(self, name: str) -> bytes:
        """The bytes of a manifest."""
        return self._cache.get_or(
            (self._storage.url, "raw", name), lambda: self._read(Layout().manifest_path(name)), len
        )

    def remember(self, name: str, data: bytes) -> None:
        """Keep the bytes of a manifest that this process wrote."""
        self._cache.put((self._storage.url, "raw", name), data, len(data))

    def remember_list(self, name: str, metas: Iterable[ManifestFileMeta]) -> None:
        """Keep a manifest list that this process wrote."""
        kept = tuple(metas)
        self._cache.put((self._storage.url, "list", name), kept, _META_WEIGHT * (1 + len(kept)))

    def _raw_all(self, names: Sequence[str]) -> list[bytes]:
        if len(names) < 2:
            return [self.raw(name) for name in names]
        with ThreadPoolExecutor(min(_PARALLEL_READS, len(names))) as pool:
            return [*pool.map(self.raw, names)]

    def _read(self, path: str) -> bytes:
        try:
            return self._storage.get(path)
        except NotFoundError as error:
            raise CorruptTableError(
                "is referred to, but does not exist",
                path=path,
                hint="its snapshot may have expired while it was read: plan again from a newer one.",
            ) from error


def _entries_of(meta: ManifestFileMeta) -> int:
    return meta.num_added_files + meta.num_deleted_files


def _check_counts(metas: Sequence[ManifestFileMeta], frames: Mapping[str, EntryFrame]) -> None:
    """Refuse lists that say of a manifest other than it holds: Avro has no footer, a file cut between blocks looks whole.

    Also what was read before, by another list: two of them may name one manifest. Raises `CorruptTableError`.
    """
    for meta in metas:
        if len(frames[meta.file_name]) != _entries_of(meta):
            raise CorruptTableError(
                f"has {len(frames[meta.file_name])} entries, its manifest list says {_entries_of(meta)}",
                path=Layout().manifest_path(meta.file_name),
            )

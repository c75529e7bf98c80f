"""Manifests and manifest lists of a table, read through the cache and written once.

A manifest is cached in one form only. A small one stays encoded: decoded it would take many times
that, and many small ones are decoded together as fast as they are looked up. A large one stays decoded, with
all columns requested so far; a request for others reads it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

import polars as pl

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError
from anabranch.forked import may_use_polars
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.entry_frame import COLUMNS, EntryFrame
from anabranch.format.records.layout import Layout
from anabranch.format.records.manifest import decode_manifests
from anabranch.format.records.manifest_list import decode_manifest_list, decode_manifest_lists
from anabranch.format.records.snapshot import NO_LIST, Snapshot
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.parallel import AHEAD_OF_SMALL, each, reading, stream
from anabranch.storage.protocol import Storage

_MANY = 1_000
"""Minimum number of entries of a manifest that is cached decoded."""
_LISTS_AT_ONCE = 64
"""Number of manifest lists that are decoded together."""
_DELTAS_AT_ONCE_FAR = 512
"""Number of deltas whose entries are read together where each request takes its time."""
_ENTRIES_AT_ONCE = 200_000
_META_BYTES = 900
"""Approximate bytes of a `ManifestFileMeta` with all that it refers to."""
_COLUMN_BYTES = 1_024
"""Overhead of a column beside its values."""


class ManifestStore:
    """Reads manifests by name. Names are unique and files immutable, so cached contents stay valid."""

    def __init__(self, storage: Storage, cache: MetadataCache) -> None:
        self._storage = storage
        self._cache = cache

    def of_snapshot(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """Return all manifests of a snapshot in commit order: its base list, then its delta list."""
        names = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
        with reading(self._storage) as begin:
            base, delta = (begin(partial(self.read_list, name)) for name in names)
            return [*base(), *delta()]

    def read_list(self, name: str, *, keep: bool = True) -> tuple[ManifestFileMeta, ...]:
        """Return the manifests that a manifest list names.

        Args:
            name: of the list.
            keep: whether to cache it; pass False when walking the lists of a whole history.
        """
        if name == NO_LIST:
            return ()
        found: tuple[ManifestFileMeta, ...] | None = self._cache.get(self._key("list", name))
        if found is None:
            path = Layout().manifest_path(name)
            found = tuple(decode_manifest_list(self._read(path), path=path))
            if keep:
                self.remember_list(name, found)
        return found

    def read_lists(
        self, names: Iterable[str], *, keep: bool = True
    ) -> Iterator[tuple[ManifestFileMeta, ...] | CorruptTableError]:
        """Yield the manifests of many lists, in order; an unreadable list yields its error instead.

        They are read in parallel and decoded together, a bounded number at a time. Args as `read_list`.
        """
        names = [*names]
        read = zip(
            names, stream(self._list_or_bytes, names, at=self._storage, ahead=AHEAD_OF_SMALL), strict=True
        )
        while part := [*islice(read, _LISTS_AT_ONCE)]:
            files = {name: data for name, data in part if isinstance(data, bytes)}
            decoded = self._decoded_lists(files)
            for name, found in part:
                metas = decoded[name] if isinstance(found, bytes) else found
                if keep and name in files and not isinstance(metas, CorruptTableError):
                    self.remember_list(name, metas)
                yield metas

    def _list_or_bytes(self, name: str) -> tuple[ManifestFileMeta, ...] | bytes | CorruptTableError:
        """Return a list from the cache, or else its stored bytes."""
        if name == NO_LIST:
            return ()
        found: tuple[ManifestFileMeta, ...] | None = self._cache.get(self._key("list", name))
        try:
            return self._read(Layout().manifest_path(name)) if found is None else found
        except CorruptTableError as error:
            return error

    def _decoded_lists(
        self, files: Mapping[str, bytes]
    ) -> dict[str, tuple[ManifestFileMeta, ...] | CorruptTableError]:
        paths = [(Layout().manifest_path(name), data) for name, data in files.items()]
        try:
            return dict(zip(files, map(tuple, decode_manifest_lists(paths)), strict=True))
        except CorruptTableError as error:
            if len(files) == 1:
                return dict.fromkeys(files, error)
            found: dict[str, tuple[ManifestFileMeta, ...] | CorruptTableError] = {}
            for name, data in files.items():
                found |= self._decoded_lists({name: data})
            return found

    def entries(
        self, metas: Sequence[ManifestFileMeta], *, only: tuple[str, ...] | None = None, keep: bool = True
    ) -> EntryFrame:
        """Return all entries of these manifests, in order; optionally only some columns.

        Args:
            metas: the manifests, as their lists describe them.
            only: names of columns.
            keep: whether to cache what is not cached yet.
        """
        may_use_polars()
        columns = tuple(COLUMNS) if only is None else only
        expected = {meta.file_name: meta.num_entries for meta in metas}
        small = [name for name, count in expected.items() if count < _MANY]
        together, counts = self._decoded_together(small, expected, columns, keep=keep)
        frames: dict[str, EntryFrame] = {}
        if len(small) == len(metas):
            _check_counts(metas, dict(zip(small, counts, strict=True)))
            return together
        start = 0
        for name, count in zip(small, counts, strict=True):
            frames[name] = together.slice(start, count)
            start += count
        frames |= self._large([name for name in expected if name not in frames], expected, columns, keep=keep)
        _check_counts(metas, {name: len(frame) for name, frame in frames.items()})
        return EntryFrame(pl.concat([frames[meta.file_name].df for meta in metas], rechunk=False))

    def deltas(
        self, snapshots: Sequence[Snapshot], *, only: tuple[str, ...] | None = None
    ) -> Iterator[EntryFrame]:
        """Yield the delta entries of each snapshot, in order.

        They are read in parallel and decoded together, a bounded number at a time. Args as `entries`.

        Raises `CorruptTableError` at the snapshot whose delta cannot be read.
        """
        lists = self.read_lists([snapshot.delta_manifest_list for snapshot in snapshots])
        for part in _parted(lists, _DELTAS_AT_ONCE_FAR if self._storage.is_far else _LISTS_AT_ONCE):
            readable = [[] if isinstance(metas, CorruptTableError) else metas for metas in part]
            try:
                together = self.entries([meta for metas in readable for meta in metas], only=only)
            except CorruptTableError:
                together = None  # one of them is damaged: read each by itself
            first = 0
            for metas in part:
                if isinstance(metas, CorruptTableError):
                    raise metas
                count = sum(meta.num_entries for meta in metas)
                yield (self.entries(metas, only=only) if together is None else together.slice(first, count))
                first += count

    def _decoded_together(
        self, names: Sequence[str], expected: Mapping[str, int], columns: tuple[str, ...], *, keep: bool
    ) -> tuple[EntryFrame, list[int]]:
        """Return the entries of small manifests, and how many each has."""
        if not names:
            return EntryFrame(EntryFrame.empty().df.select(columns)), []
        paths = [Layout().manifest_path(name) for name in names]
        frame, counts = decode_manifests(
            [*zip(paths, self._raw_all(names, keep=keep), strict=True)],
            only=columns,
            counts=[expected[name] for name in names],
        )
        return EntryFrame(frame.df.select(columns)), counts

    def _large(
        self, names: Sequence[str], expected: Mapping[str, int], columns: tuple[str, ...], *, keep: bool
    ) -> dict[str, EntryFrame]:
        """Return the entries of each large manifest."""
        frames: dict[str, EntryFrame] = {}
        wanted: dict[str, tuple[str, ...]] = {}
        for name in names:
            found: EntryFrame | None = self._cache.get(self._key("entries", name))
            if found is not None and set(columns) <= set(found.df.columns):
                frames[name] = EntryFrame(found.df.select(columns))
            else:
                wanted[name] = (*columns, *(() if found is None else found.df.columns))
        for (name, all_columns), data in zip(
            wanted.items(), stream(partial(self.raw, keep=False), wanted, at=self._storage), strict=True
        ):
            # Each by itself: slices of one frame would keep all of it alive.
            path = Layout().manifest_path(name)
            decoded, _ = decode_manifests([(path, data)], only=all_columns, counts=[expected[name]])
            if keep:
                weight = int(decoded.df.estimated_size()) + _COLUMN_BYTES * decoded.df.width
                self._cache.put(self._key("entries", name), decoded, weight)
                self._cache.drop(self._key("raw", name))
            frames[name] = EntryFrame(decoded.df.select(columns))
        return frames

    def fetch(self, metas: Sequence[ManifestFileMeta]) -> None:
        """Prefetch manifests into the cache in parallel; large ones are skipped."""
        self._raw_all([meta.file_name for meta in metas if meta.num_entries < _MANY], keep=True)

    def fetch_delta(self, snapshot: Snapshot) -> None:
        """Prefetch what a snapshot changed. What cannot be read is an error of whoever asks for it."""
        with suppress(AnabranchError):
            self.fetch(self.read_list(snapshot.delta_manifest_list))

    def raw(self, name: str, *, keep: bool = True) -> bytes:
        """Return the bytes of a manifest."""
        found: bytes | None = self._cache.get(self._key("raw", name))
        if found is None:
            found = self._read(Layout().manifest_path(name))
            if keep:
                self.remember(name, found)
        return found

    def remember(self, name: str, data: bytes) -> None:
        """Cache the bytes of a manifest that this process wrote."""
        self._cache.put(self._key("raw", name), data, len(data))

    def remember_list(self, name: str, metas: Iterable[ManifestFileMeta]) -> None:
        """Cache a manifest list that this process wrote."""
        kept = tuple(metas)
        self._cache.put(self._key("list", name), kept, _META_BYTES * len(kept))

    def _raw_all(self, names: Sequence[str], *, keep: bool) -> list[bytes]:
        cached: dict[str, bytes | None] = {name: self._cache.get(self._key("raw", name)) for name in names}
        missing = [name for name, data in cached.items() if data is None]
        read = dict(zip(missing, each(partial(self.raw, keep=keep), missing, at=self._storage), strict=True))
        return [data if data is not None else read[name] for name, data in cached.items()]

    def _key(self, form: str, name: str) -> tuple[str, ...]:
        return (self._storage.url, form, name)

    def _read(self, path: str) -> bytes:
        try:
            return self._storage.get(path)
        except NotFoundError as error:
            raise CorruptTableError(
                "is referred to, but does not exist",
                path=path,
                hint="its snapshot may have expired while it was read: plan again from a newer one. If it is the newest, "
                "`maintain` brings back what the cleaning of orphans moved away, and `repair` mends what else can be.",
            ) from error


def _parted(
    lists: Iterable[tuple[ManifestFileMeta, ...] | CorruptTableError], at_once: int
) -> Iterator[list[tuple[ManifestFileMeta, ...] | CorruptTableError]]:
    """Group lists whose entries are read together: first a few, as some ask for no more, and a bounded number of entries."""
    most = min(_LISTS_AT_ONCE, at_once)
    part: list[tuple[ManifestFileMeta, ...] | CorruptTableError] = []
    entries = 0
    for metas in lists:
        part.append(metas)
        entries += 0 if isinstance(metas, CorruptTableError) else sum(meta.num_entries for meta in metas)
        if len(part) >= most or entries >= _ENTRIES_AT_ONCE:
            yield part
            part, entries, most = [], 0, at_once
    if part:
        yield part


def _check_counts(metas: Sequence[ManifestFileMeta], found: Mapping[str, int]) -> None:
    """Refuse manifests whose entry count differs from their list: Avro has no footer, so a cut file can look whole.

    Also checks cached manifests, since two lists may name one manifest. Raises `CorruptTableError`.
    """
    for meta in metas:
        if found[meta.file_name] != meta.num_entries:
            raise CorruptTableError(
                f"has {found[meta.file_name]} entries, its manifest list says {meta.num_entries}",
                path=Layout().manifest_path(meta.file_name),
            )

"""Turning the entries of a commit into manifests and manifest lists, ready to be stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.kernel.context import TableContext
from anabranch.options import MANIFEST_COMPRESSION, MANIFEST_TARGET_SIZE
from anabranch.spec.binary_row import decode_row
from anabranch.spec.data_file import FileKind, ManifestEntry, ManifestFileMeta, SimpleStats
from anabranch.spec.entry_frame import EntryFrame
from anabranch.spec.layout import manifest_list_name, manifest_name
from anabranch.spec.manifest import encode_manifest, encode_manifest_list, roll_frame
from anabranch.spec.schema import TableSchema
from anabranch.spec.stats import partition_stats

_FEW_ENTRIES = 2_000
_CODECS = {"zstd": "zstandard"}


@dataclass
class ManifestWriter:
    """Names and encodes the metadata files of one commit attempt.

    Nothing is stored before `objects` is handed to the storage.
    """

    context: TableContext
    schema: TableSchema
    options: Mapping[str, str]
    objects: dict[str, bytes] = field(default_factory=dict)
    """Encoded files by path."""

    def __post_init__(self) -> None:
        self._uuid = self.context.runtime.ids.uuid()
        self._manifests = 0
        self._lists = 0
        codec = MANIFEST_COMPRESSION.of(self.options)
        self._codec = _CODECS.get(codec, codec)

    def manifests(self, entries: Sequence[ManifestEntry]) -> list[ManifestFileMeta]:
        """Encode the entries of a commit, in order, into as few manifests as the target size allows."""
        if not entries:
            return []
        if len(entries) > _FEW_ENTRIES:
            return self.manifests_of(EntryFrame.from_entries(entries))
        data = encode_manifest(entries, codec=self._codec)
        return [
            self._describe(
                data,
                Counter(entry.partition for entry in entries),
                added=sum(entry.kind == FileKind.ADD for entry in entries),
                schema_id=max(entry.file.schema_id for entry in entries),
                buckets=[entry.bucket for entry in entries],
                levels=[entry.file.level for entry in entries],
            )
        ]

    def manifests_of(self, frame: EntryFrame) -> list[ManifestFileMeta]:
        """Encode many entries, in order, rolling at the target size."""
        target = MANIFEST_TARGET_SIZE.of(self.options)
        metas = []
        for part, data in roll_frame(frame, target_size=target, codec=self._codec):
            df = part.df
            partitions = df["partition"].value_counts()
            metas.append(
                self._describe(
                    data,
                    Counter(dict(zip(partitions["partition"], partitions["count"], strict=True))),
                    added=len(part.adds()),
                    schema_id=df["schema_id"].to_numpy().max().item(),
                    buckets=df["bucket"].unique().to_list(),
                    levels=df["level"].unique().to_list(),
                )
            )
        return metas

    def merged(self, data: bytes, metas: Sequence[ManifestFileMeta]) -> ManifestFileMeta:
        """A manifest whose bytes already join those of `metas`, none of which deletes anything."""
        stats = self._joined_stats([meta.partition_stats for meta in metas])
        return replace(
            self._store(data, metas[0]),
            num_added_files=sum(meta.num_added_files for meta in metas),
            num_deleted_files=0,
            partition_stats=stats,
            schema_id=max(meta.schema_id for meta in metas),
            min_bucket=_bound(min, [meta.min_bucket for meta in metas]),
            max_bucket=_bound(max, [meta.max_bucket for meta in metas]),
            min_level=_bound(min, [meta.min_level for meta in metas]),
            max_level=_bound(max, [meta.max_level for meta in metas]),
            extra_files=(),
        )

    def manifest_list(self, metas: Iterable[ManifestFileMeta]) -> tuple[str, int]:
        """Encode a manifest list; its name and its size in bytes."""
        kept = tuple(metas)
        data = encode_manifest_list(kept, codec=self._codec)
        name = manifest_list_name(self._uuid, self._lists)
        self._lists += 1
        self.objects[self.context.layout.manifest_path(name)] = data
        self.context.manifests.remember_list(name, kept)
        return name, len(data)

    def _describe(
        self,
        data: bytes,
        partitions: Counter[bytes],
        *,
        added: int,
        schema_id: int,
        buckets: Sequence[int],
        levels: Sequence[int],
    ) -> ManifestFileMeta:
        types = [f.type for f in self.schema.partition_fields]
        rows = [decode_row(types, row, where=self.context.name) for row in partitions]
        nulls = tuple(
            sum(count for row, count in zip(rows, partitions.values(), strict=True) if row[i] is None)
            for i in range(len(types))
        )
        meta = ManifestFileMeta(
            file_name="",
            file_size=0,
            num_added_files=added,
            num_deleted_files=partitions.total() - added,
            partition_stats=replace(partition_stats(types, rows), null_counts=nulls),
            schema_id=schema_id,
            min_bucket=min(buckets),
            max_bucket=max(buckets),
            min_level=min(levels),
            max_level=max(levels),
        )
        return self._store(data, meta)

    def _store(self, data: bytes, meta: ManifestFileMeta) -> ManifestFileMeta:
        name = manifest_name(self._uuid, self._manifests)
        self._manifests += 1
        self.objects[self.context.layout.manifest_path(name)] = data
        self.context.manifests.remember(name, data)
        return replace(meta, file_name=name, file_size=len(data))

    def _joined_stats(self, stats: Sequence[SimpleStats]) -> SimpleStats:
        types = [f.type for f in self.schema.partition_fields]
        bounds = [
            decode_row(types, row, where=self.context.name)
            for each in stats
            for row in (each.min_values, each.max_values)
        ]
        nulls = zip(*(each.null_counts for each in stats), strict=True)
        return replace(
            partition_stats(types, bounds),
            null_counts=tuple(None if None in counts else sum(c or 0 for c in counts) for counts in nulls),
        )


def _bound(choose: Callable[[list[int]], int], values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if len(known) == len(values) else None

"""Computes which files of a table its refs reach, and through which ref.

It is always computed for *candidates*, files considered for removal. Metadata files are a few
per commit, so all that refs name are kept by name. Data files may be many millions: the manifests are
searched for the candidates by column.

A data file is live in a ref if the ref's manifests together add it more often than they delete it: a file
may be deleted and added again (a rollback does that), and merging manifests drops an ADD only together
with its DELETE, so the difference is the same whatever was merged. No history is assumed: the answer holds
for snapshots that another engine copied over each other.

Files are identified by name, as in other engines: a name that any ref reaches in any partition is reached.

Repeated queries of one operation share a `RefReader` and a `ListIndex`: each ref and each list is then read
once. Manifests are decoded only to look for data files, so without any, as in the expiry of a history of
appends, none is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl

from anabranch.errors import CorruptTableError
from anabranch.format.avro.files import read_frame
from anabranch.format.records.data_file import FileKind, ManifestFileMeta
from anabranch.format.records.layout import check_file_name
from anabranch.kernel.expiry.list_index import ListIndex, unreadable
from anabranch.kernel.expiry.ref_files import Ref, RefReader
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each

T = TypeVar("T")

ENTRY_COLUMNS = (
    *("kind", "partition", "bucket", "level", "file_name", "file_size", "extra_files", "external_path"),
)
"""Manifest entry columns that identify files and locate them for removal."""

_ATTEMPTS = 5
_ENTRIES_AT_ONCE = 200_000
_IDENTITY = ("candidate", "partition", "bucket", "level")
_HITS = pl.DataFrame(
    schema={
        "candidate": pl.UInt32,
        "partition": pl.Binary,
        "bucket": pl.Int32,
        "level": pl.Int32,
        "manifest": pl.UInt32,
        "net": pl.Int32,
    }
)
"""ADDs minus DELETEs per manifest, of files that are a candidate or have one as extra file."""


class Reachability:
    """Reachability of some files. Repeated queries read only new metadata.

    Args:
        names: the names of the files, without folders.
        in_manifests: those of them that manifests may contain, data files and their extra files; all if None.
        reader: the reader of refs; a new one if None.
        lists: the index of manifest lists; a new one if None.
    """

    def __init__(
        self,
        context: TableContext,
        names: Iterable[str],
        *,
        in_manifests: pl.Series | None = None,
        reader: RefReader | None = None,
        lists: ListIndex | None = None,
    ) -> None:
        self._context = context
        self._names = _unique(names)
        self._reader = reader or RefReader(context)
        self._lists = lists or ListIndex(context)
        self._search = _FileSearch(context, self._names if in_manifests is None else _unique(in_manifests))

    def now(self) -> pl.DataFrame:
        """Return the files that any ref of any branch reaches now.

        Returns:
            One row per file: `file_name`; `holder`, the name of a ref that reaches it; `holder_path`, its file.

        Raises:
            CorruptTableError: a ref, or what it names, cannot be read, or a branch has no schema.
            UnsupportedFeatureError: refs or manifests are of a kind that is not known.
        """
        return self._tried(self._reader.read(), self._reader.read)

    def through(self, refs: Collection[Ref]) -> pl.DataFrame:
        """Return the files that these refs reach, in the form of `now`. Refs removed meanwhile may be ignored."""
        chosen = frozenset(refs)
        return self._tried(chosen, lambda: chosen & self._reader.look().refs)

    def _tried(self, refs: frozenset[Ref], again: Callable[[], frozenset[Ref]]) -> pl.DataFrame:
        """Compute what the refs reach; read refs `again` if an expiry removes some of them meanwhile.

        Then all of them are read again: what a removed one held may now be held by a new one.
        """
        for _ in range(_ATTEMPTS):
            try:
                return self._through(refs)
            except CorruptTableError:
                before, refs = refs, again()
                if before <= refs:
                    raise
        return self._through(refs)

    def _through(self, refs: Collection[Ref]) -> pl.DataFrame:
        reached = _Reached.by(self._context, refs, self._lists)
        named = pl.DataFrame(
            {"file_name": [*reached.files], "ref": [*reached.files.values()]},
            schema={"file_name": pl.String, "ref": pl.Int64},
        )
        found = pl.concat([self._search.live(reached), named.join(pl.DataFrame(self._names), on="file_name")])
        best = found.group_by("file_name").agg(pl.col("ref").min())
        holder = pl.Series([ref.name for ref in reached.refs], dtype=pl.String)
        path = pl.Series([ref.path for ref in reached.refs], dtype=pl.String)
        return best.select(
            "file_name", holder=holder.gather(best["ref"]), holder_path=path.gather(best["ref"])
        )


def index_files(context: TableContext, index_manifest: str) -> dict[str, int]:
    """Return name and size of the index files that an index manifest lists. Raises `CorruptTableError`."""
    path = context.layout.manifest_path(index_manifest)
    frame = read_frame(context.manifests.raw(index_manifest), path=path)
    if not {"_FILE_NAME", "_FILE_SIZE"} <= set(frame.columns):
        raise CorruptTableError("is no index manifest: it lacks _FILE_NAME or _FILE_SIZE", path=path)
    files = dict(frame.select("_FILE_NAME", "_FILE_SIZE").iter_rows())
    for name in files:
        check_file_name(name, path=path)
    return files


@dataclass(frozen=True)
class _Reached:
    """Files reached by some refs, except data files. A ref is given by its index in `refs`."""

    refs: tuple[Ref, ...]
    files: dict[str, int]
    """Every manifest, list, extra file, index file and statistics file by name, with a ref that reaches it."""
    manifests: dict[str, ManifestFileMeta]
    refs_of: dict[str, list[int]]
    """The refs that reach each manifest, ascending."""

    @classmethod
    def by(cls, context: TableContext, refs: Iterable[Ref], index: ListIndex) -> _Reached:
        # Tags and savepoints come first, as the more useful answer to what holds a file.
        ordered = tuple(sorted(refs, key=lambda ref: (ref.name.startswith("snapshot"), ref.path, ref.lists)))
        reached = cls(ordered, {}, {}, {})
        index.read({name: ref for ref in reversed(ordered) for name in ref.lists})
        for number, ref in enumerate(ordered):
            reached._add(number, ref, index)
        indexes = {ref.index_manifest: ref for ref in ordered if ref.index_manifest is not None}
        for name, files in _read(indexes, lambda index: index_files(context, index)).items():
            for file in files:
                reached.files.setdefault(file, reached.files[name])
        return reached

    def _add(self, number: int, ref: Ref, index: ListIndex) -> None:
        for name in (*ref.lists, ref.index_manifest, ref.statistics):
            if name is not None:
                self.files.setdefault(name, number)
        for name in ref.lists:
            for meta in map(index.manifests.__getitem__, index.of(name)):
                if meta.file_name not in self.manifests:
                    self.manifests[meta.file_name] = meta
                    for file in (meta.file_name, *meta.extra_files):
                        self.files.setdefault(file, number)
                owners = self.refs_of.setdefault(meta.file_name, [])
                if not owners or owners[-1] != number:  # one that is listed twice counts once
                    owners.append(number)


def _read(named_by: dict[str, Ref], read: Callable[[str], T]) -> dict[str, T]:
    """Read files, by name. Raises `CorruptTableError` naming the ref that an unreadable one belongs to."""

    def ask(name: str) -> T:
        try:
            return read(name)
        except CorruptTableError as error:
            raise unreadable(named_by[name], error) from error

    return dict(zip(named_by, each(ask, [*named_by]), strict=True))


def _unique(names: Iterable[str]) -> pl.Series:
    listed = names if isinstance(names, pl.Series) else [*names]
    return pl.Series("file_name", listed, dtype=pl.String).unique()


class _FileSearch:
    """Search for candidates that are live in some refs; each manifest is decoded once."""

    def __init__(self, context: TableContext, names: pl.Series) -> None:
        self._context = context
        self._candidates = pl.DataFrame(names).with_row_index("candidate")
        self._hits: list[pl.DataFrame] = [_HITS]
        self._searched: dict[str, int] = {}

    def live(self, reached: _Reached) -> pl.DataFrame:
        """Return the live candidates: `file_name`, and `ref`, the index of one that reaches it."""
        if self._candidates.height:
            self._search(reached)
        owners: list[list[int]] = [reached.refs_of.get(name, []) for name in self._searched]
        first = pl.Series([refs[0] if refs else None for refs in owners], dtype=pl.Int64)
        hits = pl.concat(self._hits)
        hits = hits.with_columns(ref=first.gather(hits["manifest"])).drop_nulls("ref")
        is_kept = pl.col("net").min().over(_IDENTITY) >= 0
        kept = hits.filter(is_kept & (pl.col("net") > 0)).select("candidate", "ref")
        live = pl.concat([kept, _weighed(hits.filter(~is_kept), owners)])
        return live.join(self._candidates, on="candidate").select("file_name", "ref")

    def _search(self, reached: _Reached) -> None:
        new = [meta for name, meta in reached.manifests.items() if name not in self._searched]
        for part in _portions(new):
            try:
                frame = self._context.manifests.entries(part, only=ENTRY_COLUMNS, keep=False).df
            except CorruptTableError as error:
                name = (error.path or "").rpartition("/")[2]
                if name not in reached.files:
                    raise
                raise unreadable(reached.refs[reached.files[name]], error) from error
            first = len(self._searched)
            counts = [meta.num_added_files + meta.num_deleted_files for meta in part]
            numbers = np.repeat(np.arange(first, first + len(part), dtype=np.uint32), counts)
            is_add = pl.col("kind") == int(FileKind.ADD)
            frame = frame.with_columns(
                manifest=pl.Series(numbers), net=pl.when(is_add).then(1).otherwise(-1).cast(pl.Int32)
            )
            beside = frame.filter(pl.col("extra_files").list.len() > 0).explode("extra_files")
            for rows in (frame, beside.with_columns(file_name="extra_files")):
                found = rows.join(self._candidates, on="file_name").group_by(*_IDENTITY, "manifest")
                self._hits.append(found.agg(pl.col("net").sum()).select(_HITS.columns))
            self._searched.update((meta.file_name, first + i) for i, meta in enumerate(part))


def _portions(metas: Sequence[ManifestFileMeta]) -> Iterator[list[ManifestFileMeta]]:
    """Group manifests that are decoded together."""
    part: list[ManifestFileMeta] = []
    size = 0
    for meta in metas:
        part.append(meta)
        size += meta.num_added_files + meta.num_deleted_files
        if size >= _ENTRIES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _weighed(hits: pl.DataFrame, owners: Sequence[Sequence[int]]) -> pl.DataFrame:
    """Return the candidates with DELETEs in some manifest that are nevertheless live in some ref.

    Files that were added and deleted by the same commits share one pattern of manifests, which is evaluated once.
    """
    patterns = (
        hits.sort("manifest")
        .group_by(_IDENTITY, maintain_order=True)
        .agg(
            pattern=pl.concat_str(pl.col("manifest"), pl.col("net"), separator=":").str.join(","),
            manifests=pl.col("manifest"),
            nets=pl.col("net"),
        )
    )
    distinct = patterns.unique("pattern")
    rows = distinct.select("manifests", "nets").iter_rows()
    refs = [_live_in(manifests, nets, owners) for manifests, nets in rows]
    live = distinct.select("pattern", ref=pl.Series(refs, dtype=pl.Int64)).drop_nulls("ref")
    return patterns.join(live, on="pattern").select("candidate", "ref")


def _live_in(manifests: Sequence[int], nets: Sequence[int], owners: Sequence[Sequence[int]]) -> int | None:
    """Return the first ref whose manifests add more than they delete, or None."""
    refs = [np.asarray(owners[manifest], np.int64) for manifest in manifests]
    weights = np.repeat(nets, [len(found) for found in refs])
    # Over the refs of these manifests only, since there is a pattern for each commit.
    distinct, places = np.unique(np.concatenate(refs), return_inverse=True)
    live = np.flatnonzero(np.bincount(places, weights=weights) > 0)
    return int(distinct[live[0]]) if live.size else None

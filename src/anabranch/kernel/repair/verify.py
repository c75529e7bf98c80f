"""Verifies a table: its history, refs, manifests and counts, and the files that any ref reaches.

Nothing is changed. Damage is noted and the rest is checked all the same. Memory grows with the number of
distinct data files, about a hundred bytes each; folders are listed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from anabranch.errors import AnabranchError
from anabranch.forked import may_use_polars
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.entry_frame import IDENTITY
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.file_paths import bucket_folders
from anabranch.kernel.log.main_branch import main_as_far_as_known
from anabranch.kernel.log.parallel import check_answered
from anabranch.kernel.repair.found import Found, Kind, Problem, RefState
from anabranch.kernel.repair.states import read_history, read_states
from anabranch.kernel.scan.partitions import partition_text

_COLUMNS: Final = (
    *("kind", *IDENTITY, "file_size", "row_count", "schema_id", "external_path", "creation_time"),
)
FILES: Final = {
    "path": pl.String(),
    "file_name": pl.String(),
    "partition": pl.Binary(),
    "file_size": pl.Int64(),
    "row_count": pl.Int64(),
    "schema_id": pl.Int64(),
    "creation_time": pl.Int64(),
    "state": pl.Int32(),
}
"""Columns of the data files that refs reach. `state` is the index of one such ref in `Looked.states`."""
_NEWEST: Final = 20
"""Number of snapshots that the cheap check reads."""

Progress = Callable[[str], None]


@dataclass
class Looked:
    """Everything that was checked."""

    found: Found
    files: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FILES))
    manifests: int = 0

    @property
    def states(self) -> list[RefState]:
        return self.found.states

    @property
    def problems(self) -> list[Problem]:
        return self.found.problems


def look(
    context: TableContext, schema: TableSchema, progress: Progress = lambda _: None, *, files: bool = True
) -> Looked:
    """Check a whole table.

    Args:
        schema: its newest, by whose partition columns files are located.
        progress: called with a description of each phase.
        files: whether to check that data files exist, with the right sizes.
    """
    may_use_polars()
    main = main_as_far_as_known(context)
    progress("history and refs")
    looked = Looked(read_states(main))
    progress(f"manifests of {len(looked.states):,} states")
    _Manifests(looked, schema).read()
    if files:
        progress(f"{looked.files.height:,} data files")
        _look_for_files(main, looked, schema)
    return looked


def look_at_history(context: TableContext) -> list[Problem]:
    """Run the cheap checks: the newest snapshots of one branch, and its hint."""
    found = Found()
    read_history(context, found, _NEWEST)
    return found.problems


class _Manifests:
    """Reads the manifests of all states, each manifest once."""

    def __init__(self, looked: Looked, schema: TableSchema) -> None:
        self._looked = looked
        self._schema = schema
        self._bad: set[str] = set()
        self._seen: set[str] = set()
        self._frames: list[pl.DataFrame] = []
        self._schemas: dict[tuple[str | None, int], bool] = {}

    def read(self) -> None:
        for number, state in enumerate(self._looked.states):
            self._state(number, state)
            if len(self._frames) > 64:
                self._join()
        self._join()
        self._looked.manifests = len(self._seen)

    def _join(self) -> None:
        frames = [self._looked.files, *self._frames]
        self._looked.files = pl.concat(frames).unique("path", keep="first", maintain_order=True)
        self._frames = []

    def _state(self, number: int, state: RefState) -> None:
        self._check_schema(state)
        delta = self._list(state, state.snapshot.delta_manifest_list)
        base = self._list(state, state.snapshot.base_manifest_list)
        if delta is None or base is None:
            return
        added = self._entries(state, delta)
        if added is None:
            return
        self._check_delta(state, added)
        if state.whole:
            below = self._entries(state, base)
            if below is None:
                return
            entries = pl.concat([below, added])
            live = self._live(state, entries)
        else:
            live = added.filter(pl.col("kind") == 0)
        live = live.filter(pl.col("external_path").is_null())
        if live.height == 0:
            return
        try:
            folders = bucket_folders(live, self._schema)
        except AnabranchError as error:
            self._note(Kind.MANIFEST, state, f"{state.name}: {error.message}", state.path)
            return
        self._frames.append(
            live.select(
                path=pl.concat_str(folders, pl.lit("/"), "file_name"),
                file_name="file_name",
                partition="partition",
                file_size=pl.col("file_size").cast(pl.Int64),
                row_count=pl.col("row_count").cast(pl.Int64),
                schema_id=pl.col("schema_id").cast(pl.Int64),
                creation_time=pl.col("creation_time").cast(pl.Int64),
                state=pl.lit(number, pl.Int32),
            )
        )

    def _live(self, state: RefState, entries: pl.DataFrame) -> pl.DataFrame:
        sums = entries.group_by(IDENTITY, maintain_order=True).agg(
            net=(1 - 2 * pl.col("kind").cast(pl.Int64)).sum()
        )
        odd = sums.filter((pl.col("net") < 0) | (pl.col("net") > 1))
        if odd.height:
            what = "deletes a file that it never adds" if odd.item(0, "net") < 0 else "adds a file twice"
            self._note(
                Kind.MANIFEST,
                state,
                f"{state.name} {what}: {odd.item(0, 'file_name')}"
                + (f" and {odd.height - 1} more" if odd.height > 1 else ""),
                state.path,
            )
        live = entries.filter(pl.col("kind") == 0).unique(IDENTITY, keep="last", maintain_order=True)
        live = live.join(sums.filter(pl.col("net") > 0), on=IDENTITY, how="semi", maintain_order="left")
        total, counted = state.snapshot.total_record_count, int(live["row_count"].sum())
        if total is not None and total != counted:
            self._note(
                Kind.COUNT,
                state,
                f"{state.name} counts {total:,} rows, its manifests {counted:,}",
                state.path,
                rows=counted - total,
            )
        return live

    def _check_delta(self, state: RefState, added: pl.DataFrame) -> None:
        counted = int((added["row_count"] * (1 - 2 * added["kind"].cast(pl.Int64))).sum())
        wanted = state.snapshot.delta_record_count
        is_history = state.name.startswith("snapshot")
        if is_history and wanted is not None and wanted != counted:
            if state.snapshot.commit_kind == CommitKind.OVERWRITE and wanted >= 0 > counted:
                return  # some engines count only what an overwrite adds
            self._note(
                Kind.COUNT,
                state,
                f"{state.name} says it changed the number of rows by {wanted:,}, its manifests by {counted:,}",
                state.path,
                rows=counted - wanted,
            )

    def _check_schema(self, state: RefState) -> None:
        key = (state.context.branch, state.snapshot.schema_id)
        if key not in self._schemas:
            try:
                state.context.schemas.get(key[1])
                self._schemas[key] = True
            except AnabranchError as error:
                check_answered(error)
                self._schemas[key] = False
                path = state.context.layout.schema_path(key[1])
                self._note(
                    Kind.SCHEMA,
                    state,
                    f"version {key[1]} of the schema, of {state.name}: {error.message}",
                    path,
                    hint="put it back from a copy of the table's folder; or `rollback` with --destructive to a snapshot below, which gives "
                    "up what was committed since.",
                )

    def _list(self, state: RefState, name: str) -> tuple[ManifestFileMeta, ...] | None:
        if name in self._bad:
            return None
        try:
            return state.context.manifests.read_list(name)
        except AnabranchError as error:
            check_answered(error)
            self._bad.add(name)
            self._damaged(state, name, error, "manifest list")
            return None

    def _entries(self, state: RefState, metas: tuple[ManifestFileMeta, ...]) -> pl.DataFrame | None:
        self._seen.update(meta.file_name for meta in metas)
        if any(meta.file_name in self._bad for meta in metas):
            metas = tuple(meta for meta in metas if meta.file_name not in self._bad)
        manifests = state.context.manifests
        try:
            return manifests.entries(metas, only=_COLUMNS).df
        except AnabranchError as error:
            check_answered(error)
        readable = []
        for meta in metas:
            try:
                manifests.entries([meta], only=_COLUMNS)
                readable.append(meta)
            except AnabranchError as error:
                check_answered(error)
                self._bad.add(meta.file_name)
                files = meta.num_added_files
                self._damaged(state, meta.file_name, error, f"manifest of {files:,} files")
        return None if not readable else manifests.entries(readable, only=_COLUMNS).df

    def _damaged(self, state: RefState, name: str, error: AnabranchError, what: str) -> None:
        snapshot = state.snapshot
        self._note(
            Kind.MANIFEST,
            state,
            f"{what} {name}, of {state.name}: {error.message}",
            state.context.layout.manifest_path(name),
            time_millis=snapshot.time_millis,
            repair="bring it back, if the cleaning of orphans moved it away",
        )

    def _note(self, kind: Kind, state: RefState, message: str, path: str, **about: Any) -> None:
        snapshot_id = state.snapshot.id
        self._looked.problems.append(Problem(kind, message, path, state.context.branch, snapshot_id, **about))


def _look_for_files(main: TableContext, looked: Looked, schema: TableSchema) -> None:
    files = looked.files.with_columns(folder=pl.col("path").str.replace(r"/[^/]*$", ""))
    makers = _Makers(looked)
    for (folder,), wanted in files.group_by("folder", maintain_order=True):
        there = {info.path: info.size for info in main.storage.list(str(folder))}
        listed = pl.DataFrame(
            {"path": [*there], "there": [*there.values()]}, schema={"path": pl.String, "there": pl.Int64}
        )
        odd = wanted.join(listed, on="path", how="left").filter(
            pl.col("there").is_null() | (pl.col("there") != pl.col("file_size"))
        )
        for row in odd.iter_rows(named=True):
            looked.problems.append(_file_problem(row, looked, schema, makers))


def _file_problem(row: Mapping[str, Any], looked: Looked, schema: TableSchema, makers: _Makers) -> Problem:
    state = looked.states[row["state"]]
    made = makers.of(row["file_name"])
    about = about_file(row, schema, made)
    if row["there"] is None:
        kind, what = Kind.FILE_MISSING, "is missing"
        repair = "bring it back, if the cleaning of orphans moved it away"
    else:
        kind, repair = Kind.FILE_SIZE, None
        what = f"has {row['there']:,} bytes, its manifest says {row['file_size']:,}"
    return Problem(
        kind,
        f"data file {row['path']} of {state.name} {what}: {row['row_count']:,} rows",
        row["path"],
        state.context.branch,
        state.snapshot.id,
        repair=repair,
        **about,
    )


def about_file(row: Mapping[str, Any], schema: TableSchema, made: Snapshot | None) -> dict[str, Any]:
    """Return partition, rows, time and writer of a file's data."""
    partition = partition_text(row["partition"], schema) if schema.partition_keys else None
    return {
        "partition": partition,
        "rows": row["row_count"],
        "time_millis": row["creation_time"] if made is None else made.time_millis,
        "job": None if made is None else made.commit_user,
    }


class _Makers:
    """Finds the snapshot that added a file; loaded on first use."""

    def __init__(self, looked: Looked) -> None:
        self._looked = looked
        self._by_name: dict[str, Snapshot] | None = None

    def of(self, file_name: str) -> Snapshot | None:
        if self._by_name is None:
            self._by_name = dict(self._read())
        return self._by_name.get(file_name)

    def _read(self) -> Iterator[tuple[str, Snapshot]]:
        for state in self._looked.states:
            try:
                metas = state.context.manifests.read_list(state.snapshot.delta_manifest_list)
                frame = state.context.manifests.entries(metas, only=("kind", "file_name")).df
            except AnabranchError:
                continue
            for name in frame.filter(pl.col("kind") == 0)["file_name"]:
                yield name, state.snapshot


def makers_of(looked: Looked) -> Callable[[str], Snapshot | None]:
    """Return a lookup from a data file's name to the snapshot that added it, if that is retained."""
    return _Makers(looked).of

"""Metadata diff between two moments of a table, on one branch or on two.

Only manifests and schemas are read. Row differences are computed above the kernel, from the files that are
not live on both sides: `changed_files` returns these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.format.records.layout import MAIN_BRANCH
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.diff import changes_between
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.branch_log import being_made, check_still_there, open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_readable
from anabranch.kernel.log.main_branch import located
from anabranch.kernel.refs.moments import resolve
from anabranch.kernel.scan.partitions import partition_text
from anabranch.kernel.scan.request import check_supported
from anabranch.lazy import lazy

FILE_KEY = ("partition", "bucket", "file_name")
"""Columns that identify a data file on every branch of a table."""
_COLUMNS = (
    *("kind", "partition", "bucket", "level", "file_name", "file_size", "row_count", "schema_id"),
    *("external_path", "write_cols"),
)


@dataclass(frozen=True)
class DiffSide:
    """One of two compared moments."""

    name: str
    """As requested: ``main``, ``fix@good``."""
    context: TableContext
    snapshot: Snapshot | None
    """None for a branch that was never written."""
    schema: TableSchema

    @property
    def is_main(self) -> bool:
        """Whether it is a moment of the current main branch."""
        context = self.context
        return context.known_as is None and (context.branch is None or context.main_generation is not None)

    @lazy
    def live(self) -> pl.DataFrame:
        """Live data files, in the columns of manifest entries. Raises `CorruptTableError`."""
        if self.snapshot is None:
            return EntryFrame.empty().df.select(_COLUMNS)
        check_snapshot_readable(self.context, self.snapshot)
        manifests = self.context.manifests
        frame = manifests.entries(manifests.of_snapshot(self.snapshot), only=_COLUMNS).live().df
        check_supported(frame, self.context)
        return frame


def side_of(main: TableContext, asked: str) -> DiffSide:
    """Parse and resolve one side of a diff.

    Args:
        main: the main branch of the table.
        asked: a branch, or ``branch@moment`` with the moment as `resolve` takes it. ``main@1`` is the main that
            replacement 1 replaced, ``main@1.good`` a moment of it, and ``main.good`` one of main as it is now.

    Raises:
        NotFoundError: there is no such branch or moment; the message lists what exists.
        InvalidInputError: the moment is ambiguous.
    """
    context, moment = _branch_and_moment(main, asked)
    if moment:
        context, moment = located(context, moment)
        snapshot = resolve(context, moment).snapshot
        return DiffSide(asked, context, snapshot, context.schemas.get(snapshot.schema_id))
    head = context.snapshots.head()
    schema = context.schemas.latest()
    if schema is None or head is None:
        check_still_there(context)
    if schema is None:
        raise being_made(context)
    return DiffSide(asked, context, head, schema)


_FORMER_MAIN = re.compile(rf"({MAIN_BRANCH}@[1-9][0-9]*)(?:[.@](.+))?")


def _branch_and_moment(main: TableContext, asked: str) -> tuple[TableContext, str]:
    former = _FORMER_MAIN.fullmatch(asked)
    if former is not None:
        try:
            return open_branch(main, former[1]), former[2] or ""
        except NotFoundError as error:
            number = former[1].rpartition("@")[2]
            hint = f"snapshot {number} of main is '{MAIN_BRANCH}@snapshot.{number}'. {error.hint or ''}"
            raise NotFoundError(error.message, hint=hint.strip()) from error
    name, _, moment = asked.partition("@")
    if name == MAIN_BRANCH:
        return main, moment
    try:
        return open_branch(main, name), moment
    except NotFoundError as error:
        if not moment and name.startswith(f"{MAIN_BRANCH}."):
            return main, name
        if moment or not _is_moment(main, name):
            raise
        raise NotFoundError(
            error.message, hint=f"it names a moment of main: write '{MAIN_BRANCH}@{name}'."
        ) from error


def _is_moment(main: TableContext, name: str) -> bool:
    try:
        resolve(main, name)
    except AnabranchError:
        return False
    return True


@dataclass(frozen=True)
class FileDiff:
    """Live data files of both sides, one row per file, in the columns of manifest entries."""

    added: pl.DataFrame
    """Live on the right side only."""
    removed: pl.DataFrame
    """Live on the left side only."""
    shared: pl.DataFrame
    """Live on both, as on the right side; ``schema_id_left`` is the left side's schema id."""


@dataclass(frozen=True, slots=True)
class PartitionDiff:
    """Rows and data files of one partition on both sides."""

    partition: str
    """Its folder name: ``dt=2026-01-01``."""
    rows_left: int
    rows_right: int
    files_left: int
    files_right: int
    rows_removed: int
    """Rows in files that only the left side has; they may be in other files of the right side, too."""
    rows_added: int
    files_removed: int
    files_added: int

    @property
    def is_changed(self) -> bool:
        return bool(self.files_removed or self.files_added)


@dataclass(frozen=True)
class SchemaDiff:
    """Top-level columns by their ids, and all changes in words."""

    added: tuple[Field, ...]
    """Columns that only the right side has."""
    removed: tuple[Field, ...]
    """Columns that only the left side has."""
    changed: tuple[tuple[Field, Field], ...]
    """Columns that both have, left and right, with another name, type or comment."""
    phrases: tuple[str, ...]
    """All changes from left to right, nested fields, options and the table's comment among them."""

    def __bool__(self) -> bool:
        return bool(self.phrases)


@dataclass(frozen=True)
class TableDiff:
    """Lazy metadata diff of two sides. Nothing is read before it is accessed."""

    left: DiffSide
    right: DiffSide

    @lazy
    def files(self) -> FileDiff:
        """Data files that differ. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
        left, right = self.left.live, self.right.live
        schema_ids = left.select(*IDENTITY, schema_id_left="schema_id")
        return FileDiff(
            added=right.join(left, on=IDENTITY, how="anti", maintain_order="left"),
            removed=left.join(right, on=IDENTITY, how="anti", maintain_order="left"),
            shared=right.join(schema_ids, on=IDENTITY, how="inner", maintain_order="left"),
        )

    @lazy
    def schema(self) -> SchemaDiff:
        """Columns and options that differ."""
        left, right = self.left.schema, self.right.schema
        pairs = [(f, right.field_by_id(f.id)) for f in left.fields]
        return SchemaDiff(
            added=tuple(f for f in right.fields if left.field_by_id(f.id) is None),
            removed=tuple(f for f, other in pairs if other is None),
            changed=tuple((f, other) for f, other in pairs if other is not None and other != f),
            phrases=tuple(changes_between(left, right)),
        )

    @lazy
    def partitions(self) -> tuple[PartitionDiff, ...]:
        """Every partition of either side, by name. Raises as `files`."""
        sides = (self.left, self.right)
        live = [_tally(side.live, side.schema, name) for side, name in zip(sides, _SIDES, strict=True)]
        changed = [
            _tally(self.files.removed, self.left.schema, "removed"),
            _tally(self.files.added, self.right.schema, "added"),
        ]
        whole = live[0].join(live[1], on="partition", how="full", coalesce=True)
        for tally in changed:
            whole = whole.join(tally, on="partition", how="left")
        whole = whole.fill_null(0).sort("partition")
        names = ["partition", *(f"{what}_{side}" for side in _SIDES for what in ("rows", "files"))]
        names += [f"{what}_{change}" for change in ("removed", "added") for what in ("rows", "files")]
        return tuple(PartitionDiff(**row) for row in whole.select(names).iter_rows(named=True))


def changed_files(diff: TableDiff, ids: Sequence[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the files of each side that may hold rows the other side lacks, by `FILE_KEY`.

    A file that is live on both sides has the same rows on both, unless the sides read some of its columns in
    different ways, as after one of them dropped a column.

    Args:
        ids: field ids of the compared columns.
    """
    files = diff.files
    differing = [
        pair for pair in files.shared.select(*_PAIR).unique().iter_rows() if not _read_alike(diff, pair, ids)
    ]
    pairs = pl.DataFrame(differing, schema=_PAIR, orient="row")
    reread = files.shared.join(pairs, on=[*_PAIR], how="semi", maintain_order="left").select(FILE_KEY)
    return (
        pl.concat([files.removed.select(FILE_KEY), reread]),
        pl.concat([files.added.select(FILE_KEY), reread]),
    )


_SIDES = ("left", "right")
_PAIR = {"schema_id_left": pl.Int64, "schema_id": pl.Int64}


def _read_alike(diff: TableDiff, schema_ids: tuple[int, int], ids: Sequence[int]) -> bool:
    """Whether files of a schema, given by its id on each side, give the same values on both."""
    return [*_sources(diff.left, schema_ids[0], ids)] == [*_sources(diff.right, schema_ids[1], ids)]


def _sources(side: DiffSide, schema_id: int, ids: Sequence[int]) -> Iterator[tuple[str, object] | None]:
    """Yield, per column, its source in a file and its target on this side; None if it reads null."""
    written = side.context.schemas.get(schema_id)
    for column in ids:
        source, target = written.field_by_id(column), side.schema.field_by_id(column)
        if source is None or target is None:
            yield None
        else:
            yield source.name, source.type.with_nullable(True)


def _tally(files: pl.DataFrame, schema: TableSchema, name: str) -> pl.DataFrame:
    """Count rows and files per partition, by its text: the bytes of one partition may differ between engines."""
    groups = files.group_by("partition", maintain_order=True).agg(
        rows=pl.col("row_count").sum(), files=pl.len()
    )
    texts = [partition_text(row, schema) for row in groups["partition"]]
    spelled = groups.with_columns(partition=pl.Series(texts, dtype=pl.String))
    return spelled.group_by("partition").agg(
        pl.col("rows").sum().cast(pl.Int64).alias(f"rows_{name}"),
        pl.col("files").sum().cast(pl.Int64).alias(f"files_{name}"),
    )

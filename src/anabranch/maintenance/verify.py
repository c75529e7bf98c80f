"""Verifies a table: checks its metadata and listings, and with `deep` reads every data file in full."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.arrow.avro_file import AvroData
from anabranch.arrow.files import DataFile, translated
from anabranch.arrow.orc_file import OrcData
from anabranch.arrow.parquet_file import ParquetData, RowGroup
from anabranch.engine import Engine, LocalEngine
from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError
from anabranch.expr.values import NANOS_PER_DAY, NANOS_PER_UNIT
from anabranch.format.records.layout import file_format_of
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import check_answered
from anabranch.kernel.repair.found import Kind, Problem, Verification
from anabranch.kernel.repair.verify import Looked, about_file, look, makers_of
from anabranch.kernel.scan.split import SplitFile
from anabranch.lazy import lazy
from anabranch.lineage.model import entry_or_none
from anabranch.storage.protocol import Storage

_FILES_AT_ONCE: Final = 16
_ROWS_AT_ONCE: Final = 1 << 16
_SYSTEM_COLUMNS: Final = ("_ROW_ID", "_SEQUENCE_NUMBER")
"""Columns of row tracking."""
_UNITS: Final = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
"""Units of moments, as Parquet spells them."""
_FORMATS: Final[dict[str, Callable[[Storage, SplitFile], DataFile]]] = {
    "parquet": ParquetData,
    "orc": OrcData,
    "avro": AvroData,
}

Progress = Callable[[str], None]


def verify(
    context: TableContext,
    *,
    deep: bool = False,
    engine: Engine | None = None,
    progress: Progress = lambda _: None,
) -> Verification:
    """Find what is wrong with a table; nothing is changed. See `Table.verify`."""
    return looked_over(context, deep=deep, engine=engine, progress=progress)[0]


def looked_over(
    context: TableContext,
    *,
    deep: bool = False,
    engine: Engine | None = None,
    progress: Progress = lambda _: None,
) -> tuple[Verification, Looked | None]:
    """Return what `verify` finds, and everything examined; None if the table has no readable schema."""
    try:
        schema = newest_schema(context)
    except AnabranchError as error:
        check_answered(error)
        problem = Problem(Kind.SCHEMA, str(error.message), context.layout.schema_folder, context.branch)
        return Verification(context.name, (problem,), 0, 0, 0, 0, 0, 0, deep), None
    looked = look(context, schema, progress)
    problems = [replace(p, job=_job(p, looked)) for p in looked.problems]
    if deep:
        problems += _read_files(
            context, schema, looked, problems, engine=engine or LocalEngine(), progress=progress
        )
    order = list(Kind)
    problems.sort(
        key=lambda p: (p.severity != "error", order.index(p.kind), p.branch or "", p.snapshot_id or 0)
    )
    found = looked.found
    return (
        Verification(
            context.name,
            tuple(problems),
            *(found.branches, found.snapshots, found.refs, looked.manifests),
            *(looked.files.height, int(looked.files["file_size"].sum())),
            deep,
        ),
        looked,
    )


def newest_schema(context: TableContext) -> TableSchema:
    """Return the schema for finding files: the branch's, or that of the table's own folder if the branch is gone."""
    for place in (context, context.on_branch(None)):
        schema = place.schemas.latest()
        if schema is not None:
            return schema
    raise NotFoundError(f"table '{context.name}' has no schema")


def _job(problem: Problem, looked: Looked) -> str | None:
    """Return the name of the job that wrote what is lost, if its commit says so; else the commit user."""
    made = next((s.snapshot for s in looked.states if s.snapshot.commit_user == problem.job), None)
    return problem.job if made is None else _job_of(made)


def _job_of(made: Snapshot) -> str:
    entry = entry_or_none(made)
    return made.commit_user if entry is None else entry.job


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of files of one version of the schema."""

    fields: tuple[Field, ...]
    dropped: frozenset[str]
    """Names of others that the table has or had: files that were declared anew may have columns that were dropped."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Data files to read in full."""

    storage: Storage
    files: tuple[SplitFile, ...]
    columns: tuple[_Columns, ...]
    """Those of each."""


def _read_files(
    context: TableContext,
    schema: TableSchema,
    looked: Looked,
    known: Sequence[Problem],
    *,
    engine: Engine,
    progress: Progress,
) -> Iterator[Problem]:
    skipped = {p.path for p in known if p.kind in (Kind.FILE_MISSING, Kind.FILE_SIZE)}
    rows = {r["path"]: r for r in looked.files.iter_rows(named=True) if r["path"] not in skipped}
    known_columns = _KnownColumns(context, looked)
    parts, files, fields = [], [], []
    for row in rows.values():
        columns = known_columns.of(row)
        if columns is None:
            continue  # a missing schema is a problem of its own
        name = file_format_of(row["file_name"])
        files.append(SplitFile(row["path"], row["file_size"], row["row_count"], row["schema_id"], name))
        fields.append(columns)
        if len(files) == _FILES_AT_ONCE:
            parts.append(_Part(context.storage, tuple(files), tuple(fields)))
            files, fields = [], []
    if files:
        parts.append(_Part(context.storage, tuple(files), tuple(fields)))
    makers, done = makers_of(looked), 0
    for part in engine.map(_read_part, parts, name=f"verify files of {context.title}"):
        done += part[0]
        progress(f"read {done:,} of {len(rows):,} data files")
        for path, kind, message in part[1]:
            row = rows[path]
            state, made = looked.states[row["state"]], makers(row["file_name"])
            about: dict[str, Any] = about_file(row, schema, made)
            about["job"] = None if made is None else _job_of(made)
            text = f"data file {path} of {state.name}: {message} ({row['row_count']:,} rows)"
            yield Problem(Kind(kind), text, path, state.context.branch, state.snapshot.id, **about)


class _KnownColumns:
    """The columns that files have by the version of the schema they name."""

    def __init__(self, context: TableContext, looked: Looked) -> None:
        self._looked = looked
        places = {state.context.branch: state.context for state in looked.states}
        self._places = [context.on_branch(None), *(places[name] for name in places if name is not None)]
        self._known: dict[tuple[str | None, int], _Columns | None] = {}

    def of(self, row: dict[str, Any]) -> _Columns | None:
        """Those of a file; None if its schema cannot be read. Raises `StorageError`."""
        context = self._looked.states[row["state"]].context
        key = (context.branch, row["schema_id"])
        if key not in self._known:
            schema = _found(context, row["schema_id"])
            self._known[key] = None if schema is None else _Columns(schema.fields, self._dropped(schema))
        return self._known[key]

    def _dropped(self, schema: TableSchema) -> frozenset[str]:
        ids, names = {f.id for f in schema.fields}, {f.name for f in schema.fields}
        return frozenset(f.name for f in self._ever if f.id not in ids and f.name not in names)

    @lazy
    def _ever(self) -> list[Field]:
        """The columns of all versions of the schema on all branches."""
        found: dict[tuple[int, str], Field] = {}
        for place in self._places:
            for schema_id in place.schemas.ids():
                schema = _found(place, schema_id)
                found.update({(f.id, f.name): f for f in (schema.fields if schema is not None else ())})
        return [*found.values()]


def _found(context: TableContext, schema_id: int) -> TableSchema | None:
    try:
        return context.schemas.get(schema_id)
    except AnabranchError as error:
        check_answered(error)
        return None


def _read_part(part: _Part) -> tuple[int, list[tuple[str, str, str]]]:
    """Return the number of files read, and path, kind and message of each problem."""
    wrong: list[tuple[str, str, str]] = []
    for file, columns in zip(part.files, part.columns, strict=True):
        try:
            message = _read_file(part.storage, file, columns)
        except NotFoundError:
            continue  # it expired meanwhile
        except AnabranchError as error:
            check_answered(error)
            wrong.append((file.path, Kind.FILE_DAMAGED.value, str(error.message)))
        else:
            if message is not None:
                wrong.append((file.path, Kind.FILE_STATISTICS.value, message))
    return len(part.files), wrong


def _read_file(storage: Storage, file: SplitFile, columns: _Columns) -> str | None:
    """Read all of a file; how it contradicts its statistics, or None. Raises `AnabranchError` if it is damaged."""
    opener = _FORMATS.get(file.format)
    if opener is None:
        return None
    wrong: str | None = None
    with translated(file.path):
        opened = opener(storage, file)
        _check_names(opened, columns)
        for piece in opened.pieces():
            bounds = _Bounds.of(piece) if isinstance(piece, RowGroup) else None
            for rows in piece.stream(columns.fields, _ROWS_AT_ONCE):
                if bounds is not None and wrong is None:
                    wrong = bounds.contradiction(rows)
    return wrong


def _check_names(opened: DataFile, columns: _Columns) -> None:
    """Raise `CorruptTableError` for a column that neither the file's schema has nor the table ever had.

    Merges declare files anew, so a file may lack columns of its schema, and have columns that were dropped.
    """
    names: Iterable[str] = ()
    if isinstance(opened, ParquetData):
        names = opened.schema.names
    elif isinstance(opened, OrcData):
        names = sorted(opened.names)
    known = {*_SYSTEM_COLUMNS, *columns.dropped, *(f.name for f in columns.fields)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CorruptTableError(
            f"has a column '{unknown[0]}', which the schema that it was written with does not have"
        )


@dataclass(frozen=True, slots=True)
class _Bounds:
    """A footer's statistics of a row group, by column."""

    columns: dict[str, tuple[Any, Any, int | None]]
    """Least value, greatest value, and number of nulls, or None if unknown. Dates and moments are Arrow scalars."""

    @classmethod
    def of(cls, group: RowGroup) -> _Bounds:
        found: dict[str, tuple[Any, Any, int | None]] = {}
        described = group.file.metadata.row_group(group.index)
        for name, leaves in group.file.leaves.items():
            if len(leaves) != 1 or pa.types.is_nested(group.file.schema.field(name).type):
                continue
            statistics = described.column(leaves[0]).statistics
            if statistics is None or not statistics.has_min_max:
                continue
            nulls = statistics.null_count if statistics.has_null_count else None
            found[name] = (*_ends(statistics), nulls)
        return cls(found)

    def contradiction(self, rows: pa.Table) -> str | None:
        for name, (low, high, nulls) in self.columns.items():
            position = rows.schema.get_field_index(name)
            if position < 0:
                continue
            column = rows.column(position)
            if nulls == 0 and column.null_count:
                return f"column '{name}' has nulls, its footer says that it has none"
            try:
                least, greatest = (_plain(pc.min_max(column)[end]) for end in ("min", "max"))
                if least is not None and (_order(least) < _order(low) or _order(greatest) > _order(high)):
                    found, said = f"{_text(least)} to {_text(greatest)}", f"{_text(low)} to {_text(high)}"
                    return f"column '{name}' has values from {found}, its footer says {said}"
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                continue  # its type has no such bounds
        return None


def _ends(statistics: Any) -> tuple[Any, Any]:
    """Return the least and the greatest value of a footer; dates and moments as Arrow scalars of any year."""
    logical = json.loads(statistics.logical_type.to_json())
    kind = pa.date32() if logical["Type"] == "Date" else None
    if logical["Type"] == "Timestamp" and logical.get("timeUnit") in _UNITS:
        kind = pa.timestamp(_UNITS[logical["timeUnit"]])
    if kind is None:
        return statistics.min, statistics.max
    storage = pa.int32() if pa.types.is_date(kind) else pa.int64()
    low, high = (pa.scalar(end, storage).cast(kind) for end in (statistics.min_raw, statistics.max_raw))
    return low, high


def _plain(value: Any) -> Any:
    """Return the Python value of an Arrow scalar, but a date or moment as it is: Python has only the years 1 to 9999."""
    is_moment = pa.types.is_date32(value.type) or pa.types.is_timestamp(value.type)
    return value if is_moment and value.is_valid else value.as_py()


def _order(value: Any) -> Any:
    """Return what values of a column are ordered by: of a date or moment its distance from 1970."""
    if not isinstance(value, pa.Scalar):
        return value
    if pa.types.is_date32(value.type):
        return (value.value * NANOS_PER_DAY,)
    # A tuple, since no number may be compared with it: then the types differ, and nothing follows.
    return (value.value * NANOS_PER_UNIT[value.type.unit],)


def _text(value: Any) -> str:
    """Return a value for a message."""
    text = value.cast(pa.string()).as_py() if isinstance(value, pa.Scalar) else repr(value)
    return f"{text:.60}"

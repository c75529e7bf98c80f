"""Declares data files of a branch under main's schemas: only the schema id in the manifest entry changes.

Main has no file ``schema-<k>`` for versions that a branch made. A data file does not name field ids: the meaning of its
columns follows, by name, from the schema that its manifest entry names. So a file may be declared under any
version of main's in which its columns mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from anabranch.format.records.data_file import DataFileMeta, SimpleStats
from anabranch.format.rows.binary_row import arity, decode_row, encode_row, with_arity
from anabranch.format.schema.diff import fits, ids_inside
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.data_types import Field


def declared_as(
    written: TableSchema, merged: TableSchema, versions: Iterable[TableSchema] = ()
) -> TableSchema | None:
    """Find the version of main's schema under which a file reads the same as under its own schema.

    Every column of the file that main has must be there with the same id, name and type, and no other column may
    have the name of one of the file's. Versions that have all of its columns, those included that main dropped since,
    come before those that lack some.

    Args:
        written: the branch's schema of the file.
        merged: main's schema after the merge, tried first.
        versions: others of main's, tried in order.

    Returns:
        None if there is no such version: conflict SCHEMA_REWRITE_NEEDED. Rewriting the file under the branch's newest schema
        helps where that has main's names and types (`way_to_main`).
    """
    found = [v for v in (merged, *versions) if _says_the_same(written, merged, v)]
    ids = {f.id for f in written.fields}
    whole = (v for v in found if ids <= {f.id for f in v.fields})
    return next(whole, None) or next(iter(found), None)


def way_to_main(branch: TableSchema, merged: TableSchema) -> str:
    """Say what makes files of the branch mergeable: they must be rewritten under names and types that main has."""
    found, by_id = [], {f.id: f for f in merged.fields}
    for field in branch.fields:
        there = by_id.get(field.id)
        if there is None:
            continue
        if not ids_inside(there) <= ids_inside(field):
            return (
                f"on main, '{there.name}' has fields inside that this branch cannot be given: write its rows to main, or to a branch "
                "that begins with a snapshot of main that has them, and merge that."
            )
        if there.name != field.name:
            found.append(f"'{field.name}' is called '{there.name}'")
        if not fits(field.type, there.type):
            found.append(f"'{there.name}' is {there.type}")
    first = f"on main, {' and '.join(found)}: make it so on the branch with `alter`, then " if found else ""
    return (
        f"{first}compact the branch fully, which rewrites its files with its newest schema, and merge again."
    )


def declared(file: DataFileMeta, written: TableSchema, version: TableSchema) -> DataFileMeta:
    """Return the file under `version`, as `declared_as` found it, with statistics laid out for its columns.

    Raises:
        CorruptTableError: the statistics do not match the schema.
    """
    names = file.value_stats_cols
    if names is not None:
        known = {f.name for f in version.fields}
        if known.issuperset(names):
            return replace(file, schema_id=version.id)
        by_name = {f.name: f for f in written.fields}
        before = tuple(by_name[name] for name in names)
        after = tuple(f for f in before if f.name in known)
    else:
        before, after = written.fields, version.fields
    if [f.id for f in before] == [f.id for f in after]:
        return replace(file, schema_id=version.id)
    return replace(
        file,
        schema_id=version.id,
        value_stats=_laid_out(file.value_stats, file, before, after),
        value_stats_cols=None if names is None else tuple(f.name for f in after),
    )


def _says_the_same(written: TableSchema, merged: TableSchema, version: TableSchema) -> bool:
    by_id = {f.id: f for f in version.fields}
    by_name = {f.name: f for f in version.fields}
    lives = {f.id for f in merged.fields}
    for f in written.fields:
        there = by_id.get(f.id)
        if there is None:
            # A dropped column is ignored, unless its name means another one there.
            if f.id in lives or f.name in by_name:
                return False
        elif there.name != f.name or not fits(f.type, there.type):
            return False
    has = {f.id for f in written.fields}
    return all(f.type.nullable for f in version.fields if f.id not in has)


def _laid_out(
    stats: SimpleStats, file: DataFileMeta, before: tuple[Field, ...], after: tuple[Field, ...]
) -> SimpleStats:
    low, high = (_values(row, before, file) for row in (stats.min_values, stats.max_values))
    at = {f.id: n for n, f in enumerate(before)}
    counts = stats.null_counts if len(stats.null_counts) == len(before) else (None,) * len(before)
    places = [at.get(f.id) for f in after]
    wanted = [f.type for f in after]
    return SimpleStats(
        min_values=with_arity(
            len(after), encode_row(wanted, [None if n is None else low[n] for n in places])
        ),
        max_values=with_arity(
            len(after), encode_row(wanted, [None if n is None else high[n] for n in places])
        ),
        # A column that the file lacks reads null in every row.
        null_counts=tuple(file.row_count if n is None else counts[n] for n in places),
    )


def _values(row: bytes, fields: tuple[Field, ...], file: DataFileMeta) -> Sequence[Any]:
    """Decode the bounds in a row; unknown ones if it is not a row of these columns, as readers treat it."""
    if arity(row, where=file.file_name) != len(fields):
        return (None,) * len(fields)
    return decode_row([f.type for f in fields], row, where=file.file_name)

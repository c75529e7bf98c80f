"""System tables: a table's metadata, as tables of fixed columns.

The columns are those of Paimon's system tables of the same name, in their order; ours come after them.
Times that are moments are timestamps with a zone; times in their writer's local wall clock are without.
Values without a type of their own (options, statistics) are JSON text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from anabranch.errors import InvalidInputError, NotFoundError, nearest
from anabranch.system_tables.definition import SystemTable, View, select, select_parts
from anabranch.system_tables.files import BUCKETS, FILES, MANIFESTS, PARTITIONS
from anabranch.system_tables.history import LINEAGE, OPTIONS, SCHEMAS, SNAPSHOTS
from anabranch.system_tables.lake import LAKE_TABLES, lake_table, lake_table_of, read_lake_table
from anabranch.system_tables.refs import BRANCHES, BRANCHES_LOG, CONSUMERS, ONLY_ON_MAIN, SAVEPOINTS, TAGS

__all__ = [
    "LAKE_TABLES",
    "SYSTEM_TABLES",
    "SystemTable",
    "View",
    "lake_table",
    "lake_table_of",
    "read_lake_table",
    "read_system_parts",
    "read_system_table",
    "select",
    "select_parts",
    "system_table",
    "undotted",
]

SYSTEM_TABLES: dict[str, SystemTable] = {
    table.name: table
    for table in (
        *(SNAPSHOTS, SCHEMAS, OPTIONS, FILES, MANIFESTS, PARTITIONS, BUCKETS),
        *(TAGS, SAVEPOINTS, BRANCHES, BRANCHES_LOG, ONLY_ON_MAIN, CONSUMERS, LINEAGE),
    )
}
"""The system tables that every table has, by name."""


def undotted(parts: Sequence[str]) -> tuple[str, str] | None:
    """Return database and ``t$snapshots`` for ``db.t.snapshots``, as users of Iceberg write it; None for any other name."""
    if len(parts) != 3 or parts[2].lower() not in SYSTEM_TABLES:
        return None
    return parts[0], f"{parts[1]}${parts[2].lower()}"


def system_table(name: str) -> SystemTable:
    """Return the system table of that name. Raises `NotFoundError` suggesting a similar name."""
    found = SYSTEM_TABLES.get(name)
    if found is None:
        near = nearest(str(name), SYSTEM_TABLES)
        raise NotFoundError(
            f"there is no system table '{name}'",
            hint=(f"did you mean '{near}'? " if near else "")
            + f"System tables there are: {', '.join(SYSTEM_TABLES)}.",
        )
    return found


def read_system_table(view: View, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return all rows of a system table. Raises as `Table.system`, and `SchemaError` for a column that it does not have.

    Args:
        view: the table, its branch, and the moment.
        columns: those to return, in that order; all if None. Some cost work that is saved by leaving them out.
    """
    return _readable(view, name).read(view, columns)


def read_system_parts(view: View, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield all rows of a system table in parts: not all are in memory at once. Args and errors as `read_system_table`."""
    return _readable(view, name).read_parts(view, columns)


def _readable(view: View, name: str) -> SystemTable:
    found = system_table(name)
    if view.pinned and not found.of_a_moment:
        raise InvalidInputError(
            f"'{name}' tells what there is now, but '{view.context.title}' is looked at in the past",
            hint=f"read '{name}' of the table itself.",
        )
    if view.damage is not None and found.needs_newest:
        raise view.damage
    return found

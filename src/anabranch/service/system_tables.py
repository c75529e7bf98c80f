"""Reading system tables by the names people type: ``db.t$files``, ``db.t$branch_fix$snapshots``, ``sys.tables``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from anabranch.catalog import Identifier
from anabranch.errors import InvalidInputError
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.moment import Moment
from anabranch.lake import Lake
from anabranch.service.tables import View, open_table
from anabranch.system_tables import lake_table, lake_table_of, select, system_table


def is_system_table(name: str) -> bool:
    """Whether a name means a system table. Raises `InvalidNameError`."""
    return lake_table_of(name) is not None or Identifier.parse(name).system is not None


def read(
    lake: Lake,
    view: View,
    *,
    filter: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
) -> tuple[pa.Table, Moment | None]:
    """Return rows of a system table, and the moment that was resolved, if one was asked for.

    Args:
        lake: the warehouse.
        view: its `table` names a system table.
        filter: SQL text on its columns.
        columns: those to return; all if None.
        limit: the most rows.

    Raises:
        NotFoundError: there is no such table or system table.
        InvalidInputError, PredicateError, SchemaError: the moment, filter or columns do not fit.
    """
    fields: Sequence[Field]
    moment = None
    of_lake = lake_table_of(view.table)
    if of_lake is not None:
        if view.at is not None or view.branch is not None:
            raise InvalidInputError(
                f"'{view.table}' is of the whole warehouse: it has no branches and no past",
                hint="leave out branch and moment.",
            )
        fields, rows = lake_table(of_lake), lake.system(of_lake)
    else:
        identifier = Identifier.parse(view.table)
        assert identifier.system is not None, "the caller asked `is_system_table`"
        fields = system_table(identifier.system).fields
        branch = identifier.branch if view.branch is None else view.branch
        table = open_table(lake, replace(view, table=identifier.full_name, branch=branch))
        moment = table.moment
        rows = table.system(identifier.system)
    return select(rows, fields, filter=filter, columns=columns, limit=limit), moment

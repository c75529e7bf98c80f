"""Verbs about rows: read, append, overwrite, explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from anabranch.errors import InvalidInputError
from anabranch.verbs.answer import Answer, Cut, Grid, Lines
from anabranch.verbs.caller import Caller, View
from anabranch.verbs.parameters import Columns, Filter, Limit, limit, most_rows, names
from anabranch.verbs.subject import AnyPublishedView, AtMoment, OnBranch
from anabranch.verbs.upkeep import partition_values
from anabranch.verbs.verb import Called, Group, argument, option, verb

ROWS: Group = "Tables and rows"
_Source = Annotated[str, argument("A parquet, csv or json file, or - for standard input.")]
_Format = Annotated[str | None, option("parquet, csv or json, where the name does not tell.")]


@verb(ROWS, "Table.scan", sql="SELECT * FROM db.t")
def read(
    view: AnyPublishedView,
    columns: Columns = None,
    filter: Filter = None,
    limit: Annotated[Limit | None, limit("20")] = None,
    *,
    caller: Called,
) -> Answer:
    """Read rows of a table, or of a system table such as 'db.t$files'; with --json one object a line."""
    most = most_rows(limit, 20, is_watched=caller.is_watched)
    return read_rows(caller, view, filter, names(columns), most)


def read_rows(
    caller: Caller, view: View, filter: str | None, columns: Sequence[str] | None, most: int | None
) -> Answer:
    """Read rows of a view of a table or system table. Raises what opening and scanning it raise."""
    from anabranch.catalog import Identifier
    from anabranch.frames.row_values import First
    from anabranch.system_tables import lake_table, lake_table_of, select

    more = None if most is None else most + 1
    of_lake = lake_table_of(view.table)
    if of_lake is not None:
        if view.at is not None or view.branch is not None:
            raise InvalidInputError(
                f"'{view.table}' is of the whole warehouse: it has no branches and no past",
                hint="leave out branch and moment.",
            )
        rows = caller.lake().system(of_lake)
        found = select(rows, lake_table(of_lake), filter=filter, columns=columns, limit=more)
        return _shown(found.schema.names, First(found.to_batches(), most), most)
    identifier = Identifier.parse(view.table)
    if identifier.system is None:
        table = caller.table(view)
        scan = table.scan(filter, columns, more)
        return _shown(scan.reader.schema.names, First(scan.to_batches(), most), most, table.moment)
    branch = identifier.branch if view.branch is None else view.branch
    table = caller.table(replace(view, table=identifier.full_name, branch=branch))
    batches = table.system_batches(identifier.system, filter, columns, more)
    return _shown(batches.schema.names, First(batches, most), most, table.moment)


def _shown(columns: Sequence[str], batches: Any, most: int | None, moment: object = None) -> Answer:
    """Show batches as they come, and say whether there are more."""
    from anabranch.frames.row_values import rows_of

    def cut() -> int | None:
        return most if batches.is_cut else None

    rows = (row for batch in batches for row in rows_of(batch))
    people = Grid(columns, (tuple(row.values()) for row in rows), grouped=False)
    return Answer(Lines(rows), people, Cut(cut), moment=moment)


@verb(ROWS, "Table.append", sql="INSERT INTO db.t ...", changes=True)
def append(table: OnBranch, source: _Source, format: _Format = None) -> Answer:
    """Append the rows of a file."""
    from anabranch.frames.user_files import read_rows as rows_of_file
    from anabranch.verbs.tables import SnapshotInfo

    snapshot = table.append(rows_of_file(source, format, table.scan().reader.schema))
    text = f"appended {snapshot.delta_record_count:,} rows to {table.name}: snapshot {snapshot.id}"
    return Answer(SnapshotInfo.of(snapshot), text)


@verb(ROWS, "Table.overwrite", sql="INSERT OVERWRITE db.t ...", changes=True)
def overwrite(
    table: OnBranch,
    source: _Source,
    format: _Format = None,
    partition: Annotated[
        str | None, option("Replace all rows of this partition, such as dt=2026-01-01/hour=3.")
    ] = None,
    if_unchanged_since: Annotated[
        int | None, option("Fail if rows to be replaced were changed after this snapshot.", min=0)
    ] = None,
) -> Answer:
    """Replace rows by those of a file: the partitions that occur in it, or all rows of an unpartitioned table."""
    from anabranch.frames.user_files import read_rows as rows_of_file
    from anabranch.verbs.tables import SnapshotInfo

    values = None if partition is None else next(iter(partition_values([partition]) or ()), None)
    rows = rows_of_file(source, format, table.scan().reader.schema)
    snapshot = table.overwrite(rows, values, if_unchanged_since=if_unchanged_since)
    return Answer(SnapshotInfo.of(snapshot), f"overwrote rows of {table.name}: snapshot {snapshot.id}")


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """What a read would do."""

    text: str
    steps: tuple[Mapping[str, object], ...]
    files: int
    splits: int
    rows: int
    bytes: int


@verb(ROWS, "Table.scan", sql="EXPLAIN SELECT * FROM db.t")
def explain(table: AtMoment, filter: Filter = None, columns: Columns = None) -> Answer:
    """Show how a read finds its files, step by step."""
    scan = table.scan(filter, names(columns))
    plan = scan.plan()
    report = plan.report
    info = PlanInfo(
        text=scan.explain(),
        steps=tuple({"step": s.name, "manifests": s.manifests, "files": s.files} for s in report.steps),
        files=plan.files.height,
        splits=report.splits,
        rows=report.rows,
        bytes=report.bytes,
    )
    return Answer(info, info.text, moment=table.moment)

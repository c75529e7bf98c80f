"""Lineage of a Spark query: finds the tables and files that a frame was computed from, in its plan, as inputs of a commit."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.catalog import Identifier
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.lineage.joining import joined
from anabranch.lineage.model import Input, SourceInput, TableInput
from anabranch.lineage.reads import state_read
from anabranch.spark.context.options import spelled
from anabranch.spark.context.table_state import FILES, TABLES
from anabranch.spark.context.tables import NewestState, view_of
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.lineage import plans
from anabranch.spark.native.portable import described_scan
from anabranch.system_tables import lake_table_of

_LOG = logging.getLogger(__name__)
_LONGEST = 200
"""Longest description of a source, in characters."""
_FILE_TABLES = ("ParquetTable", "OrcTable", "JsonTable", "CSVTable", "TextTable", "AvroTable")


@dataclass
class PlanInputs:
    """Sources of a frame, as far as they are known."""

    inputs: list[Input] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    has_rows_of_program: bool = False
    """Whether some rows were supplied by the program itself."""
    has_rows_of_rdd: bool = False
    """Whether some rows come from an RDD, whose origin Spark does not tell; a batch of a stream is one."""
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of the tables, by table name."""

    @property
    def has_others(self) -> bool:
        """Whether some rows may have an origin that only the program knows."""
        return self.has_rows_of_program or self.has_rows_of_rdd

    def saw(
        self,
        context: TableContext,
        snapshot: Snapshot | None,
        schema: TableSchema,
        read: TableInput | None = None,
    ) -> None:
        """Add an input: a snapshot, or another `read`, was read in the columns of a schema."""
        self.inputs.append(read or state_read(context, snapshot))
        self.columns[context.title] = tuple(column.name for column in schema.fields)


def found_in(jvm: Jvm, leaves: Callable[[], list[Any] | None]) -> PlanInputs:
    """Return the sources that `leaves` yields. Never raises: what is not understood becomes a problem."""
    found = PlanInputs()
    nodes: list[Any] | None = None
    try:
        nodes = leaves()
        reason = "" if nodes is not None else ": there is none"
    except Exception as error:  # whatever Spark is made of
        reason = f": {_first_line(error)}"
    if nodes is None:
        found.problems.append(
            f"Spark's plan, which tells what the rows were computed from, cannot be read{reason}"
        )
    for node in nodes or ():
        try:
            _look(jvm, node, found)
        except Exception as error:  # a source that somebody registered may raise anything
            _LOG.debug("a source cannot be read", exc_info=True)
            found.problems.append(f"a source of the rows is not known: {_first_line(error)}")
    found.inputs = list(joined(found.inputs))
    found.problems = list(dict.fromkeys(found.problems))
    return found


def _look(jvm: Jvm, node: Any, found: PlanInputs) -> None:
    kind = plans.class_name(node)
    match kind:
        case "DataSourceV2Relation":
            _of_table(node.table(), plans.options_of(node), found)
        case "DataSourceV2ScanRelation":
            _of_table(node.relation().table(), plans.options_of(node.relation()), found)
        case "BatchScanExec":
            _of_table(node.table(), {}, found)
        case "LogicalRelation" | "FileSourceScanExec" | "RowDataSourceScanExec":
            _of_relation(jvm, node.relation(), found)
        case "HiveTableRelation" | "HiveTableScanExec":
            found.inputs.append(_unknown(node.simpleString(25)))
        case "LogicalRDD" | "RDDScanExec" | "ExternalRDD" | "ExternalRDDScanExec":
            found.has_rows_of_rdd = True
        case "LocalRelation" | "LocalTableScanExec":
            # Literal rows of a statement (VALUES) have no source.
            found.has_rows_of_program |= not node.origin().sqlText().isDefined()
        case (
            "OneRowRelation"
            | "OneRowRelationExec"
            | "Range"
            | "RangeExec"
            | "EmptyRelation"
            | "EmptyRelationExec"
        ):
            pass  # no rows of anybody
        case "CTERelationRef" | "CommandResult" | "CommandResultExec" | "ReusedExchangeExec":
            pass  # what it stands for is there as well, or it was an answer of Spark's
        case _:
            found.problems.append(f"a source of the rows is not known: Spark calls it {kind}")


def _of_table(table: Any, options: Mapping[str, str], found: PlanInputs) -> None:
    """Add the source of a DataSource V2 table to `found`."""
    name = plans.class_name(table)
    if plans.PROXY in name:
        ours = TABLES.get((str(table.toString()), table.version()))
        if ours is None:
            found.inputs.append(_unknown(table.name()))
        else:
            seen = ours.by(options)
            found.saw(seen.table.context, seen.snapshot, seen.schema, seen.scan.read_from())
    elif name == "PythonTable":
        _of_python(table, options, found)
    elif name.endswith("KafkaTable"):
        found.inputs.append(kafka_input(options))
    elif name in _FILE_TABLES and "path" in options:
        found.inputs.append(SourceInput("files", options["path"], None, None))
    else:
        found.inputs.append(_unknown(table.name()))


def _of_python(table: Any, options: Mapping[str, str], found: PlanInputs) -> None:
    match plans.python_source_name(table).lower():
        case "anabranch":
            source = plans.python_source(table)
            look_up({**source.defaults, **spelled(source.options, is_checked=True)}, found, source.newest)
        case "anabranch-scan":
            scan = described_scan(options)
            found.saw(scan.context, scan.snapshot, scan.schema, scan.read_from())
        case "anabranch-kafka":
            found.inputs.append(kafka_input(options))
        case name:
            found.inputs.append(_unknown(f"{name} {options['path']}" if "path" in options else name))


def look_up(asked: Mapping[str, str], found: PlanInputs, newest: NewestState | None = None) -> None:
    """Add the source of a batch read of our data source. Raises as `anabranch.spark.context.tables.view_of`."""
    path = asked.get("path", "")
    if "/" not in path and (lake_table_of(path) is not None or Identifier.parse(path).system is not None):
        found.inputs.append(_unknown(path))
    else:
        view = view_of(asked, newest)
        found.saw(view.table.context, view.snapshot, view.schema)


def _of_relation(jvm: Jvm, relation: Any, found: PlanInputs) -> None:
    """Add the source of a DataSource V1 relation to `found`."""
    if plans.class_name(relation) != "HadoopFsRelation":
        found.inputs.append(_unknown(relation.toString()))
        return
    location = relation.location()
    paths = plans.root_paths(jvm, location)
    ours = FILES.get(paths[-1]) if plans.PROXY in plans.class_name(location) else None
    if ours is None:
        found.inputs += [SourceInput("files", path, None, None) for path in paths]
    else:
        found.saw(ours.context, ours.snapshot, ours.schema, ours.read_from())


def kafka_input(options: Mapping[str, str]) -> SourceInput:
    """Return the input for a batch read of topics, with the offsets where the options give them."""
    asked = {key.lower(): value for key, value in options.items()}
    topics = asked.get("subscribe") or asked.get("assign") or asked.get("subscribepattern") or "topics"
    start, end = _offsets(asked.get("startingoffsets")), _offsets(asked.get("endingoffsets"))
    return SourceInput("kafka", topics, start, end)


def _offsets(text: str | None) -> Any:
    """Parse offsets by topic and partition; None for words such as ``latest``, which only the read resolved."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0][:_LONGEST]


def _unknown(description: Any) -> SourceInput:
    return SourceInput("unknown", str(description)[:_LONGEST], None, None)

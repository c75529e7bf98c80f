"""``CALL lake.sys.<verb>(...)``: the declared verbs as Spark procedures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from anabranch.catalog import Identifier
from anabranch.errors import NotFoundError
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.text.names import SYSTEM_DATABASE
from anabranch.spark.catalog import java
from anabranch.spark.catalog.called import (
    PROCEDURES,
    TABLE,
    CalledIn,
    Parameter,
    Verb,
    arguments,
    called,
)
from anabranch.spark.catalog.called import procedure as procedure_named
from anabranch.spark.catalog.lookup import NoSuchTableError, Warehouse
from anabranch.spark.jvm.proxy import JavaProxy, Jvm, WithoutMetrics
from anabranch.spark.native.internals import internal_rows
from anabranch.spark.tasks.engine import SparkEngine
from anabranch.spark.types.columns import arrow_schema, spark_schema
from anabranch.table import Table

_PROCEDURES = f"{java.CONNECTOR}.catalog.procedures"


def procedure_names() -> list[str]:
    """Return the names of all procedures."""
    return list(PROCEDURES)


def procedure(jvm: Jvm, warehouse: Warehouse, levels: Sequence[str], name: str) -> Procedure:
    """Return the procedure of that name. Raises `NotFoundError`."""
    if [str(level) for level in levels] != [SYSTEM_DATABASE]:
        raise NotFoundError(
            f"there is no procedure '{'.'.join([warehouse.catalog, *map(str, levels), name])}'",
            hint=f"procedures are in {warehouse.catalog}.{SYSTEM_DATABASE}: "
            f"CALL {warehouse.catalog}.{SYSTEM_DATABASE}.{name}(...).",
        )
    return Procedure(jvm, warehouse, procedure_named(name))


class Procedure(JavaProxy):
    """A verb as a procedure that Spark can call."""

    class Java:
        implements = [f"{_PROCEDURES}.UnboundProcedure", f"{_PROCEDURES}.BoundProcedure"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, warehouse: Warehouse, what: Verb) -> None:
        self.jvm = jvm
        self._warehouse = warehouse
        self._verb = what
        self._parameters = arguments(what)

    def name(self) -> str:
        return self._verb.sql_name

    def description(self) -> str:
        return self._verb.help.partition("\n")[0]

    def bind(self, _types: Any) -> Procedure:
        return self

    def isDeterministic(self) -> bool:  # noqa: N802
        return False

    def parameters(self) -> Any:
        made = [self._declared(parameter) for parameter in self._parameters]
        return self.jvm.array(f"{_PROCEDURES}.ProcedureParameter", made)

    def call(self, row: Any) -> Any:
        given = {p.sql_name: _value(row, place, p) for place, p in enumerate(self._parameters)}
        warehouse = self._warehouse
        assert isinstance(warehouse.engine, SparkEngine), "it is a catalog of Spark"
        place = CalledIn(warehouse.engine.spark, warehouse.files, warehouse.options)
        if TABLE not in self._parameters:
            answer = called(self._verb, None, place, given)
        else:
            short, table = self._table(given["table"])
            with recached(self.jvm, warehouse, short, given.get("branch")):
                answer = called(self._verb, table, place, given)
        return self.jvm.list([ProcedureRows(self.jvm, self._verb, answer)]).iterator()

    def _table(self, name: str | None) -> tuple[str, Table]:
        """Open the table of that name, which may begin with the catalog. Raises `NotFoundError`."""
        if name is None:
            raise NotFoundError("no table is named", hint="write table => 'db.t'.")
        own = f"{self._warehouse.catalog}."
        short = name.removeprefix(own) if name.count(".") > 1 else name
        try:
            return short, self._warehouse.table(short)
        except NoSuchTableError as error:
            raise NotFoundError(
                f"table '{name}' does not exist in catalog '{self._warehouse.catalog}'",
                hint=f"SHOW TABLES IN {own}{short.partition('.')[0]} lists those there are.",
            ) from error

    def _declared(self, parameter: Parameter) -> Any:
        declare = getattr(self.jvm.of(f"{_PROCEDURES}.ProcedureParameter"), "in")
        types = self.jvm.of("org.apache.spark.sql.types.DataType")
        kind = types.fromDDL(parameter.sql_type)
        declared = declare(parameter.sql_name, kind).comment(parameter.option.help)
        return (declared if parameter.is_needed_in_sql else declared.defaultValue("NULL")).build()


class ProcedureRows(WithoutMetrics):
    """Result rows of a procedure."""

    class Java:
        implements = [f"{java.CONNECTOR}.read.LocalScan"]  # noqa: RUF012

    def __init__(self, jvm: Jvm, what: Verb, rows: Sequence[tuple[Any, ...]]) -> None:
        self.jvm = jvm
        self._verb = what
        self._fields = parse_columns(what.columns or "")
        self._rows = rows

    def readSchema(self) -> Any:  # noqa: N802
        return self.jvm.struct(spark_schema(self._fields))

    def description(self) -> str:
        return f"answer of {self._verb.sql_name}"

    def rows(self) -> Any:
        columns = arrow_schema(self._fields)
        named = [dict(zip(columns.names, row, strict=True)) for row in self._rows]
        batch = pa.RecordBatch.from_pylist(named, schema=columns)
        rows = internal_rows(self.jvm, batch, spark_schema(self._fields)) if named else self.jvm.seq([])
        found = [rows.apply(place) for place in range(rows.length())]
        return self.jvm.array("org.apache.spark.sql.catalyst.InternalRow", found)


def _value(row: Any, place: int, parameter: Parameter) -> Any:
    if row.isNullAt(place):
        return None
    match parameter.sql_type:
        case "STRING":
            return str(row.getUTF8String(place).toString())
        case "BOOLEAN":
            return bool(row.getBoolean(place))
        case "DOUBLE":
            return float(row.getDouble(place))
    return int(row.getLong(place))


# Invalidation of Spark's cache for tables whose rows a procedure changes.
#
# Spark invalidates by itself for its own statements; it does not know about a rollback or a merge.

_State = tuple[str, int | None]
"""The branch, and its newest snapshot id."""


@contextmanager
def recached(jvm: Jvm, warehouse: Warehouse, name: str, branch: str | None) -> Iterator[None]:
    """Invalidate Spark's cached data of a table, of the named branch and of its main, where the block moved them.

    Args:
        warehouse: where the table is.
        name: ``db.t`` or ``db.t$branch_fix``.
        branch: of the table, which the procedure is about too; None for none.
    """
    if jvm.session.sharedState().cacheManager().isEmpty():
        yield
        return
    main = Identifier.parse(name).full_name.partition("$")[0]
    names = {main, name, *([] if branch is None else [f"{main}$branch_{branch}"])}
    before = {each: _state(warehouse, each) for each in names}
    yield
    for each in sorted(names):
        now = _state(warehouse, each)
        if now is not None and now != before[each]:
            parts = (warehouse.catalog, *each.split(".", 1))
            jvm.spark.catalog.refreshTable(".".join("`" + part.replace("`", "``") + "`" for part in parts))


def _state(warehouse: Warehouse, name: str) -> _State | None:
    try:
        table = warehouse.table(name)
        return str(table.branch_uuid), None if table.snapshot is None else table.snapshot.id
    except (NotFoundError, NoSuchTableError):
        return None

"""SHOW and DESCRIBE where Spark's SQL does not know the tables: same columns and rows as Spark's own."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import SYSTEM_DATABASE, shown_option
from anabranch.kernel.scan.partitions import in_order_of_values
from anabranch.kernel.scan.pruning import partition_values
from anabranch.options import PATH
from anabranch.spark.catalog.properties import OWN_PREFIX, RESERVED
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.scanner import WordReader
from anabranch.spark.sql.tables import TableStatements
from anabranch.spark.types.columns import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Looking:
    """Read-only statements: SHOW and DESCRIBE."""

    def __init__(self, spark: SparkSession, names: Names, tables: TableStatements) -> None:
        """Create it for one session and one warehouse."""
        self._spark = spark
        self._names = names
        self._tables = tables

    def databases(self, reader: WordReader) -> DataFrame:
        """``[IN lake] [LIKE 'a*']``"""
        if reader.accept_any("IN", "FROM"):
            parts = reader.name("the name of the catalog")
            if parts != (self._names.catalog,):
                return self._spark.sql(reader.statement)
        wanted = _pattern(reader)
        found = [(_shown(name),) for name in self._names.files.databases() if wanted(name)]
        return self._rows("namespace STRING", found)

    def tables(self, reader: WordReader) -> DataFrame:
        """``[IN db] [LIKE 'a*']``"""
        database = self._names.database
        if reader.accept_any("IN", "FROM"):
            *catalog, database = reader.name("a database")
            if catalog not in ([], [self._names.catalog]):
                return self._spark.sql(reader.statement)
        wanted = _pattern(reader)
        if database == SYSTEM_DATABASE:
            from anabranch.system_tables import LAKE_TABLES

            known = sorted(LAKE_TABLES)
        else:
            known = self._names.tables(database)
        found = [(_shown(database), name, False) for name in known if wanted(name)]
        return self._rows("namespace STRING, tableName STRING, isTemporary BOOLEAN", found)

    def columns(self, reader: WordReader) -> DataFrame:
        """``IN t``"""
        reader.accept_any("IN", "FROM")
        schema = self._schema(reader.name("a table"))
        reader.end()
        return self._rows("col_name STRING", [(f.name,) for f in schema.fields])

    def properties(self, reader: WordReader) -> DataFrame:
        """``t [('key')]``"""
        parts = reader.name("a table")
        schema = self._schema(parts)
        shown = {
            k: v for k, v in schema.options.items() if not k.startswith(OWN_PREFIX) and k not in RESERVED
        }
        if reader.here is not None:
            key = reader.inside("( 'key' )")[0].value
            missing = f"Table {'.'.join(parts)} does not have property: {key}"
            shown = {key: shown.get(key, missing)}
        rows = [(key, shown_option(key, value)) for key, value in sorted(shown.items())]
        return self._rows("key STRING, value STRING", rows)

    def describe(self, reader: WordReader) -> DataFrame:
        """``[EXTENDED] t``"""
        reader.accept_any("EXTENDED", "FORMATTED")
        parts = reader.name("a table")
        reader.end()
        schema = self._schema(parts)
        shown = {f.name: f.dataType.simpleString() for f in spark_schema(schema.fields)}
        rows = [(f.name, shown[f.name], f.description) for f in schema.fields]
        if schema.partition_keys:
            rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
            rows += [(f.name, shown[f.name], f.description) for f in schema.partition_fields]
        return self._rows("col_name STRING, data_type STRING, comment STRING", rows)

    def partitions(self, reader: WordReader) -> DataFrame:
        """``t [PARTITION (...)]``"""
        table = self._tables.named(reader.name("a table"))
        schema = table.schema
        if not schema.partition_keys:
            raise InvalidInputError(f"table '{table.name}' has no partitions", hint="it is not partitioned.")
        condition = self._tables.condition(reader.partition(), table)
        reader.end()
        plan = table.scan(condition).plan()
        rows = in_order_of_values(plan.files["partition"].unique(), schema)
        columns = partition_values(rows, schema)
        texts = [
            "/".join(
                f"{key}={_partition_text(column[place].as_py())}"
                for key, column in zip(schema.partition_keys, columns, strict=True)
            )
            for place in range(len(rows))
        ]
        return self._rows("partition STRING", [(text,) for text in texts])

    def _schema(self, parts: tuple[str, ...]) -> TableSchema:
        name = self._names.full(parts)
        if name is None:
            raise NotFoundError(f"'{'.'.join(parts)}' is no table of the lake", hint=f"see {PATH.key}.")
        return self._names.connector(name) or self._tables.open(name).schema

    def _rows(self, columns: str, rows: list[Any]) -> DataFrame:
        return self._spark.createDataFrame(rows, columns)


def _pattern(reader: WordReader) -> Any:
    """Parse ``LIKE 'a*|b'`` into a function that matches names; ``*`` matches anything."""
    reader.accept("LIKE")
    if reader.here is None:
        return lambda _name: True
    patterns = [text.strip().lower() for text in reader.text("a pattern").split("|")]
    reader.end()
    return lambda name: any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in patterns)


def _shown(name: str) -> str:
    """Return a database name as Spark shows it."""
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def _partition_text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)

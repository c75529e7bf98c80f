"""SQL without a JVM: DuckDB answers read-only statements over tables of the lake.

Tables are ``db.t`` (also ``lake.db.t``, and ``t`` for one of database ``default``), with ``$branch_<name>`` and system tables behind
them, and ``sys.tables``. ``VERSION AS OF`` and ``TIMESTAMP AS OF`` may follow a name, as in Spark. Every table that a
statement names is read at one snapshot, and DuckDB's filters and columns reach the planner.

Options of a read stand in a hint behind the name: ``db.t /*+ OPTIONS('incremental-between' = '5,10') */``.

DuckDB's functions and types are its own; statements that write, and streams, are Spark's.
"""

from __future__ import annotations

from anabranch.duck.answers import SqlRows, duckdb, sql
from anabranch.duck.statements import is_read, statements_of

__all__ = ["SqlRows", "duckdb", "is_read", "sql", "statements_of"]

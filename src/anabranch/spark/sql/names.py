"""Resolution of names in statements to tables of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.catalog import FilesystemCatalog, Identifier
from anabranch.catalog.connectors import Connectors
from anabranch.errors import InvalidNameError, NotFoundError, SqlError
from anabranch.format.records.layout import Layout
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import SYSTEM_DATABASE
from anabranch.system_tables import undotted


@dataclass
class Names:
    """Name resolution while the lake is the current catalog."""

    catalog: str
    """Catalog name of the lake in the session."""
    files: FilesystemCatalog
    database: str
    """Current database, which need not exist."""

    @property
    def connectors(self) -> Connectors:
        """Definitions of external tables."""
        return Connectors(self.files.storage)

    def full(self, parts: Sequence[str]) -> str | None:
        """Return ``db.t`` for a name that a statement would create or drop; None if it is of another catalog."""
        match list(parts):
            case [name]:
                return f"{self.database}.{name}"
            case [database, name]:
                return f"{database}.{name}"
            case [catalog, database, name]:
                return f"{database}.{name}" if catalog == self.catalog else None
        raise SqlError(f"'{'.'.join(parts)}' names no table", hint="write database.table.")

    def table(self, parts: Sequence[str]) -> str | None:
        """Return ``db.t`` for a name in a query; None if it cannot be one of the lake's tables.

        A name of one part is one of the lake's if the current database has such a table. One with a database of the
        lake, or with the lake itself, is one whether or not there is such a table.
        """
        system = undotted(parts[1:] if parts[0] == self.catalog else parts)
        if system is not None and system[0] in self.files.databases():
            return ".".join(system)
        if not 1 <= len(parts) <= 3:
            return None
        if len(parts) == 3:
            return self.full(parts)
        databases = self.files.databases()
        if len(parts) == 2:
            return f"{parts[0]}.{parts[1]}" if parts[0] in (*databases, SYSTEM_DATABASE) else None
        if self.database not in databases:
            return None
        return f"{self.database}.{parts[0]}" if self.has(f"{self.database}.{parts[0]}") else None

    def has(self, name: str) -> bool:
        """Whether a table ``db.t`` exists, a branch or system table of one, or an external one."""
        try:
            identifier = Identifier.parse(name)
        except InvalidNameError:
            return False
        first_schema = f"{identifier.path}/{Layout().schema_path(0)}"
        return self.files.storage.exists(first_schema) or self.connector(name) is not None

    def elsewhere(self, parts: Sequence[str]) -> str | None:
        """Return ``db.t`` for the name of an external table; None if it is not one."""
        name = self.full(parts) if 1 <= len(parts) <= 3 else None
        return name if name is not None and self.connector(name) is not None else None

    def connector(self, name: str) -> TableSchema | None:
        """Return the definition of an external table ``db.t``; None if it is not one."""
        database, _, table = name.partition(".")
        return self.connectors.get(database, table)

    def tables(self, database: str) -> list[str]:
        """Return the names of all tables of a database, sorted. Raises `NotFoundError`."""
        return sorted({*self.files.tables(database), *self.connectors.names(database)})

    def identifier(self, parts: Sequence[str]) -> Identifier:
        """Resolve the whole table that a statement is about. Raises `NotFoundError`, `SqlError`, `InvalidNameError`."""
        name = self.full(parts)
        if name is None:
            raise NotFoundError(
                f"'{'.'.join(parts)}' is no table of the lake",
                hint=f"its tables are named {self.catalog}.database.table, database.table or table.",
            )
        found = Identifier.parse(name)
        if "$" in name:
            raise SqlError(f"'{name}' is not the name of a table", hint="name the table itself, without '$'.")
        return found

"""Definitions of external tables, such as Kafka topics: the warehouse keeps only their definition.

It is one file in the folder of the database, ``<database>.db/<name>.connector``, in the form of a schema file: columns,
watermark, options, comment. Tables are folders, so no engine takes it for one. It is stored unencrypted, credentials
included: anybody who can read the warehouse can read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch.catalog.folders import Identifier
from anabranch.errors import AlreadyExistsError, InvalidNameError, NotFoundError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import check_database_name, check_table_name
from anabranch.format.types.data_types import Field
from anabranch.option_kinds import Option
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.protocol import Storage

CONNECTOR: Final[Option[str | None]] = Option(
    "connector", str, None, "What a table is that lies elsewhere: kafka.", "text"
)
"""The option that marks a definition as external; it is not a table option."""
_SUFFIX: Final = ".connector"


class Connectors:
    """The external definitions in one warehouse."""

    def __init__(self, storage: Storage, *, runtime: Runtime = SYSTEM) -> None:
        """Use the warehouse at which `storage` is rooted."""
        self._storage = storage
        self._runtime = runtime

    def names(self, database: str) -> list[str]:
        """Return all names in a database, sorted."""
        found = (info.path.rpartition("/")[2] for info in self._storage.list(f"{database}.db"))
        return sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX))

    def get(self, database: str, name: str) -> TableSchema | None:
        """Return the definition of that name, or None."""
        try:
            check_database_name(database)
            check_table_name(name)
        except InvalidNameError:
            return None
        path = connector_path(Identifier(database, name))
        try:
            return TableSchema.from_json(self._storage.get(path), path=path)
        except NotFoundError:
            return None

    def create(
        self,
        identifier: Identifier,
        fields: Sequence[Field],
        *,
        options: Mapping[str, str],
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> None:
        """Store a definition.

        Raises:
            AlreadyExistsError: there is one, unless `if_not_exists`.
            SchemaError, OptionError, InvalidNameError: nothing was written.
        """
        schema = TableSchema.create(
            fields, options=options, comment=comment, time_millis=self._runtime.clock.now_millis()
        )
        check_database_name(identifier.database)
        check_table_name(identifier.table)
        if (
            not self._storage.put_if_absent(connector_path(identifier), schema.to_json())
            and not if_not_exists
        ):
            raise AlreadyExistsError(
                f"table '{identifier.full_name}' exists already",
                hint="drop it first, or choose another name.",
            )

    def drop(self, identifier: Identifier) -> bool:
        """Delete a definition; the external data stays. Return whether there was one."""
        there = self._storage.exists(connector_path(identifier))
        self._storage.delete(connector_path(identifier))
        return there


def connector_path(identifier: Identifier) -> str:
    """Return the path of the definition of that name."""
    return f"{identifier.path}{_SUFFIX}"

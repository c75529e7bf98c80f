"""A warehouse that is a folder: ``<database>.db/<table>``, with nothing but the tables' own files.

A table exists by its first schema file, so creating one is a single put-if-absent. A database is its
folder; object stores have no folders, so there a small marker object keeps an empty one in being.

Dropping a table moves its folder out of sight, at once. Object stores cannot do that: there the schemas go
first, so that it is no table any more, and the snapshots last, so that nobody creates another one in its
place before the drop is done. What is left of a drop that was interrupted is taken up by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch.catalog.connectors import Connectors, connector_path
from anabranch.catalog.identifier import Identifier
from anabranch.catalog.place import DATABASE_SUFFIX, MARKER, check_place
from anabranch.errors import AlreadyExistsError, InvalidInputError, NotFoundError, UnsupportedFeatureError
from anabranch.expr.row_rules import check_rules
from anabranch.format.records.group import GROUPS_FOLDER
from anabranch.format.records.layout import HISTORY_FOLDER, Layout
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import check_database_name
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.guards import check_main_readable
from anabranch.kernel.log.main_branch import main_of
from anabranch.options import TABLE_UUID, check_options
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.protocol import Storage

_DROPPED = ".dropped-"
"""How the folder of a table begins to be called when it is dropped."""
_METADATA = frozenset({
    "schema", "snapshot", "tag", "branch", "consumer", "savepoint", "changelog", "ledger", HISTORY_FOLDER
})  # fmt: skip
"""Folders of a table that mean something to a new one in its place; names of data and manifests are unique."""


class FilesystemCatalog:
    """Databases and tables of one warehouse."""

    def __init__(self, storage: Storage, *, runtime: Runtime = SYSTEM) -> None:
        self._storage = storage
        self._runtime = runtime

    @property
    def storage(self) -> Storage:
        """Rooted at the warehouse."""
        return self._storage

    @property
    def groups(self) -> Storage:
        """Rooted where the warehouse keeps what was decided for several tables at once."""
        return self._storage.scoped(GROUPS_FOLDER)

    def databases(self) -> list[str]:
        """Names of all databases, sorted."""
        folders = (folder.rpartition("/")[2] for folder in self._storage.list_folders())
        return sorted(f.removesuffix(DATABASE_SUFFIX) for f in folders if f.endswith(DATABASE_SUFFIX))

    def check_there(self, known: Sequence[str] | None = None) -> None:
        """Say so if this is no warehouse: nothing, a file, or a folder inside of one.

        Args:
            known: the databases, if they were listed already.

        Raises `NotFoundError`, `InvalidInputError`.
        """
        if not (self.databases() if known is None else known):
            check_place(self._storage, may_be_new=False)

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Raises `AlreadyExistsError`, `InvalidNameError`."""
        check_database_name(name)
        known = self.databases()
        if not known:
            check_place(self._storage, may_be_new=True)
        if name in known:
            if not if_not_exists:
                raise AlreadyExistsError(f"database '{name}' exists already")
            return
        self._storage.put(f"{name}{DATABASE_SUFFIX}/{MARKER}", b"")

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Remove a database; with tables in it only if `cascade`. Raises `NotFoundError`, `InvalidInputError`."""
        tables = self.tables(name)
        named = [*tables, *Connectors(self._storage).names(name)]
        if named and not cascade:
            raise InvalidInputError(
                f"database '{name}' has {len(named)} tables: {', '.join(named[:5])}",
                hint="drop the tables first, or use cascade.",
            )
        for table in tables:
            self.drop_table(Identifier(name, table), if_exists=True)
        self._storage.delete_folder(f"{name}{DATABASE_SUFFIX}")

    def tables(self, database: str) -> list[str]:
        """Names of all tables of a database, sorted. Raises `NotFoundError`."""
        check_database_name(database)
        known = self.databases()
        if database not in known:
            self.check_there(known)
            raise NotFoundError(
                f"database '{database}' does not exist in {self._storage.url}",
                hint=f"databases there are: {', '.join(known)}." if known else "the warehouse is empty.",
            )
        folders = self._storage.list_folders(f"{database}{DATABASE_SUFFIX}")
        names = [folder.rpartition("/")[2] for folder in folders]
        visible = [name for name in names if not name.startswith(".")]
        return sorted(name for name in visible if self._exists(f"{database}{DATABASE_SUFFIX}/{name}"))

    def create_table(
        self,
        identifier: Identifier,
        fields: Sequence[Field],
        *,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        primary_keys: Sequence[str] = (),
        if_not_exists: bool = False,
    ) -> TableContext:
        """Create a table, and its database if that does not exist.

        Raises:
            AlreadyExistsError: the table exists and `if_not_exists` is False.
            SchemaError, OptionError, InvalidNameError, UnsupportedFeatureError: nothing was written.
        """
        schema = self.planned(
            identifier,
            fields,
            partition_by=partition_by,
            options=options,
            comment=comment,
            primary_keys=primary_keys,
        )
        return self.add(identifier, schema, if_not_exists=if_not_exists)

    def planned(
        self,
        identifier: Identifier,
        fields: Sequence[Field],
        *,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        primary_keys: Sequence[str] = (),
    ) -> TableSchema:
        """The schema of a new table, for `add`; nothing is written. Raises as `create_table` does."""
        _check_whole(identifier)
        given = {str(key): str(value) for key, value in (options or {}).items()}
        check_options(given)
        self._check_no_topic(identifier)
        schema = TableSchema.create(
            fields,
            partition_keys=partition_by,
            primary_keys=primary_keys,
            options={**given, TABLE_UUID.key: self._runtime.ids.uuid()},
            comment=comment,
            time_millis=self._runtime.clock.now_millis(),
        )
        check_rules(schema)
        return schema

    def add(
        self, identifier: Identifier, schema: TableSchema, *, if_not_exists: bool = False
    ) -> TableContext:
        """Make the table of a planned schema, and its database if that does not exist.

        Raises `AlreadyExistsError`: the table exists and `if_not_exists` is False.
        """
        self.create_database(identifier.database, if_not_exists=True)
        exists = self.exists(identifier)
        if not exists:
            self._check_no_remains(identifier)
        path = f"{identifier.path}/{Layout().schema_path(0)}"
        created = not exists and self._storage.put_if_absent(path, schema.to_json())
        if not created and not if_not_exists:
            raise _exists_already(identifier)
        return self.open(identifier)

    def exists(self, identifier: Identifier) -> bool:
        """Whether there is a table of that name."""
        return self._exists(identifier.path)

    def check_free(self, identifier: Identifier) -> None:
        """Check that a table of that name could be made, before its rows are written.

        Raises `AlreadyExistsError`, `InvalidNameError`, `InvalidInputError`.
        """
        _check_whole(identifier)
        check_database_name(identifier.database)
        if not self.databases():
            check_place(self._storage, may_be_new=True)
        if self.exists(identifier):
            raise _exists_already(identifier)
        self._check_no_remains(identifier)

    def clear_unmade(self, identifier: Identifier, *, with_database: bool) -> None:
        """Remove the empty folders that are left where a table was to be made, and was not."""
        self._remove_empty(identifier.path)
        if with_database:
            self._storage.delete_empty_folder(f"{identifier.database}{DATABASE_SUFFIX}")

    def _remove_empty(self, folder: str) -> None:
        for inner in self._storage.list_folders(folder):
            self._remove_empty(inner)
        self._storage.delete_empty_folder(folder)

    def _check_no_remains(self, identifier: Identifier) -> None:
        if self._has_remains(identifier.path):
            raise AlreadyExistsError(
                f"the folder of '{identifier.full_name}' still holds metadata of a table whose drop was interrupted",
                hint="drop the table again to finish it, then create the new one.",
            )

    def _check_no_topic(self, identifier: Identifier) -> None:
        if self._storage.exists(connector_path(identifier)):
            raise AlreadyExistsError(
                f"'{identifier.full_name}' is defined as a topic",
                hint="choose another name; or drop the definition first, which leaves the topic as it is.",
            )

    def open(self, identifier: Identifier) -> TableContext:
        """The table, which is its main branch as of now, or the branch of it that the name says.

        Raises `NotFoundError`, `CorruptTableError`, `UnsupportedFeatureError`.
        """
        context = TableContext(
            self._storage.scoped(identifier.path),
            identifier.full_name,
            None,
            self._runtime,
            groups=self.groups,
        )
        try:
            # From here on it is this very table, also if another one takes its name.
            context = replace(context, known_uuid=context.read_table_uuid())
        except NotFoundError as error:
            self.check_there()
            raise NotFoundError(
                f"table '{identifier.full_name}' does not exist in {self._storage.url}",
                hint=self._suggestion(identifier.database),
            ) from error
        check_main_readable(context)
        return main_of(context) if identifier.branch is None else open_branch(context, identifier.branch)

    def drop_table(self, identifier: Identifier, *, if_exists: bool = False) -> None:
        """Remove a table with all its branches and data, or what an interrupted drop left of it.

        Raises `NotFoundError`, `InvalidInputError` for the name of a branch or of a system table.
        """
        _check_whole(identifier)
        if not self._exists(identifier.path) and not self._has_remains(identifier.path):
            if if_exists:
                return
            raise NotFoundError(f"table '{identifier.full_name}' does not exist")
        database = f"{identifier.database}{DATABASE_SUFFIX}"
        try:
            self._storage.rename_folder(identifier.path, f"{database}/{_DROPPED}{self._runtime.ids.uuid()}")
        except UnsupportedFeatureError:
            self._remove_in_order(identifier.path)
            return
        for folder in self._storage.list_folders(database):
            if folder.rpartition("/")[2].startswith(_DROPPED):
                self._storage.delete_folder(folder)

    def rename_table(self, source: Identifier, target: Identifier) -> None:
        """Give a table another name, at once; refused on object stores.

        Raises `NotFoundError`, `AlreadyExistsError`, `UnsupportedFeatureError`, and `InvalidInputError` for
        the name of a branch or of a system table.
        """
        _check_whole(source)
        _check_whole(target)
        if not self._exists(source.path):
            raise NotFoundError(f"table '{source.full_name}' does not exist")
        if self._exists(target.path):
            raise AlreadyExistsError(f"table '{target.full_name}' exists already")
        self._storage.rename_folder(source.path, target.path)

    def _exists(self, path: str) -> bool:
        return self._storage.exists(f"{path}/{Layout().schema_path(0)}")

    def _has_remains(self, path: str) -> bool:
        """Whether metadata lies in a folder that is no table's any more."""
        found = [f for f in self._storage.list_folders(path) if f.rpartition("/")[2] in _METADATA]
        return any(True for folder in found for _ in self._storage.list(folder, recursive=True))

    def _remove_in_order(self, path: str) -> None:
        schemas, snapshots = f"{path}/{Layout().schema_folder}", f"{path}/{Layout().snapshot_folder}"
        others = [f for f in self._storage.list_folders(path) if f not in (schemas, snapshots)]
        self._storage.delete_folder(schemas)
        for folder in others:
            self._storage.delete_folder(folder)
        loose = [info.path for info in self._storage.list(path, include_temporary=True)]
        if loose:
            self._storage.delete_many(loose)
        self._storage.delete_folder(snapshots)

    def _suggestion(self, database: str) -> str:
        try:
            known = self.tables(database)
        except NotFoundError as error:
            return error.hint or error.message
        return f"tables there are: {', '.join(known)}." if known else f"database '{database}' has no tables."


def _exists_already(identifier: Identifier) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"table '{identifier.full_name}' exists already",
        hint="open it, or create it only if it does not exist.",
    )


def _check_whole(identifier: Identifier) -> None:
    """Refuse the name of a branch or of a system table where the whole table is meant."""
    if identifier.branch is not None or identifier.system is not None:
        part = f"branch '{identifier.branch}'" if identifier.system is None else f"'{identifier.system}'"
        raise InvalidInputError(
            f"{part} of '{identifier.full_name}' is not the name of a table",
            hint=f"name the table itself: '{identifier.full_name}'.",
        )

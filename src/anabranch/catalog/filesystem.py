"""A warehouse in a folder: ``<database>.db/<table>``, with only the tables' own files.

A table exists by its first schema file, so creating one is a single put-if-absent. A database is its
folder; object stores have no folders, so there a small marker object represents an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from anabranch.catalog.connectors import Connectors, connector_path
from anabranch.catalog.folders import (
    DATABASE_SUFFIX,
    MARKER,
    Identifier,
    NameListing,
    check_place,
    has_remains,
    remove_empty,
    remove_table,
)
from anabranch.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from anabranch.expr.row_rules import check_rules
from anabranch.format.records.layout import Layout
from anabranch.format.records.main_pointer import GROUPS_FOLDER
from anabranch.format.schema.rules import check_format
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import check_database_name
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_main_readable
from anabranch.kernel.log.main_branch import as_main, main_as_far_as_known, main_of
from anabranch.kernel.log.main_pointer import is_ever_replaced
from anabranch.kernel.log.parallel import reading
from anabranch.options import TABLE_UUID, check_options
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.protocol import Storage


class FilesystemCatalog(NameListing):
    """Databases and tables of one warehouse."""

    def __init__(self, storage: Storage, *, runtime: Runtime = SYSTEM) -> None:
        super().__init__(storage)
        self._runtime = runtime

    @property
    def storage(self) -> Storage:
        """Store rooted at the warehouse."""
        return self._storage

    @property
    def groups(self) -> Storage:
        """Store rooted at the warehouse's records of replacements in several tables."""
        return self._storage.scoped(GROUPS_FOLDER)

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database. Raises `AlreadyExistsError`, `InvalidNameError`."""
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
        """Return the schema of a new table, for `add`; nothing is written. Raises as `create_table` does."""
        _check_whole(identifier)
        given = {str(key): str(value) for key, value in (options or {}).items()}
        check_options(given)
        check_format(given)
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
        """Create the table of a planned schema, and its database if that does not exist.

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
        """Whether a table of that name exists."""
        return self._exists(identifier.path)

    def check_free(self, identifier: Identifier) -> None:
        """Check that a table of that name can be created, before its rows are written.

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
        """Remove the empty folders left by a table creation that failed."""
        remove_empty(self._storage, identifier.path)
        if with_database:
            self._storage.delete_empty_folder(f"{identifier.database}{DATABASE_SUFFIX}")

    def _check_no_remains(self, identifier: Identifier) -> None:
        if has_remains(self._storage, identifier.path):
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
        """Open a table: its current main branch, or the branch that the name gives.

        Raises `NotFoundError`, `CorruptTableError`, `UnsupportedFeatureError`.
        """
        context, was_replaced = self._opened(identifier)
        if identifier.branch is not None:
            return open_branch(context, identifier.branch)
        return main_of(context) if was_replaced else as_main(context, None, 0)

    def open_as_far_as_known(self, identifier: Identifier) -> TableContext:
        """Open a table as `open` does, also where the newest record of what is main is damaged.

        For callers that ask `main_of` again before they read or write, which then refuses, and for those that verify and
        repair.
        """
        context, was_replaced = self._opened(identifier)
        if identifier.branch is not None:
            return open_branch(context, identifier.branch)
        return main_as_far_as_known(context) if was_replaced else as_main(context, None, 0)

    def _opened(self, identifier: Identifier) -> tuple[TableContext, bool]:
        """Open the table's own folder; return it and whether main may have been replaced."""
        context = TableContext(
            self._storage.scoped(identifier.path),
            identifier.full_name,
            None,
            self._runtime,
            groups=self.groups,
        )
        with reading(self._storage) as begin:
            identity = begin(context.read_table_uuid)
            readable = begin(partial(check_main_readable, context))
            was_replaced = begin(partial(is_ever_replaced, context))
            try:
                # From here on it is this very table, also if another one takes its name.
                context = replace(context, known_uuid=identity())
            except NotFoundError as error:
                self.check_there()
                raise NotFoundError(
                    f"table '{identifier.full_name}' does not exist in {self._storage.url}",
                    hint=self._suggestion(identifier.database),
                ) from error
            readable()
            return context, identifier.branch is None and was_replaced()

    def drop_table(self, identifier: Identifier, *, if_exists: bool = False) -> None:
        """Remove a table with all its branches and data, or what an interrupted drop left of it.

        Raises `NotFoundError`, `InvalidInputError` for the name of a branch or of a system table.
        """
        _check_whole(identifier)
        if not self._exists(identifier.path) and not has_remains(self._storage, identifier.path):
            if if_exists:
                return
            raise NotFoundError(f"table '{identifier.full_name}' does not exist")
        remove_table(self._storage, identifier, self._runtime.ids.uuid())

    def rename_table(self, source: Identifier, target: Identifier) -> None:
        """Rename a table atomically; refused on object stores.

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

"""Resolution of the options of a read or a write to a table."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.catalog.filesystem import FilesystemCatalog
from anabranch.catalog.folders import Identifier
from anabranch.errors import InvalidInputError, NotFoundError, OptionError
from anabranch.expr.bind import bind
from anabranch.expr.bound import BoundPredicate
from anabranch.expr.parse import parse
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.support import check_readable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.branch_log import open_branch
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_readable
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.refs.moments import place_and_moment
from anabranch.kernel.scan.plan import Plan
from anabranch.kernel.scan.request import ScanRequest
from anabranch.options import BRANCH, PATH, SCAN_MODE, WAREHOUSE
from anabranch.spark.context.options import MOMENT_KEYS, table_options
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.open import open_storage, settings_of
from anabranch.storage.protocol import Storage
from anabranch.streaming.scan_modes import first_position, scan_mode
from anabranch.system_tables import lake_table_of
from anabranch.table import Table

_IN_WAREHOUSE = re.compile(r"(?P<warehouse>.+)/(?P<database>[^/]+)\.db/(?P<table>[^/]+)")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def open_table(options: Mapping[str, str]) -> Table:
    """Open the table that `path` names, at its newest state, on the branch that `branch` names.

    `path` is ``db.t`` (also ``db.t$branch_fix``) in the `warehouse`, or the table's own path or URL.

    Raises:
        OptionError: `path` is missing, or a name is given without a warehouse.
        NotFoundError: there is no such table or branch.
    """
    path = PATH.of(options)
    if not path:
        raise OptionError(
            "no table is named", hint="name it in load(), save() or start(): load('db.t'), or give its path."
        )
    context = _by_path(path, options) if "/" in path else _by_name(path, options)
    branch = BRANCH.of(options)
    if branch is not None:
        named = context.known_as or context.branch
        if context.main_generation is None and named != branch:
            raise OptionError(f"'{path}' names branch '{named}', but option 'branch' is '{branch}'")
        context = open_branch(context, branch)
    return Table(context, options=table_options(options))


def neighbour(options: Mapping[str, str], name: str) -> TableContext:
    """Return the table or branch ``db.t`` in the same warehouse as the table that the options name.

    Raises `NotFoundError` if there is none, or if the options name a table outside of any warehouse.
    """
    path = PATH.of(options) or ""
    place = _IN_WAREHOUSE.fullmatch(absolute(path).rstrip("/")) if "/" in path else None
    warehouse = WAREHOUSE.of(options) if place is None else place["warehouse"]
    if warehouse is None:
        raise NotFoundError(f"it is not known in which warehouse '{name}' is")
    return FilesystemCatalog(_storage(warehouse, options)).open(Identifier.parse(name))


@dataclass(frozen=True)
class SnapshotView:
    """Rows of one snapshot under the columns of one schema, as a batch read sees them."""

    table: Table
    snapshot: Snapshot | None
    """Snapshot to read; None for a table that was never written."""
    schema: TableSchema

    def predicate(self, filter: str | None) -> BoundPredicate | None:
        """Bind a filter in SQL to the columns of the view. Raises `PredicateError`."""
        return None if filter is None else bind(parse(filter), self.schema.fields)

    def plan(self, predicate: BoundPredicate | None) -> Plan:
        """Plan the files to read. Raises `CorruptTableError`, `UnsupportedFeatureError`."""
        context = self.table.context
        check_readable(self.schema, path=context.layout.schema_path(self.schema.id))
        if self.snapshot is not None:
            check_snapshot_readable(context, self.snapshot)
        return ScanRequest(context, self.snapshot, self.schema, predicate, None, self.table.options).plan()


@dataclass(frozen=True, slots=True)
class NewestState:
    """Newest state when a table was opened, so that later actions of a DataFrame see the same rows."""

    snapshot_id: int | None
    schema_id: int


def names_moment(options: Mapping[str, str]) -> bool:
    """Whether the options select a moment to read."""
    return any(key in options for key in MOMENT_KEYS)


def columns_of(options: Mapping[str, str]) -> tuple[TableSchema, NewestState | None]:
    """Return the columns of a read by these options, and the newest state if the read is of that.

    A moment is seen with the columns it had. With a `scan.mode` that names where a stream begins the read has
    today's columns, whether or not the moment is still there: a stream that began at it goes on long after it has
    expired. Spark asks for the columns before it says whether it is a stream; so has one that can begin where there
    is nothing to read for a batch, at a time before the first commit, say.

    Raises as `view_of`.
    """
    view, _ = first_view(options)
    if _is_start(options) or names_moment(options):
        return view.schema, None
    return view.schema, NewestState(None if view.snapshot is None else view.snapshot.id, view.schema.id)


def first_view(options: Mapping[str, str]) -> tuple[SnapshotView, NotFoundError | None]:
    """Return what a read sees that may turn out to be a stream, and why a batch cannot read it, if it cannot.

    Raises as `view_of`.
    """
    try:
        return view_of(options), None
    except NotFoundError as error:
        table = open_table(options)
        try:
            first_position(table.context, options)
        except NotFoundError:
            if not _is_start(options):
                raise NotFoundError(
                    error.message,
                    hint=f"{error.hint or ''} A stream that began there goes on from its checkpoint if {SCAN_MODE.key} is "
                    f"set to {scan_mode(options)}.".strip(),
                ) from None
        return SnapshotView(table, None, table.schema), error


def _is_start(options: Mapping[str, str]) -> bool:
    """Whether the options select a moment as the start of a stream."""
    return SCAN_MODE.of(options).startswith("from-")


def view_of(options: Mapping[str, str], newest: NewestState | None = None) -> SnapshotView:
    """Resolve the options of a batch read to a view.

    Args:
        options: of the read.
        newest: what an earlier call found to be the newest, to see the same again.

    Raises:
        OptionError: they name more than one moment, or no table.
        NotFoundError: there is no such table or moment.
    """
    table = open_table(options)
    context, moment = place_and_moment(table.context, options)
    if context is not table.context:
        table = Table(context, options=table_options(options))
    if moment is None:
        if newest is None:
            return SnapshotView(table, table.snapshot, table.schema)
        found = None if newest.snapshot_id is None else context.snapshots.get(newest.snapshot_id)
        return SnapshotView(table, found, context.schemas.get(newest.schema_id))
    snapshot = moment.snapshot
    return SnapshotView(
        table, snapshot, table.schema if _is_start(options) else context.schemas.get(snapshot.schema_id)
    )


def absolute(path: str) -> str:
    """Make a local path absolute, because other processes have other working folders; URLs stay unchanged."""
    return path if _URL.match(path) else os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - text


def _storage(place: str, options: Mapping[str, str]) -> Storage:
    storage = open_storage(absolute(place), options)
    if isinstance(storage, MemoryStorage):
        raise OptionError(
            f"{place} is memory of one process, and Spark works in several",
            hint="use a folder, or an object store.",
        )
    return storage


def store_settings(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options that open the store of a table, or of its warehouse, in processes that lack this one's settings."""
    path = PATH.of(options) or ""
    place = path if "/" in path else WAREHOUSE.of(options)
    return {} if place is None else settings_of(_storage(place, options))


def warehouse_of(options: Mapping[str, str]) -> Storage | None:
    """Return the warehouse of the table that the options name; None for a table outside of any."""
    path = PATH.of(options) or ""
    if "/" not in path:
        return catalog_of(options).storage
    place = _IN_WAREHOUSE.fullmatch(absolute(path).rstrip("/"))
    return None if place is None else _storage(place["warehouse"], options)


def catalog_of(options: Mapping[str, str]) -> FilesystemCatalog:
    """Return the catalog of the warehouse in the options. Raises `OptionError` if they name none."""
    warehouse = WAREHOUSE.of(options)
    if warehouse is None:
        raise OptionError(
            f"the table '{PATH.of(options)}' is named without a warehouse",
            hint="add .option('warehouse', path), or open the session with anabranch.spark.session(path).",
        )
    return FilesystemCatalog(_storage(warehouse, options))


def _by_name(name: str, options: Mapping[str, str]) -> TableContext:
    catalog = catalog_of(options)
    if lake_table_of(name) is not None or Identifier.parse(name).system is not None:
        raise InvalidInputError(
            f"'{name}' names a system table, which can only be read, and not as a stream",
            hint="read it with spark.read.",
        )
    return catalog.open(Identifier.parse(name))


def _by_path(path: str, options: Mapping[str, str]) -> TableContext:
    location = absolute(path).rstrip("/")
    place = _IN_WAREHOUSE.fullmatch(location)
    if place is not None:
        catalog = FilesystemCatalog(_storage(place["warehouse"], options))
        return catalog.open(Identifier(place["database"], place["table"]))
    context = TableContext(_storage(location, options), location.rpartition("/")[2])
    if not context.schemas.ids():
        raise NotFoundError(
            f"there is no table at {location}: it has no schema folder",
            hint="a table of the warehouse is named by db.t, or by the path <warehouse>/<db>.db/<t>.",
        )
    return main_of(context)

"""View of one branch of a table, at its newest state or pinned to a moment: its properties."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anabranch.engine import Engine, LocalEngine
from anabranch.errors import AnabranchError, InvalidInputError, NotFoundError
from anabranch.format.records.snapshot import CommitIdentity, Snapshot, SnapshotRef
from anabranch.format.schema.per_use import asks_of_the_table, refuse_table_options
from anabranch.format.schema.support import check_readable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.branch_log import being_made, branch_names, check_still_there
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.lost_pointers import check_snapshot_readable
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.moment import Moment
from anabranch.kernel.log.parallel import reading
from anabranch.lazy import lazy
from anabranch.lineage.store import LineageSource
from anabranch.options import INCREMENTAL_BETWEEN, INCREMENTAL_BETWEEN_TIMESTAMP, check_values
from anabranch.tabular import Glance

_BETWEEN = (INCREMENTAL_BETWEEN.key, INCREMENTAL_BETWEEN_TIMESTAMP.key)


@dataclass(frozen=True, slots=True)
class Once:
    """The identity of the next commit of rows: whoever else makes it first, it is made once."""

    identity: CommitIdentity
    floor: SnapshotRef
    """A snapshot that is older than every commit of that user."""


class TableView:
    """Common base of the parts of a table's facade.

    A view of main follows it: each operation begins with `_follow`, which looks once whether another branch is main by
    now. A view of a moment, and one of a branch that was opened by its name, stays where it is.
    """

    def __init__(
        self,
        context: TableContext,
        *,
        pinned: Moment | None = None,
        options: Mapping[str, str] | None = None,
        engine: Engine | None = None,
        lineage: LineageSource | None = None,
        once: Once | None = None,
    ) -> None:
        self._context = context
        self._pinned = pinned
        self._engine = engine or LocalEngine()
        self._lineage_source = lineage
        self._options = dict(options or {})
        self._last: Snapshot | None = None
        self._once = once
        check_values(self._options)
        if asks_of_the_table(self._options):
            refuse_table_options(self._options, self._schema)

    def __repr__(self) -> str:
        at = "" if self._pinned is None else f" at {self._pinned}"
        return f"<Table {self._context.title}{at}>"

    def _repr_html_(self) -> str:
        """Return columns and the newest snapshot as HTML, for a notebook."""
        try:
            return self._glance().html()
        except AnabranchError as error:
            return f"<pre>{html.escape(f'{self!r}: {error.message}')}</pre>"

    def _glance(self) -> Glance:
        schema, snapshot = self.schema, self.snapshot
        facts = [
            *([schema.comment] if schema.comment else []),
            "never written" if snapshot is None else snapshot.title,
            *([f"partitioned by {', '.join(schema.partition_keys)}"] if schema.partition_keys else []),
        ]
        columns = [(f.name, str(f.type), f.default or "", f.description or "") for f in schema.fields]
        at = "" if self._pinned is None else f" at {self._pinned}"
        return Glance(f"Table {self.name}{at}", facts, ("column", "type", "default", "comment"), columns)

    @property
    def context(self) -> TableContext:
        """The kernel's view of this branch."""
        return self._context

    @property
    def name(self) -> str:
        """``database.table``, with ``$branch_<name>`` on a branch."""
        return self._context.title

    @lazy
    def table_uuid(self) -> str:
        """Identity of the table; it survives renaming."""
        return self._context.table_uuid

    @property
    def branch_uuid(self) -> str:
        """Identity of this branch; main's is the table's."""
        return self._context.branch_uuid

    @property
    def schema(self) -> TableSchema:
        """The newest schema, or that of the pinned moment."""
        context, found = self._context, None
        if self._pinned is None:
            with reading(context.storage) as begin:
                followed, latest = begin(self._follow), begin(context.schemas.latest)
                if followed() is context:
                    found = latest()
        return self._schema if found is None else found

    def schemas(self) -> list[TableSchema]:
        """All schema versions, oldest first."""
        schemas = self._follow().schemas
        return [schemas.get(i) for i in schemas.ids()]

    @property
    def options(self) -> dict[str, str]:
        """Options of the table, overridden by those of this view."""
        return {**self.schema.options, **self._options}

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot or the pinned one; None for a table that was never written."""
        if self._pinned is not None:
            return self._pinned.snapshot
        head = self._follow().snapshots.head()
        if head is None:
            check_still_there(self._context)
            self._context.snapshots.check_empty()
        self._check_same_branch(head)
        return head

    @property
    def moment(self) -> Moment | None:
        """Moment this view is pinned to: the snapshot, how it was found, and its distance from what was asked.

        None for the table at its newest state.
        """
        return self._pinned

    def snapshots(self) -> Iterator[Snapshot]:
        """Retained snapshots, newest first."""
        head = self.snapshot
        return iter(()) if head is None else self._context.snapshots.backwards(head)

    def branches(self) -> list[str]:
        """Names of the branches besides main."""
        found = branch_names(self._context)
        if not found:
            # Another branch may be main by now, and the one that was main then may be gone.
            context = self._context
            check_still_there(context if context.main_generation is None else main_of(context))
        return found

    def _newest(self) -> tuple[Snapshot | None, TableSchema]:
        """Return the newest snapshot and the schema for it, or those of the pinned moment.

        Whether main was replaced is asked beside both: as long as it was not, what was found is main's, and else
        everything is asked again. No file of the snapshot is of a later schema.
        """
        if self._pinned is not None:
            return self._pinned.snapshot, self._schema
        while True:
            context = self._context
            with reading(context.storage) as begin:
                followed = begin(self._follow)
                newest, latest = begin(context.snapshots.head), begin(context.schemas.latest)
                if followed() is not context:
                    continue
                snapshot = newest()
                if snapshot is None:
                    check_still_there(context)
                    context.snapshots.check_empty()
                schema = latest()
            if schema is None or (snapshot is not None and snapshot.schema_id > schema.id):
                schema = self._schema
            return snapshot, schema

    def _check_same_branch(self, found: Snapshot | None) -> None:
        """Raise `NotFoundError` if a snapshot that was found is of another table or branch, made since under the name."""
        context = self._context
        if found is not None and context.is_replaced(found):
            raise NotFoundError(
                f"'{context.title}' was dropped and created again since it was opened",
                hint="open it again to read the new one.",
            )

    def _follow(self) -> TableContext:
        """Return the branch for an operation: a view of main moves on after a replacement."""
        if self._context.main_generation is not None and self._pinned is None:
            found = main_of(self._context)
            if found is not self._context:
                self._context, self._last = found, None
        return self._context

    @property
    def _schema(self) -> TableSchema:
        """Schema without following main, for use within an operation."""
        if self._pinned is not None:
            return self._context.schemas.get(self._pinned.snapshot.schema_id)
        latest = self._context.schemas.latest()
        if latest is None:
            check_still_there(self._context)
            self._context.check_same_table()
            raise being_made(self._context)
        return latest

    def _check_readable(self, schema: TableSchema, snapshot: Snapshot | None) -> None:
        check_readable(schema, path=self._context.layout.schema_path(schema.id))
        if snapshot is None:
            check_still_there(self._context)
        else:
            check_snapshot_readable(self._context, snapshot)

    def _check_unpinned(self) -> None:
        if self._pinned is not None:
            raise InvalidInputError(
                f"'{self.name}' is pinned to {self._pinned.name}: the past cannot be written",
                hint="write to the table itself, or to a branch.",
            )
        between = next((key for key in _BETWEEN if key in self._options), None)
        if between is not None:
            raise InvalidInputError(
                f"this view of '{self.name}' has the option '{between}', so it is of rows of the past, which cannot be written",
                hint="write to the table itself, or to a branch.",
            )

"""The schemas of one branch, one immutable file per version."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import Layout, schema_id_of
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.parallel import each
from anabranch.storage.protocol import Storage


class SchemaLog:
    """Reads and adds the schemas of one branch."""

    def __init__(self, storage: Storage, layout: Layout) -> None:
        self._storage = storage
        self._layout = layout
        self._known: dict[int, TableSchema] = {}
        self._newest: int | None = None

    def get(self, schema_id: int) -> TableSchema:
        """Return the schema of that id. Raises `CorruptTableError` if a snapshot or file names a missing one."""
        schema = self.find(schema_id)
        if schema is None:
            raise CorruptTableError(
                f"schema {schema_id} is referred to, but does not exist",
                path=self._layout.schema_path(schema_id),
            )
        return schema

    def find(self, schema_id: int) -> TableSchema | None:
        """Return the schema of that id, or None."""
        known = self._known.get(schema_id)
        if known is not None:
            return known
        schema = self._read(schema_id)
        if schema is not None:
            self._known[schema_id] = schema
        return schema

    def _read(self, schema_id: int) -> TableSchema | None:
        # A branch made by older engines holds only one schema; the others are main's.
        for path in dict.fromkeys(layout.schema_path(schema_id) for layout in (self._layout, Layout())):
            try:
                data = self._storage.get(path)
            except NotFoundError:
                continue
            schema = TableSchema.from_json(data, path=path)
            if schema.id != schema_id:
                raise CorruptTableError(f"holds schema {schema.id}, expected {schema_id}", path=path)
            return schema
        return None

    def look_again(self, schema_id: int) -> bool:
        """Whether a version that was read before still is what the store has. If not, all are read anew.

        Versions never change, unless a backup of the table from before them is put back.
        """
        known = self._known.get(schema_id)
        if known is None or self._read(schema_id) == known:
            return True
        self._known.clear()
        self._newest = None
        return False

    def fetch(self, schema_ids: Iterable[int]) -> None:
        """Prefetch schemas in parallel. Raises `CorruptTableError` for a damaged one."""
        missing = [schema_id for schema_id in schema_ids if schema_id not in self._known]
        each(self.find, missing, at=self._storage)

    def ids(self) -> list[int]:
        """All schema ids, ascending."""
        infos = self._storage.list(self._layout.schema_folder)
        return sorted(i for info in infos if (i := schema_id_of(info.path)) is not None)

    @property
    def known(self) -> TableSchema | None:
        """The schema that was the newest when it was looked for last; None if it never was."""
        return None if self._newest is None else self._known.get(self._newest)

    def latest(self) -> TableSchema | None:
        """Return the schema with the highest id, or None where there is no table."""
        # Several threads may look at once, so each counts for itself.
        newest, is_listed = self._newest, False
        if newest is None:
            ids = self.ids()
            if not ids:
                return None
            newest, is_listed = ids[-1], True
        # A listing shows all that were there when it began; where the store is near, a look is free.
        if not (is_listed and self._storage.is_far):
            while self._storage.exists(self._layout.schema_path(newest + 1)):
                newest += 1
        self._newest = newest
        found = self.find(newest)
        if found is None and not self.ids():
            return None  # the branch or table was removed since its schemas were listed
        return found or self.get(newest)

    def add(self, schema: TableSchema) -> bool:
        """Store a new version; False if another writer took its id."""
        return self._storage.put_if_absent(self._layout.schema_path(schema.id), schema.to_json())

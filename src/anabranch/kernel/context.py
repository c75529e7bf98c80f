"""Everything the kernel needs to know of one branch of one table."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from anabranch.errors import NotFoundError
from anabranch.kernel.cache import SHARED, MetadataCache
from anabranch.kernel.manifest_store import ManifestStore
from anabranch.kernel.schema_log import SchemaLog
from anabranch.kernel.snapshot_log import SnapshotLog
from anabranch.options import TABLE_UUID
from anabranch.runtime import SYSTEM, Runtime
from anabranch.spec.layout import Layout
from anabranch.spec.schema import TableSchema
from anabranch.storage.protocol import Storage

BRANCH_PROPERTY = "anabranch.branch"
"""Snapshot property: identity of the branch a snapshot was made on."""
WRITER_PROPERTY = "anabranch.writer"
"""Snapshot property: that we wrote it, and with which version."""
PARENT_PROPERTY = "anabranch.parent"
"""Snapshot property: stamp of the snapshot it was built on."""
_FOREIGN_TABLES = uuid.UUID("6f1c7c1e-6d0b-5c35-9d0e-2b6f3a5b9a10")
"""Namespace of the identities of tables that another engine created."""


@dataclass(frozen=True)
class TableContext:
    """One branch of a table at a place. Picklable where its storage is; caches stay behind."""

    storage: Storage
    """Rooted at the table's folder."""
    name: str
    """``database.table``, for messages."""
    branch: str | None = None
    """None for main."""
    runtime: Runtime = SYSTEM
    cache: MetadataCache = field(default=SHARED, repr=False, compare=False)

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.branch)

    @cached_property
    def snapshots(self) -> SnapshotLog:
        return SnapshotLog(self.storage, self.layout)

    @cached_property
    def schemas(self) -> SchemaLog:
        return SchemaLog(self.storage, self.layout)

    @cached_property
    def manifests(self) -> ManifestStore:
        return ManifestStore(self.storage, self.cache)

    @property
    def title(self) -> str:
        """The name with its branch, as users write it."""
        return self.name if self.branch is None else f"{self.name}$branch_{self.branch}"

    @cached_property
    def table_uuid(self) -> str:
        """Identity of the table: the one given at creation, else derived from its first schema.

        Raises `NotFoundError` if there is no table.
        """
        return self.read_table_uuid()

    def read_table_uuid(self) -> str:
        """The identity of the table that is there now, read again."""
        path = Layout().schema_path(0)
        try:
            data = self.storage.get(path)
        except NotFoundError as error:
            raise NotFoundError(
                f"table '{self.name}' does not exist: there is no {path} in {self.storage.url}",
                hint="lake.tables(database) lists the tables there are.",
            ) from error
        given = TABLE_UUID.of(TableSchema.from_json(data, path=path).options)
        return given or str(uuid.uuid5(_FOREIGN_TABLES, data.hex()))

    @cached_property
    def branch_uuid(self) -> str:
        """Identity of the branch; main's is the table's."""
        if self.branch is None:
            return self.table_uuid
        return str(uuid.uuid5(uuid.UUID(self.table_uuid), self.branch))

    def on_branch(self, branch: str | None) -> TableContext:
        """The same table on another branch."""
        return replace(self, branch=branch)

    def __getstate__(self) -> dict[str, Any]:
        return {"storage": self.storage, "name": self.name, "branch": self.branch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, runtime=SYSTEM, cache=SHARED)

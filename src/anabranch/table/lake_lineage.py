"""Lineage of a warehouse: its jobs and tables, and the index that answers questions about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.catalog import FilesystemCatalog
from anabranch.lineage.questions.topology import jobs, topology
from anabranch.lineage.store import Known
from anabranch.lineage.trace import Job, Trace

if TYPE_CHECKING:
    from anabranch.lineage.index import CaughtUp, LineageIndex
    from anabranch.lineage.openlineage.export import Exported


class LakeLineage:
    """Lineage of a warehouse: which jobs read and write which tables. Get it from `anabranch.Lake.lineage`.

    Every answer is about all commits that there are when it is asked for: the index takes in what is new first. Questions
    about one table are asked of it: ``lake.table("db.t").lineage``.
    """

    def __init__(self, catalog: FilesystemCatalog, options: Mapping[str, str] | None = None) -> None:
        """Create it for a warehouse with its `options`. Nothing is read or made before it is queried."""
        self._catalog = catalog
        self._options = dict(options or {})
        self._index: LineageIndex | None = None

    def __repr__(self) -> str:
        return f"<lineage of {self._catalog.storage.url}>"

    @property
    def index(self) -> LineageIndex:
        """Index of the lineage in commits. Raises `OptionError` for an invalid configured location."""
        if self._index is None:
            from anabranch.lineage.index import LineageIndex

            self._index = LineageIndex.of(self._catalog, self._options)
        return self._index

    def topology(self) -> Trace:
        """Return all tables and jobs: which job ever took rows from where to where."""
        with self.reading() as known:
            return topology(known.store, known.problems)

    def jobs(self) -> tuple[Job, ...]:
        """Return all jobs that ever wrote to a table, by name."""
        with self.reading() as known:
            return tuple(replace(job, problems=known.problems) for job in jobs(known.store))

    def catch_up(self) -> CaughtUp:
        """Add new commits to the index. Queries do so by themselves. Raises `StorageError`."""
        return self.index.catch_up()

    def rebuild(self) -> CaughtUp:
        """Rebuild the index from the tables, including commits that have expired. Raises `StorageError`."""
        return self.index.rebuild()

    def export(self, to: str, **how: Any) -> Exported:
        """Send an event of OpenLineage for each commit that names its job; `how` as `anabranch.table.lineage_export.send`."""
        from anabranch.table.lineage_export import send

        return send(self._catalog, self, to, **how)

    @contextmanager
    def reading(self) -> Iterator[Known]:
        """Open all current commits at one moment; see `anabranch.lineage.store.LineageSource`."""
        problems = self.catch_up().problems
        with self.index.reading() as store:
            yield Known(store, problems)

    def __getstate__(self) -> dict[str, Any]:
        return {"_catalog": self._catalog, "_options": self._options, "_index": None}

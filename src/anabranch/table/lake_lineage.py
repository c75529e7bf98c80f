"""Lineage of a warehouse: its jobs and tables, and the index that answers questions about them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.catalog import FilesystemCatalog
from anabranch.errors import OptionError, UnsupportedFeatureError
from anabranch.kernel.refs.moments import cutoff_of
from anabranch.lineage.questions.topology import jobs, topology
from anabranch.lineage.store import CommitStore, Known, LineageSource, healing
from anabranch.lineage.trace import Job, Trace
from anabranch.option_kinds import parse_duration
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.open import open_storage

if TYPE_CHECKING:
    from anabranch.lineage.index import CaughtUp, LineageIndex
    from anabranch.lineage.openlineage.export import Exported
    from anabranch.lineage.openlineage.transport import Cursor


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

    @healing
    def topology(self) -> Trace:
        """Return all tables and jobs: which job ever took rows from where to where."""
        with self.reading() as known:
            return topology(known.store, known.problems)

    @healing
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
        """Send an event of OpenLineage for each commit that names its job; `how` as `anabranch.table.lake_lineage.send`."""
        return send(self._catalog, self, to, **how)

    @contextmanager
    def reading(self) -> Iterator[Known]:
        """Open all current commits at one moment; see `anabranch.lineage.store.LineageSource`."""
        problems = self.catch_up().problems
        with self.index.reading() as store:
            yield Known(store, problems)

    def __getstate__(self) -> dict[str, Any]:
        return {"_catalog": self._catalog, "_options": self._options, "_index": None}


_BEGINNING = "beginning"


def send(
    catalog: FilesystemCatalog,
    lineage: LineageSource,
    to: str,
    *,
    since: str | None = None,
    follow: bool = False,
    throttle: str | None = None,
    namespace: str = "anabranch",
    kafka: str | None = None,
    cursor: str | None = None,
    report: Callable[[str], None] = lambda _: None,
    runtime: Runtime = SYSTEM,
) -> Exported:
    """Send an OpenLineage event for each commit that names its job. An interrupt from the keyboard ends it cleanly.

    Args:
        catalog: of the warehouse.
        lineage: all commits of the warehouse.
        to: ``file:PATH`` or the URL of a server.
        since: a time, an age, or ``beginning``: sends again; None to continue.
        follow: do not stop.
        throttle: as a duration: at most one event a job in so long.
        namespace: of the jobs.
        kafka: a broker, ``host:port``, whose cluster has the topics; None if that is not known.
        cursor: a file that keeps the position; None for one in the warehouse.
        report: called with problems as they occur.
        runtime: source of time.

    Raises:
        UnsupportedFeatureError: OpenLineage's client is not installed.
        InvalidInputError, OptionError: an argument is not understood.
    """
    try:
        from anabranch.lineage.openlineage.export import Exporter, ExportOptions
        from anabranch.lineage.openlineage.transport import open_destination
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"the export of lineage needs OpenLineage's client, and it is not installed: {error}",
            feature="openlineage",
            hint="pip install 'anabranch[openlineage]'.",
        ) from error
    options = ExportOptions(
        job_namespace=namespace,
        kafka_namespace="kafka" if kafka is None else f"kafka://{kafka.removeprefix('kafka://')}",
        throttle_millis=0 if throttle is None else _duration(throttle),
        since_millis=None if since is None else _since(since, runtime),
        follow=follow,
    )
    exporter = Exporter(
        catalog,
        _stores(lineage, report),
        open_destination(to),
        _cursor(catalog, to, cursor),
        options,
        runtime,
        report,
    )
    try:
        return exporter.run()
    except KeyboardInterrupt:
        return exporter.done


def _cursor(catalog: FilesystemCatalog, to: str, file: str | None) -> Cursor:
    from anabranch.lineage.openlineage.transport import load_cursor

    if file is not None:
        path = Path(file).absolute()
        return load_cursor(open_storage(str(path.parent)), path.name)
    digest = hashlib.sha256(to.encode()).hexdigest()[:16]
    return load_cursor(catalog.storage, f"lineage/export-{digest}.json")


def _since(text: str, runtime: Runtime) -> int:
    return 0 if text == _BEGINNING else cutoff_of(text, runtime.clock.now_millis())


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError:
        raise OptionError(f"'{text}' is no duration", hint="write one such as '10 s' or '5 min'.") from None


def _stores(
    lineage: LineageSource, report: Callable[[str], None]
) -> Callable[[], AbstractContextManager[CommitStore]]:
    """Open the store of all commits of a warehouse, brought up to date. What it cannot read is reported once."""
    reported = set[str]()

    @contextmanager
    def opened() -> Iterator[CommitStore]:
        with lineage.reading() as known:
            for problem in [found for found in known.problems if found not in reported]:
                reported.add(problem)
                report(f"could not be read: {problem}")
            yield known.store

    return opened

"""Sends lineage as events of OpenLineage to a file or a server."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.catalog import FilesystemCatalog
from anabranch.errors import OptionError, UnsupportedFeatureError
from anabranch.lineage.store import CommitStore, LineageSource
from anabranch.maintenance.cutoff import cutoff_of
from anabranch.options import parse_duration
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.open import open_storage

if TYPE_CHECKING:
    from anabranch.lineage.openlineage.cursor import Cursor
    from anabranch.lineage.openlineage.export import Exported

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
    from anabranch.lineage.openlineage.cursor import load_cursor

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

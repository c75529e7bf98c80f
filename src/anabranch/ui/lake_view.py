"""The lake: its tables, what is known of each, jobs, and the last corrections."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from anabranch import AnabranchError, Table, __version__
from anabranch.jobs.records import behind, jobs_of_lake
from anabranch.ui.asked import Asked
from anabranch.ui.history import line_of, other_branches
from anabranch.ui.lineage_view import lineage_of
from anabranch.ui.site import Site, checked_health, looked_again, stamp
from anabranch.verbs.groups import DAMAGED_GROUP
from anabranch.verbs.legible import Unread
from anabranch.verbs.parallel import each_in

_MOST_TABLES = 60
"""Tables whose facts one request gives."""
_LAST = 20
"""Corrections shown."""


def about(site: Site, asked: Asked) -> dict[str, Any]:
    """Return what the page is about."""
    return {
        "url": site.lake.url,
        "warehouse": site.warehouse,
        "version": __version__,
        "actions": site.allow_actions,
        "jobs": list(site.jobs),
        "checks": list(site.checks),
        "now": site.now,
    }


def lake(site: Site, asked: Asked) -> dict[str, Any]:
    """Return the names of all tables, the last corrections, and which of their records cannot be read."""
    bases, damaged, of_groups = site.lake.databases(), Unread(), Unread(hint=DAMAGED_GROUP)

    def tables(base: str) -> list[str]:
        try:
            return site.lake.tables(base)
        except AnabranchError as error:
            if error.retryable:
                raise
            damaged(f"database {base}", error)
            return []

    names = each_in(site.lake, tables, bases)
    groups = sorted(site.lake.groups(of_groups), key=lambda group: group.number)[-_LAST:]
    return {
        "tables": [f"{base}.{name}" for base, found in zip(bases, names, strict=True) for name in found],
        "corrections": [asdict(group) for group in reversed(groups)],
        "damaged": [*damaged.found, *of_groups.found],
    }


def facts(site: Site, asked: Asked) -> dict[str, Any]:
    """Return facts of some tables, by name; of one that cannot be read, why."""
    names = list(asked.texts("name"))[:_MOST_TABLES]
    return dict(zip(names, each_in(site.lake, lambda name: _facts(site, name), names), strict=True))


def _facts(site: Site, name: str) -> dict[str, Any]:
    try:
        return looked_again(lambda: _kept_facts(site, name), lambda _: False)
    except AnabranchError as error:
        return {"problem": error.message if error.hint is None else f"{error.message} ({error.hint})"}


def _kept_facts(site: Site, name: str) -> dict[str, Any]:
    key = ("facts", name, stamp(site.open(name)))
    return site.kept_lately(key, lambda: _read_facts(*checked_health(lambda: site.open(name))))


def _read_facts(table: Table, health: Any) -> dict[str, Any]:
    snapshot = table.snapshot
    return {
        "rows": health.rows,
        "bytes": health.bytes,
        "files": health.files,
        "small": health.small_files,
        "partitions": health.partitions,
        "snapshots": health.snapshots,
        "score": health.score,
        "findings": [{"why": f.why, "command": f.command, "points": f.points} for f in health.findings],
        "head": None if snapshot is None else line_of(snapshot)._asdict(),
        "branches": other_branches(table),
    }


def running(site: Site, asked: Asked) -> list[dict[str, Any]]:
    """Return the jobs that a process runs, or ran in the last week: how each stands, and how far it is behind its tables."""
    return site.kept_lately(
        "running", lambda: [asdict(one) for one in jobs_of_lake(site.lake, site.runtime)], seconds=5.0
    )


def lags(site: Site, asked: Asked) -> list[dict[str, Any]]:
    """Return how far the jobs that write a table are behind the tables they read, in snapshots."""
    table = site.table(asked)
    found = []
    for at in lineage_of(site, table).positions():
        sources = []
        for source in at.sources:
            position, reached = source.position, {}
            if source.kind == "table" and isinstance(position, dict):
                with suppress(KeyError, TypeError, ValueError):
                    reached = {source.name: int(position["snapshot"])}
            late = behind(reached, site.lake, site.now).get(source.name)
            told = {"kind": source.kind, "name": source.name, "position": position}
            sources.append({**told, "behind": None if late is None else late.snapshots})
        found.append({"job": at.job, "commit": at.commit, "sources": sources, "problems": list(at.problems)})
    return found

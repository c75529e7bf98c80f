"""Lineage: the graph of tables and jobs, traces of snapshots, and who made one."""

from __future__ import annotations

from typing import Any, Final

from anabranch import InvalidInputError, Table
from anabranch.lineage.questions.topology import jobs, topology
from anabranch.lineage.store import healing
from anabranch.lineage.trace import Job, Trace
from anabranch.table.lineage import TableLineage
from anabranch.ui.asked import Asked
from anabranch.ui.site import Site

_QUESTIONS: Final = ("upstream", "downstream", "impact")
_PATIENCE: Final = 0.05
"""Seconds for which pictures of the whole lake wait for what is new; the page asks again for those that are behind."""


def lineage_of(site: Site, table: Table) -> TableLineage:
    """Return the lineage of a view, among all tables of the warehouse."""
    _ = table.snapshot  # a view of main follows it
    return TableLineage(table.context, table.moment, site.calm)


@healing
def whole(site: Site, asked: Asked) -> dict[str, Any]:
    """Return all tables and jobs; ``behind`` is whether what is new is still looked for."""
    is_current = site.calm.catch_up(_PATIENCE)
    with site.calm.as_it_is() as known:
        return {**topology(known.store, known.problems).to_dict(), "behind": not is_current}


@healing
def all_jobs(site: Site, asked: Asked) -> dict[str, Any]:
    """Return all jobs, the one that wrote last first; ``behind`` as `whole` says it."""
    is_current = site.calm.catch_up(_PATIENCE)
    with site.calm.as_it_is() as known:
        found: tuple[Job, ...] = jobs(known.store)
        problems = list(known.problems)
    rows = [{**job.to_dict(), "problems": problems} for job in found]
    return {"jobs": sorted(rows, key=lambda job: -job["last_millis"]), "behind": not is_current}


def trace(site: Site, asked: Asked) -> dict[str, Any]:
    """Return where rows came from or went to: of a table, or of some snapshots of it."""
    question, snapshots = asked.text("question"), asked.optional("snapshots")
    if question not in _QUESTIONS:
        raise InvalidInputError(f"there is no question '{question}'", hint=f"ask {', '.join(_QUESTIONS)}.")
    depth = asked.number("depth", 0, most=100) or None
    table = site.open(asked.text("table"), asked.optional("branch"))
    lineage = lineage_of(site, table)
    found: Trace
    if question == "upstream":
        found = lineage.upstream(snapshots, depth=depth)
    elif question == "downstream" or snapshots is None:
        found = lineage.downstream(snapshots, depth=depth)
    else:
        found = lineage.impact(snapshots, depth=depth)
    return found.to_dict()


def producer(site: Site, asked: Asked) -> dict[str, Any]:
    """Return what made a snapshot."""
    table = site.open(asked.text("table"), asked.optional("branch"))
    return lineage_of(site, table).producer(asked.optional("snapshot")).to_dict()

"""What the page, and a report, can ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch.ui import correction, difference, graph, lake_view, lineage_view, table_view
from anabranch.ui.asked import Asked
from anabranch.ui.site import Site, looked_again


@dataclass(frozen=True, slots=True)
class Answer:
    """Something that can be asked for."""

    make: Callable[[Site, Asked], Any]
    takes: tuple[str, ...] = ()
    """The arguments that there are."""

    def __call__(self, site: Site, asked: Asked) -> Any:
        """Return the answer. Raises `InvalidInputError` for arguments that there are not."""
        asked.check_only(self.takes)
        return looked_again(lambda: self.make(site, asked), _names_damage)


def _names_damage(found: Any) -> bool:
    return isinstance(found, dict) and bool(found.get("damaged"))


_BRANCH: Final = ("table", "branch")
_VIEW: Final = (*_BRANCH, "at")

ANSWERS: Final[Mapping[str, Callable[[Site, Asked], Any]]] = {
    "about": Answer(lake_view.about),
    "lake": Answer(lake_view.lake),
    "facts": Answer(lake_view.facts, ("name",)),
    "lags": Answer(lake_view.lags, _VIEW),
    "running": Answer(lake_view.running),
    "jobs": Answer(lineage_view.all_jobs),
    "table": Answer(table_view.table, _VIEW),
    "health": Answer(table_view.health, _VIEW),
    "schemas": Answer(table_view.schemas, _VIEW),
    "history": Answer(table_view.history, (*_BRANCH, "before", "limit")),
    "snapshot": Answer(table_view.snapshot, (*_BRANCH, "id")),
    "rows": Answer(table_view.rows, (*_VIEW, "filter", "limit")),
    "partitions": Answer(table_view.partitions, _VIEW),
    "statistics": Answer(table_view.statistics, _VIEW),
    "sizes": Answer(table_view.sizes, (*_BRANCH, "points")),
    "trend": Answer(table_view.trend, _BRANCH),
    "graph": Answer(graph.graph, ("table",)),
    "diff": Answer(difference.difference, ("table", "left", "right", "rows", "filter", "limit")),
    "lineage": Answer(lineage_view.whole),
    "trace": Answer(lineage_view.trace, (*_BRANCH, "question", "snapshots", "depth")),
    "producer": Answer(lineage_view.producer, (*_BRANCH, "snapshot")),
    "correction": Answer(correction.plan, ("table", "tag")),
    "progress": Answer(correction.progress),
}
"""What the page can ask for, by name. Nothing of it changes the warehouse."""

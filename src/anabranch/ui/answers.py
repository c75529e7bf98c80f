"""What the page, and a report, can ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.ui import correction, difference, graph, lake_view, lineage_view, table_view
from anabranch.ui.asked import Asked
from anabranch.ui.site import Site

Answer = Callable[[Site, Asked], Any]

ANSWERS: Final[Mapping[str, Answer]] = {
    "about": lake_view.about,
    "lake": lake_view.lake,
    "facts": lake_view.facts,
    "lags": lake_view.lags,
    "running": lake_view.running,
    "jobs": lineage_view.all_jobs,
    "table": table_view.table,
    "health": table_view.health,
    "schemas": table_view.schemas,
    "history": table_view.history,
    "snapshot": table_view.snapshot,
    "rows": table_view.rows,
    "partitions": table_view.partitions,
    "statistics": table_view.statistics,
    "sizes": table_view.sizes,
    "trend": table_view.trend,
    "graph": graph.graph,
    "diff": difference.difference,
    "lineage": lineage_view.whole,
    "trace": lineage_view.trace,
    "producer": lineage_view.producer,
    "correction": correction.plan,
    "progress": correction.progress,
}
"""What the page can ask for, by name. Nothing of it changes the warehouse."""

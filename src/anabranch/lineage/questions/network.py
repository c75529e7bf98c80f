"""The graph of branches that read from each other, and an order in which a walk meets each only once."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.lineage.content import Contents
from anabranch.lineage.questions.order import components
from anabranch.lineage.store import FlowSummary


class Network:
    """The branches of a store, and the flows that may exist between them."""

    def __init__(self, flows: Iterable[FlowSummary], contents: Contents) -> None:
        self._sinks: dict[str, set[str]] = {}
        self._sources: dict[str, set[str]] = {}
        for flow in flows:
            if flow.source_kind != "table":
                continue
            # Reading a branch is reading those that it left, and merging it only itself.
            is_own = flow.is_merge and not contents.restores(flow.source)
            for source in (flow.source,) if is_own else contents.reach(flow.source):
                self._sinks.setdefault(source, set()).add(flow.sink)
                self._sources.setdefault(flow.sink, set()).add(source)

    def downstream(self, begun: Iterable[str]) -> list[list[str]]:
        """Return the branches that can be reached, in groups: a group comes after all that flows into it."""
        return components(begun, self._sinks)

    def upstream(self, begun: Iterable[str]) -> list[list[str]]:
        """Return the branches that can be reached against the flows: a group comes after all that it flows into."""
        return components(begun, self._sources)

    def has_cycle(self, group: list[str]) -> bool:
        """Whether rows may have flowed from a branch of the group back to it."""
        return len(group) > 1 or group[0] in self._sinks.get(group[0], ())

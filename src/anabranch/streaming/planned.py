"""Files of portions, planned in groups and cached for repeated requests of the same step.

Spark asks how far a step goes, and then what is in it: with a limit both need every file. What a portion of a history
delivers never changes, so it is kept for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from anabranch.errors import AnabranchError
from anabranch.streaming.portion import Listing, Portion, PortionFile

_TOGETHER: Final = 64
"""Number of portions that are planned together."""
_KEPT: Final = 100_000
"""Maximum number of cached files plus portions."""


class Planned:
    """Cached planner of portions' files."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._known: OrderedDict[tuple[Any, ...], list[PortionFile]] = OrderedDict()
        self._files = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Planned, (self._listing,)

    def with_files(self, portions: Iterable[Portion]) -> Iterator[tuple[Portion, list[PortionFile]]]:
        """Yield each portion with all its files, including those delivered before; none for a refused one.

        A growing number of portions is planned ahead of the caller. Their errors are raised in their turn.
        """
        rest, size = iter(portions), 1
        while True:
            group: list[Portion] = []
            error: AnabranchError | None = None
            try:
                while len(group) < size:
                    portion = next(rest, None)
                    if portion is None:
                        break
                    group.append(portion)
                    if portion.refusal is not None:
                        break
            except AnabranchError as found:
                error = found
            if group:
                yield from self._planned(group)
            if error is not None:
                raise error
            if len(group) < size and (not group or group[-1].refusal is None):
                return
            size = min(2 * size, _TOGETHER)

    def _planned(self, group: list[Portion]) -> Iterator[tuple[Portion, list[PortionFile]]]:
        known = [None if p.refusal is not None else self._known.get(_key(p)) for p in group]
        missing = [p for p, files in zip(group, known, strict=True) if files is None and p.refusal is None]
        try:
            together: Iterator[list[PortionFile]] | None = iter(self._listing.files_of(missing))
        except AnabranchError:  # of one of them: raised when the caller gets there, after what comes before
            together = None
        for portion, kept in zip(group, known, strict=True):
            if kept is not None or portion.refusal is not None:
                yield portion, kept or []
                continue
            files = self._listing.files(portion) if together is None else next(together)
            self._keep(_key(portion), files)
            yield portion, files

    def _keep(self, key: tuple[Any, ...], files: list[PortionFile]) -> None:
        self._known[key] = files
        self._files += len(files) + 1
        while self._files > _KEPT and len(self._known) > 1:
            _, old = self._known.popitem(last=False)
            self._files -= len(old) + 1


def _key(portion: Portion) -> tuple[Any, ...]:
    """Return the cache key of a portion's files; names of manifest lists are unique."""
    snapshot = portion.snapshot
    since = None if portion.since is None else portion.since.held.stamp
    return (
        *(snapshot.id, snapshot.base_manifest_list, snapshot.delta_manifest_list, since, portion.full),
        *(portion.removed, portion.silent, portion.late_before, portion.begun_unordered),
    )

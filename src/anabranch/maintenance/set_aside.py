"""Files that an orphan clean-up moved and has not purged yet: ``.orphans/<milliseconds of the run>/<original path>``.

A commit may need some of them: of a writer that was paused for longer than the minimum age and published its snapshot
after the clean-up had looked. So code that follows references must read such files from there, or it could not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from anabranch.errors import NotFoundError
from anabranch.format.records.layout import ORPHANS_FOLDER
from anabranch.kernel.log.context import TableContext
from anabranch.storage.protocol import Storage


def orphan_runs(context: TableContext) -> list[int]:
    """Return runs whose files still exist, oldest first: their time in epoch milliseconds."""
    names = (folder.rpartition("/")[2] for folder in context.storage.list_folders(ORPHANS_FOLDER))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def set_aside(context: TableContext, runs: Iterable[int]) -> dict[str, str]:
    """Return the current path of each file of these runs, by its original path; the newest, if moved more than once."""
    return {
        info.path.split("/", 2)[2]: info.path
        for run in sorted(runs)
        for info in context.storage.list(f"{ORPHANS_FOLDER}/{run}", recursive=True)
    }


def reading_set_aside(context: TableContext, places: Mapping[str, str]) -> TableContext:
    """Return the same branch, reading missing files from where they were moved to.

    Args:
        context: the branch.
        places: current paths by original paths; looked up at each read.
    """
    return replace(context, storage=cast(Storage, _Found(context.storage, places)))


class _Found:
    """A store that finds files at their original or current path."""

    def __init__(self, storage: Storage, places: Mapping[str, str]) -> None:
        self._storage = storage
        self._places = places

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def get(self, path: str) -> bytes:
        try:
            return self._storage.get(path)
        except NotFoundError:
            place = self._places.get(path)
            if place is None:
                raise
        try:
            return self._storage.get(place)
        except NotFoundError:
            return self._storage.get(path)  # it was restored meanwhile

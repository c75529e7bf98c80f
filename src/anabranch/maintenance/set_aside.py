"""Files that the cleaning of orphans has set aside and not purged yet: ``.orphans/<milliseconds of the run>/<where it was>``.

Among them may be what a commit needs: of a writer that was paused for longer than the age to spare and put its snapshot
after the cleaning had looked. So whoever asks what is reached reads such files where they lie, or could not tell.
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
    """Runs whose files are still there, oldest first: their time in epoch milliseconds."""
    names = (folder.rpartition("/")[2] for folder in context.storage.list_folders(ORPHANS_FOLDER))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def set_aside(context: TableContext, runs: Iterable[int]) -> dict[str, str]:
    """Where each file of these runs lies, by where it was; the newest, if it was set aside more than once."""
    return {
        info.path.split("/", 2)[2]: info.path
        for run in sorted(runs)
        for info in context.storage.list(f"{ORPHANS_FOLDER}/{run}", recursive=True)
    }


def reading_set_aside(context: TableContext, places: Mapping[str, str]) -> TableContext:
    """The same branch, in which files that are not in their place are read where they lie.

    Args:
        context: the branch.
        places: where files lie, by where they were; read as it is at the time.
    """
    return replace(context, storage=cast(Storage, _Found(context.storage, places)))


class _Found:
    """A store in which files are found where they are, or were."""

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
            return self._storage.get(path)  # it was brought back meanwhile

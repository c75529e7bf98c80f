"""Removes files that nothing in a table refers to: leftovers of failed and killed writers and expiries.

The order makes it safe. First the files that are old enough are listed; only then all refs of all
branches are read. The refs show what was committed in between, and what is being written now is too
young. So the minimum age must be longer than the longest write takes from its first file to its commit. For writers
that were paused, refs are read once more after the move, and a commit checks that its old files exist.

Orphans are moved before they are purged: into ``.orphans/<milliseconds of the run>/<original path>``, a folder that
no engine takes for part of a table. A later run purges those that have been there for the same age; until
then `restore_orphan_files` brings them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import polars as pl

from anabranch.engine import Engine, LocalEngine
from anabranch.errors import NotFoundError
from anabranch.format.records.layout import ORPHANS_FOLDER
from anabranch.kernel.expiry.candidates import DATA, no_files
from anabranch.kernel.expiry.expire import check_cleanable
from anabranch.kernel.expiry.file_removal import delete_empty_folders
from anabranch.kernel.expiry.missing_refs import check_no_snapshot_missing
from anabranch.kernel.expiry.reachability import Reachability
from anabranch.kernel.expiry.result import Tally, tallies
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.store_clock import removal_time
from anabranch.kernel.refs.moments import Cutoff, cutoff_of
from anabranch.maintenance.orphan_listing import FOREIGN, old_files
from anabranch.storage.protocol import Storage

DEFAULT_AGE = "1 d"

_FILES_AT_ONCE = 1_000


@dataclass(frozen=True)
class Cleaning:
    """Files that an orphan clean-up moved and purged, or would in a dry run."""

    run: int | None = None
    """Argument of `restore_orphan_files` to undo it; None if nothing was moved."""
    files: pl.DataFrame = field(default_factory=no_files, repr=False)
    """The orphans: `path`, `file_name`, `kind`, `bytes`."""
    purged: Tally = Tally()  # noqa: RUF009 - immutable
    """Files moved by earlier runs and purged now."""
    dry_run: bool = False
    foreign: tuple[str, ...] = ()
    """Files and linked folders that were left alone: no engine of the format uses such names, and targets of links
    to need not be the table's."""

    @property
    def moved(self) -> dict[str, Tally]:
        """The orphans by kind: ``data``, ``index``, ``manifest``, ``snapshot``, ``statistics``, ``temporary``."""
        return tallies(self.files, "kind")


def remove_orphan_files(
    context: TableContext,
    *,
    older_than: Cutoff = DEFAULT_AGE,
    engine: Engine | None = None,
    dry_run: bool = False,
) -> Cleaning:
    """Move files that no ref of any branch reaches out of the way; purge those moved long ago. See `Table.remove_orphan_files`.

    If `older_than` is shorter than the longest write, files that are about to be committed are removed. Nothing is moved
    where the newest snapshot of a branch was deleted by hand, or a branch has no schema.
    """
    engine = engine or LocalEngine()
    check_no_snapshot_missing(context)
    schema = check_cleanable(context)
    now = removal_time(context, lists_files=True)
    cutoff = cutoff_of(older_than, now)
    listed = old_files(context, schema.partition_keys, cutoff, engine)
    foreign = tuple(sorted(listed.filter(pl.col("kind") == FOREIGN)["path"]))
    listed = listed.filter(pl.col("kind") != FOREIGN)
    runs = orphan_runs(context)
    places = set_aside(context, runs)
    names = pl.concat([listed["file_name"], _names_of(places)])
    reachability = Reachability(reading_set_aside(context, places), names)
    reached = reachability.now()
    if not dry_run:
        _bring_back(context, places, reached, engine)
    # First the steps that need no room: on a full disk even moving may.
    purged = _purge(context, [run for run in runs if run <= cutoff and run < now], dry_run)
    orphans = listed.join(reached, on="file_name", how="anti", maintain_order="left")
    if not dry_run and orphans.height:
        folder = f"{ORPHANS_FOLDER}/{now}"
        moves = {path: f"{folder}/{path}" for path in orphans["path"]}
        places |= moves
        _move(context, moves, engine)
        # What was committed during the move goes back: a writer may have been paused for longer than the minimum age.
        taken = orphans.join(reachability.now(), on="file_name", how="semi")["path"]
        _move(context, {f"{folder}/{path}": path for path in taken}, engine)
        orphans = orphans.filter(~pl.col("path").is_in(taken.implode()))
        data = orphans.filter(pl.col("kind") == DATA)["path"].to_list()
        delete_empty_folders(context, data, len(schema.partition_keys))
    return Cleaning(now if orphans.height and not dry_run else None, orphans, purged, dry_run, foreign)


def restore_orphan_files(context: TableContext, run: int, *, engine: Engine | None = None) -> Tally:
    """Restore the files that a run moved; a file that exists again is left as it is.

    Raises `NotFoundError` naming the runs there are.
    """
    folder = f"{ORPHANS_FOLDER}/{run}"
    files = {
        info.path[len(folder) + 1 :]: info.size
        for info in context.storage.list(folder, recursive=True, include_temporary=True)
    }
    if not files:
        runs = ", ".join(map(str, orphan_runs(context)))
        raise NotFoundError(
            f"there is no run {run} of the cleaning of '{context.name}'",
            hint=f"runs there are: {runs}."
            if runs
            else "there is nothing to bring back, or it has been purged.",
        )
    missing = [path for path in files if not context.storage.exists(path)]
    _move(context, {f"{folder}/{path}": path for path in missing}, engine or LocalEngine())
    if len(missing) == len(files):
        context.storage.delete_folder(folder)
    return Tally(len(missing), sum(files[path] for path in missing))


def bring_back_needed_files(context: TableContext, *, engine: Engine | None = None) -> int:
    """Move back what earlier runs moved and refs reach now; return the number of files.

    A run does so itself; this is for what cannot be done before, as a snapshot cannot be read.
    """
    places = set_aside(context, orphan_runs(context))
    if not places:
        return 0
    reached = Reachability(reading_set_aside(context, places), _names_of(places)).now()
    return _bring_back(context, places, reached, engine or LocalEngine())


def _bring_back(
    context: TableContext, places: Mapping[str, str], reached: pl.DataFrame, engine: Engine
) -> int:
    """Move back what refs reach: a run may have been killed before its second look at the refs."""
    names = set(reached["file_name"])
    needed = {there: path for path, there in places.items() if path.rpartition("/")[2] in names}
    moves = {there: path for there, path in needed.items() if not context.storage.exists(path)}
    _move(context, moves, engine)
    return len(moves)


def _names_of(paths: Iterable[str]) -> pl.Series:
    return pl.Series("file_name", [path.rpartition("/")[2] for path in paths], dtype=pl.String)


def _move(context: TableContext, moves: Mapping[str, str], engine: Engine) -> None:
    pairs = list(moves.items())
    batches = [
        (context.storage, dict(pairs[start : start + _FILES_AT_ONCE]))
        for start in range(0, len(pairs), _FILES_AT_ONCE)
    ]
    for _ in engine.map(_move_batch, batches, name=f"move files of {context.title}"):
        continue


def _move_batch(batch: tuple[Storage, dict[str, str]]) -> int:
    storage, moves = batch
    storage.move_many(moves)
    return len(moves)


def _purge(context: TableContext, runs: Sequence[int], dry_run: bool) -> Tally:
    purged = Tally()
    for run in runs:
        folder = f"{ORPHANS_FOLDER}/{run}"
        sizes = [i.size for i in context.storage.list(folder, recursive=True, include_temporary=True)]
        purged += Tally(len(sizes), sum(sizes))
        if not dry_run:
            context.storage.delete_folder(folder)
    if runs and not dry_run:
        context.storage.delete_empty_folder(ORPHANS_FOLDER)
    return purged


# Files that an orphan clean-up moved and has not purged yet: ``.orphans/<milliseconds of the run>/<original path>``.
#
# A commit may need some of them: of a writer that was paused for longer than the minimum age and published its snapshot
# after the clean-up had looked. So code that follows references must read such files from there, or it could not.


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

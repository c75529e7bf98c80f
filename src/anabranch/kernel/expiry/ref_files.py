"""The refs of a whole table: everything from which its files are reachable.

These are the snapshots, tags and savepoints of main and of every branch, and the tags that mains inherit. Consumers keep snapshots from
expiring and reach nothing by themselves; forks and merges are pinned by ordinary tags. A dropped former main
keeps a last snapshot, which reaches nothing.

Refs change while they are read. One that is renamed or replaced could be missed by one look, at its old
place because it was gone already and at its new one because it did not exist yet; not by a second look that
begins after the first has ended. So `RefReader.read` looks until a look shows nothing new, and returns the union
of all looks.

A reader is made for a whole operation. A snapshot whose file is unchanged in a listing is not read again, so each is
read once however many looks; tags and savepoints, which may be replaced under their names, are read each time.

A look lists all branches side by side, and then reads what they listed, of all of them, side by side: in what order a
look reads does not matter, as the next one begins after it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from anabranch.errors import CorruptTableError, NotFoundError, UnsupportedFeatureError
from anabranch.format.records.layout import (
    BRANCH_FOLDER,
    MAIN_BRANCH,
    branch_name_of,
    savepoint_id_of,
    schema_id_of,
    snapshot_id_of,
    tag_name_of,
)
from anabranch.format.records.main_pointer import TAGS_PREFIX
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.records.snapshot import NO_LIST, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.inherited_tags import MARK_PREFIX, inherited_paths, mark_by, read_inherited
from anabranch.kernel.log.main_pointer import newest_pointer, numbers, replacements
from anabranch.kernel.log.parallel import AHEAD_OF_SMALL, Reading, reading, stream
from anabranch.kernel.log.seals import is_remnant
from anabranch.storage.links import is_link
from anabranch.storage.protocol import ObjectInfo, Storage


@dataclass(frozen=True, slots=True)
class Ref:
    """One ref. Two values are equal if they reach the same files under the same name."""

    path: str
    """Its file."""
    name: str
    """Name for people: ``tag 'good'``, ``snapshot 5 of branch 'fix'``."""
    lists: tuple[str, ...]
    """Manifest lists."""
    index_manifest: str | None = None
    statistics: str | None = None


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A snapshot of the reader's branch, and when its file was stored."""

    path: str
    snapshot: Snapshot
    modified_millis: int


@dataclass(frozen=True, slots=True)
class Look:
    """Result of reading the refs once."""

    refs: frozenset[Ref]
    snapshots: tuple[SnapshotFile, ...]
    """Those of the reader's branch, by ascending id, including strays beside its history."""


class RefReader:
    """Reads the refs of all branches repeatedly; what cannot have changed is read once."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._known: dict[ObjectInfo, _Read] = {}
        self._names: tuple[str, ...] = ()
        """Branches of the last look."""

    def read(self) -> frozenset[Ref]:
        """Return all refs, including those removed meanwhile; see the module docstring.

        Raises:
            CorruptTableError: a ref cannot be read, or a branch has no schema.
            UnsupportedFeatureError: the table keeps a changelog longer than its snapshots.
        """
        found = self.look().refs
        while True:
            again = self.look().refs
            if again <= found:
                return found
            found |= again

    def look(self) -> Look:
        """Read the current refs once; raises as `read` does."""
        context = self._context
        with reading(context.storage) as begin:
            savepoints = begin(partial(_listed, context.storage, context.layout.savepoint_folder))
            inheriting = begin(partial(_inheriting, context))
            listing: dict[str | None, _Listing] = {}

            def name_all() -> list[str]:
                """Return the names of the branches, each of which is being listed."""
                names = [*self._branches()]
                listing.update({name: self._begin(begin, name) for name in names if name not in listing})
                return names

            if context.storage.is_far:
                # Main is there, and those that were there before most likely are: these need not wait for the names.
                listing |= {name: self._begin(begin, name) for name in (None, *self._names)}
                naming = begin(name_all)
            else:
                branches = [context.on_branch(name) for name in (None, *self._branches())]
                for branch, files in zip(
                    branches, stream(_files_of, branches, at=context.storage), strict=True
                ):
                    listing[branch.branch] = branch, partial(_same, files)
                naming = partial(_same, [name for name in listing if name is not None])
            listed: list[tuple[TableContext, dict[str, list[ObjectInfo]]]] = []

            def wanted() -> Iterator[_Reads]:
                """Yield what is to be read of each branch, once it is listed."""
                yield from self._wanted(listed, *listing[None])
                self._names = tuple(naming())
                for name in self._names:
                    yield from self._wanted(listed, *listing[name])
                for info in savepoints():
                    if savepoint_id_of(info.path) is not None:
                        yield partial(_savepoint, context, info.path)
                # What mains inherit has replaced main by a branch, so without branches there is none.
                inherited = inheriting() if self._names else {}
                marks = _marks(listed) if inherited else frozenset()
                for number, is_needed in inherited.items():
                    yield partial(_inherited, context, number, marks, is_needed=is_needed)

            found = [
                one
                for one in stream(_ask, wanted(), at=context.storage, ahead=AHEAD_OF_SMALL)
                if one is not None
            ]
        snapshots = {one.info: one for one in found if isinstance(one, _Read)}
        refs = {one for one in found if isinstance(one, Ref)}
        refs |= {ref for one in found if isinstance(one, list) for ref in one}
        seen: dict[ObjectInfo, _Read] = {}
        own: list[SnapshotFile] = []
        homes = {context.branch, *(part.branch for part in context.past)}
        for branch, files in listed:
            there = {
                info: one
                for info in files[branch.layout.snapshot_folder]
                if (one := self._known.get(info) or snapshots.get(info)) is not None
            }
            if there:
                _check_has_schema(branch, files[branch.layout.schema_folder])
            if branch.branch in homes:
                own += [
                    SnapshotFile(info.path, one.snapshot, info.modified_millis)
                    for info, one in there.items()
                    if context.layout.holds(info.path)
                ]
            seen |= there
        refs |= {one.ref for one in seen.values()}
        self._known = seen  # what is gone is forgotten
        return Look(frozenset(refs), tuple(sorted(own, key=lambda one: one.snapshot.id)))

    def _begin(self, begin: Reading, name: str | None) -> _Listing:
        """Begin to list a branch."""
        branch = self._context.on_branch(name)
        return branch, begin(partial(_files_of, branch))

    def _wanted(
        self,
        listed: list[tuple[TableContext, dict[str, list[ObjectInfo]]]],
        branch: TableContext,
        listing: Callable[[], dict[str, list[ObjectInfo]]],
    ) -> Iterator[_Reads]:
        """Yield what is to be read of a branch, and add it to those that are listed."""
        files = listing()
        listed.append((branch, files))
        _check_no_changelog(branch, files[branch.layout.changelog_folder])
        yield from self._unknown(branch, files[branch.layout.snapshot_folder])
        yield from _tags(branch, files[branch.layout.tag_folder])

    def _unknown(self, branch: TableContext, files: Sequence[ObjectInfo]) -> Iterator[_Reads]:
        """Yield how to read each snapshot of a branch that is not known."""
        for info in files:
            if info not in self._known and snapshot_id_of(info.path) is not None:
                yield partial(_snapshot, branch, info)

    def _branches(self) -> Iterator[str]:
        for folder in self._context.storage.list_folders(BRANCH_FOLDER):
            name = branch_name_of(folder)
            if name == MAIN_BRANCH:
                raise CorruptTableError(
                    "is the folder of a branch that is called as the main branch is",
                    path=folder,
                    hint="rename or remove the folder; until then it is not known what may be deleted.",
                )
            if name is not None:
                yield name


@dataclass(frozen=True, slots=True)
class _Read:
    """A snapshot that was read."""

    info: ObjectInfo
    snapshot: Snapshot
    ref: Ref


T = TypeVar("T")

_Listing = tuple[TableContext, Callable[[], dict[str, list[ObjectInfo]]]]
_Reads = Callable[[], _Read | Ref | list[Ref] | None]
"""Reads a snapshot, a tag, a savepoint or inherited tags; None if it was removed since it was listed, or reaches nothing."""


def _same(value: T) -> T:
    return value


def _ask(read: _Reads) -> _Read | Ref | list[Ref] | None:
    return read()


def _snapshot(context: TableContext, info: ObjectInfo) -> _Read | None:
    snapshot_id = snapshot_id_of(info.path)
    assert snapshot_id is not None
    snapshot = context.snapshots.find(snapshot_id)
    if snapshot is None or is_remnant(context, snapshot):
        return None
    return _Read(info, snapshot, _of_snapshot(info.path, f"snapshot {snapshot.id}", snapshot, context.branch))


def _files_of(context: TableContext) -> dict[str, list[ObjectInfo]]:
    """The files of a branch that say what it reaches, by folder: one listing, but for main and where folders are links."""
    layout, storage = context.layout, context.storage
    wanted = (layout.snapshot_folder, layout.tag_folder, layout.changelog_folder, layout.schema_folder)
    if not layout.branch_root or any(is_link(storage, folder) for folder in (layout.branch_root, *wanted)):
        with reading(storage) as begin:
            listings = {folder: begin(partial(_listed, storage, folder)) for folder in wanted}
            return {folder: listing() for folder, listing in listings.items()}
    files: dict[str, list[ObjectInfo]] = {folder: [] for folder in wanted}
    for info in storage.list(layout.branch_root, recursive=True):
        folder = info.path.rpartition("/")[0]
        if folder in files:
            files[folder].append(info)
    return files


def _listed(storage: Storage, folder: str) -> list[ObjectInfo]:
    return [*storage.list(folder)]


def _tags(context: TableContext, files: Sequence[ObjectInfo]) -> Iterator[_Reads]:
    for info in files:
        if (name := tag_name_of(info.path)) is not None:
            yield partial(_tag, context, info.path, name)


def _tag(context: TableContext, path: str, name: str) -> Ref | None:
    data = _get(context, path)
    if data is None:
        return None
    tag = Tag.from_json(data, name=name, path=path)
    return _of_snapshot(path, f"tag '{name}'", tag.snapshot, context.branch)


def _marks(listed: Sequence[tuple[TableContext, dict[str, list[ObjectInfo]]]]) -> frozenset[str]:
    """Return the marks of inherited tags that were deleted, of all branches."""
    tags = (info.path for branch, files in listed for info in files[branch.layout.tag_folder])
    names = (path.rpartition("/")[2] for path in tags)
    return frozenset(name for name in names if name.startswith(MARK_PREFIX))


def _inheriting(context: TableContext) -> dict[int, bool]:
    """Return the numbers of the replacements whose mains inherit tags, and whether it is the main there is."""
    found = dict.fromkeys(numbers(context, TAGS_PREFIX), False)
    with suppress(CorruptTableError):  # nothing is removed of a table of which it is not known what is main
        newest = newest_pointer(context)
        for pointer in [] if newest is None else [*replacements(context), newest]:
            if pointer.past and pointer.past[0].tags is not None:
                found[pointer.past[0].tags] = pointer is newest
    return found


def _inherited(
    context: TableContext, number: int, marks: frozenset[str], *, is_needed: bool
) -> list[Ref] | None:
    """Return the tags that the main of a replacement inherits and that were not deleted on it.

    Args:
        is_needed: whether it is the main there is. What a former main inherits may go with that.
    """
    path, _ = inherited_paths(context, number)
    try:
        tags = read_inherited(context, number)
    except CorruptTableError:
        if is_needed or context.storage.exists(path):
            raise
        return None
    return [
        _of_snapshot(path, f"tag '{name}' of before replacement {number}", stored.tag.snapshot)
        for name, stored in tags.items()
        if mark_by(number, name) not in marks
    ]


def _savepoint(context: TableContext, path: str) -> Ref | None:
    try:
        savepoint = Savepoint.from_path(context.storage, path)
    except NotFoundError:
        return None
    return _of_snapshot(path, f"savepoint {savepoint.id}", savepoint.snapshot)


def _get(context: TableContext, path: str) -> bytes | None:
    try:
        return context.storage.get(path)
    except NotFoundError:
        return None


def _of_snapshot(path: str, name: str, snapshot: Snapshot, branch: str | None = None) -> Ref:
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list)
    return Ref(
        path,
        name if branch is None else f"{name} of branch '{branch}'",
        tuple(found for found in lists if found not in (None, NO_LIST)),
        snapshot.index_manifest,
        snapshot.statistics,
    )


def _check_has_schema(context: TableContext, files: Sequence[ObjectInfo]) -> None:
    """A branch without a schema is half made or half deleted: what it reaches is not known.

    Tags alone are what a process left that was overtaken by the deletion of its branch: each says itself what it reaches.
    """
    folder = context.layout.schema_folder
    if not any(schema_id_of(info.path) is not None for info in files):
        raise CorruptTableError(
            f"holds no schema, but '{context.title}' has snapshots; nothing was deleted",
            path=folder,
            hint="a branch is being created or deleted: try again, or delete the branch.",
        )


def _check_no_changelog(context: TableContext, files: Sequence[ObjectInfo]) -> None:
    folder = context.layout.changelog_folder
    if files:
        raise UnsupportedFeatureError(
            f"'{context.title}' keeps a changelog longer than its snapshots; nothing was deleted",
            feature="decoupled-changelog",
            path=folder,
            hint="expire snapshots and clean up with the engine that keeps the changelog.",
        )

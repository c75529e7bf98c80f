"""Lost decisions about main: ``MAIN-<g>`` is missing, though other records prove that it existed.

Without it main would be what it was before, and a process waiting for the decision would make another. Each proof
was stored after the decision: a copy in the archive's folder, put by whoever replaced main, or by `maintain` if
that died; the hint for people that names main, if it is newer than the announcement; the release record of the old
main; a decision of a higher number. So each is looked at before the decision itself.

Where one look shows a decision for every number that anything speaks of, none is lost, in whatever order it saw them:
decisions are never removed. Only else is everything looked at in that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import polars as pl

from anabranch.errors import (
    AnabranchError,
    CorruptTableError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.format.avro.files import read_frame
from anabranch.format.records.layout import BRANCH_FOLDER, HISTORY_FOLDER, numbered_id
from anabranch.format.records.main_pointer import (
    HINT_FILE,
    MAIN_PREFIX,
    RELEASE_PREFIX,
    SEAL_PREFIX,
    MainPointer,
    Seal,
)
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_pointer import (
    COPY_PREFIX,
    copy_path,
    find_pointer,
    find_seal,
    newest_pointer,
    pointer_path,
    seal_of,
)
from anabranch.kernel.log.parallel import reading


@dataclass(frozen=True, slots=True)
class LostDecision:
    """A decision about main whose record is missing."""

    generation: int
    proof: str
    """The file that proves it."""
    path: str
    """Path of the missing record."""


def keep_copy(context: TableContext, pointer: MainPointer) -> None:
    """Store a copy of a valid replacement where branch removal cannot reach it. Failures are left for `maintain`."""
    with suppress(StorageError):
        context.storage.put_if_absent(copy_path(context, pointer.generation), pointer.to_json())


def complete_pointer_copies(context: TableContext, pointers: Sequence[MainPointer]) -> None:
    """Store the copies that are missing because the replacing process died; one listing."""
    known = copies(context) if pointers else set()
    for pointer in pointers:
        if pointer.generation not in known:
            keep_copy(context, pointer)


def lost_decisions(context: TableContext) -> list[LostDecision]:
    """Return all lost decisions, oldest first. Two listings where none is missing."""
    with reading(context.storage) as begin:
        copying, listing = begin(partial(copies, context)), begin(partial(_names, context))
        copied, names = copying(), listing()
    announced = copied.union(*(_numbered(names, prefix) for prefix in (SEAL_PREFIX, RELEASE_PREFIX)))
    decided = _numbered(names, MAIN_PREFIX)
    if announced <= decided and len(decided) == max(decided, default=0):
        return []
    copied = copies(context)
    seals = _numbered(_names(context), SEAL_PREFIX)
    hinted = _hinted(context, max(seals)) if seals else None
    released = _numbered(_names(context), RELEASE_PREFIX)
    decided = _numbered(_names(context), MAIN_PREFIX)
    newest = max(decided, default=0)
    found = []
    for number in sorted((copied | seals | released) - decided):
        if number in copied:
            proof = copy_path(context, number)
        elif number in released:
            proof = pointer_path(context, RELEASE_PREFIX, number)
        elif number < newest:
            proof = pointer_path(context, MAIN_PREFIX, newest)
        elif number == hinted:
            proof = context.layout.branches_file_path(HINT_FILE)
        else:
            continue
        path = pointer_path(context, MAIN_PREFIX, number)
        if not context.storage.exists(path):
            found.append(LostDecision(number, proof, path))
    return found


def check_decisions(context: TableContext) -> None:
    """Raise `CorruptTableError` if a decision was lost, since the apparent main may then be wrong."""
    for lost in lost_decisions(context):
        raise _refusal(context, lost)


def check_sealed(context: TableContext, generation: int) -> None:
    """Raise if a main that looks undecided was sealed and replaced, and the replacement's record was lost.

    Raises `CorruptTableError`.
    """
    check_decisions(context)
    # Read first: a record that is there and cannot be read decides as well.
    if find_pointer(context, generation) is None and find_seal(context, generation) is None:
        # It is announced before main is sealed, and the announcement stays.
        path = pointer_path(context, MAIN_PREFIX, generation)
        raise _refusal(context, LostDecision(generation, "the last snapshot, which is a seal,", path))


def check_main_known(context: TableContext, generation: int | None) -> None:
    """Raise if the snapshot to read is the seal of a former main and the replacement's record was lost.

    Args:
        generation: the replacement whose seal the snapshot is; None if it is not a seal, which costs nothing.

    Raises `CorruptTableError`.
    """
    known = context.main_generation
    if generation is not None and known is not None and generation > known:
        with suppress(CorruptTableError):
            if newest_pointer(context, above=known) is not None:
                return  # decided meanwhile, or main stayed
        check_sealed(context, generation)


def lost_seal(context: TableContext, generation: int) -> Seal | None:
    """Return the announcement of a lost decision, as far as it can be read."""
    try:
        return find_seal(context, generation)
    except AnabranchError:
        return None


def _hinted(context: TableContext, newest: int) -> int | None:
    """Return the newest announced number, if the name of main was written after it and is the announced one."""
    path = context.layout.branches_file_path(HINT_FILE)
    try:
        seal = find_seal(context, newest)
        name, written = context.storage.get(path), context.storage.info(path).modified_millis
        begun = context.storage.info(pointer_path(context, SEAL_PREFIX, newest)).modified_millis
    except (NotFoundError, CorruptTableError, UnsupportedFeatureError):
        return None
    if seal is None or written < begun or name != (seal.target.name or "main").encode():
        return None
    return newest


def _refusal(context: TableContext, lost: LostDecision) -> CorruptTableError:
    return CorruptTableError(
        f"it is not known which branch is main of '{context.name}': {lost.path}, the record of replacement "
        f"{lost.generation}, is not there, though {lost.proof} tells that it was decided",
        path=lost.path,
        hint="`repair` puts it back; until then nothing is read from or written to what was main before.",
    )


def copies(context: TableContext) -> set[int]:
    """Return the numbers of the decisions that have a copy; one listing."""
    return _numbered(_names(context, HISTORY_FOLDER), COPY_PREFIX)


def _names(context: TableContext, folder: str = BRANCH_FOLDER) -> list[str]:
    return [info.path.rpartition("/")[2] for info in context.storage.list(folder)]


def _numbered(names: Iterable[str], prefix: str) -> set[int]:
    return {number for name in names if (number := numbered_id(name, prefix)) is not None}


_MAIN_POINTER = "MAIN-BRANCH"


def check_main_readable(context: TableContext) -> None:
    """Refuse a table with a Paimon main-branch pointer file.

    Only snapshots of Paimon 0.9 before its release wrote that; no release reads it. Raises `UnsupportedFeatureError`.
    """
    if context.storage.exists(_MAIN_POINTER):
        raise UnsupportedFeatureError(
            f"table '{context.title}' has a {_MAIN_POINTER} file, which names another branch as main",
            feature="main-branch-pointer",
            hint="bring the branch into main with the engine that wrote the file.",
        )


def check_snapshot_readable(context: TableContext, snapshot: Snapshot) -> None:
    """Refuse a snapshot that would give wrong rows if read by its data files alone, or in the schemas of this context.

    Raises:
        CorruptTableError: it is the seal of a former main, and the record of the current main was lost.
        UnsupportedFeatureError: an index says that some rows are deleted or replaced.
        NotFoundError: the table was dropped and created again since it was opened.
    """
    if context.is_replaced(snapshot):
        raise NotFoundError(
            f"'{context.title}' was dropped and created again since it was opened",
            hint="open the table again to read the new one.",
        )
    check_main_known(context, seal_of(snapshot))
    _check_no_row_index(context, snapshot)


def check_snapshot_writable(context: TableContext, snapshot: Snapshot) -> None:
    """Raise `UnsupportedFeatureError` if a commit would leave an index behind that no longer fits."""
    _check_no_row_index(context, snapshot)
    for kind in _live_index_types(context, snapshot):
        raise UnsupportedFeatureError(
            f"snapshot {snapshot.id} of '{context.title}' has an index of type {kind}, which a commit would "
            "make stale",
            feature="index-manifest",
            hint="drop the index with the engine that made it, or write with that engine.",
        )


def _check_no_row_index(context: TableContext, snapshot: Snapshot) -> None:
    """Refuse indexes that mark rows as deleted or replaced."""
    for kind in _live_index_types(context, snapshot):
        if kind == "DELETION_VECTORS":
            raise UnsupportedFeatureError(
                f"snapshot {snapshot.id} of '{context.title}' has deletion vectors: some rows of its data "
                "files are deleted",
                feature="deletion-vectors",
                hint="compact the table fully with the engine that wrote it, then read it here.",
            )
        if kind == "HASH":
            raise UnsupportedFeatureError(
                f"snapshot {snapshot.id} of '{context.title}' has a hash index, which belongs to primary-key tables",
                feature="primary-key",
                hint="read it with the engine that wrote it.",
            )


def _live_index_types(context: TableContext, snapshot: Snapshot) -> list[str]:
    """Return the types in the index manifest, which lists all live index files."""
    if snapshot.index_manifest is None:
        return []
    path = context.layout.manifest_path(snapshot.index_manifest)
    index_files = read_frame(context.manifests.raw(snapshot.index_manifest), path=path)
    if not {"_KIND", "_INDEX_TYPE"} <= set(index_files.columns):
        raise CorruptTableError("is no index manifest: it lacks _KIND or _INDEX_TYPE", path=path)
    live = index_files.filter(pl.col("_KIND") == 0)["_INDEX_TYPE"]
    return sorted(str(kind) for kind in live.unique())

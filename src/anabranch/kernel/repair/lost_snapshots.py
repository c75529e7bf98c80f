"""Snapshots that somebody deleted, made again from what is left of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from anabranch.errors import AnabranchError
from anabranch.kernel.chain import hold_the_same
from anabranch.kernel.context import TableContext
from anabranch.kernel.properties import (
    BRANCH_PROPERTY,
    LEFTOVER_PROPERTY,
    PARENT_PROPERTY,
    WATERMARK_PROPERTY,
    WRITER_PROPERTY,
)
from anabranch.kernel.removals import removed_lists
from anabranch.kernel.repair.states import State
from anabranch.spec.data_file import ManifestFileMeta
from anabranch.spec.entry_frame import IDENTITY
from anabranch.spec.layout import LIST_PREFIX, MANIFEST_FOLDER
from anabranch.spec.snapshot import BATCH_COMMIT_IDENTIFIER, NO_LIST, CommitKind, Snapshot
from anabranch.version import __version__

_NAMES: Final = uuid.UUID("3c0b1d9a-55d1-5b0e-9d4a-0c7a6b1f2e11")
_COLUMNS: Final = ("kind", *IDENTITY, "row_count")


@dataclass(frozen=True, slots=True)
class Recovery:
    """A snapshot to put back."""

    snapshot: Snapshot
    source: str
    """What it is taken from, for people."""

    def put(self, context: TableContext) -> bool:
        """Put it back; False if its number is taken by now."""
        path = context.layout.snapshot_path(self.snapshot.id)
        return context.storage.put_if_absent(path, self.snapshot.to_json())


def recover_within(context: TableContext, states: Sequence[State], number: int) -> Recovery | None:
    """The snapshot that is missing between others, or one that does what it did; None if nothing tells."""
    following = _find(context, number + 1)
    held = _held(context, states, number)
    if following is None:
        return held
    parent = following.properties.get(PARENT_PROPERTY)
    if held is not None and (
        held.snapshot.stamp == parent
        or (parent is None and context.snapshots.follows(held.snapshot, following))
    ):
        return held
    return None


def recover_head(context: TableContext, states: Sequence[State], hinted: int) -> Iterator[Recovery]:
    """The snapshots above the newest that is there, up to the one that the hint names, as far as there is a trace."""
    head = context.snapshots.head()
    lists = _Lists(context, states)
    while head is None or head.id < hinted:
        number = 1 if head is None else head.id + 1
        held = _held(context, states, number)
        if held is not None and head is not None:
            held = _on_top(context, head, held)
        found = held or lists.continuing(head)
        if found is None:
            numbers = {state.snapshot.id for state in states if number < state.snapshot.id <= hinted}
            higher = [h for n in sorted(numbers) if (h := _held(context, states, n)) is not None]
            if not higher or head is not None:
                return
            found = higher[
                -1
            ]  # nothing is left of the beginning: the newest that is held has all of its rows
        yield found
        head = found.snapshot


def _on_top(context: TableContext, head: Snapshot, held: Recovery) -> Recovery | None:
    """The snapshot on top of another: as it is, or built on one that was made again; None if it took over other files."""
    if context.snapshots.follows(head, held.snapshot):
        return held
    try:
        before = context.manifests.of_snapshot(head)
        taken_over = context.manifests.read_list(held.snapshot.base_manifest_list)
        if not hold_the_same(context.manifests, before, taken_over):
            return None
    except AnabranchError:
        return None
    properties = {**held.snapshot.properties, PARENT_PROPERTY: head.stamp}
    return Recovery(replace(held.snapshot, properties=properties), held.source)


def _held(context: TableContext, states: Sequence[State], number: int) -> Recovery | None:
    """The snapshot of that number as a tag, a savepoint or another branch holds it, if it was made on this branch."""
    own = {context.branch_uuid} if context.branch is not None else {context.branch_uuid, None}
    for state in states:
        snapshot = state.snapshot
        if snapshot.id != number or NO_LIST in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
            continue
        if snapshot.properties.get(BRANCH_PROPERTY) in own:
            return Recovery(snapshot, state.name)
    return None


def _find(context: TableContext, number: int) -> Snapshot | None:
    try:
        return context.snapshots.find(number)
    except AnabranchError:
        return None


class _Lists:
    """Manifest lists that no ref names, in pairs: what a commit took over, and what it changed."""

    def __init__(self, context: TableContext, states: Sequence[State]) -> None:
        self._context = context
        named = {
            name for s in states for name in (s.snapshot.base_manifest_list, s.snapshot.delta_manifest_list)
        }
        removed = removed_lists(context.storage)
        found: dict[str, list[tuple[int, str, int, int]]] = {}
        for info in context.storage.list(MANIFEST_FOLDER):
            name = info.path.rpartition("/")[2]
            if name.startswith(LIST_PREFIX) and name not in named and name not in removed:
                stem, _, count = name.rpartition("-")
                if count.isascii() and count.isdigit():
                    found.setdefault(stem, []).append((int(count), name, info.size, info.modified_millis))
        self._pairs = sorted(
            (
                (max(one[3] for one in lists), sorted(lists)[:2])
                for lists in found.values()
                if len(lists) >= 2
            ),
            key=lambda pair: pair[0],
        )

    def continuing(self, head: Snapshot | None) -> Recovery | None:
        """The commit on top of a snapshot, the newest of several."""
        before = _live(self._context, () if head is None else self._context.manifests.of_snapshot(head))
        for modified, lists in reversed(self._pairs):
            (_, base, base_size, _), (_, delta, delta_size, _) = lists
            try:
                taken = self._context.manifests.read_list(base)
                if not _live(self._context, taken).equals(before):
                    continue
                metas = self._context.manifests.read_list(delta)
                entries = self._context.manifests.entries(metas, only=_COLUMNS).df
            except AnabranchError:
                continue
            self._pairs = [pair for pair in self._pairs if pair[1] is not lists]
            made = _made(self._context, head, entries, modified, metas)
            sized = replace(
                made,
                base_manifest_list=base,
                base_manifest_list_size=base_size,
                delta_manifest_list=delta,
                delta_manifest_list_size=delta_size,
            )
            return Recovery(sized, f"its manifest lists {base} and {delta}")
        return None


def _live(context: TableContext, metas: Sequence[ManifestFileMeta]) -> pl.DataFrame:
    entries = context.manifests.entries(list(metas), only=("kind", *IDENTITY))
    return entries.live().df.select(IDENTITY).sort(IDENTITY)


def _made(
    context: TableContext,
    head: Snapshot | None,
    entries: pl.DataFrame,
    modified: int,
    metas: Sequence[ManifestFileMeta],
) -> Snapshot:
    adds, deletes = (entries.filter(pl.col("kind") == kind) for kind in (0, 1))
    change = int(adds["row_count"].sum()) - int(deletes["row_count"].sum())
    if deletes.height == 0 and adds.height:
        kind = CommitKind.APPEND
    else:
        kind = CommitKind.COMPACT if change == 0 else CommitKind.OVERWRITE
    number = 1 if head is None else head.id + 1
    schemas = context.schemas.ids()
    total = 0 if head is None else head.total_record_count
    properties = {
        BRANCH_PROPERTY: context.branch_uuid,
        WRITER_PROPERTY: f"anabranch {__version__}",
        LEFTOVER_PROPERTY: "",
    }
    if head is not None:
        properties[PARENT_PROPERTY] = head.stamp
        if WATERMARK_PROPERTY in head.properties:
            properties[WATERMARK_PROPERTY] = head.properties[WATERMARK_PROPERTY]
    known = [meta.schema_id for meta in metas]
    return Snapshot(
        id=number,
        schema_id=max([*known, *([] if head is None else [head.schema_id])], default=max(schemas, default=0)),
        base_manifest_list="",
        delta_manifest_list="",
        commit_user=str(uuid.uuid5(_NAMES, f"{'' if head is None else head.stamp} {number}")),
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=kind,
        time_millis=modified if head is None else max(head.time_millis, modified),
        total_record_count=None if total is None else total + change,
        delta_record_count=change,
        watermark=None if head is None else head.watermark,
        next_row_id=None if head is None else head.next_row_id,
        uuid=str(uuid.uuid5(_NAMES, f"{'' if head is None else head.stamp} {number} uuid")),
        properties=properties,
    )

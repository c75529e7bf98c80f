"""Rebuilds deleted snapshots from what is left of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import polars as pl

from anabranch.errors import AnabranchError
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.format.records.entry_frame import IDENTITY
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, NO_LIST, CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import (
    BRANCH_PROPERTY,
    LEFTOVER_PROPERTY,
    PARENT_PROPERTY,
    WATERMARK_PROPERTY,
    WRITER_PROPERTY,
)
from anabranch.kernel.repair.found import RefState
from anabranch.kernel.repair.lost_commits import LostCommit, LostList, held_commit, lost_commits, path_from
from anabranch.version import __version__

_NAMES: Final = uuid.UUID("3c0b1d9a-55d1-5b0e-9d4a-0c7a6b1f2e11")
_COLUMNS: Final = ("kind", *IDENTITY, "row_count")


@dataclass(frozen=True, slots=True)
class Recovery:
    """A snapshot to restore."""

    snapshot: Snapshot
    source: str
    """Its source, for people."""

    def put(self, context: TableContext) -> bool:
        """Store it; False if its number is taken by now."""
        path = context.layout.snapshot_path(self.snapshot.id)
        return context.storage.put_if_absent(path, self.snapshot.to_json())


def recover_within(context: TableContext, states: Sequence[RefState], number: int) -> Recovery | None:
    """Recover a snapshot missing between others, or an equivalent; None if nothing is known of it."""
    following = _find(context, number + 1)
    held = held_snapshots(context, states).get(number)
    if following is None or held is None:
        return held
    parent = following.properties.get(PARENT_PROPERTY)
    if held.snapshot.stamp == parent:
        return held
    return held if parent is None and context.snapshots.follows(held.snapshot, following) else None


def recover_head(context: TableContext, states: Sequence[RefState], hinted: int) -> list[Recovery]:
    """Recover the snapshots above the newest existing one, up to the hinted one, as far as there is a trace.

    If the beginning is lost, history begins with the oldest that leads up to there. Otherwise it is the
    newest commit known from lists, alone, which has all rows, unless a tag or another branch leads to a newer one.
    """
    head = context.snapshots.head()
    begin = 1 if head is None else head.id + 1
    commits = lost_commits(context, states)
    held = {
        number: commit
        for number, one in held_snapshots(context, states).items()
        if begin <= number <= hinted
        and (commit := held_commit(context, one.snapshot, one.source)) is not None
    }
    best = path_from(context, head, hinted, commits, held)
    if head is None:
        for number in sorted(held):
            if begin + len(best) > hinted:
                break
            path = [held[number], *path_from(context, held[number].snapshot, hinted, commits, held)]
            if number + len(path) > begin + len(best):
                begin, best = number, path
        is_newest_known = begin + len(best) > hinted
        if commits and not is_newest_known and (not best or best[-1].stored < commits[-1].stored):
            begin, best = hinted, [commits[-1]]
        # What a ref holds may have expired, and so have numbers after it, of which nothing is left: the rest keeps its own.
        held_first = len([*takewhile(lambda one: one.snapshot is not None, best)])
        # Its end is the newest that lists tell of. Where they are too few, those before it are not known, as one with a base
        # that has expired.
        rest = best[held_first:]
        first = hinted - len(rest) + 1
        if rest and begin + held_first < min(context.snapshots.hinted_earliest_id() or 1, first):
            begin, best = first, rest
    return recovered(context, head, begin, best)


def recover_newest(context: TableContext, states: Sequence[RefState], number: int) -> Recovery | None:
    """Rebuild the newest snapshot, whose file is damaged, from its manifest lists; None if they are not there."""
    below = _find(context, number - 1)
    commits = lost_commits(context, states)
    # What was before it may have expired: then the commit that was stored last is the newest.
    path = commits[-1:] if below is None else path_from(context, below, number, commits, {})
    return recovered(context, below, number, path)[-1] if path else None


def recovered(
    context: TableContext, head: Snapshot | None, begin: int, path: Sequence[LostCommit]
) -> list[Recovery]:
    """Build the snapshots of these commits, each on top of the one before."""
    found: list[Recovery] = []
    for number, commit in enumerate(path, begin):
        if commit.snapshot is not None:
            one = Recovery(_on_top(context, head, commit.snapshot), commit.source)
        else:
            assert commit.base is not None and commit.delta is not None, "what no ref holds, lists tell of"  # noqa: PT018
            one = _from_lists(context, head, commit.base, commit.delta, number)
        found.append(one)
        head = one.snapshot
    return found


def _on_top(context: TableContext, head: Snapshot | None, held: Snapshot) -> Snapshot:
    """Return a snapshot unchanged, or rebased on a rebuilt one that holds the same files."""
    if head is None or context.snapshots.follows(head, held):
        return held
    return replace(held, properties={**held.properties, PARENT_PROPERTY: head.stamp})


def held_snapshots(context: TableContext, states: Sequence[RefState]) -> Mapping[int, Recovery]:
    """Return this branch's snapshots that a tag, a savepoint or another branch holds, by number."""
    own = {context.branch_uuid} if context.branch is not None else {context.branch_uuid, None}
    found: dict[int, Recovery] = {}
    for state in states:
        snapshot = state.snapshot
        if NO_LIST in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
            continue
        if snapshot.properties.get(BRANCH_PROPERTY) in own or context.is_forked(snapshot):
            found.setdefault(snapshot.id, Recovery(snapshot, state.name))
    return found


def _find(context: TableContext, number: int) -> Snapshot | None:
    try:
        return context.snapshots.find(number)
    except AnabranchError:
        return None


def _from_lists(
    context: TableContext, head: Snapshot | None, base: LostList, delta: LostList, number: int
) -> Recovery:
    manifests = context.manifests
    metas = manifests.read_list(delta.name)
    entries = manifests.entries(metas, only=_COLUMNS).df
    made = replace(
        _made(context, head, entries, max(base.modified, delta.modified), metas, number=number),
        base_manifest_list=base.name,
        base_manifest_list_size=base.size,
        delta_manifest_list=delta.name,
        delta_manifest_list_size=delta.size,
    )
    if head is None:
        taken = manifests.entries(manifests.read_list(base.name), only=_COLUMNS).live().df
        made = replace(
            made, total_record_count=int(taken["row_count"].sum()) + (made.delta_record_count or 0)
        )
    return Recovery(made, f"its manifest lists {base.name} and {delta.name}")


def _made(
    context: TableContext,
    head: Snapshot | None,
    entries: pl.DataFrame,
    modified: int,
    metas: Sequence[ManifestFileMeta],
    *,
    number: int,
) -> Snapshot:
    adds, deletes = (entries.filter(pl.col("kind") == kind) for kind in (0, 1))
    change = int(adds["row_count"].sum()) - int(deletes["row_count"].sum())
    if deletes.height == 0 and adds.height:
        kind = CommitKind.APPEND
    else:
        kind = CommitKind.COMPACT if change == 0 else CommitKind.OVERWRITE
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

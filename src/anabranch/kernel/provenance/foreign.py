"""Files that a merge would add, though main has their rows by other means than a merge of the branch.

Most show by their names: main has added them, or holds them. Names do not tell once files were compacted. So what both
sides merged is compared as well: while a branch was main for a time, others were merged into it; where that was taken
back, it brings their rows with it when it is merged, and they bring them themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence

import polars as pl

from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.records.snapshot_columns import field_of, property_of, snapshots_at
from anabranch.kernel.log.commits import with_expired
from anabranch.kernel.log.properties import (
    MERGE_PROPERTY,
    MERGE_USER,
    ROLLBACK_PROPERTY,
    MergeFacts,
    merge_facts,
)
from anabranch.kernel.provenance.births import Birth, Births, live_names
from anabranch.kernel.provenance.branch_files import Young
from anabranch.kernel.provenance.classify import DELTA_COLUMNS, MarksKey, marks_keys
from anabranch.kernel.provenance.past import after, counting, rolled_back_to, since_rolled_back
from anabranch.kernel.provenance.sides import Side
from anabranch.kernel.scan.partitions import PartitionKey


def foreign_files(
    main: Side,
    theirs: Side,
    young: Mapping[PartitionKey, Young],
    born: Births,
    *,
    taken: int,
    noted: Mapping[MarksKey, Sequence[str]] | None = None,
) -> dict[PartitionKey, tuple[str, ...]]:
    """Return names of files that a merge would add, but whose rows main has, or had since the fork.

    Args:
        main: main's changes since the fork.
        theirs: what the branch did since main took it.
        young: the files that a merge would add.
        born: when their rows were first appended.
        taken: id of the branch's snapshot up to which main has it.
        noted: names of the files that snapshots of main added, where they are known already.

    Raises `AnabranchError` if the archive, or what a merge recorded, cannot be read.
    """
    mine = {entry.file.file_name: key for key, some in young.items() for entry in some.new}
    if not mine:
        return {}
    found = _named(main, mine.keys(), theirs.context.branch_uuid, noted or {})
    if main.context.main_generation:  # else no other branch was ever main
        is_held = _merged(main, theirs, born, taken)
        found.update(name for name in mine if is_held(born.of(name)))
    grouped: dict[PartitionKey, list[str]] = {}
    for name in sorted(found):
        grouped.setdefault(mine[name], []).append(name)
    return {key: tuple(some) for key, some in grouped.items()}


def _named(
    main: Side, mine: KeysView[str], branch_uuid: str, known: Mapping[MarksKey, Sequence[str]]
) -> set[str]:
    """Return which of some files main has added since the fork, or holds; the branch's own merges are left out."""
    names = pl.Series([*mine], dtype=pl.String).implode()
    found: set[str] = set()
    later, own_user = since_rolled_back(main.left), f"{MERGE_USER}{branch_uuid}"
    counted, unknown = counting(later), list[int]()
    users, back = field_of(counted, "commit_user"), property_of(counted, ROLLBACK_PROPERTY)
    for row, key in enumerate(marks_keys(counted)):
        if key in known and back[row] is None:
            found.update(mine & known[key])
        elif users[row] != own_user:
            unknown.append(row)
    others = [one for one in snapshots_at(counted, unknown) if rolled_back_to(one) is None]
    for delta in main.context.manifests.deltas(others, only=DELTA_COLUMNS):
        added = delta.adds().df["file_name"]
        found.update(added.filter(added.is_in(names)))
    if not main.is_whole and later:
        found |= mine & live_names(main.context, later[0])
    return found


def _merged(main: Side, theirs: Side, born: Births, taken: int) -> Callable[[Birth], bool]:
    """Return what tells whether main has rows of a birth by merges of other branches."""
    own = theirs.context.branch_uuid
    held = merged_in(with_expired(main.context, main.left, born.otherwise.last), besides=own)
    upto = held.get(own, 0)
    since = with_expired(theirs.context, after(theirs.left, taken), taken)
    both = [made.id for made, facts in _merges(since) if held.keys() & facts.branches.keys()]
    return lambda birth: birth.first <= upto or any(birth.first <= made <= birth.last for made in both)


def merged_in(commits: Sequence[Snapshot | PastSnapshot], *, besides: str | None = None) -> dict[str, int]:
    """Return the branches of which some commits brought rows, by uuid: each with the id of its newest snapshot that came.

    Args:
        commits: in a row, oldest first. Those that were rolled back do not count.
        besides: uuid of a branch whose own merges do not count.
    """
    found: dict[str, int] = {}
    for _, facts in _merges(commits, besides):
        for uuid, upto in facts.branches.items():
            found[uuid] = max(found.get(uuid, 0), upto)
    return found


def _merges(
    commits: Sequence[Snapshot | PastSnapshot], besides: str | None = None
) -> Iterator[tuple[Snapshot | PastSnapshot, MergeFacts]]:
    counted = counting(since_rolled_back(commits))
    said = property_of(counted, MERGE_PROPERTY)
    for snapshot in snapshots_at(counted, [row for row, text in enumerate(said) if text is not None]):
        facts = merge_facts(snapshot)
        if not facts.is_ended and facts.branch_uuid != besides:
            yield snapshot, facts

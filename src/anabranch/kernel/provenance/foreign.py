"""Files of a branch that came to main by other means than our merges, such as another engine's fast-forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.kernel.log.merge_facts import MERGE_USER
from anabranch.kernel.provenance.births import live_names
from anabranch.kernel.provenance.branch_files import Young
from anabranch.kernel.provenance.classify import DELTA_COLUMNS, MarksKey, marks_key
from anabranch.kernel.provenance.past import counting, rolled_back_to, since_rolled_back
from anabranch.kernel.provenance.sides import Side
from anabranch.kernel.scan.partitions import PartitionKey


def foreign_files(
    main: Side,
    young: Mapping[PartitionKey, Young],
    branch_uuid: str,
    noted: Mapping[MarksKey, Sequence[str]] | None = None,
) -> dict[PartitionKey, tuple[str, ...]]:
    """Return names of files that a merge would add, but main has or had since the fork.

    Args:
        main: main's changes since the fork.
        young: the files that a merge would add.
        branch_uuid: of the branch; its own merges are left out.
        noted: names of the files that snapshots of main added, where they are known already.
    """
    mine = {entry.file.file_name: key for key, some in young.items() for entry in some.new}
    if not mine:
        return {}
    names = pl.Series([*mine], dtype=pl.String).implode()
    found: set[str] = set()
    later = since_rolled_back(main.left)
    others = [
        snapshot
        for snapshot in counting(later)
        if snapshot.commit_user != f"{MERGE_USER}{branch_uuid}" and rolled_back_to(snapshot) is None
    ]
    known = noted or {}
    for snapshot in others:
        found.update(mine.keys() & set(known.get(marks_key(snapshot), ())))
    unknown = [snapshot for snapshot in others if marks_key(snapshot) not in known]
    for delta in main.context.manifests.deltas(unknown, only=DELTA_COLUMNS):
        added = delta.adds().df["file_name"]
        found.update(added.filter(added.is_in(names)))
    if not main.is_whole and later:
        found |= mine.keys() & live_names(main.context, later[0])
    grouped: dict[PartitionKey, list[str]] = {}
    for name in sorted(found):
        grouped.setdefault(mine[name], []).append(name)
    return {key: tuple(some) for key, some in grouped.items()}

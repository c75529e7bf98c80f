"""Files of a branch that came to main by other means than a merge of ours, such as another engine's fast-forward."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import polars as pl

from anabranch.kernel.merge.facts import MERGE_USER
from anabranch.kernel.partitions import PartitionKey
from anabranch.kernel.provenance.births import delta_of, live_names
from anabranch.kernel.provenance.branch_files import Young
from anabranch.kernel.provenance.past import counting, rolled_back_to
from anabranch.kernel.provenance.sides import Side
from anabranch.spec.snapshot import Snapshot

_COLUMNS = ("kind", "partition", "bucket", "row_count", "level", "file_name")


def foreign_files(
    main: Side, young: Mapping[PartitionKey, Young], branch_uuid: str, brought: Collection[str]
) -> dict[PartitionKey, tuple[str, ...]]:
    """Names of files that a merge would add, but main has or had since the branch left it.

    Args:
        main: what main did since.
        young: the files that a merge would add.
        branch_uuid: of the branch; its own merges are left out.
        brought: names of files that came to main with merges of the branch that have expired.
    """
    mine = {entry.file.file_name: key for key, some in young.items() for entry in some.new}
    if not mine:
        return {}
    names = pl.Series([*mine], dtype=pl.String).implode()

    def added(snapshot: Snapshot) -> Iterable[str]:
        files = delta_of(main.context, snapshot, _COLUMNS).adds().df["file_name"]
        return files.filter(files.is_in(names))

    def is_own(snapshot: Snapshot) -> bool:
        return snapshot.commit_user == f"{MERGE_USER}{branch_uuid}"

    told = [one for one in counting(main.left) if not is_own(one) and rolled_back_to(one) is None]
    found = {name for snapshot in told for name in added(snapshot)}
    if not main.is_whole and main.left:
        oldest = main.left[0]
        by_merges = {*brought, *(added(oldest) if is_own(oldest) else ())}
        found |= (mine.keys() & live_names(main.context, oldest)) - by_merges
    grouped: dict[PartitionKey, list[str]] = {}
    for name in sorted(found):
        grouped.setdefault(mine[name], []).append(name)
    return {key: tuple(some) for key, some in grouped.items()}

"""The case table of merges: the outcome for each partition that the branch changed.

The first row that holds decides; the row of two empty sides is asked before, in `plan.py`.

| branch since it was taken | main since the branch saw it | result                                            |
|---------------------------|------------------------------|---------------------------------------------------|
| nothing                   | anything                     | main stays                                        |
| overwritten to be empty   | empty as well                | nothing                                           |
| unknown                   | anything                     | conflict HISTORY_GAP                              |
| anything                  | unknown                      | conflict HISTORY_GAP                              |
| overwritten               | nothing                      | main's files go, the branch's come                |
| overwritten               | appended, overwritten        | conflict OVERWRITE_VS_CHANGE                      |
| new files of mixed age    | anything                     | conflict MIXED_COMPACTION                         |
| new rows that main has    | anything                     | conflict FOREIGN_MERGE                            |
| appended                  | overwritten                  | conflict APPEND_VS_OVERWRITE                      |
| appended                  | nothing, appended            | the branch's new files are added, at the tail     |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.provenance.branch_files import Young
from anabranch.kernel.provenance.classify import ChangeKind
from anabranch.kernel.provenance.sides import Done
from anabranch.kernel.scan.partitions import PartitionKey


@dataclass(frozen=True, slots=True)
class Case:
    """A partition that the branch changed."""

    key: PartitionKey
    row: bytes
    text: str
    theirs: Done
    ours: Done
    young: Young
    foreign: tuple[str, ...]
    has_gap: bool
    """Whether snapshots of the branch have expired without a record of their changes."""


def conflict_of(case: Case, branch: str) -> MergeConflict | None:
    """Return the conflict of merging a partition of the branch of that title, by the table of cases."""
    where, did, main = case.text, case.theirs.work, case.ours
    both = "choose 'ours' to leave main as it is there, or 'theirs' to have the branch's rows in its place."
    is_untold = did == ChangeKind.UNKNOWN or (
        bool(case.young.mixed) and case.has_gap and did == ChangeKind.APPENDED
    )
    if is_untold or main.work == ChangeKind.UNKNOWN:
        side = f"'{branch}'" if is_untold else "main"
        return MergeConflict(
            "HISTORY_GAP",
            f"what {side} did in partition {where} is not known: the snapshots that tell have expired without a record of it, "
            "as where another engine expires them, and its files are not those of before",
            both,
            where,
        )
    if did == ChangeKind.OVERWRITTEN:
        if main.work == ChangeKind.NOTHING:
            return None
        return MergeConflict(
            "OVERWRITE_VS_CHANGE",
            f"'{branch}' overwrote partition {where}, to which main wrote in snapshot {_listed(main.snapshots)}",
            both,
            where,
            main.snapshots,
        )
    if case.young.mixed:
        return MergeConflict(
            "MIXED_COMPACTION",
            f"{len(case.young.mixed)} files of '{branch}' in partition {where} hold rows that main has and rows that "
            f"it lacks, such as {case.young.mixed[0]}: another engine compacted the branch, or it was main when it was compacted",
            both,
            where,
            files=tuple(case.young.mixed),
        )
    if case.foreign:
        return MergeConflict(
            "FOREIGN_MERGE",
            f"the rows of {len(case.foreign)} files of '{branch}' in partition {where} came to main by other means than a "
            f"merge of it, such as {case.foreign[0]}",
            both,
            where,
            files=case.foreign,
        )
    if main.work == ChangeKind.OVERWRITTEN and case.young.new:
        return MergeConflict(
            "APPEND_VS_OVERWRITE",
            f"'{branch}' appended to partition {where}, which main overwrote in snapshot {_listed(main.snapshots)}",
            both,
            where,
            main.snapshots,
        )
    return None


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(str(number) for number in ids)

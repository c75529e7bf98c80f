"""Displaces leftovers above the newest snapshot, even those that numbering has not reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.commit.base import Base, Change
from anabranch.kernel.commit.leftovers import displace, leftovers_above
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.identity import CommitIdentity
from anabranch.kernel.log.properties import LEFTOVER_PROPERTY

_WIDEST_GAP: Final = 1_000
"""Most empty snapshots put between the newest and a leftover; one further up stays until it is reached."""


@dataclass(frozen=True)
class _Nothing:
    """Take the next number without changes."""

    stamp: str

    @property
    def depends_on_base(self) -> bool:
        return False

    def on(self, base: Base) -> Change:
        return Change(CommitKind.COMPACT, [], {LEFTOVER_PROPERTY: self.stamp})


def sweep(context: TableContext, *, dry_run: bool = False) -> list[Snapshot]:
    """Replace leftovers by snapshots that continue history, and fill the gap below them with empty ones.

    Nothing is deleted; see `leftovers`.

    Returns the displaced leftovers.
    """
    swept: list[Snapshot] = []
    while (head := context.snapshots.head()) is not None:
        left = leftovers_above(context, head)
        if dry_run or not left or left[0].id - head.id > _WIDEST_GAP:
            return left if dry_run else swept
        if head.id + 1 < left[0].id:
            nothing = CommitRequest(_Nothing(left[0].stamp), CommitIdentity.batch(context.runtime))
            commit(context, nothing, known_head=head)
        elif displace(context, head) is not None:
            swept.append(left[0])
            context.snapshots.write_hint(left[0].id)
    return swept

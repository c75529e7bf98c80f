"""The base of a commit attempt, and the interface of actions, which turn a base into a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.expr.bound import BoundPredicate
from anabranch.format.records.data_file import ManifestEntry
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.watermark import Recorded
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.scan.pruning import manifests_may_match, partitions_match
from anabranch.lazy import lazy


@dataclass(frozen=True)
class Base:
    """The newest state of a branch at the start of one commit attempt."""

    context: TableContext
    snapshot: Snapshot | None
    schema: TableSchema
    """The newest schema, which the new snapshot will name."""

    @lazy
    def live(self) -> EntryFrame:
        """All live files. Reads all manifests: only for actions that need it."""
        if self.snapshot is None:
            return EntryFrame.empty()
        return self.context.manifests.entries(self.context.manifests.of_snapshot(self.snapshot)).live()

    def live_where(self, partitions: BoundPredicate | None) -> EntryFrame:
        """Return at least the live files of the partitions that satisfy a predicate; all live files if it is None.

        Reads only manifests whose partition range may match. An ADD and the DELETE that reverts it name the
        same partition, so a skipped manifest has no entries of matching partitions.
        """
        if partitions is None or self.snapshot is None:
            return self.live
        manifests = self.context.manifests
        metas = manifests_may_match(manifests.of_snapshot(self.snapshot), partitions, self.schema)
        if not metas:
            return EntryFrame.empty()
        return EntryFrame(partitions_match(manifests.entries(metas).df, partitions, self.schema)).live()


@dataclass(frozen=True)
class Change:
    """Files that one commit adds to and removes from its base."""

    kind: CommitKind
    entries: Sequence[ManifestEntry]
    properties: Mapping[str, str] = field(default_factory=dict)
    adds_again: bool = False
    """Whether added files may have been added and deleted before: the base list must not mention them then."""
    watermark: int | None = None
    """The change's watermark on this base, epoch milliseconds; None to use the request's."""
    live: EntryFrame | None = None
    """The base's live files in the partitions of all entries, if the action has read those; None for all live files."""
    schemas: Sequence[TableSchema] = ()
    """Versions that follow the base's newest schema, to be put right before the snapshot, which names the last of them."""
    event_time: Recorded | None = None
    """Event-time state that the snapshot records, even if the watermark goes back; None to derive it from the rows."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a change cannot be made on a base. A value, because losing is expected."""

    kind: str
    """Stable name, for example ``BUCKET_COUNT_CHANGED``."""
    message: str
    hint: str


class Action(Protocol):
    """An intent that can be replayed on any base. Holds inputs only."""

    def on(self, base: Base) -> Change | Conflict:
        """Compute the change that this intent makes on a base, or the conflict that prevents it."""
        ...

    @property
    def depends_on_base(self) -> bool:
        """Whether another base may give another change; if not, its manifests are written once."""
        ...

"""What a commit builds on, and what an action makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.expr.bind import BoundPredicate
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
    """The newest schema, which the snapshot to be made will name."""

    @lazy
    def live(self) -> EntryFrame:
        """Every live file. Reads all manifests: only for actions that need it."""
        if self.snapshot is None:
            return EntryFrame.empty()
        return self.context.manifests.entries(self.context.manifests.of_snapshot(self.snapshot)).live()

    def live_where(self, partitions: BoundPredicate | None) -> EntryFrame:
        """The live files of the partitions that satisfy a predicate, and of some others; every one if it is None.

        Reads only manifests whose range of partitions may hold one. An ADD and the DELETE that takes it back name the
        same partition, so a manifest that is left out says nothing of files of these partitions.
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
    """What one commit adds to and removes from its base."""

    kind: CommitKind
    entries: Sequence[ManifestEntry]
    properties: Mapping[str, str] = field(default_factory=dict)
    adds_again: bool = False
    """Whether added files may have been added and deleted before: the base list must not tell of that."""
    watermark: int | None = None
    """What the change says of event time on this base, epoch milliseconds; None to leave it to the request."""
    live: EntryFrame | None = None
    """The base's live files in the partitions of all entries, if the action has read those; None for all live files."""
    event_time: Recorded | None = None
    """What the snapshot records of event time, also if the watermark goes back; None to find it by the rows."""


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
        """What the intent means on this base."""
        ...

    @property
    def depends_on_base(self) -> bool:
        """Whether another base may give another change; if not, its manifests are written once."""
        ...

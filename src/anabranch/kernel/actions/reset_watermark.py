"""Reset the watermark of a table, also to a lower one, for example after a row with a wrong time moved it too far."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import InvalidInputError
from anabranch.format.records.snapshot import CommitIdentity, CommitKind, Snapshot
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.transaction import CommitRequest, commit
from anabranch.kernel.commit.watermark import reset
from anabranch.kernel.log.commits import back_from
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.moment import time_text
from anabranch.options import WATERMARK_MAX_AHEAD


@dataclass(frozen=True)
class ResetWatermark:
    """A commit without row changes that sets a new watermark."""

    to: int | None
    """Epoch milliseconds; None for none."""
    latest: int
    """Sources whose recorded progress is beyond this are forgotten."""

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        if base.snapshot is None:
            return Conflict(
                "NO_SNAPSHOT",
                f"'{base.context.title}' has no snapshots: it has no watermark",
                "write to it first.",
            )
        return Change(CommitKind.COMPACT, [], event_time=reset(base.snapshot, self.to, self.latest))


def reset_watermark(context: TableContext, to: int | None = None) -> Snapshot | None:
    """Reset the watermark; to the highest in the history that is not too far ahead of the clock if None. See `Table.reset_watermark`.

    Returns:
        The newest snapshot; nothing is committed if the watermark is that already. None for a table without any.
    """
    schema, head = context.schemas.latest(), context.snapshots.head()
    options = {} if schema is None else schema.options
    latest = context.runtime.clock.now_millis() + WATERMARK_MAX_AHEAD.of(options)
    if to is not None and to > latest:
        raise InvalidInputError(
            f"the watermark of '{context.title}' is to be {time_text(to)}, which is further ahead of the clock than "
            f"'{WATERMARK_MAX_AHEAD.key}' allows",
            hint=f"{time_text(latest)} is the most.",
        )
    if head is None:
        return None
    if to is None:
        known = (s.watermark for s in back_from(context, head) if s.watermark is not None)
        to = next((watermark for watermark in known if watermark <= latest), None)
    if head.watermark == to:
        return head
    action = ResetWatermark(to, latest)
    return commit(context, CommitRequest(action, CommitIdentity.batch(context.runtime))).snapshot

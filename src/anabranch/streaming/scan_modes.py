"""Where a stream begins: the option `scan.mode`.

| `scan.mode`              | first delivered                        | then                  |
|--------------------------|----------------------------------------|-----------------------|
| `latest-full` (default)  | all rows of the newest snapshot        | what is added later   |
| `latest`                 | nothing                                | what is added later   |
| `from-snapshot`          | what snapshot `scan.snapshot-id` added | what was added after  |

`scan.snapshot-id` alone means `from-snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors import NotFoundError, OptionError
from anabranch.kernel.context import TableContext
from anabranch.options import SCAN_MODE, SCAN_SNAPSHOT_ID
from anabranch.streaming.offsets import BEGINNING, Position


def first_position(context: TableContext, options: Mapping[str, str]) -> Position:
    """The position before the first row that a new stream delivers.

    Raises:
        OptionError: the options contradict each other.
        NotFoundError: the snapshot to begin with has expired or does not exist yet.
    """
    mode = scan_mode(options)
    if mode == "from-snapshot":
        snapshot_id = SCAN_SNAPSHOT_ID.of(options)
        if snapshot_id is None:
            raise OptionError(
                "scan.mode is 'from-snapshot', but scan.snapshot-id is not set",
                hint="name the first snapshot to deliver: scan.snapshot-id=<id>.",
            )
        return _before(context, snapshot_id)
    head = context.snapshots.head()
    if head is None:
        return BEGINNING
    return (
        Position(head.id, head.stamp, files=0, full=True)
        if mode == "latest-full"
        else Position(head.id, head.stamp)
    )


def scan_mode(options: Mapping[str, str]) -> str:
    """``latest-full``, ``latest`` or ``from-snapshot``. Raises `OptionError`."""
    mode = SCAN_MODE.of(options)
    chosen = SCAN_SNAPSHOT_ID.of(options)
    if mode == "default":
        return "latest-full" if chosen is None else "from-snapshot"
    if chosen is not None and mode != "from-snapshot":
        raise OptionError(
            f"scan.snapshot-id is {chosen}, but scan.mode is '{mode}', which takes none",
            hint="leave one of them out, or set scan.mode=from-snapshot.",
        )
    return mode


def _before(context: TableContext, snapshot_id: int) -> Position:
    head = context.snapshots.head()
    newest = 0 if head is None else head.id
    if snapshot_id > newest + 1:
        raise NotFoundError(
            f"the stream is to begin with snapshot {snapshot_id} of '{context.title}', but the newest is {newest}",
            hint="scan.mode=latest begins with whatever is committed next.",
        )
    earliest = context.snapshots.earliest_id()
    if earliest is not None and snapshot_id < earliest:
        raise NotFoundError(
            f"the stream is to begin with snapshot {snapshot_id} of '{context.title}', which has expired; "
            f"the earliest is {earliest}",
            hint=f"set scan.snapshot-id={earliest}, or scan.mode=latest-full for everything there is now.",
        )
    if snapshot_id == 1:
        return BEGINNING
    previous = context.snapshots.find(snapshot_id - 1)
    return Position(snapshot_id - 1, None if previous is None else previous.stamp)

"""Consumers in expiry: the snapshots they hold, and the expiry of consumers themselves."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import consumer_id_of
from anabranch.format.records.refs import Consumer
from anabranch.kernel.log.consumers import damaged
from anabranch.kernel.log.context import TableContext

_READS = 10
_PAUSE_SECONDS = 0.02


def next_read(context: TableContext, *, without: Collection[str] = ()) -> int | None:
    """Return the id of the first snapshot that a consumer of the branch has not read, or None without consumers.

    Args:
        without: names of consumers to ignore.

    Raises `CorruptTableError` if one cannot be read, whatever its name: other engines allow other names.
    """
    files = _files(context).items()
    positions = [_position(context, path) for name, (path, _) in files if name not in without]
    return min((position for position in positions if position is not None), default=None)


def expire_consumers(context: TableContext, older_than: int, *, dry_run: bool = False) -> tuple[str, ...]:
    """Remove consumers last stored before a moment (epoch milliseconds); return their names, sorted."""
    gone = []
    for name, (path, modified) in sorted(_files(context).items()):
        if modified < older_than and (dry_run or _still_older(context, path, older_than)):
            gone.append(name)
            if not dry_run:
                context.storage.delete(path)
    return tuple(gone)


def _files(context: TableContext) -> dict[str, tuple[str, int]]:
    """Return path and modification time of each consumer by name."""
    infos = context.storage.list(context.layout.consumer_folder)
    return {
        name: (info.path, info.modified_millis)
        for info in infos
        if (name := consumer_id_of(info.path)) is not None
    }


def _still_older(context: TableContext, path: str, moment: int) -> bool:
    """Check again right before the removal, as the consumer may have moved since the listing."""
    try:
        return context.storage.info(path).modified_millis < moment
    except NotFoundError:
        return False


def _position(context: TableContext, path: str) -> int | None:
    """Read a position; retried, as other engines write the file in place and it may be cut off for a moment."""
    for attempt in range(_READS):
        try:
            return Consumer.from_json(context.storage.get(path), path=path).next_snapshot
        except NotFoundError:
            return None
        except CorruptTableError as error:
            if attempt + 1 == _READS:
                raise damaged(error, consumer_id_of(path) or "") from error
            context.runtime.sleeper.sleep(_PAUSE_SECONDS)
    return None

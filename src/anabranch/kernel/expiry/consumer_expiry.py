"""Consumers in expiry: the snapshots they hold, and the expiry of consumers themselves."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import consumer_id_of
from anabranch.format.records.refs import Consumer
from anabranch.kernel.log.consumers import damaged
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.shared_past import sharing

_READS = 10
_PAUSE_SECONDS = 0.02


def next_read(context: TableContext, *, without: Collection[str] = ()) -> int | None:
    """Return the id of the first snapshot that a consumer of the branch has not read, or None without consumers.

    Of a main, that may also be a consumer of a former main: it has to read what both have, and then goes on after that on
    the new main, at the latest when it has come to the end of the old one.

    Args:
        without: names of consumers to ignore.

    Raises `CorruptTableError` if one cannot be read, whatever its name: other engines allow other names.
    """
    found = _positions(context, without)
    for former, fork in sharing(context):
        found += [min(position, fork + 1) for position in _positions(former, without)]
    return min(found, default=None)


def expire_consumers(
    branches: Sequence[TableContext], older_than: int, *, dry_run: bool = False
) -> tuple[str, ...]:
    """Remove consumers of branches last stored before a moment (epoch milliseconds); return their names, sorted."""
    gone = set[str]()
    for one, files in zip(branches, each(_files, branches, at=branches[0].storage), strict=True):
        for name, (path, modified) in files.items():
            if modified < older_than and (dry_run or _still_older(one, path, older_than)):
                gone.add(name)
                if not dry_run:
                    one.storage.delete(path)
    return tuple(sorted(gone))


def _positions(context: TableContext, without: Collection[str]) -> list[int]:
    files = _files(context).items()
    found = (_position(context, path) for name, (path, _) in files if name not in without)
    return [position for position in found if position is not None]


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

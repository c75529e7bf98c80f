"""Exactly-once: whether a streaming commit was already made.

The answer is in the snapshots after the last one the query knew of (the *floor*). Where some of them have
expired, it is in the ledger: before an expiry removes snapshots it durably records the newest
identifier of each streaming user among them. Where neither can answer, the commit is refused: appending
on a guess could write every row twice.

A ledger file covers a range of snapshots: ``ledger/expired-<first>-<last>`` below the branch's folder. Many
such pages are joined into one from time to time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anabranch.errors import (
    CommitOutcomeUnknownError,
    CorruptTableError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, CommitIdentity, Snapshot, SnapshotRef
from anabranch.format.text.json_object import check_version
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.log.removals import is_built_on

_MANY_PAGES = 16
_READS = 8
_FOLDER = "ledger"
_VERSION = 1
_KNOWN = frozenset({"version", "users"})
_KNOWN_OF_ENTRY = frozenset({"identifier", "snapshot", "timeMillis"})
_MAX_ID = 2**63 - 1
_FILE = re.compile(r"expired-([1-9][0-9]{0,17})-([1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The newest commit of a user among the snapshots that a ledger file covers."""

    identifier: int
    snapshot_id: int
    time_millis: int
    others: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Fields that this release does not know."""


@dataclass(frozen=True, slots=True)
class PageContent:
    """What a ledger page says."""

    users: Mapping[str, LedgerEntry]
    others: Mapping[str, Any]
    """Fields that this release does not know."""


@dataclass(frozen=True, slots=True)
class _Page:
    first: int
    last: int
    path: str


def find_commit(
    context: TableContext, identity: CommitIdentity, head: Snapshot | None, floor: SnapshotRef | None
) -> Snapshot | LedgerEntry | None:
    """Return the commit of this identity, or a later one of the same user; None if it was certainly not made.

    Args:
        identity: user and identifier of the commit.
        head: the newest snapshot.
        floor: a snapshot known to be older than the commit, from the query's checkpoint. Without
            one, all history counts, and expired snapshots not in the ledger are assumed not to be this user's.

    Raises:
        CommitOutcomeUnknownError: snapshots after the floor are gone, and the ledger does not cover them;
            or history does not lead there from the floor.
    """
    if identity.is_batch:
        return None
    if floor is not None:
        _check_floor(context, head, floor)
    if head is None:
        return None
    lowest = floor.id if floor is not None else 0
    missing_from = lowest + 1
    oldest = head.id + 1
    after: Snapshot | None = None
    for snapshot in context.snapshots.backwards(head):
        if floor is not None and snapshot.id == floor.id:
            _check_stamp(context, snapshot, floor)
            break
        if snapshot.commit_user == identity.user:
            # The one after it may be another engine's, which does not say what it was built on.
            if after is not None and not is_built_on(context.manifests, after, snapshot):
                break
            return snapshot if snapshot.commit_identifier >= identity.identifier else None
        oldest, after = snapshot.id, snapshot
    if oldest <= missing_from:
        return None
    return _in_ledger(context, identity, missing_from, oldest - 1, strict=floor is not None)


def hand_over(context: TableContext, snapshots: Sequence[Snapshot]) -> None:
    """Record the streaming commits among contiguous snapshots that are about to be removed.

    Must return before the first of them is removed. Idempotent.
    """
    if not snapshots:
        return
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.id)
    _put(context, ordered[0].id, ordered[-1].id, _users(ordered))


def page_again(path: str, known: Mapping[int, Snapshot | PastSnapshot]) -> bytes | None:
    """Rebuild a ledger page from its snapshots by number; None if some of them are unknown."""
    match = _FILE.fullmatch(path.rpartition("/")[2])
    wanted = range(0) if match is None else range(int(match[1]), int(match[2]) + 1)
    if len(wanted) == 0 or len(wanted) > len(known) or any(number not in known for number in wanted):
        return None
    return _content(_users([known[number] for number in wanted]), {})


def _users(ordered: Sequence[Snapshot | PastSnapshot]) -> dict[str, LedgerEntry]:
    return {
        snapshot.commit_user: LedgerEntry(snapshot.commit_identifier, snapshot.id, snapshot.time_millis)
        for snapshot in ordered
        if snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER
    }


def take_over(source: TableContext, target: TableContext, fork: SnapshotRef) -> None:
    """Copy the ledger of the shared past to a branch that replaces another.

    From a page that reaches beyond the last common snapshot, later commits are left out: they are not part of
    the target's history, and their users continue after them and ask for nothing earlier. Idempotent.

    Args:
        source: the current main.
        target: the branch that becomes main.
        fork: the newest snapshot that both have.
    """
    with reading(source.storage) as begin:
        begun = begin(partial(target.snapshots.find, fork.id))
        copy_pages(source, target, fork.id)
        is_without = begun() is None
    if is_without:  # else the snapshots themselves are in its history
        parted = source.snapshots.find(fork.id)
        if parted is not None and parted.stamp == fork.stamp:
            hand_over(target, list(source.snapshots.backwards(parted)))


def copy_pages(source: TableContext, target: TableContext, last: int) -> None:
    """Copy what the ledger of a branch says of snapshots up to a number, which are of both histories. Idempotent."""
    for page, content in _read(source, 1, last):
        shared = {user: entry for user, entry in content.users.items() if entry.snapshot_id <= last}
        _put(target, page.first, min(page.last, last), shared, content.others)


def is_long(context: TableContext) -> bool:
    """Whether there are so many pages that `tidy` would join them; one listing."""
    return len(_pages(context)) > _MANY_PAGES


def tidy(context: TableContext, forget_before: int) -> None:
    """Join the pages into one if there are many, and forget commits made before a moment (epoch milliseconds).

    Forgotten commits are not covered any more: a query that asks for one is refused, not told that it never
    committed. Idempotent and safe to run concurrently. Costs one listing while there are few pages.
    """
    pages = _pages(context)
    if len(pages) <= _MANY_PAGES:
        return
    following: list[_Page] = []
    for page in pages:
        is_readable = _is_readable(context, page)
        if following and (not is_readable or page.first > max(p.last for p in following) + 1):
            _join(context, following, forget_before)
            following = []
        if is_readable:
            following.append(page)
    if following:
        _join(context, following, forget_before)


def recorded_after(context: TableContext, snapshot_id: int) -> dict[str, LedgerEntry]:
    """Return each user's newest commit after a snapshot, as recorded in the ledger."""
    found: dict[str, LedgerEntry] = {}
    for _, content in _read(context, snapshot_id + 1, _MAX_ID):
        for user, entry in content.users.items():
            known = found.get(user)
            if entry.snapshot_id > snapshot_id and (known is None or entry.identifier > known.identifier):
                found[user] = entry
    return found


def has_expired(context: TableContext, snapshot_id: int) -> bool:
    """Return whether a snapshot is among those whose expiry is recorded."""
    return any(page.first <= snapshot_id <= page.last for page in _pages(context))


def forget_after(context: TableContext, snapshot_id: int) -> None:
    """Drop ledger entries of commits after a snapshot, because these were rolled back.

    Users whose newest expired commit is dropped have no entry left, which is right for
    running queries: they ask for no earlier one.
    """
    for page in _pages(context):
        if page.last <= snapshot_id:
            continue
        if page.first <= snapshot_id:
            data = context.storage.get(page.path)
            try:
                content = page_content(page.path, data)
            except CorruptTableError:  # keep the page unanswerable, now for fewer snapshots
                context.storage.put(_path(context, page.first, snapshot_id), data)
            else:
                kept = {
                    user: entry for user, entry in content.users.items() if entry.snapshot_id <= snapshot_id
                }
                _put(context, page.first, snapshot_id, kept, content.others)
        context.storage.delete(page.path)


def _check_floor(context: TableContext, head: Snapshot | None, floor: SnapshotRef) -> None:
    if floor.branch_uuid != context.branch_uuid:
        raise _rewritten(context, "the query's checkpoint is about another table or branch")
    newest = 0 if head is None else head.id
    if newest < floor.id:
        raise _rewritten(
            context, f"the query's checkpoint knows snapshot {floor.id}, but the newest is {newest}"
        )


def _check_stamp(context: TableContext, found: Snapshot, floor: SnapshotRef) -> None:
    if floor.stamp not in ("", found.stamp):
        raise _rewritten(context, f"snapshot {floor.id} is not the one that the query's checkpoint knows")


def _rewritten(context: TableContext, found: str) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        f"HISTORY_REWRITTEN: '{context.title}' was rolled back or replaced: {found}",
        hint="check which rows of the last batch are in the table, then start with a new checkpoint.",
    )


def _in_ledger(
    context: TableContext, identity: CommitIdentity, first: int, last: int, *, strict: bool
) -> LedgerEntry | None:
    """Find the user's commit in the expired snapshots `first` to `last`, which the ledger must cover if strict."""
    seen: list[_Page] | None = None
    while True:
        newest: LedgerEntry | None = None
        covered = first - 1
        found = _read(context, first, last)
        for page, content in found:
            entry = content.users.get(identity.user)
            if entry is not None and (newest is None or entry.identifier > newest.identifier):
                newest = entry
            if page.first <= covered + 1:
                covered = max(covered, page.last)
        if newest is not None and newest.identifier >= identity.identifier:
            return newest
        pages = [page for page, _ in found]
        # While pages are joined, a listing may miss both old and new ones: require two equal listings.
        if covered >= last or pages == seen:
            break
        seen = pages
    if strict and covered < last:
        raise CommitOutcomeUnknownError(
            f"cannot tell whether '{identity.user}' committed batch {identity.identifier} to "
            f"'{context.title}': snapshots {covered + 1} to {last} have expired and the ledger does not cover them",
            hint="compare the rows of the last batch with the table, then start with a new checkpoint "
            "after the last batch that is there.",
        )
    return None


def _pages(context: TableContext) -> list[_Page]:
    pages = []
    for info in context.storage.list(context.layout.branch_file_path(_FOLDER)):
        match = _FILE.fullmatch(info.path.rpartition("/")[2])
        if match is not None:
            pages.append(_Page(int(match[1]), int(match[2]), info.path))
    return sorted(pages, key=lambda page: (page.first, page.last))


def _read(context: TableContext, first: int, last: int) -> list[tuple[_Page, PageContent]]:
    """Read the pages about any of these snapshots; retried if they are joined meanwhile."""
    for _ in range(_READS):
        wanted = [page for page in _pages(context) if page.last >= first and page.first <= last]
        try:
            return [(page, page_content(page.path, context.storage.get(page.path))) for page in wanted]
        except NotFoundError:
            continue
    raise StorageError(f"the ledger of '{context.title}' changes faster than it can be read", retryable=True)


def _is_readable(context: TableContext, page: _Page) -> bool:
    """Whether a page is readable; a damaged one, or one of a newer version, is kept as it is: its snapshots stay unanswerable."""
    try:
        page_content(page.path, context.storage.get(page.path))
    except (CorruptTableError, UnsupportedFeatureError):
        return False
    except NotFoundError:
        return True
    return True


def _join(context: TableContext, pages: Sequence[_Page], forget_before: int) -> None:
    """Replace several pages that cover a range without gaps by one page."""
    users: dict[str, LedgerEntry] = {}
    others: dict[str, Any] = {}
    try:
        for page in pages:
            content = page_content(page.path, context.storage.get(page.path))
            others |= content.others
            for user, entry in content.users.items():
                if user not in users or entry.snapshot_id > users[user].snapshot_id:
                    users[user] = entry
    except NotFoundError:
        return  # another process is joining them
    forgotten = [entry.snapshot_id for entry in users.values() if entry.time_millis < forget_before]
    first, last = max([pages[0].first, *(i + 1 for i in forgotten)]), max(page.last for page in pages)
    joined = _path(context, first, last)
    if first <= last:
        remembered = {user: entry for user, entry in users.items() if entry.time_millis >= forget_before}
        _put(context, first, last, remembered, others)
    context.storage.delete_many([page.path for page in pages if page.path != joined])


def page_content(path: str, data: bytes) -> PageContent:
    """Parse a page. Raises `CorruptTableError`; `UnsupportedFeatureError` if a newer version wrote it."""
    try:
        values: dict[str, Any] = json.loads(data)
        check_version(values.get("version"), _VERSION, path=path)
        users = {
            user: LedgerEntry(
                int(found["identifier"]),
                int(found["snapshot"]),
                int(found["timeMillis"]),
                {key: value for key, value in found.items() if key not in _KNOWN_OF_ENTRY},
            )
            for user, found in values["users"].items()
        }
        return PageContent(users, {key: value for key, value in values.items() if key not in _KNOWN})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptTableError(
            "is no ledger page",
            path=path,
            hint="`repair` makes it again if the archive knows the snapshots; else streams that ask about them are refused.",
        ) from error


def _put(
    context: TableContext,
    first: int,
    last: int,
    users: Mapping[str, LedgerEntry],
    others: Mapping[str, Any] | None = None,
) -> None:
    context.storage.put(_path(context, first, last), _content(users, others or {}))


def _content(users: Mapping[str, LedgerEntry], others: Mapping[str, Any]) -> bytes:
    content = {
        user: {
            **entry.others,
            "identifier": entry.identifier,
            "snapshot": entry.snapshot_id,
            "timeMillis": entry.time_millis,
        }
        for user, entry in users.items()
    }
    return json.dumps({**others, "version": _VERSION, "users": content}, sort_keys=True).encode()


def _path(context: TableContext, first: int, last: int) -> str:
    return f"{context.layout.branch_file_path(_FOLDER)}/expired-{first}-{last}"

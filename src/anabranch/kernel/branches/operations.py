"""The log of branch operations, assembled from the records that each operation leaves.

Creating leaves ``FORK``, auditing ``AUDIT-<n>``, merging ``MERGE-<k>`` and its end, replacing main ``MAIN-<g>``, and
the release of a replaced main ``RELEASE-<g>``. They lie in the branches' folders, so deleting a branch first saves
its log: see `record_deletion`. A replacement made as a commit is recorded in the commit itself, and in the archive of
history once that has expired.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.fork import (
    DELETED_PREFIX,
    BranchOperation,
    operations_from_json,
    operations_to_json,
)
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.layout import BRANCH_FOLDER, MAIN_BRANCH
from anabranch.format.records.main_pointer import MAIN_PREFIX, SEAL_PREFIX, MainPointer
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.audit_log import audits
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.commits import own_commits
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_by_uuid, main_of
from anabranch.kernel.log.main_pointer import find_pointer, find_release, numbers, replacements
from anabranch.kernel.log.merge_log import merge_log
from anabranch.kernel.log.parallel import OnUnread, each, tried
from anabranch.kernel.log.properties import replace_facts

_LOG = logging.getLogger(__name__)


def operations(
    context: TableContext, *, of_commits: bool = True, unread: OnUnread | None = None
) -> list[BranchOperation]:
    """Return all known operations on the table's branches, newest first.

    Args:
        of_commits: include replacements that were made as commits, for which all snapshots of main are read.
        unread: told of damaged records, which are left out. Without it they raise `CorruptTableError`.
    """
    branches = [context.on_branch(None), *map(context.on_branch, branch_names(context))]
    found = [
        o
        for of_branch in each(lambda branch: [*_of_branch(branch, unread)], branches, at=context.storage)
        for o in of_branch
    ]
    there = {uuid for branch in branches[1:] if (uuid := _uuid_if_forked(branch, unread)) is not None}
    for ended in each(lambda path: _find_deleted(context, path, unread), _deleted_paths(context)):
        # An unfinished deletion has its record already.
        found += [o for o in ended if o.branch_uuid not in there]
    for pointer in _replacements(context, unread):
        found += _of_replacement(context, pointer, unread)
    mains = tried("which branches were main", partial(_mains, context), unread) if of_commits else None
    for uuid in mains or ():
        of_one = partial(lambda uuid: [*_of_commits(context, uuid)], uuid)
        found += tried("replacements that were commits", of_one, unread) or []
    return sorted(found, key=lambda o: (o.time_millis, o.branch, o.operation), reverse=True)


def record_deletion(branch: TableContext, by: str | None = None) -> None:
    """Save a branch's operations before its records are deleted. The first record wins.

    Args:
        branch: the branch, which is no longer written to.
    """
    if branch.fork is None and not branch.schemas.ids():
        return  # leftovers of a branch that was recorded when it was deleted, or was never completed
    now = branch.runtime.clock.now_millis()
    gone = BranchOperation(now, "deleted", branch.branch or MAIN_BRANCH, branch.branch_uuid, by=by)
    # A branch of another engine shares its identity with any of its name.
    name = branch.branch_uuid if branch.fork is not None else branch.runtime.ids.uuid()
    path = branch.layout.branches_file_path(f"{DELETED_PREFIX}{name}")
    branch.storage.put_if_absent(path, operations_to_json((*_readable_of(branch), gone)))


def is_deleted(context: TableContext, branch_uuid: str) -> bool:
    """Whether the removal of a branch was recorded; that of one removed by another engine was not."""
    path = context.layout.branches_file_path(f"{DELETED_PREFIX}{branch_uuid}")
    return context.storage.exists(path)


def _readable_of(branch: TableContext) -> Iterator[BranchOperation]:
    """Yield operations up to the first unreadable record, so that a damaged one does not block deletion."""
    try:
        yield from _of_branch(branch)
    except CorruptTableError as error:
        _LOG.warning("not all of what was done with '%s' is known: %s", branch.title, error)


def _uuid_if_forked(branch: TableContext, unread: OnUnread | None) -> str | None:
    """Return the identity of a branch of ours; None of one that another engine made, or whose record is damaged."""
    fork = tried(f"branch '{branch.branch}'", lambda: branch.fork, unread)
    return None if fork is None else fork.branch_uuid


def _of_branch(branch: TableContext, unread: OnUnread | None = None) -> Iterator[BranchOperation]:
    """Yield the operations recorded in a branch's folder, oldest first."""
    uuid = tried(f"branch '{branch.branch}'", lambda: branch.branch_uuid, unread)
    if uuid is None:
        return
    name, fork = branch.branch or MAIN_BRANCH, branch.fork
    if fork is not None:
        yield BranchOperation(
            fork.created_millis,
            "created",
            name,
            uuid,
            fork.snapshot.id,
            fork.snapshot.id,
            fork.created_by,
            {"tag": fork.tag, "timeRetainedMillis": fork.time_retained},
        )
    for number, record in audits(branch, unread):
        failed = [check.name for check in record.checks if not check.passed]
        yield BranchOperation(
            record.created_millis,
            "audited",
            name,
            uuid,
            record.snapshot.id,
            None if record.against is None else record.against.id,
            record.created_by,
            {"audit": number, "checks": record.name, "passed": record.passed, "failed": failed},
        )
    if fork is not None:
        yield from _merges(branch, name, unread)


def _merges(branch: TableContext, name: str, unread: OnUnread | None) -> Iterator[BranchOperation]:
    log = merge_log(branch, unread)
    for number, record in log.records.items():
        end = log.ends.get(number)
        if end is None:
            continue
        made = end.snapshot
        yield BranchOperation(
            record.created_millis,
            "merge_given_up" if made is None else "merged",
            name,
            branch.branch_uuid,
            record.head.id,
            None if made is None else made.id,
            details={"merge": number, "replacedPartitions": len(end.replaced)},
        )


def _replacements(context: TableContext, unread: OnUnread | None) -> list[MainPointer]:
    """Return the completed replacements, oldest first."""
    if unread is None:
        return replacements(context)
    found = [
        tried(f"replacement {number} of main", partial(find_pointer, context, number), unread)
        # A folder in the place of a decision is in no list of files; its announcement is.
        for number in sorted({*numbers(context, MAIN_PREFIX), *numbers(context, SEAL_PREFIX)})
    ]
    return [pointer for pointer in found if pointer is not None and pointer.replaced is not None]


def _of_replacement(
    context: TableContext, pointer: MainPointer, unread: OnUnread | None
) -> Iterator[BranchOperation]:
    replaced = pointer.replaced
    assert replaced is not None, "those that came to nothing are left out"
    yield BranchOperation(
        pointer.made_millis,
        "replaced_main" if replaced.undoes is None else "undone",
        pointer.main.name or MAIN_BRANCH,
        pointer.main.uuid,
        replaced.taken.id,
        replaced.head.id,
        pointer.made_by,
        {
            "generation": pointer.generation,
            "old": replaced.old.name or MAIN_BRANCH,
            "audit": replaced.audit,
            "reason": replaced.reason,
            "undoes": replaced.undoes,
            **({} if pointer.group is None else {"group": pointer.group}),
        },
    )
    what = f"what became of the main before replacement {pointer.generation}"
    release = tried(what, partial(find_release, context, pointer.generation), unread)
    if release is not None and release.what == "drop":
        old = replaced.old
        details = {"generation": pointer.generation}
        yield BranchOperation(
            release.made_millis,
            "dropped",
            old.name or MAIN_BRANCH,
            old.uuid,
            None,
            replaced.head.id,
            None,
            details,
        )


def _mains(context: TableContext) -> set[str]:
    """Return the identities of all current and former mains."""
    replaced = (pointer.replaced for pointer in replacements(context))
    return {main_of(context).branch_uuid, *(one.old.uuid for one in replaced if one is not None)}


def _of_commits(context: TableContext, branch_uuid: str) -> Iterator[BranchOperation]:
    """Yield the replacements that were made as commits on a branch while it was main."""
    main = main_by_uuid(context, branch_uuid)
    assert main is not None, "it is or was main"
    for snapshot in own_commits(main):
        found = operation_of_commit(snapshot)
        if found is not None:
            yield found


def operation_of_commit(snapshot: Snapshot | PastSnapshot) -> BranchOperation | None:
    """Return the replacement that a commit made; None if it made none."""
    facts = replace_facts(snapshot)
    if facts is None:
        return None
    return BranchOperation(
        snapshot.time_millis,
        "replaced_main",
        facts.branch or MAIN_BRANCH,
        facts.taken.branch_uuid,
        facts.taken.id,
        snapshot.id,
        facts.by,
        {"mode": "commit", "reason": facts.reason},
    )


def _deleted_paths(context: TableContext) -> list[str]:
    infos = context.storage.list(BRANCH_FOLDER)
    return [info.path for info in infos if info.path.rpartition("/")[2].startswith(DELETED_PREFIX)]


def _find_deleted(context: TableContext, path: str, unread: OnUnread | None) -> tuple[BranchOperation, ...]:
    def find() -> tuple[BranchOperation, ...]:
        try:
            content = context.storage.get(path)
        except NotFoundError:
            return ()
        return operations_from_json(content, path=path)

    return tried(f"record {path} of a deleted branch", find, unread) or ()

"""The commits of a table's branches, both those still readable and those in the history archive.

A branch has the commits that were made on it. The snapshot it began with, and any history taken over from a former
main, belong to the other branch: an id up to the fork is looked up there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from anabranch.errors import CorruptTableError, UnsupportedFeatureError
from anabranch.format.records.history_segment import BranchFacts, PastSnapshot, SegmentName
from anabranch.format.records.main_pointer import former_main_name
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.branches.operations import is_deleted
from anabranch.kernel.log.archive import archived, archived_branch, facts_of, is_own, segment_names
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.commits import own_commits
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.properties import replace_facts
from anabranch.kernel.provenance.past import overwritten, rolled_back_to
from anabranch.lineage.commit import Commit, CommitRef, Line
from anabranch.lineage.model import LineageEntry, lineage_of

_NONE: Final[Mapping[str, Line]] = MappingProxyType({})

Forks = Mapping[str, CommitRef]
"""The commit each branch began with, by the branch's identity; branches without a fork record are left out."""


class Newest(NamedTuple):
    """The newest commit of a branch that is known."""

    id: int
    stamp: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch that a table has, or had."""

    line: Line
    context: TableContext | None
    """None if it was deleted: then the archive has its commits."""
    segment: SegmentName | None
    """The newest of its archive segments."""


def branches_of(context: TableContext, known: Mapping[str, Line] = _NONE) -> tuple[list[Branch], Forks]:
    """Return all branches a table has or had, and how they began. Costs three listings and a read per branch.

    Args:
        context: the table, on any branch.
        known: lines found before, by identity: deleted ones among them are not looked up in the archive again.

    Raises `CorruptTableError`: the identity of one of them cannot be read.
    """
    main = main_of(context)
    here = [main.on_branch(None), *map(main.on_branch, branch_names(main))]
    found = {
        fact.uuid: (fact, there) for fact, there in each(_facts, here, at=main.storage) if fact is not None
    }
    # The archive comes last: a branch deleted before its identity could be read has its segments there by now.
    newest = {name.branch_uuid: name for name in sorted(segment_names(main), key=lambda name: name.last)}
    gone = [_gone(main, uuid, known.get(uuid)) for uuid in sorted(newest.keys() - found.keys())]
    every: dict[str, tuple[_Facts, TableContext | None]] = {
        **{fact.uuid: (fact, None) for fact in gone if fact is not None},
        **found,
    }
    forks = {uuid: fact.fork for uuid, (fact, _) in every.items() if fact.fork is not None}
    branches = [
        Branch(_line(main, fact, forks, is_there=there is not None), there, newest.get(uuid))
        for uuid, (fact, there) in sorted(every.items())
    ]
    return branches, forks


def own(ref: CommitRef, forks: Forks) -> CommitRef:
    """Return the commit behind an id of a branch, by the branch it was made on."""
    while (fork := forks.get(ref.branch_uuid)) is not None and ref.snapshot <= fork.snapshot:
        ref = CommitRef(fork.branch_uuid, ref.snapshot)
    return ref


def has_news(branch: Branch, newest: Newest | None, table: TableContext) -> bool:
    """Whether the branch has other commits than those up to the newest known one; two reads if it has not.

    Args:
        newest: its newest commit that is known; None if none is.
    """
    if branch.context is None:
        last = branch.segment
        if last is None or newest is None:
            return last is not None and not _is_begun_with(branch, last.last)
        if last.last < newest.id and not is_deleted(table, branch.line.branch_uuid):
            return False  # another engine deleted it: the archive has only what had expired by then
        return newest.id != last.last or not newest.stamp.startswith(last.end)
    snapshots = branch.context.snapshots
    if newest is None:
        head = snapshots.head()
        if head is None:
            return branch.context.branch is not None  # deleted meanwhile: it began with a snapshot
        return is_own(branch.context, head.id)
    found = snapshots.find(newest.id)
    return found is None or found.stamp != newest.stamp or snapshots.find(newest.id + 1) is not None


def commits_backwards(branch: Branch, forks: Forks, table: TableContext) -> Iterator[Commit]:
    """Yield the branch's own commits, newest first, from the store and then from the archive; read one at a time.

    Args:
        forks: of all branches of the table.

    Raises `CorruptTableError`, `UnsupportedFeatureError`.
    """
    there = branch.context
    for past in archived(table, branch.line.branch_uuid) if there is None else own_commits(there):
        if _is_begun_with(branch, past.id):
            return  # all that is archived of a branch on which nothing was committed
        yield commit_of(past, branch.line, forks)


def _is_begun_with(branch: Branch, snapshot_id: int) -> bool:
    """Whether the branch inherited the snapshot from the one it was forked from."""
    fork = branch.line.fork
    return fork is not None and snapshot_id <= fork.snapshot


def commit_of(snapshot: PastSnapshot, line: Line, forks: Forks) -> Commit:
    """Convert a snapshot to a commit of the branch it was made on."""
    entry, unread = _entry(snapshot)
    base, restores = _base(snapshot, line.branch_uuid)
    return Commit(
        line.table_uuid,
        line.branch_uuid,
        snapshot.id,
        snapshot.stamp,
        snapshot.commit_kind.value,
        snapshot.time_millis,
        snapshot.schema_id,
        snapshot.delta_record_count or 0,
        None if base is None else own(base, forks),
        entry,
        unread,
        restores,
    )


def _base(snapshot: PastSnapshot, branch_uuid: str) -> tuple[CommitRef | None, bool]:
    """Return the commit that a snapshot builds on, and whether it only restores that commit's content."""
    replaced = replace_facts(snapshot)
    restored = rolled_back_to(snapshot) or (None if replaced is None else replaced.taken)
    if restored is not None:
        return (CommitRef(restored.branch_uuid, restored.id) if restored.id else None), True
    if snapshot.id == 1 or _is_whole_overwrite(snapshot):
        return None, False
    return CommitRef(branch_uuid, snapshot.id - 1), False


def _is_whole_overwrite(snapshot: PastSnapshot) -> bool:
    """Whether it replaced all content, as far as that can be told without reading manifests."""
    if snapshot.commit_kind != CommitKind.OVERWRITE:
        return False
    return snapshot.total_record_count == 0 or overwritten(snapshot) == {}


def _entry(snapshot: PastSnapshot) -> tuple[LineageEntry | None, str | None]:
    try:
        return lineage_of(snapshot.properties, where=f"snapshot {snapshot.id}"), None
    except (CorruptTableError, UnsupportedFeatureError) as error:
        return None, error.message


@dataclass(frozen=True, slots=True)
class _Facts:
    """Identity, name and fork of a branch."""

    uuid: str
    name: str | None
    fork: CommitRef | None

    @classmethod
    def of(cls, facts: BranchFacts) -> _Facts:
        fork = None if facts.fork is None else CommitRef(facts.fork.branch_uuid, facts.fork.id)
        return cls(facts.uuid, facts.name, fork)


def _facts(context: TableContext) -> tuple[_Facts | None, TableContext]:
    """Return the facts of a branch; None for the remains of a deleted one, or one not yet complete."""
    if context.branch is not None and context.fork is None and not context.schemas.ids():
        return None, context
    return _Facts.of(facts_of(context)), context


def _gone(main: TableContext, uuid: str, known: Line | None) -> _Facts | None:
    if known is not None:
        return _Facts(uuid, known.branch, known.fork)
    facts = archived_branch(main, uuid)
    return None if facts is None else _Facts.of(facts)


def _line(main: TableContext, facts: _Facts, forks: Forks, *, is_there: bool) -> Line:
    fork = forks.get(facts.uuid)
    is_main = is_there and facts.uuid == main.branch_uuid
    is_named = facts.name is not None or is_main
    return Line(
        main.table_uuid,
        facts.uuid,
        main.name,
        facts.name if is_named else _former_name(main),
        None if fork is None else own(fork, forks),
        is_main,
    )


def _former_name(main: TableContext) -> str | None:
    """Return the name of the branch in the table's own folder once it has been replaced as main."""
    for pointer in reversed(replacements(main)):
        if pointer.replaced is not None and pointer.replaced.old.name is None:
            return former_main_name(pointer.generation)
    return None

"""The tables made from what a correction took out, and the snapshot where each of them begins again.

A table begins again at the last snapshot that contains nothing of it. All later commits are taken out, the
good ones too, because its jobs will make them anew; so tables made from those are affected as well. This repeats
until nothing new is found: forks only move back, and tables are only added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from anabranch.cascade.naming import is_cascade_of
from anabranch.cascade.readers import readers_of
from anabranch.errors import NotFoundError
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.tag_log import visible_tags
from anabranch.lineage.commit import CommitRef
from anabranch.lineage.content import Contents, Segments, union, without
from anabranch.lineage.questions.asked import AskedCommits
from anabranch.lineage.questions.downstream import downstream
from anabranch.lineage.ranges import Ids
from anabranch.lineage.store import CommitStore
from anabranch.lineage.trace import Range, Trace


@dataclass(frozen=True, slots=True)
class Fork:
    """The snapshot from which a table begins again."""

    snapshot: int
    """The snapshot that its branch begins with."""
    is_empty: bool = False
    """Whether the branch has to be emptied first, because the table contained bad rows from its first snapshot on."""


@dataclass(frozen=True, slots=True)
class Affected:
    """A table whose main contains rows to be removed."""

    main: TableContext
    bad: tuple[Range, ...]
    """Spoilt snapshots of main, by their ids in main; not those that are only made again with them."""
    fork: Fork | None
    """None if no snapshot is left to begin with."""
    missing: int
    """The snapshot it would have to begin with, if that is gone."""
    kept: Segments
    """The commits that its branch begins with."""
    made_anew: Segments
    """The commits after the fork, all of which have to be made again."""


@dataclass(frozen=True, slots=True)
class Affects:
    """Everything that a correction affects."""

    tables: tuple[Affected, ...]
    """By name."""
    trace: Trace
    """The same, as a lineage answer."""
    beside: tuple[str, ...]
    """Branches other than main that took in something of it."""
    in_itself: tuple[Range, ...] = ()
    """Snapshots of the corrected table's main that were made from what is to be corrected after it."""


def affected(
    store: CommitStore,
    root: AskedCommits,
    mains: Mapping[str, TableContext],
    begun: Mapping[str, int],
) -> Affects:
    """Return all tables that contain something made from the commits of `root`.

    Args:
        root: what was taken out of the corrected table.
        mains: the main of each table, by the table's identity.
        begun: the snapshots with which branches made by an earlier run begin, by the table's identity.
    """
    contents = Contents(store)
    own = _table_of(store, root.branch)
    segments, found, bad = root.segments, dict[str, Affected](), dict[str, tuple[Range, ...]]()
    while True:
        trace = downstream(store, AskedCommits(root.branch, segments, root.text), verb="impact")
        spoilt = {d.id: Ids(d.snapshots) for d in trace.datasets if d.kind == "table"}
        for branch, ids in readers_of(store, contents, segments, mains.values()).items():
            spoilt.setdefault(branch, Ids()).update(ids)
        before, found = found, {}
        for table, main in mains.items():
            if table == own:
                continue
            if table in before and before[table].fork is None:
                found[table] = before[table]  # taking out more does not make it better
                continue
            one = _of_table(store, contents, main, spoilt, begun.get(table))
            if one is not None:
                # From the next round on, everything made again counts as taken out.
                found[table] = replace(one, bad=bad.setdefault(table, one.bad))
        following = union((*segments, *(s for one in found.values() for s in one.made_anew)))
        if not without(following, segments):
            break
        segments = following
    beside = tuple(_beside(store, contents, trace, mains, root))
    in_itself = _of_table(store, contents, mains[own], spoilt, None) if own in mains else None
    return Affects(
        tuple(sorted(found.values(), key=lambda one: one.main.name)),
        trace,
        beside,
        () if in_itself is None else in_itself.bad,
    )


def _of_table(
    store: CommitStore,
    contents: Contents,
    main: TableContext,
    spoilt: Mapping[str, Ids],
    begun: int | None,
) -> Affected | None:
    head = main.snapshots.head()
    if head is None:
        return None
    view = _Content(contents, store, main.branch_uuid)
    content = view.at(head.id)
    bad = view.spoilt(head.id, spoilt)
    if not bad:
        return None
    wanted = bad.hull[0] - 1
    fork = None
    if begun is not None and not begun > wanted > 0:
        fork = Fork(begun, is_empty=begun > wanted or bool(view.spoilt(begun, spoilt)))
    while fork is None:
        fork = _latest_there(main, wanted)
        if fork is None or fork.is_empty:
            break
        # A rollback may have restored what an earlier one had removed.
        before = view.spoilt(fork.snapshot, spoilt)
        if before:
            wanted, fork = before.hull[0] - 1, None
    kept = () if fork is None or fork.is_empty else view.at(fork.snapshot)
    return Affected(main, tuple(bad), fork, wanted, kept, without(content, kept))


def _latest_there(main: TableContext, wanted: int) -> Fork | None:
    """Return the newest snapshot up to an id that still exists, by itself or by a tag."""
    if wanted > 0 and main.snapshots.find(wanted) is not None:
        return Fork(wanted)
    there = [*main.snapshots.ids(), *(tag.snapshot.id for tag in visible_tags(main))]
    before = [snapshot for snapshot in there if snapshot <= wanted]
    if before:
        return Fork(max(before))
    return Fork(min(there), is_empty=True) if wanted == 0 and there else None


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a main."""

    contents: Contents
    store: CommitStore
    branch: str
    """Its identity."""

    def at(self, snapshot: int) -> Segments:
        """Return the commits that it contains at a snapshot."""
        return self.contents.content(CommitRef(self.branch, snapshot))

    def spoilt(self, snapshot: int, spoilt: Mapping[str, Ids]) -> Ids:
        """Return the spoilt ones among them, by their ids in main.

        Rows of a branch that replaced the content as a whole have the id of the commit that did it.
        """
        past = self.contents.history(self.branch, 1, snapshot)
        lines = {segment.branch for segment in past}
        found, elsewhere = Ids(), False
        for segment in self.at(snapshot):
            for first, last in spoilt.get(segment.branch, ()):
                if first <= segment.last and last >= segment.first:
                    elsewhere = elsewhere or segment.branch not in lines
                    if segment.branch in lines:
                        found.add(max(first, segment.first), min(last, segment.last))
        if elsewhere:
            for segment in past:
                for one in self.store.breaks(segment.branch):
                    if one.restores and segment.first <= one.snapshot <= segment.last:
                        found.add(one.snapshot, one.snapshot)
        return found


def _table_of(store: CommitStore, branch: str) -> str:
    line = store.line(branch)
    return branch if line is None else line.table_uuid


def _beside(
    store: CommitStore,
    contents: Contents,
    trace: Trace,
    mains: Mapping[str, TableContext],
    root: AskedCommits,
) -> Iterable[str]:
    """Yield branches that people work on and that are spoilt as well; former mains are left out."""
    asked = {segment.branch for segment in root.segments}
    here = set[str]()
    for main in mains.values():
        head = main.snapshots.head()
        here |= {s.branch for s in contents.history(main.branch_uuid, 1, 0 if head is None else head.id)}
    for dataset in trace.datasets:
        line = store.line(dataset.id)
        if dataset.kind != "table" or dataset.id in asked or dataset.id in here or line is None:
            continue
        main_there = mains.get(line.table_uuid)
        if main_there is None or line.branch is None or _is_of_a_cascade(line.branch, mains):
            continue
        try:
            if main_there.on_branch(line.branch).branch_uuid == dataset.id:
                yield dataset.name
        except NotFoundError:
            continue


def _is_of_a_cascade(branch: str, mains: Mapping[str, TableContext]) -> bool:
    return any(is_cascade_of(main.name, branch) for main in mains.values())

"""Replacement of main that every engine understands: one OVERWRITE snapshot with the rows of a branch.

No pointer is put and nobody is fenced: main stays where it is, with its history, and other Paimon engines go on
reading and writing it. The commit brings the branch's schema, with all versions that the branch's files need to be
read, and declares the files under those. Repeating it changes nothing where main has the branch's rows already.

A replacement is an ordinary commit: rows that others append before it are replaced, and stay if they come after. A
rollback takes it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import NotFoundError
from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.format.records.snapshot import CommitIdentity, CommitKind, Snapshot, SnapshotRef
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.attempt import BroughtSchemas
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.order import ordered_as
from anabranch.kernel.commit.transaction import NOT_PUBLISHED, CommitRequest, commit
from anabranch.kernel.commit.watermark import given_back
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.field_ids import last_id_before, reserve_block
from anabranch.kernel.log.fork_pins import fork_snapshot
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.properties import ReplaceFacts
from anabranch.kernel.log.rollback_pins import pin_result, pin_target, unpin
from anabranch.kernel.merge.declare import declared, declared_as
from anabranch.kernel.provenance.past import counting
from anabranch.kernel.replacement.check import check, moved_from
from anabranch.kernel.replacement.request import Replacement, Replacing
from anabranch.kernel.replacement.result import ReplaceResult
from anabranch.kernel.replacement.sealing import catch_up


def replace_content(context: TableContext, wishes: Replacement) -> ReplaceResult:
    """Give main the rows and schema of a branch, in one commit. Raises as `replace.replace_main`."""
    main = main_of(context)
    replacing = check(main, wishes, as_commit=True)
    if wishes.wait_millis is not None:
        until = main.runtime.clock.monotonic() + wishes.wait_millis / 1000
        catch_up(replacing, until)
    before, taken = main.snapshots.head(), replacing.target.snapshots.head()
    if taken is None:
        raise NotFoundError(
            f"'{replacing.target.title}' has no snapshots: there is nothing to replace main with"
        )
    action = ReplaceContent(taken, replacing.target, wishes, _origin(replacing, taken))
    while True:
        base = _base(main)
        change = action.change_on(base)
        if not isinstance(change, Change) or change.entries or base.snapshot is None:
            break
        if BroughtSchemas(main).put(base.schema, change.schemas):
            return _result(replacing, before, base.snapshot, repeated=True)
    return _result(replacing, before, _commit(replacing, action), repeated=False)


@dataclass(frozen=True)
class ReplaceContent:
    """Make the live files those of a branch's snapshot."""

    taken: Snapshot
    branch: TableContext
    wishes: Replacement
    origin: Mapping[str, str] = field(default_factory=dict)
    """Lineage properties of the snapshot: where its rows come from."""

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        return moved_from(base.context, base.snapshot, self.wishes) or self.change_on(base)

    def change_on(self, base: Base) -> Change | Conflict:
        """The change, whatever main is by now."""
        manifests = base.context.manifests
        wanted, live = manifests.entries(manifests.of_snapshot(self.taken)).live().df, base.live.df
        removed = EntryFrame(
            live.join(wanted.select(IDENTITY), on=IDENTITY, how="anti", maintain_order="left")
        )
        added = EntryFrame(wanted.join(live.select(IDENTITY), on=IDENTITY, how="anti", maintain_order="left"))
        versions = _Versions.of(base, self.branch, wanted["schema_id"].unique().to_list())
        ordered = ordered_as(base, [*self._declared(added, versions.under)], wanted)
        if isinstance(ordered, Conflict):
            return ordered
        entries = [*removed.with_kind(FileKind.DELETE).to_entries(), *ordered]
        source = SnapshotRef(self.branch.branch_uuid, self.taken.id, self.taken.stamp)
        said = ReplaceFacts(source, self.branch.branch, self.wishes.by, self.wishes.reason)
        return Change(
            CommitKind.OVERWRITE,
            entries,
            {**said.to_properties(), **self.origin},
            adds_again=bool(len(added)),
            schemas=versions.new,
            event_time=given_back(base.snapshot, self.taken),
        )

    def _declared(self, added: EntryFrame, under: Mapping[int, TableSchema]) -> Iterator[ManifestEntry]:
        for entry in added.with_kind(FileKind.ADD).to_entries():
            written = self.branch.schemas.get(entry.file.schema_id)
            yield replace(entry, file=declared(entry.file, written, under[entry.file.schema_id]))


def _origin(replacing: Replacing, taken: Snapshot) -> Mapping[str, str]:
    """Return the lineage properties of the commit: the branch's commits since its fork."""
    if replacing.wishes.origin is None:
        return {}
    commits = counting(replacing.target_since.until(taken))
    return replacing.wishes.origin(replacing.target, replacing.fork, taken, commits)


def _commit(replacing: Replacing, action: ReplaceContent) -> Snapshot:
    """Commit; files that main deleted since the fork are pinned against the expiry of other engines."""
    main = replacing.main
    identity = CommitIdentity.batch(main.runtime)
    begun = fork_snapshot(replacing.target, main)
    pin = None if begun is None else pin_target(main, begun, identity.user)
    try:
        made = commit(main, CommitRequest(action, identity, pin=pin)).snapshot
    except NOT_PUBLISHED:
        unpin(main, identity.user)
        raise
    assert made is not None, "the commit was made just now"
    if begun is not None:
        pin_result(main, made)
    return made


@dataclass
class _Versions:
    """The versions of main's schema with which a branch's files are read."""

    base: Base
    own: list[TableSchema]
    """Main's, the newest first, those to be put included."""
    new: list[TableSchema] = field(default_factory=list)
    """Those to be put: what files of the branch need, at the end the branch's newest."""
    under: dict[int, TableSchema] = field(default_factory=dict)
    """By the id of a schema of the branch, the version of main's under which its files are declared."""

    @classmethod
    def of(cls, base: Base, branch: TableContext, schema_ids: Sequence[int]) -> _Versions:
        """Those for the branch's newest schema and for files of these schemas of it. Nothing is put."""
        newest = branch.schemas.latest()
        if newest is None:
            raise NotFoundError(f"'{branch.title}' has no schema any more")
        ids = [number for number in reversed(base.context.schemas.ids()) if number <= base.schema.id]
        made = cls(base, [base.context.schemas.get(number) for number in ids])
        for schema_id in sorted(schema_ids):
            written = branch.schemas.get(schema_id)
            made.under[schema_id] = made._version_for(written, newest) or made._next(written)
        if not _same(made.own[0], newest):
            made._next(newest)
        return made

    def _version_for(self, written: TableSchema, newest: TableSchema) -> TableSchema | None:
        found = declared_as(written, newest, self.own)
        if found is not newest:
            return found
        return next((version for version in self.own if _same(version, newest)), None)

    def _next(self, wanted: TableSchema) -> TableSchema:
        """A version of the branch's schema after the last, numbering new columns in a block of main's own."""
        main, latest = self.base.context, self.own[0]
        highest = last_id_before(reserve_block(main, main.branch_uuid))
        version = replace(
            wanted,
            id=latest.id + 1,
            highest_field_id=max(highest, wanted.highest_field_id, latest.highest_field_id),
            time_millis=main.runtime.clock.now_millis(),
        )
        self.own.insert(0, version)
        self.new.append(version)
        return version


def _same(one: TableSchema, other: TableSchema) -> bool:
    return (one.fields, one.partition_keys, one.options, one.comment) == (
        *(other.fields, other.partition_keys, other.options, other.comment),
    )


def _base(main: TableContext) -> Base:
    schema = main.schemas.latest()
    if schema is None:
        raise NotFoundError(f"'{main.title}' does not exist: there is no schema")
    return Base(main, main.snapshots.head(), schema)


def _result(
    replacing: Replacing, before: Snapshot | None, made: Snapshot, *, repeated: bool
) -> ReplaceResult:
    old = 0 if before is None else before.id
    return ReplaceResult(replacing.wishes.branch, None, replacing.fork.id, old, made.id, repeated)

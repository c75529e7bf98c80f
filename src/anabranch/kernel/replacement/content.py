"""The replacement of main that every engine understands: one OVERWRITE snapshot whose rows are those of a branch.

No pointer is put and nobody is fenced: main stays where it is, with its history, and other Paimon engines go on
reading and writing it. Main first gets the branch's schema, with all versions that the branch's files need to be read;
the files are then declared under those versions. Repeating it changes nothing where main has the branch's rows already.

A replacement is an ordinary commit: rows that others append before it are replaced, and stay if they come after. A
rollback takes it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from anabranch.errors import CommitConflictError, CommitRetriesExhaustedError, NotFoundError
from anabranch.format.records.data_file import FileKind, ManifestEntry
from anabranch.format.records.entry_frame import IDENTITY, EntryFrame
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.commit.base import Base, Change, Conflict
from anabranch.kernel.commit.order import ordered_as
from anabranch.kernel.commit.transaction import NOT_PUBLISHED, CommitRequest, commit
from anabranch.kernel.commit.watermark import given_back
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.field_ids import last_id_before, reserve_block
from anabranch.kernel.log.fork_pins import fork_snapshot
from anabranch.kernel.log.identity import CommitIdentity
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.replacement_facts import ReplaceFacts
from anabranch.kernel.log.rollback_pins import pin_result, pin_target, unpin
from anabranch.kernel.merge.declare import declared, declared_as
from anabranch.kernel.provenance.past import counting
from anabranch.kernel.replacement.catch_up import catch_up
from anabranch.kernel.replacement.check import check, moved_from
from anabranch.kernel.replacement.result import ReplaceResult
from anabranch.kernel.replacement.wishes import Replacement, Replacing

_SCHEMA_MOVED = "SCHEMA_CHANGED"
_ROUNDS = 100


def replace_content(context: TableContext, wishes: Replacement) -> ReplaceResult:
    """Make main's rows and schema those of a branch, in one commit. Raises as `replace.replace_main`."""
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
    origin = _origin(replacing, taken)
    for _ in range(_ROUNDS):
        versions = _put_schemas(main, replacing.target, taken)
        action = ReplaceContent(taken, replacing.target, versions, wishes, origin)
        base = _base(main)
        change = action.change_on(base)
        if isinstance(change, Change) and not change.entries and base.snapshot is not None:
            return _result(replacing, before, base.snapshot, repeated=True)
        try:
            return _result(replacing, before, _commit(replacing, action), repeated=False)
        except CommitConflictError as error:
            if any(conflict.kind == _SCHEMA_MOVED for conflict in error.conflicts):
                continue
            raise
    raise CommitRetriesExhaustedError(
        f"the schema of '{main.title}' was changed by others {_ROUNDS} times in a row", hint="try again."
    )


@dataclass(frozen=True)
class ReplaceContent:
    """Make the live files those of a branch's snapshot."""

    taken: Snapshot
    branch: TableContext
    versions: Mapping[int, TableSchema]
    """By the id of a schema of the branch, the version of main's under which its files are declared."""
    wishes: Replacement
    origin: Mapping[str, str] = field(default_factory=dict)
    """What the snapshot says of where its rows come from."""

    @property
    def depends_on_base(self) -> bool:
        return True

    def on(self, base: Base) -> Change | Conflict:
        moved = moved_from(base.context, base.snapshot, self.wishes)
        newest = self.branch.schemas.latest()
        if moved is not None:
            return moved
        if newest is None or not _same(base.schema, newest):
            return Conflict(
                _SCHEMA_MOVED,
                f"the schema of '{base.context.title}' was changed meanwhile",
                "replace main again.",
            )
        return self.change_on(base)

    def change_on(self, base: Base) -> Change | Conflict:
        """The change, whatever main's schema is by now."""
        manifests = base.context.manifests
        wanted, live = manifests.entries(manifests.of_snapshot(self.taken)).live().df, base.live.df
        removed = EntryFrame(
            live.join(wanted.select(IDENTITY), on=IDENTITY, how="anti", maintain_order="left")
        )
        added = EntryFrame(wanted.join(live.select(IDENTITY), on=IDENTITY, how="anti", maintain_order="left"))
        ordered = ordered_as(base, [*self._declared(added)], wanted)
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
            event_time=given_back(base.snapshot, self.taken),
        )

    def _declared(self, added: EntryFrame) -> Iterator[ManifestEntry]:
        for entry in added.with_kind(FileKind.ADD).to_entries():
            written = self.branch.schemas.get(entry.file.schema_id)
            yield replace(entry, file=declared(entry.file, written, self.versions[entry.file.schema_id]))


def _origin(replacing: Replacing, taken: Snapshot) -> Mapping[str, str]:
    """What the commit says of where its rows come from: the branch's commits since it began."""
    if replacing.wishes.origin is None:
        return {}
    commits = counting(replacing.target_since.until(taken))
    return replacing.wishes.origin(replacing.target, replacing.fork, taken, commits)


def _commit(replacing: Replacing, action: ReplaceContent) -> Snapshot:
    """The commit; files that main had deleted since the two parted are pinned for the expiry of other engines."""
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


def _put_schemas(main: TableContext, branch: TableContext, taken: Snapshot) -> dict[int, TableSchema]:
    """Give main the branch's newest schema, after the versions that its files need; which file needs which."""
    newest = branch.schemas.latest()
    if newest is None:
        raise NotFoundError(f"'{branch.title}' has no schema any more")
    manifests = branch.manifests
    frame = manifests.entries(manifests.of_snapshot(taken)).live().df
    versions: dict[int, TableSchema] = {}
    for schema_id in sorted(frame["schema_id"].unique().to_list()):
        written = branch.schemas.get(schema_id)
        versions[schema_id] = _version_for(main, written, newest) or _put(main, written)
    if not _same(_base(main).schema, newest):
        _put(main, newest)
    return versions


def _version_for(main: TableContext, written: TableSchema, newest: TableSchema) -> TableSchema | None:
    own = [main.schemas.get(schema_id) for schema_id in reversed(main.schemas.ids())]
    found = declared_as(written, newest, own)
    if found is not newest:
        return found
    return next((version for version in own if _same(version, newest)), None)


def _put(main: TableContext, wanted: TableSchema) -> TableSchema:
    """A version of the branch's schema as the newest of main's, numbering new columns in a block of main's own."""
    highest = last_id_before(reserve_block(main, main.branch_uuid))
    while True:
        latest = _base(main).schema
        version = replace(
            wanted,
            id=latest.id + 1,
            highest_field_id=max(highest, wanted.highest_field_id, latest.highest_field_id),
            time_millis=main.runtime.clock.now_millis(),
        )
        if main.schemas.add(version):
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

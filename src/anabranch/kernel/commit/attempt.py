"""The metadata files of a commit: written per attempt, removed again unless they became part of the table."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import AnabranchError, StorageError
from anabranch.format.records.data_file import FileKind, ManifestEntry, ManifestFileMeta
from anabranch.format.records.snapshot import CommitIdentity, Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.widening import is_wider
from anabranch.kernel.commit.base import Base, Change
from anabranch.kernel.commit.manifest_writer import ManifestWriter, merge_manifests, without_files
from anabranch.kernel.commit.presence import aged_files, is_aged, lost_files
from anabranch.kernel.commit.watermark import Claim, recorded
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.properties import BRANCH_PROPERTY, PARENT_PROPERTY, WRITER_PROPERTY
from anabranch.kernel.log.store_clock import commit_time
from anabranch.version import __version__

SNAPSHOT_VERSION = 3


@dataclass(frozen=True, slots=True)
class _Delta:
    """The stored delta manifests of a commit; reused on every base unless the action depends on the base."""

    metas: Sequence[ManifestFileMeta]
    list_name: str
    list_size: int
    paths: frozenset[str]


@dataclass
class Attempts:
    """All attempts at one commit, and the files they left in the store."""

    context: TableContext
    identity: CommitIdentity
    properties: Mapping[str, str]
    watermark: Claim
    pin: str | None = None
    """Path of the tag that holds the files which are brought back."""
    in_doubt: bool = False
    """Whether the store has not yet said if the snapshot was taken. Then nothing may be removed."""
    is_published: bool = field(default=False, init=False)
    _delta: _Delta | None = field(default=None, init=False)
    _written: set[str] = field(default_factory=set, init=False)
    _kept: set[str] = field(default_factory=set, init=False)
    _shown: set[str] = field(default_factory=set, init=False)
    """Files referred to by a published snapshot: others may have built on it, even if it was taken back."""
    _began: int = field(init=False)
    """Time before any file that an attempt refers to was checked or written."""
    _change: tuple[TableSchema, Sequence[ManifestEntry]] | None = field(default=None, init=False)
    _versions: tuple[TableSchema, Sequence[TableSchema]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._brought = BroughtSchemas(self.context)
        self._began = self.context.runtime.clock.now_millis()

    def prepare(self, base: Base, change: Change, *, reuse_delta: bool) -> Snapshot:
        """Store everything the new snapshot refers to and return the snapshot, not yet published."""
        self.discard()
        self._versions = base.schema, change.schemas
        if change.schemas:
            base = replace(base, schema=change.schemas[-1])
        self._change = base.schema, change.entries
        options = base.schema.options
        writer = ManifestWriter(self.context, base.schema, options)
        previous = base.snapshot
        existing = [] if previous is None else self.context.manifests.of_snapshot(previous)
        if change.adds_again:
            kept = without_files(existing, change.entries, writer)
        else:
            kept = merge_manifests(existing, writer)
        base_list, base_size = writer.manifest_list(kept)
        if self._delta is None or not reuse_delta:
            before = set(writer.objects)
            metas = writer.manifests(change.entries)
            name, size = writer.manifest_list(metas)
            self._delta = _Delta(metas, name, size, frozenset(set(writer.objects) - before))
        self._written |= set(writer.objects)
        self._kept = set(self._delta.paths) if reuse_delta else set()
        self.context.storage.put_many(writer.objects)
        added = _row_delta(change.entries)
        now = self.context.runtime.clock.now_millis()
        # Readers find snapshots by time, so time must not go back even if the machine's clock does.
        # But it does not follow a base whose time is in the future, or one wrong clock would stop it for good.
        time_millis = now if previous is None else max(now, commit_time(self.context, previous))
        claimed = self.watermark if change.watermark is None else change.watermark
        event_time = change.event_time or recorded(self.context, previous, claimed, time_millis)
        return Snapshot(
            version=SNAPSHOT_VERSION,
            id=1 if previous is None else previous.id + 1,
            schema_id=base.schema.id,
            base_manifest_list=base_list,
            base_manifest_list_size=base_size,
            delta_manifest_list=self._delta.list_name,
            delta_manifest_list_size=self._delta.list_size,
            index_manifest=None if previous is None else previous.index_manifest,
            commit_user=self.identity.user,
            commit_identifier=self.identity.identifier,
            commit_kind=change.kind,
            time_millis=time_millis,
            total_record_count=_total(previous, added),
            delta_record_count=added,
            watermark=event_time.watermark,
            statistics=_carried_statistics(base),
            next_row_id=None if previous is None else previous.next_row_id,
            uuid=self.context.runtime.ids.uuid(),
            properties={
                **self.properties,
                **change.properties,
                **event_time.properties,
                BRANCH_PROPERTY: self.context.branch_uuid,
                WRITER_PROPERTY: f"anabranch {__version__}",
                **({} if previous is None else {PARENT_PROPERTY: previous.stamp}),
            },
        )

    def put_schemas(self) -> bool:
        """Store the versions of the schema that the last attempt brings; False if somebody else stored another."""
        assert self._versions is not None, "there was an attempt"
        return self._brought.put(*self._versions)

    def lost_files(self) -> tuple[list[str], int]:
        """Return the files of the last attempt that were cleaned away, and the number of files checked.

        Only files old enough to be cleaned are checked: none, in a commit of normal duration. A pin always is.
        """
        assert self._change is not None, "there was an attempt"
        is_late = is_aged(self.context, self._began)
        paths = aged_files(self.context, *self._change, is_late=is_late)
        if is_late:
            paths += sorted(self._written)
        if self.pin is not None:
            # Let go of as that of an operation that was killed: then an expiry that looked at the refs before the
            # snapshot was put may be about to remove files that are still there. If it is there after the put, whoever
            # lets go of it and looks at the refs finds the snapshot. It is older than this commit, so no clock tells.
            paths.append(self.pin)
        return (lost_files(self.context, paths), len(paths)) if paths else ([], 0)

    def shown(self) -> None:
        """Mark the last attempt as visible to others. If it is taken back, orphan cleaning decides about its files."""
        self._shown |= self._written | self._kept

    def published(self) -> None:
        """Everything of the last attempt belongs to the table now."""
        self.is_published = True
        self._written.clear()
        self._kept.clear()

    def discard(self) -> None:
        """Remove the files of a failed attempt, as far as possible; never while the outcome is in doubt."""
        if self.in_doubt:
            return
        for path in self._written - self._kept - self._shown:
            try:
                self.context.storage.delete(path)
            except AnabranchError:
                continue  # an orphan that cleaning will find
        self._written &= self._kept

    def give_up(self) -> None:
        """Remove what is left after the last attempt, and put back the columns that it took away for nothing."""
        if not self.in_doubt and not self.is_published:
            self._brought.take_back()
        self._kept.clear()
        self.discard()


def _row_delta(entries: Sequence[ManifestEntry]) -> int:
    return sum(
        entry.file.row_count if entry.kind == FileKind.ADD else -entry.file.row_count for entry in entries
    )


def _total(previous: Snapshot | None, added: int) -> int | None:
    """Return the table's row count; None for good once an old engine did not count."""
    if previous is None:
        return added
    return None if previous.total_record_count is None else previous.total_record_count + added


def _carried_statistics(base: Base) -> str | None:
    """Return the table statistics if they were computed for the newest schema, for which they stay valid."""
    if base.snapshot is None or base.snapshot.schema_id != base.schema.id:
        return None
    return base.snapshot.statistics


# Versions of the schema that a commit brings: put when all else of it is stored, right before its snapshot.
#
# Readers see a version as soon as it is put, and the snapshot only after it. If the snapshot does not come about after
# all, columns that the new versions took away, or made narrower, are put back in a further version. What they added
# stays, for somebody else may be completing the same merge at that moment: a column too many is empty, one too few is a
# loss. A process that dies in between leaves its versions; running the command again completes them.

_LOG = logging.getLogger(__name__)
_REQUESTS = 3
"""How often a version is put before a store that does not answer is given up."""


@dataclass
class BroughtSchemas:
    """The versions that the attempts at one commit have put."""

    context: TableContext
    _before: TableSchema | None = field(default=None, init=False)
    """The newest version before the first one."""

    def put(self, before: TableSchema, versions: Sequence[TableSchema]) -> bool:
        """Store versions that follow `before`; False if somebody else stored one of these numbers."""
        for version in versions:
            self._before = self._before or before
            if not self._add(version):
                return False
        return True

    def take_back(self) -> None:
        """Put back the columns that were taken away for a commit that did not come about; as far as possible."""
        before, self._before = self._before, None
        if before is None:
            return
        try:
            while True:
                latest = self.context.schemas.latest()
                restored = None if latest is None else _with_columns_of(before, latest)
                if restored is None:
                    return
                if self._add(replace(restored, time_millis=self.context.runtime.clock.now_millis())):
                    return
        except AnabranchError as error:
            _LOG.warning(
                "the schema of '%s' is that of a commit that failed, and version %d of it could not be put back: %s",
                *(self.context.title, before.id, error),
            )

    def _add(self, version: TableSchema) -> bool:
        for _ in range(_REQUESTS - 1):
            try:
                return self.context.schemas.add(version)
            except StorageError as error:
                if not error.outcome_unknown:
                    raise  # asking again does no harm: the same bytes are the same version
        return self.context.schemas.add(version)


def _with_columns_of(before: TableSchema, latest: TableSchema) -> TableSchema | None:
    """The next version, in which every column of `before` holds its values; None if that is the latest."""
    was = {f.id: f for f in before.fields}
    fields = []
    for f in latest.fields:
        old = was.pop(f.id, f)
        fields.append(f if is_wider(old.type, f.type) else replace(f, type=old.type))
    names = {f.name for f in fields}
    fields += [f for f in was.values() if f.name not in names]
    if tuple(fields) == tuple(latest.fields):
        return None
    order = {f.id: n for n, f in enumerate(before.fields)}
    if order.keys() >= {f.id for f in fields}:
        fields.sort(key=lambda f: order[f.id])
    return replace(latest, id=latest.id + 1, fields=tuple(fields))

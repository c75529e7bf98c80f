"""Verbs about moments of a table: tags, savepoints, the positions of consumers, and going back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from anabranch.errors import InvalidInputError
from anabranch.verbs.answer import Answer, Grid, moment, wall_time
from anabranch.verbs.legible import Unread
from anabranch.verbs.parameters import DryRun
from anabranch.verbs.subject import OnBranch
from anabranch.verbs.verb import Confirm, Group, option, verb

if TYPE_CHECKING:
    from anabranch.format.records.refs import Tag
    from anabranch.format.records.savepoint import Savepoint
    from anabranch.kernel.rollback.roll_back import RollbackResult
    from anabranch.table import Table

MOMENTS: Group = "Moments"
_TAG = "tag_name STRING, snapshot_id BIGINT, record_count BIGINT"
_SAVEPOINT = (
    "savepoint_id BIGINT, saved_snapshot_id BIGINT, schema_id BIGINT, save_time BIGINT, record_count BIGINT"
)

TagName = Annotated[str, option("Name of the tag.", "--name", "-n", sql="tag")]
Retained = Annotated[str | None, option("How long to keep it, such as '7 d'; for good if absent.")]
Kept = Annotated[
    str | None,
    option("What to keep: a snapshot id, snapshot.N, a tag; the newest if absent.", "--snapshot", "--at"),
]
AtTime = Annotated[str | None, option("What the table was at this time; instead of a snapshot.")]


@dataclass(frozen=True, slots=True)
class TagInfo:
    """One tag, for display; times in epoch milliseconds."""

    name: str
    snapshot: int
    time_millis: int
    """Commit time of the snapshot."""
    rows: int | None
    create_time: int | None
    """In the local time of its creator."""
    expires: int | None
    """Expiry time, also in local time; None if it stays for good."""

    @classmethod
    def of(cls, tag: Tag) -> TagInfo:
        """Convert a tag."""
        kept = (tag.create_time, tag.time_retained)
        expires = None if kept[0] is None or kept[1] is None else kept[0] + kept[1]
        at = tag.snapshot
        return cls(tag.name, at.id, at.time_millis, at.total_record_count, tag.create_time, expires)

    @property
    def row(self) -> tuple[object, ...]:
        return (self.name, self.snapshot, self.rows)


@dataclass(frozen=True, slots=True)
class SavepointInfo:
    """One savepoint, for display; times in epoch milliseconds."""

    id: int
    snapshot: int
    schema_id: int
    save_time: int | None
    rows: int

    @classmethod
    def of(cls, found: Savepoint) -> SavepointInfo:
        """Convert a savepoint."""
        return cls(found.id, found.saved_snapshot_id, found.schema_id, found.save_time, found.record_count)

    @property
    def row(self) -> tuple[object, ...]:
        return (self.id, self.snapshot, self.schema_id, self.save_time, self.rows)


def _tag(table: Table, name: str) -> TagInfo:
    from anabranch.kernel.log.tag_log import get_tag

    return TagInfo.of(get_tag(table.context, name))


@verb(MOMENTS, "Table.create_tag", columns=_TAG, changes=True)
def create_tag(
    table: OnBranch, name: TagName, snapshot: Kept = None, timestamp: AtTime = None, retained: Retained = None
) -> Answer:
    """Name a moment of a table and keep it."""
    info = TagInfo.of(table.create_tag(name, snapshot, timestamp=timestamp, retained=retained))
    return Answer(info, f"tag '{name}' keeps snapshot {info.snapshot} of {table.name}", rows=[info.row])


@verb(MOMENTS, "Table.tags", sql="SELECT * FROM db.t$tags")
def tags(
    table: OnBranch, all: Annotated[bool, option("Also those the table made for itself.")] = False
) -> Answer:
    """List the tags of a table."""
    from anabranch.kernel.log.tag_log import find_tags

    unread = Unread(table.name)
    found = [TagInfo.of(tag) for tag in find_tags(table.context, table.tags(include_internal=all), unread)]
    rows = (
        (
            *(t.name, str(t.snapshot), moment(t.time_millis), t.rows),
            *(wall_time(t.create_time), wall_time(t.expires)),
        )
        for t in found
    )
    grid = Grid(("tag", "snapshot", "time", "rows", "created", "kept until"), rows)
    return Answer(found, grid, *unread.notes, code=unread.code)


@verb(MOMENTS, "Table.replace_tag", columns=_TAG, changes=True)
def replace_tag(
    table: OnBranch,
    name: TagName,
    snapshot: Kept = None,
    timestamp: AtTime = None,
    retained: Retained = None,
    dry_run: DryRun = False,
) -> Answer:
    """Let a tag keep another moment."""
    before = info = _tag(table, name)
    if not dry_run:
        info = TagInfo.of(table.replace_tag(name, snapshot, timestamp=timestamp, retained=retained))
    target = info.snapshot if not dry_run else snapshot or timestamp or "the newest snapshot"
    text = f"tag '{name}' {'would keep' if dry_run else 'keeps'} {target}, before: {before.snapshot}"
    return Answer({"before": before, "tag": info}, text, rows=[info.row])


@verb(MOMENTS, "Table.rename_tag", columns=_TAG, changes=True)
def rename_tag(
    table: OnBranch, name: TagName, to: Annotated[str, option("Its new name.", sql="new_name")]
) -> Answer:
    """Give a tag another name."""
    info = TagInfo.of(table.rename_tag(name, to))
    return Answer(info, f"tag '{name}' is '{to}' now (snapshot {info.snapshot})", rows=[info.row])


@verb(MOMENTS, "Table.delete_tag", columns=_TAG, changes=True)
def delete_tag(table: OnBranch, name: TagName, dry_run: DryRun = False, *, ask: Confirm) -> Answer:
    """Let go of a tag; what only it held goes with the next expiry and clean-up."""
    info = _tag(table, name)
    ask(f"delete tag '{name}' of {table.name} (snapshot {info.snapshot})?")
    if not dry_run:
        table.delete_tag(name)
    return Answer(
        {"tag": name, "snapshot": info.snapshot, "deleted": not dry_run},
        f"{'would delete' if dry_run else 'deleted'} tag '{name}' (snapshot {info.snapshot})",
        rows=[info.row],
    )


@verb(MOMENTS, "Table.create_savepoint", columns=_SAVEPOINT, changes=True)
def create_savepoint(table: OnBranch, snapshot: Kept = None, timestamp: AtTime = None) -> Answer:
    """Keep a moment of a table for good, under the next number."""
    info = SavepointInfo.of(table.create_savepoint(snapshot, timestamp=timestamp))
    return Answer(
        info,
        f"savepoint {info.id} keeps snapshot {info.snapshot} of {table.name} ({info.rows:,} rows); "
        f"read it with --at savepoint.{info.id}",
        rows=[info.row],
    )


@verb(MOMENTS, "Table.savepoints", sql="SELECT * FROM db.t$savepoints")
def savepoints(table: OnBranch) -> Answer:
    """List the savepoints of a table."""
    unread = Unread(table.name)
    found = [SavepointInfo.of(one) for one in table.savepoints(unread)]
    rows = ((str(s.id), str(s.snapshot), str(s.schema_id), moment(s.save_time), s.rows) for s in found)
    grid = Grid(("savepoint", "snapshot", "schema", "saved", "rows"), rows)
    return Answer(found, grid, *unread.notes, code=unread.code)


@verb(MOMENTS, "Table.delete_savepoint", columns=_SAVEPOINT, changes=True)
def delete_savepoint(
    table: OnBranch,
    id: Annotated[int, option("Number of the savepoint.", min=1)],
    dry_run: DryRun = False,
    *,
    ask: Confirm,
) -> Answer:
    """Let go of a savepoint; its number is never given out again."""
    info = SavepointInfo.of(table.savepoint_manager.savepoint(id))
    ask(f"delete savepoint {id} of {table.name} (snapshot {info.snapshot})?")
    if not dry_run:
        table.delete_savepoint(id)
    return Answer(
        {"savepoint": id, "snapshot": info.snapshot, "deleted": not dry_run},
        f"{'would delete' if dry_run else 'deleted'} savepoint {id} (snapshot {info.snapshot})",
        rows=[info.row],
    )


# Going back


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """A reference to a snapshot that would be removed."""

    kind: str
    name: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class RollbackInfo:
    """Result of a rollback, or a preview."""

    table: str
    to: str
    target_snapshot: int
    destructive: bool
    done: bool
    """False for a dry run."""
    snapshot: int | None
    """The newest snapshot afterwards; None for a dry run."""
    files_removed: int
    rows_removed: int
    files_restored: int
    rows_restored: int
    removed_snapshots: tuple[int, ...]
    """Snapshots removed for good, newest first."""
    removed_references: tuple[HolderInfo, ...]
    """References to them, which are removed with them if forced."""

    @classmethod
    def of(cls, table: Table, to: str, result: RollbackResult) -> RollbackInfo:
        """Convert the result of a rollback."""
        changed, removal = result.changed, result.removal
        return cls(
            table.name,
            to,
            target_snapshot=result.target.id,
            destructive=removal is not None,
            done=result.snapshot is not None,
            snapshot=None if result.snapshot is None else result.snapshot.id,
            files_removed=changed.files_removed,
            rows_removed=changed.rows_removed,
            files_restored=changed.files_restored,
            rows_restored=changed.rows_restored,
            removed_snapshots=() if removal is None else tuple(s.id for s in removal.snapshots),
            removed_references=()
            if removal is None
            else tuple(HolderInfo(str(h.kind), h.name, h.snapshot_id) for h in removal.holders),
        )

    def text(self, goes: str) -> str:
        """Say it in lines."""
        lines = [
            f"{self.table} {goes} back to '{self.to}' (snapshot {self.target_snapshot})",
            f"  rows removed   {self.rows_removed:,} in {self.files_removed:,} files",
            f"  rows restored  {self.rows_restored:,} in {self.files_restored:,} files",
        ]
        if self.removed_snapshots:
            first, last = self.removed_snapshots[-1], self.removed_snapshots[0]
            lines.append(f"  removed for good: snapshots {first} to {last}")
        lines += [
            f"  removed for good: {r.kind} '{r.name}' (snapshot {r.snapshot})"
            for r in self.removed_references
        ]
        if self.done:
            lines.append(f"  the newest snapshot is {self.snapshot}")
        return "\n".join(lines)

    @property
    def row(self) -> tuple[object, ...]:
        return (
            *(self.target_snapshot, self.snapshot, self.rows_removed, self.rows_restored),
            len(self.removed_snapshots),
        )


@verb(
    MOMENTS,
    "Table.rollback",
    columns="target_snapshot_id BIGINT, snapshot_id BIGINT, rows_removed BIGINT, rows_restored BIGINT, "
    "snapshots_removed BIGINT",
    changes=True,
)
def rollback(
    table: OnBranch,
    to: Annotated[
        str, option("Moment to go back to: a tag, snapshot id, snapshot.N or savepoint.N.", "--to")
    ],
    destructive: Annotated[
        bool, option("Remove the snapshots after it for good, instead of a new one.")
    ] = False,
    force: Annotated[bool, option("With --destructive: also remove what refers to these snapshots.")] = False,
    dry_run: DryRun = False,
    *,
    ask: Confirm,
) -> Answer:
    """Go back to an earlier moment: as one new snapshot, or by removing what came after it."""
    from anabranch.kernel.rollback.roll_back import rollback as roll_back

    planned = table.rollback(to, destructive=destructive, dry_run=True)
    info = RollbackInfo.of(table, to, planned)
    if dry_run:
        return Answer(info, info.text("would go"), rows=[info.row])
    if info.removed_snapshots and (force or not info.removed_references):
        ask(f"{info.text('goes')}\nremove these for good?")
    # A destructive one raises if it would remove more by now.
    removal = planned.removal
    done = roll_back(table.context, to, destructive=removal is not None, force=force, planned=removal)
    info = RollbackInfo.of(table, to, done)
    return Answer(info, info.text("went"), rows=[info.row])


@dataclass(frozen=True, slots=True)
class WatermarkInfo:
    """A watermark that was reset."""

    table: str
    watermark: int | None
    """Epoch milliseconds; None for none."""
    before: int | None
    snapshot: int | None
    """The newest snapshot afterwards."""


@verb(MOMENTS, "Table.reset_watermark", columns="snapshot_id BIGINT, watermark BIGINT", changes=True)
def reset_watermark(
    table: OnBranch,
    to: Annotated[
        str | None,
        option("A time; the highest in the history that is not ahead of the clock if absent.", "--to"),
    ] = None,
) -> Answer:
    """Set the watermark anew, because a row from a wrong clock has moved it too far."""
    before = table.watermark
    found = table.reset_watermark(to)
    at = (None, None, None) if found is None else (found.watermark, before, found.id)
    info = WatermarkInfo(table.name, *at)
    now, was = ("none" if millis is None else moment(millis) for millis in (info.watermark, info.before))
    text = f"the watermark of {info.table} is {now}" + (f", and was {was}" if was != now else "")
    return Answer(info, text, rows=[(info.snapshot, info.watermark)])


# Consumers

_Consumer = Annotated[str, option("Name of the consumer.", "--name", "-n", sql="consumer")]


@verb(MOMENTS, "Table.consumers", sql="SELECT * FROM db.t$consumers")
def consumers(
    table: OnBranch,
    reset: Annotated[str | None, option("Name of a consumer to move.")] = None,
    to: Annotated[
        int | None, option("With --reset: the snapshot it reads next; the one after the newest if absent.")
    ] = None,
    delete: Annotated[str | None, option("Name of a consumer to let go of.")] = None,
    *,
    ask: Confirm,
) -> Answer:
    """List the consumers of a table and how far each is behind; move or delete one."""
    if to is not None and reset is None:
        raise InvalidInputError(
            "--to says where a consumer is moved, but --reset does not say which one.", hint="name it."
        )
    if reset is not None:
        table.reset_consumer(reset, to)
    if delete is not None:
        ask(f"delete consumer '{delete}' of {table.name}?")
        table.delete_consumer(delete)
    unread = Unread(table.name)
    found = table.consumers(unread)
    columns = ("consumer", "reads next", "snapshots behind", "rows behind", "seconds behind", "last moved")
    rows = (
        (c.name, str(c.next_snapshot), c.snapshots, c.rows, c.millis // 1000, moment(c.modified_millis))
        for c in found
    )
    return Answer(found, Grid(columns, rows), *unread.notes, code=unread.code)


@verb(MOMENTS, "Table.reset_consumer", columns="consumer STRING, next_snapshot BIGINT", changes=True)
def reset_consumer(
    table: OnBranch,
    name: _Consumer,
    to: Annotated[
        int | None,
        option("The snapshot it reads next; the one after the newest if absent.", sql="next_snapshot"),
    ] = None,
) -> Answer:
    """Let a consumer read on from elsewhere."""
    at = table.reset_consumer(name, to)
    value = {"consumer": name, "next_snapshot": at}
    return Answer(value, f"consumer '{name}' reads snapshot {at} next", rows=[(name, at)])


@verb(MOMENTS, "Table.delete_consumer", columns="consumer STRING", changes=True)
def delete_consumer(table: OnBranch, name: _Consumer, *, ask: Confirm) -> Answer:
    """Let go of a consumer, and of what was kept for it."""
    ask(f"delete consumer '{name}' of {table.name}?")
    table.delete_consumer(name)
    return Answer(
        {"consumer": name, "deleted": True}, f"deleted consumer '{name}' of {table.name}", rows=[(name,)]
    )

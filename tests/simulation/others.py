"""What other engines of the Paimon family do to a table, call by call, as Java Paimon and pypaimon do it on disk.

They know neither our properties nor parents: they look for the newest snapshot by the hint LATEST (Java believes it if
nothing follows it), put the next number, and delete by rules of thumb. See ``docs`` on other engines. Only the encoding
of manifests is ours.
"""

import json
from types import SimpleNamespace

from anabranch.errors import NotFoundError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from anabranch.kernel.actions.append import added_entries
from anabranch.kernel.commit.manifest_writer import ManifestWriter, merge_manifests
from anabranch.kernel.log.tag_log import find_tag
from tests.simulation.acts import Act, Append, table_of
from tests.support.foreign_expiry import delete_tag_as_others, expire_as_others


class Foreign(Act):
    """An act of another engine."""

    is_foreign = True

    def failed(self, process, error):
        """Other engines may fail as they like."""


def newest(context):
    """The newest snapshot as Java finds it: by the hint, unless something follows it; else by listing."""
    try:
        hint = int(context.storage.get(context.layout.latest_hint_path))
    except (NotFoundError, ValueError):
        hint = 0
    if hint <= 0 or context.storage.exists(context.layout.snapshot_path(hint + 1)):
        hint = max(context.snapshots.ids(), default=0)
    return context.snapshots.find(hint) if hint else None


class ForeignAppend(Foreign, Append):
    """A commit of rows by another engine."""

    is_rescued = True

    def __str__(self):
        return f"another engine appends {list(self.rows)}"

    def do(self, process):
        messages = process.table.writer().write(table_of(self.rows).to_batches())
        return self.commit(process, CommitKind.APPEND, lambda head: added_entries(messages))

    def done(self, process, result):
        """Other engines do not look back whether what they put is in a history."""

    def commit(self, process, kind, entries_on):
        """Put the next snapshot, again and again until the number is free."""
        context = process.table.context
        user = process.runtime.ids.uuid()
        for _ in range(6):
            head = newest(context)
            if head is None:
                return None
            schema = context.schemas.latest()
            writer = ManifestWriter(context, schema, schema.options)
            entries = entries_on(head)
            base, base_size = writer.manifest_list(
                merge_manifests(context.manifests.of_snapshot(head), writer)
            )
            delta, delta_size = writer.manifest_list(writer.manifests(entries))
            context.storage.put_many(writer.objects)
            added = sum((1 if e.kind == FileKind.ADD else -1) * e.file.row_count for e in entries)
            made = Snapshot(
                id=head.id + 1,
                schema_id=schema.id,
                base_manifest_list=base,
                base_manifest_list_size=base_size,
                delta_manifest_list=delta,
                delta_manifest_list_size=delta_size,
                commit_user=user,
                commit_identifier=BATCH_COMMIT_IDENTIFIER,
                commit_kind=kind,
                time_millis=process.runtime.clock.now_millis(),
                total_record_count=(head.total_record_count or 0) + added,
                delta_record_count=added,
            )
            self.built_on = head.stamp
            if context.storage.put_if_absent(context.layout.snapshot_path(made.id), made.to_json()):
                context.storage.put(context.layout.latest_hint_path, str(made.id).encode(), durable=False)
                return made.id
            for path in writer.objects:
                context.storage.delete(path)
        return None


class ForeignTidy(ForeignAppend):
    """Joins manifests, as other engines do in a COMPACT snapshot without entries."""

    def __init__(self):
        super().__init__(())

    def __str__(self):
        return "another engine commits a compaction of manifests"

    def do(self, process):
        return self.commit(process, CommitKind.COMPACT, lambda head: [])


class ForeignExpire(Foreign):
    """Expires snapshots from the old end. If it dies, the oldest are there without their files."""

    is_alone = True
    end = 0

    def __init__(self, keep):
        super().__init__()
        self.keep = keep

    def __str__(self):
        return f"another engine expires all but {self.keep}"

    def do(self, process):
        table = process.table
        found = [*table.snapshots()]
        if len(found) > self.keep:
            self.end = found[self.keep - 1].id
            seen = SimpleNamespace(context=table.context, schema=table.schema, snapshots=lambda: found)
            expire_as_others(seen, self.keep)

    def may_remove_oldest(self, entry):
        return entry.id < self.end

    may_break = may_remove_oldest


class ForeignDeleteTag(Foreign):
    """Deletes a tag, and what its neighbours do not have.

    A tag above the newest snapshot is left: its maker has not seen yet that history was rolled back. Other engines take what
    live snapshots need with such a tag, whoever made it (docs/limits.md).
    """

    is_alone = True

    def __init__(self, name):
        super().__init__()
        self.name = name

    def __str__(self):
        return f"another engine deletes tag {self.name}"

    def do(self, process):
        tag, head = find_tag(process.table.context, self.name), newest(process.table.context)
        if tag is not None and head is not None and tag.snapshot.id <= head.id:
            delete_tag_as_others(process.table, self.name)

    def may_untag(self, path, content, world):
        return path.endswith(f"/tag-{self.name}")


class ForeignRollback(Foreign):
    """Rolls back by deleting newer snapshots and tags, newest first; leaves the data for the cleaning of orphans."""

    is_alone = True

    def __init__(self, back):
        super().__init__()
        self.back, self.target = back, None

    def __str__(self):
        return f"another engine rolls back to {self.target}"

    def do(self, process):
        context = process.table.context
        head = newest(context)
        if head is None:
            return
        target = context.snapshots.find(max(1, head.id - self.back))
        if target is None or process.world.model.is_broken(target.stamp):
            return  # nobody goes back to what cannot be read, as an expiry that died leaves it
        self.target = target.id
        context.storage.put(context.layout.latest_hint_path, str(self.target).encode(), durable=False)
        for number in range(head.id, self.target, -1):
            context.storage.delete(context.layout.snapshot_path(number))
        for info in context.storage.list(context.layout.tag_folder):
            try:
                named = json.loads(context.storage.get(info.path))["id"]
            except (NotFoundError, ValueError, KeyError):
                continue
            if named > self.target:
                context.storage.delete(info.path)

    def may_remove_newest(self, entry):
        return self.target is not None and entry.id > self.target

    def may_untag(self, path, content, world):
        return self.target is not None and content["id"] > self.target

"""Expiring snapshots as other engines of the Paimon family do: by rules of thumb, not by asking what is reached.

A data file that snapshot s deleted goes when s - 1 does, unless the newest tag before s has it; metadata goes unless
the snapshot that stays, or a tag in the range, names it. With a tag whose snapshot has expired goes what its two
neighbours do not have.
"""

from anabranch.format.records.data_file import FileKind
from anabranch.kernel.log.file_paths import bucket_folders
from anabranch.kernel.log.tag_log import find_tag, find_tags, tag_names


def expire_as_others(table, keep):
    """Remove all but the newest `keep` snapshots, and the files that the rules let go."""
    context = table.context
    snapshots = sorted(table.snapshots(), key=lambda s: s.id)
    if len(snapshots) <= keep:
        return
    gone, stays = snapshots[:-keep], snapshots[-keep]
    tags = sorted((t.snapshot for t in find_tags(context, tag_names(context))), key=lambda s: s.id)
    for snapshot in [*gone[1:], stays]:
        before = [tag for tag in tags if tag.id < snapshot.id]
        held = _live(context, before[-1]) if before else set()
        for path in _deleted(context, table.schema, snapshot):
            if path.rpartition("/")[2] not in held:
                context.storage.delete(path)
    first, end = gone[0].id, stays.id
    last_before = max((tag.id for tag in tags if tag.id <= first), default=0)
    kept = _metadata(context, [stays, *(tag for tag in tags if last_before <= tag.id < end)])
    for name in _metadata(context, gone) - kept:
        context.storage.delete(context.layout.manifest_path(name))
    for snapshot in gone:
        context.storage.delete(context.layout.snapshot_path(snapshot.id))
    context.storage.put(context.layout.earliest_hint_path, str(end).encode())


def delete_tag_as_others(table, name):
    """Remove a tag, and the files that neither the tag before it nor the tag or snapshot after it has."""
    context = table.context
    tag = find_tag(context, name).snapshot
    context.storage.delete(context.layout.tag_path(name))
    tags = sorted((t.snapshot for t in find_tags(context, tag_names(context))), key=lambda s: s.id)
    if context.snapshots.find(tag.id) is not None or any(other.id == tag.id for other in tags):
        return
    earliest = context.snapshots.find(context.snapshots.earliest_id())
    neighbours = [other for other in tags if other.id < tag.id][-1:]
    neighbours += sorted([earliest, *(other for other in tags if other.id > tag.id)], key=lambda s: s.id)[:1]
    held = set().union(*(_live(context, other) for other in neighbours))
    frame = context.manifests.entries(context.manifests.of_snapshot(tag)).live().df
    for path in bucket_folders(frame, table.schema) + "/" + frame["file_name"]:
        if path.rpartition("/")[2] not in held:
            context.storage.delete(path)
    for name in _metadata(context, [tag]) - _metadata(context, neighbours):
        context.storage.delete(context.layout.manifest_path(name))


def _live(context, snapshot):
    manifests = context.manifests
    return set(manifests.entries(manifests.of_snapshot(snapshot)).live().df["file_name"])


def _deleted(context, schema, snapshot):
    manifests = context.manifests
    frame = manifests.entries(manifests.read_list(snapshot.delta_manifest_list)).df
    added = set(frame.filter(frame["kind"] == int(FileKind.ADD))["file_name"])
    gone = frame.filter(frame["kind"] == int(FileKind.DELETE))
    paths = bucket_folders(gone, schema) + "/" + gone["file_name"]
    return [path for path in paths if path.rpartition("/")[2] not in added]


def _metadata(context, snapshots):
    names = set()
    for snapshot in snapshots:
        names |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        names |= {meta.file_name for meta in context.manifests.of_snapshot(snapshot)}
    return names

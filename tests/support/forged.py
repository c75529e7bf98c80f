"""Long histories made of files alone: what a table's store would hold after so many commits, without making them."""

from dataclasses import replace

from anabranch.kernel.log.properties import PARENT_PROPERTY


def forge_history(table, count):
    """Let the newest snapshot be followed by so many that change nothing, each with lists and a manifest of its own.

    They lie in the store as commits would leave them: each is built on the one before.
    """
    context = table.context
    storage, layout = context.storage, context.layout
    head = table.snapshot
    delta = storage.get(layout.manifest_path(head.delta_manifest_list))
    base = storage.get(layout.manifest_path(head.base_manifest_list))
    for number in range(head.id + 1, head.id + count + 1):
        names = [f"manifest-list-00000000-0000-4000-8000-{number:012d}-{i}" for i in (0, 1)]
        storage.put_many({layout.manifest_path(names[0]): base, layout.manifest_path(names[1]): delta})
        head = replace(
            head,
            id=number,
            base_manifest_list=names[0],
            delta_manifest_list=names[1],
            time_millis=head.time_millis + 1,
            commit_identifier=number,
            properties={**head.properties, PARENT_PROPERTY: head.stamp},
        )
        storage.put(layout.snapshot_path(number), head.to_json())
    context.snapshots.write_hint(head.id)
    return head

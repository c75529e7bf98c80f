"""What tests of savepoints look at."""

from dataclasses import replace

import anabranch
from anabranch.runtime import SystemClock
from tests.support.clock import at_time
from tests.support.tables import ids_of


def after(table, millis):
    """The same table so much later."""

    class Ahead(SystemClock):
        def now_millis(self):
            return super().now_millis() + millis

    return at_time(table, Ahead())


def files_of(table, folder):
    return sorted(info.path.rpartition("/")[2] for info in table.context.storage.list(folder))


def pins_of(table):
    return [name for name in table.tags(include_internal=True) if name.startswith("anabranch-pin-")]


def own_tags(table):
    return [name for name in table.tags(include_internal=True) if name.startswith("anabranch-savepoint-")]


def check_whole(table, rows_of):
    """What holds at every moment: each savepoint reads its rows, and a tag keeps them from other engines."""
    pinned = {table.tag(name).snapshot.stamp for name in table.tags(include_internal=True)}
    for savepoint in table.savepoints():
        assert savepoint.saved_snapshot.stamp in pinned
        assert ids_of(table.at(f"savepoint.{savepoint.id}")) == rows_of(savepoint.saved_snapshot_id)
        assert len(savepoint.data_manifests(table.context.manifests)) == savepoint.saved_snapshot_id


def check_settled(table):
    """What holds when nothing is left to put in order."""
    assert own_tags(table) == sorted(s.pin for s in table.savepoints())
    assert pins_of(table) == []


def fresh(table):
    """Without what this process remembers of manifests."""
    from anabranch.kernel.log.cache import MetadataCache

    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def rows_of(snapshot):
    return list(range(snapshot))


def branch_of(table, name):
    """A branch as other engines make it: the newest snapshot and the schema, copied."""
    context = table.context
    for path in ("schema/schema-0", "snapshot/snapshot-6"):
        context.storage.put(f"branch/branch-{name}/{path}", context.storage.get(path))
    return table.branch(name)

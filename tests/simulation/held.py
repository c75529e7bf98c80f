"""What holds on to snapshots in a simulated table: tags, savepoints, consumers; and what was damaged, or is gone."""

import json
import re
from collections import Counter

from tests.simulation.process import Violation
from tests.simulation.walk import stamp_of

_GOING = "anabranch-going-"


def _without_names(data):
    """A tag without what only tells it, or its snapshot, from another: no checksum holds that, so a bit of it is a guess."""
    return re.sub(rb'"(anabranch.mark|uuid)": "[^\n]*"\n', b"", data.replace(b'",\n', b'"\n'))


def act_of(change):
    """The act that made a change; None for the world itself."""
    return None if change.by is None else change.by.act


class Held:
    """The part of the model that knows of references, by what was acknowledged of them."""

    def __init__(self, world, root):
        self.world, self.root = world, root
        self.tags = {}
        """Content of tags that were acknowledged, by path."""
        self.tagged_at = {}
        """When they were made, by the true time."""
        self.savepoints = {}
        """(saved snapshot, full list) as content, of savepoints that were acknowledged, by number."""
        self.consumers = {}
        """(step since which it wants so much, first snapshot that it wants), by name."""
        self.damaged = {}
        """Files in which a bit was changed, as they were before."""
        self._own = set()
        """Files that handles of a table that is gone have put."""

    def forget_all(self):
        """The table is gone, with all that held on to it."""
        self.tags, self.tagged_at, self.savepoints, self.consumers = {}, {}, {}, {}

    def tag_acknowledged(self, tag, at):
        """A tag was made, begun at that time: from now on it is readable until it is removed on purpose."""
        path = f"{self.root}/tag/tag-{tag.name}"
        found = self.world.store.objects.get(path)
        if found is not None:
            content = json.loads(found.data)
            if content.get("anabranch.mark") != tag.mark:
                return  # it was removed on purpose before its maker heard of it, and this is another of its name
            if self.is_broken(stamp_of(content)):
                return  # another engine was removing it already, files first: nobody can know
            self.tags[path], self.tagged_at[path] = content, at
            for missing in self._lost(stamp_of(content), content):
                raise Violation(f"tag {tag.name} was made, but lacks {missing}")

    def savepoint_acknowledged(self, number):
        """A savepoint was made: from now on it is readable until it is removed on purpose."""
        path, objects = f"{self.root}/savepoint/savepoint-{number}", self.world.store.objects
        found = objects.get(path)
        if found is None or f"{path}.deleted" in objects:
            return  # removed before its maker was told; whoever was to make one of that number may have left its file
        if number in self.savepoints:
            raise Violation(f"savepoint {number} was made twice")
        content = json.loads(found.data)
        saved, full = content["savedSnapshot"], {"baseManifestList": content["fullManifestList"]}
        self.savepoints[number] = saved, full
        for stamp, one in ((stamp_of(saved), saved), (full["baseManifestList"], full)):
            for missing in self._lost(stamp, one):
                raise Violation(f"savepoint {number} was made, but lacks {missing}")
            if self.missing(stamp, one):
                continue
            ids = [row for rows in self.walker.rows(one).values() for row in rows]
            if Counter(ids) != Counter(self.rows_of[stamp_of(saved)]):
                raise Violation(f"savepoint {number} holds {sorted(ids)}")

    def tags_left(self):
        """Names of tags that were acknowledged, and of those that could not be taken back, sorted."""
        folder = f"{self.root}/tag/tag-"
        stored = {path.removeprefix(folder) for path in self.world.store.objects if path.startswith(folder)}
        acknowledged = {path.rpartition("tag-")[2] for path in self.tags}
        return sorted(acknowledged | {name for name in stored if not name.startswith("anabranch-")})

    def is_some_set_aside(self):
        """Whether a reference needs what a cleaning has moved away, or the newest snapshot of a writer that died."""
        return any(self.missing(stamp, content) for _, stamp, content in self.refs()) or any(
            self.missing(entry.stamp, entry.content) for entry in self._unfinished()
        )

    def is_some_unreadable(self):
        """Whether a writer slept until its files were purged, put its snapshot, and died before it looked for them."""
        return any(self._lost(entry.stamp, entry.content) for entry in self._unfinished())

    def _unfinished(self):
        """Newest snapshots that nobody was told of, and that lacked files when they were looked at."""
        heads = (line.head for line in self.lines.values() if not line.is_deleted)
        return [e for e in heads if e is not None and e.is_unsettled and not e.act.is_acknowledged]

    def _lost(self, stamp, content):
        """Files that are missing, without those that a cleaning has moved away, which looks again before it ends."""
        if not self.missing(stamp, content):
            return []
        folder = f"{self.root}/.orphans"
        moved = {path[len(folder) + 1 :].partition("/")[2] for path in self.world.store.below(folder)}
        return [path for path in self.missing(stamp, content) if path[len(self.root) + 1 :] not in moved]

    def _referred(self, kind, name, change):
        """A savepoint or a consumer came, moved or went."""
        act, (name, _, mark) = act_of(change), name.partition(".")
        key = name.partition("-")[2]
        if kind == "consumer" and change.new is not None:
            wanted = json.loads(change.new.data)["nextSnapshot"]
            since, before = self.consumers.get(key, (self.world.steps, wanted))
            self.consumers[key] = (since if wanted >= before else self.world.steps), wanted
        elif kind == "consumer":
            if not act.may_forget(kind, name, json.loads(change.old.data)):
                raise Violation(f"{act} removed {name}")
            self.consumers.pop(key, None)
        elif int(key) in self.savepoints and bool(mark) == (change.new is not None):  # its mark, or its end
            saved, _ = self.savepoints.pop(int(key))
            if not act.may_forget(kind, name, {"savedSnapshotId": saved["id"]}):
                raise Violation(f"{act} removed {name}")

    def _check_unread(self, entry, change):
        """Nothing expires that a consumer wanted when the expiry began."""
        for name, (since, wanted) in self.consumers.items():
            if since < change.by.begun and entry.id >= wanted and not change.by.act.is_foreign:
                raise Violation(f"{change.by.act} removed snapshot {entry.id}, which consumer {name} wants")

    def _untagged(self, path, change):
        """A tag went, or was set aside to be looked at: by whoever may remove it, that is as good as removed."""
        folder, _, name = path.rpartition("/tag-")
        if name.startswith(_GOING):  # looked at, it goes, unless it was put back before
            path = f"{folder}/tag-{name.split('-', 8)[8]}"
            if path in self.world.store.objects:
                return
        act = act_of(change)
        if path not in self.tags or act is None:
            return
        if act.may_untag(path, self.tags[path], self.world):
            del self.tags[path]
        elif not self._set_aside(folder, name):
            raise Violation(f"{act} removed {path}")

    def is_some_tag_set_aside(self):
        """Whether a process died before it looked at a tag that it had set aside."""
        return any(self._set_aside(*path.split("/tag-", 1)) for path in self.tags)

    def _set_aside(self, folder, name):
        """Whether a tag of that name was set aside to be looked at."""
        return any(
            path.endswith(f"-{name}")
            for path in self.world.store.objects
            if path.startswith(f"{folder}/tag-{_GOING}")
        )

    def _check_old(self, inner, change):
        """Whoever has a handle of a table that is gone may put files of a commit, and takes them away himself."""
        if change.new is not None and change.old is None and (inner[:9] == "manifest/" or "bucket-" in inner):
            self._own.add(change.path)
        elif change.new is not None or change.path not in self._own:
            raise Violation(f"{act_of(change)} changed {inner} with a handle of a table that is gone")

    def _is_damage(self, change):
        """Whether bits of a file were changed, or put back as they were."""
        act, path = act_of(change), change.path
        if change.old is None or change.new is None:
            self.damaged.pop(path, None)
            return False
        if act is not None and act.is_damage:
            self.damaged[path] = change.old.data
            return True
        whole = self.damaged.pop(path, None)
        if whole is not None and _without_names(change.new.data) != _without_names(whole):
            raise Violation(f"{act} put something else in the place of {path}, in which a bit was changed")
        return whole is not None

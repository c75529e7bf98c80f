"""What people, disks and other engines do to a table behind its back; afterwards `repair` must bring it back."""

import json
from typing import ClassVar

from tests.simulation import acts, branching
from tests.simulation.others import Foreign
from tests.simulation.scenes import Scene


class Damage(acts.Act):
    """Something that nobody should do."""

    is_damage = True

    def delete(self, process, paths):
        for path in paths:
            process.world.store.delete(path, process)


class LoseNewest(Damage):
    """Somebody deletes the newest snapshots by hand."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def __str__(self):
        return f"somebody deletes the {self.count} newest snapshots"

    def do(self, process):
        model = process.world.model
        ids = [entry.id for entry in model.lines[model.main].entries[-self.count :]]
        folder = f"{model.root}/{model.main}".rstrip("/")
        self.delete(process, [f"{folder}/snapshot/snapshot-{number}" for number in reversed(ids)])


class FlipBit(Damage):
    """One bit of a snapshot or tag changes."""

    def do(self, process):
        world = process.world
        files = [
            path
            for path in sorted(world.store.objects)
            if "/snapshot/snapshot-" in path or "/tag/tag-" in path
        ]
        path = world.rng.choice(files)
        data = bytearray(world.store.objects[path].data)
        place = world.rng.randrange(8 * len(data))
        data[place >> 3] ^= 1 << (place & 7)
        world.store.put(path, data, process)
        return f"bit {place} of {path}"


class FastForward(Foreign):
    """Another engine puts a branch in the place of main: what main has since the branch began goes, files are copied."""

    def __init__(self, name):
        super().__init__()
        self.name, self.first = name, 0

    def __str__(self):
        return f"another engine fast-forwards main to {self.name}"

    def do(self, process):
        world = process.world
        store, root, model = world.store, world.model.root, world.model
        branch = f"{root}/branch/branch-{self.name}"
        self.first = model.lines[f"branch/branch-{self.name}"].entries[0].id
        store.delete(f"{root}/snapshot/LATEST", process)
        newer = [entry.id for entry in model.lines[""].entries if entry.id >= self.first]
        for number in reversed(newer):
            store.delete(f"{root}/snapshot/snapshot-{number}", process)
        for path, found in store.below(f"{root}/tag").items():
            if json.loads(found.data)["id"] >= self.first:
                store.delete(path, process)
        for kind in ("snapshot", "schema", "tag"):
            copied = store.below(f"{branch}/{kind}")
            for path in sorted(copied, key=_number):
                store.put(f"{root}/{path[len(branch) + 1 :]}", copied[path].data, process)

    def may_remove_newest(self, entry):
        return entry.id >= self.first

    may_remove_oldest = may_remove_newest

    def may_untag(self, path, content, world):
        return content["id"] >= self.first


class RenameMain(acts.Act):
    """Somebody renames the folder of the branch that is main."""

    def do(self, process):
        world = process.world
        here, there = (f"{world.model.root}/branch/branch-{name}" for name in ("fix", "other"))
        if world.model.main != "branch/branch-fix":
            return "it is not main"
        for path in sorted(world.store.below(here), key=_number):
            world.store.put(there + path[len(here) :], world.store.objects[path].data, process)
        for path in sorted(world.store.below(here), key=_number, reverse=True):
            world.store.delete(path, process)
        return None

    def drops(self, branch):
        return branch == "branch/branch-fix"


class DeleteMain(Damage):
    """Somebody deletes the folder of the branch that is main."""

    def do(self, process):
        world = process.world
        if world.model.main != "branch/branch-fix":
            return "it is not main"
        below = world.store.below(f"{world.model.root}/{world.model.main}")
        self.delete(process, sorted(below, key=_number, reverse=True))
        return None

    def drops(self, branch):
        return branch == "branch/branch-fix"


class Damaged(Scene):
    """A table is damaged, used as it is, and repaired."""

    phases = 3
    sound: ClassVar = {
        "append": 6, "batch": 1, "overwrite": 2, "compact": 2, "expire": 1, "soft": 1, "tag": 2, "read": 1,
        "branch_append": 2,
    }  # fmt: skip
    damaged: ClassVar = {
        "append": 4, "batch": 1, "overwrite": 2, "compact": 2, "expire": 2, "tag": 1, "read": 3, "clean": 2,
    }  # fmt: skip

    def settings(self, rng):
        found = super().settings(rng)
        self.kind = rng.choice(("newest", "newest", "bit", "bit", "forward", "rename", "delete"))
        found.acts, found.power_losses, found.trouble, found.jumps = 6, 0.0, 0.0, 0.0
        self.weights = self.sound
        if self.kind in ("rename", "delete"):
            self.weights = {k: n for k, n in self.sound.items() if k not in ("tag", "expire")}
        return found

    def beginning(self, world):
        yield from super().beginning(world)
        yield branching.CreateBranch("fix")
        yield branching.BranchAppend("fix", world.rows(1))

    def between(self, world, number):
        self.weights = self.damaged if number == 1 else self.sound
        if number == 2:
            yield acts.Repair()
            yield acts.Append(world.rows(1))
            yield acts.Read()
            return
        rng = world.rng
        if self.kind in ("rename", "delete"):
            yield branching.Replace("fix")
            yield acts.Append(world.rows(1))
        yield {
            "newest": lambda: LoseNewest(rng.choice((1, 1, 2, 3, 9))),
            "bit": FlipBit,
            "forward": lambda: FastForward("fix"),
            "rename": RenameMain,
            "delete": DeleteMain,
        }[self.kind]()
        world.now += rng.choice((0, 2 * 86_400_000))

    def _branch_append(self, world, rng):
        return branching.BranchAppend("fix", world.rows(1))

    def ending(self, world):
        yield acts.Read()
        yield acts.Append(world.rows(1))
        yield acts.Compact()
        for _ in range(2):
            world.now += 2 * 86_400_000
            yield acts.CleanOrphans()
        yield acts.Read()


def _number(path):
    """Snapshots by their number, after all else."""
    tail = path.rpartition("snapshot-")[2]
    return int(tail) if tail.isdigit() else 0

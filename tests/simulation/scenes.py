"""What may happen in simulated worlds: which acts, how often, and how bad the machines are."""

from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.catalog.filesystem import FilesystemCatalog
from anabranch.catalog.folders import Identifier
from anabranch.format.schema.ddl import parse_columns
from tests.simulation import acts, branching, others
from tests.simulation.store import View

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LAYOUTS = (
    {},
    {"manifest.merge-min-count": "2", "manifest.full-compaction-threshold-size": "1 kb"},
    {"bucket": "1"},
    {"bucket": "2", "bucket-key": "id"},
)
EAGER = {"compaction.min.file-num": "2", "compaction.max.file-num": "3", "manifest.compression": "null"}


@dataclass
class Settings:
    """How a world is."""

    layout: dict
    acts: int = 10
    """How many are done in all."""
    slots: int = 3
    """How many processes work at once."""
    pausing: float = 0.01
    trouble: float = 0.0
    fates: tuple = ("die",)
    jumps: float = 0.0
    wrong_clocks: float = 0.0
    power_losses: float = 0.0
    skews: tuple = (0,)
    zones: tuple = (0,)
    tolerance: int = 1_000
    """How much the clocks of machines may differ, in milliseconds."""
    has_folders: bool = True
    weights: dict = field(default_factory=dict)

    @property
    def is_queue(self):
        return "bucket" in self.layout


class Scene:
    """Writers, readers, expiry, rollback and tags on main."""

    weights: ClassVar = {
        "append": 8, "batch": 2, "overwrite": 1, "compact": 1, "expire": 2, "rollback": 2, "soft": 1,
        "tag": 2, "untag": 1, "read": 1,
    }  # fmt: skip

    phases = 1
    """How often acts are done; all have come to their end before `between`."""

    def between(self, world, number):
        """What is done before a phase, when nobody else works."""
        return ()

    def settings(self, rng):
        trouble = rng.choice((0.0, 0.002, 0.005, 0.02))
        return Settings(
            layout=rng.choice(LAYOUTS),
            acts=rng.choice((6, 10, 14)),
            slots=rng.choice((2, 3, 4)),
            pausing=rng.choice((0.0, 0.01, 0.03)),
            trouble=trouble,
            fates=rng.choice(
                (
                    ("die", "die after"),
                    ("fail", "lose request", "lose answer"),
                    ("die", "die after", "fail", "lose request", "lose answer"),
                )
            ),
            jumps=rng.choice((0.0, 0.02)),
            power_losses=rng.choice((0.0, 0.0, 0.01)),
        )

    def beginning(self, world):
        yield Create(world.settings.layout)
        for _ in range(world.rng.choice((1, 2, 4))):
            yield acts.Append(world.rows(1))

    def act(self, world):
        rng = world.rng
        kind = rng.choices([*self.weights], [*self.weights.values()])[0]
        return getattr(self, f"_{kind}")(world, rng)

    def _append(self, world, rng):
        return acts.Append(world.rows(rng.choice((1, 1, 2))))

    def _batch(self, world, rng):
        return acts.Batch(world.rows(1))

    def _overwrite(self, world, rng):
        return acts.Overwrite(world.rows(1))

    def _compact(self, world, rng):
        return acts.Compact()

    def _expire(self, world, rng):
        return acts.Expire(rng.choice((2, 2, 3)))

    def _rollback(self, world, rng):
        return acts.Rollback(rng.choice((1, 2, 3)))

    def _soft(self, world, rng):
        return acts.SoftRollback(rng.choice((1, 2)))

    def _tag(self, world, rng):
        return acts.CreateTag(f"t{rng.randrange(3)}", rng.choice((None, None, HOUR)))

    def _untag(self, world, rng):
        return acts.DeleteTag(f"t{rng.randrange(3)}")

    def _read(self, world, rng):
        return acts.Read()

    def _clean(self, world, rng):
        return acts.CleanOrphans()

    def _settling(self, world):
        """What those left to do who died before they looked again at what they had done."""
        if world.model.is_some_unreadable():
            yield acts.Repair()
        elif world.model.is_some_set_aside():
            yield acts.CleanOrphans()

    def ending(self, world):
        """When all is quiet, everything can be done."""
        yield from self._settling(world)
        yield acts.Read()
        yield acts.Append(world.rows(1))
        yield acts.Compact()
        yield acts.Append(world.rows(1))
        if world.model.is_some_tag_set_aside():
            yield acts.Expire(2)  # one died before it looked at what it had set aside
        for name in world.model.tags_left():
            yield acts.DeleteTag(name)
        world.now += 2 * DAY
        yield acts.Expire(None, "1 d", left=2)
        for _ in range(2):
            world.now += 2 * DAY
            yield acts.CleanOrphans()
        yield acts.Read()


class Clocks(Scene):
    """Clocks that differ and jump, time zones, days that pass, and the cleaning of orphans."""

    weights: ClassVar = {**Scene.weights, "tag": 4, "clean": 4, "read": 0}

    def settings(self, rng):
        found = super().settings(rng)
        found.jumps = 0.06
        if rng.random() < 0.5:
            found.zones = (0, 8 * HOUR, -7 * HOUR)
        else:
            found.skews = (0, 0, MINUTE, -HOUR, 2 * DAY, -2 * DAY, 365 * DAY)
            found.wrong_clocks = 0.02
        return found

    def _tag(self, world, rng):
        return acts.CreateTag(f"t{rng.randrange(3)}", rng.choice((None, "7 h", "2 d")))


class Cleaning(Clocks):
    """Machines whose clocks are days ahead clean orphans while others write."""

    weights: ClassVar = {"append": 5, "batch": 2, "overwrite": 2, "compact": 1, "clean": 8}

    def settings(self, rng):
        found = super().settings(rng)
        found.zones, found.skews, found.wrong_clocks = (0,), (0, 0, 2 * DAY), 0.0
        found.jumps, found.pausing, found.trouble, found.acts = 0.0, 0.03, 0.0, 14
        return found


class Rollbacks(Clocks):
    """Rollbacks that take days, while what they bring back expires."""

    weights: ClassVar = {"soft": 4, "expire": 5, "overwrite": 1}

    def settings(self, rng):
        found = super().settings(rng)
        found.jumps, found.pausing, found.acts, found.trouble = 0.15, 0.04, 7, 0.0
        return found

    def beginning(self, world):
        yield from super().beginning(world)
        for _ in range(4):
            yield acts.Overwrite(world.rows(1))

    def _soft(self, world, rng):
        return acts.SoftRollback(rng.choice((2, 3)))

    def _expire(self, world, rng):
        return acts.Expire(2)


class Others(Scene):
    """Other engines write to the table, expire it and roll it back."""

    weights: ClassVar = {
        **Scene.weights, "foreign_append": 4, "foreign_tidy": 1, "foreign_expire": 2, "foreign_untag": 1,
        "foreign_rollback": 2,
    }  # fmt: skip

    def settings(self, rng):
        found = super().settings(rng)
        found.layout = rng.choice(LAYOUTS[:2])
        return found

    def _foreign_append(self, world, rng):
        return others.ForeignAppend(world.rows(1))

    def _foreign_tidy(self, world, rng):
        return others.ForeignTidy()

    def _foreign_expire(self, world, rng):
        return others.ForeignExpire(rng.choice((2, 3)))

    def _foreign_untag(self, world, rng):
        return others.ForeignDeleteTag(f"t{rng.randrange(3)}")

    def _foreign_rollback(self, world, rng):
        return others.ForeignRollback(rng.choice((1, 2, 3)))


class Branches(Scene):
    """Branches are made, written, merged, put in the place of main and deleted."""

    weights: ClassVar = {
        "append": 4, "compact": 1, "expire": 2, "read": 1, "fork": 5, "branch_append": 6, "branch_compact": 1,
        "branch_expire": 1, "merge": 4, "replace": 2, "undo": 1, "unbranch": 1, "maintain": 1,
    }  # fmt: skip

    def settings(self, rng):
        found = super().settings(rng)
        found.acts = rng.choice((10, 16))
        found.power_losses = 0.0
        return found

    def beginning(self, world):
        yield from super().beginning(world)
        yield branching.CreateBranch("fix")
        yield branching.BranchAppend("fix", world.rows(1))

    def _name(self, rng):
        return rng.choice(("fix", "fix", "new"))

    def _fork(self, world, rng):
        return branching.CreateBranch(self._name(rng))

    def _branch_append(self, world, rng):
        return branching.BranchAppend(self._name(rng), world.rows(1))

    def _branch_compact(self, world, rng):
        return branching.BranchCompact(self._name(rng))

    def _branch_expire(self, world, rng):
        return branching.BranchExpire(self._name(rng), 2)

    def _merge(self, world, rng):
        return branching.Merge(self._name(rng))

    def _replace(self, world, rng):
        return branching.Replace(self._name(rng))

    def _undo(self, world, rng):
        return branching.UndoReplace()

    def _unbranch(self, world, rng):
        return branching.DeleteBranch(self._name(rng))

    def _maintain(self, world, rng):
        return branching.Maintain()

    def ending(self, world):
        yield from self._settling(world)
        yield acts.Read()
        yield acts.Append(world.rows(1))
        yield branching.SettleBranches()
        yield acts.Append(world.rows(1))
        yield acts.Read()
        world.now += 3 * DAY
        yield branching.Maintain()
        yield acts.Read()


class Merges(Branches):
    """Merges are killed, main is replaced by another branch, and what they began after expires."""

    weights: ClassVar = {
        "append": 2, "expire": 5, "fork": 4, "branch_append": 5, "branch_expire": 1, "merge": 6, "replace": 4,
    }  # fmt: skip

    def settings(self, rng):
        found = super().settings(rng)
        found.acts, found.trouble, found.fates = 16, 0.01, ("die", "die after", "lose answer")
        return found

    def _replace(self, world, rng):
        return branching.Replace("new")


class Create(acts.Act):
    """Makes the table."""

    def __init__(self, layout):
        super().__init__()
        self.layout = layout

    def do(self, process):
        catalog = FilesystemCatalog(View(process.world.store, process), runtime=process.runtime)
        catalog.create_table(
            Identifier.parse("db.t"),
            parse_columns("id BIGINT NOT NULL, p STRING"),
            partition_by=["p"],
            options={**EAGER, **self.layout},
        )

"""A disk that is full: what fails for want of room loses nothing, and expiry makes room."""

from typing import ClassVar

from tests.simulation import acts
from tests.simulation.scenes import Scene
from tests.simulation.store import blocks_of


def fill(world, spare=0):
    """From now on the disk has room for so many blocks more."""
    world.store.blocks = sum(blocks_of(len(found.data)) for found in world.store.objects.values()) + spare
    world.tell(None, f"the disk has {spare} blocks left")


class ExpireOnFullDisk(acts.Expire):
    """Somebody else takes the last block; then old snapshots are removed to make room."""

    def do(self, process):
        fill(process.world)
        return super().do(process)


class Disks(Scene):
    """A small disk runs full."""

    weights: ClassVar = {
        "append": 6, "batch": 1, "overwrite": 4, "compact": 2, "expire": 2, "soft": 1, "tag": 1, "untag": 1, "read": 1,
    }  # fmt: skip
    phases = 2

    def settings(self, rng):
        found = super().settings(rng)
        found.power_losses = 0.0
        return found

    def act(self, world):
        if world.store.blocks is None:
            fill(world, world.rng.choice((3, 20, 60)))
        return super().act(world)

    def between(self, world, number):
        world.store.blocks = None
        for _ in range(4):
            yield acts.Overwrite(world.rows(1))
        yield ExpireOnFullDisk(2, left=2)
        world.store.blocks = None
        yield acts.Append(world.rows(1))
        yield acts.Read()

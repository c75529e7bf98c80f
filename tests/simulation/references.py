"""Savepoints, consumers, and overwrites that must not drop what came after they read."""

from typing import ClassVar

from anabranch.kernel.log.consumers import forget_consumer
from anabranch.streaming.consumers import consumed_position
from tests.simulation.acts import Act, Overwrite, part_of, table_of
from tests.simulation.process import Violation
from tests.simulation.scenes import Scene


class OverwriteUnchanged(Overwrite):
    """Reads, and replaces partitions unless somebody changed them since."""

    since = None

    def __str__(self):
        return f"overwrite with {list(self.rows)} unless changed since {self.since and self.since.id}"

    def do(self, process):
        table = process.table
        self.since = table.snapshot
        process.sleep(0.01)
        return table.overwrite(table_of(self.rows), if_unchanged_since=self.since).id

    def rows_after(self, content, before, model):
        if self.since is None:  # it had found none, so there is no condition
            return super().rows_after(content, before, model)
        gone = {part_of(row) for row in self.rows}
        now, then = (
            sorted(row for row in rows if part_of(row) in gone)
            for rows in (before, model.rows_of[self.since.stamp])
        )
        if now != then:
            raise Violation(f"{self} replaced {now}, but had read {then}")
        return super().rows_after(content, before, model)


class CreateSavepoint(Act):
    """Keeps the newest snapshot for good, or one that may be about to expire."""

    def __init__(self, back=0):
        super().__init__()
        self.back = back

    def __str__(self):
        return f"create a savepoint {self.back} back"

    def do(self, process):
        table = process.table
        return table.create_savepoint(max(1, table.snapshot.id - self.back) if self.back else None).id

    def done(self, process, result):
        super().done(process, result)
        process.world.model.savepoint_acknowledged(result)


class DeleteSavepoint(Act):
    """Lets go of a savepoint."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def __str__(self):
        return f"delete savepoint {self.number}"

    def do(self, process):
        process.table.delete_savepoint(self.number)

    def may_forget(self, kind, name, content):
        return kind == "savepoint" and name == f"savepoint-{self.number}"


class Consume(Act):
    """A stream under that name begins, or goes on."""

    def __init__(self, name, behind):
        super().__init__()
        self.name, self.behind = name, behind

    def __str__(self):
        return f"stream {self.name} begins {self.behind} behind"

    def do(self, process):
        table = process.table
        wanted = max(1, table.snapshot.id + 1 - self.behind)
        options = {"scan.mode": "from-snapshot", "scan.snapshot-id": str(wanted)}
        _, position = consumed_position(table.context, self.name, options)
        return position.snapshot

    def failed(self, process, error):
        """What it wants may have expired, or another table may have had a consumer of that name."""

    def may_forget(self, kind, name, content):
        """Its own, where what it was to read was rolled back meanwhile: then the stream does not begin."""
        return kind == "consumer" and name == f"consumer-{self.name}"


class Forget(Act):
    """Lets go of what a consumer kept."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def __str__(self):
        return f"forget consumer {self.name}"

    def do(self, process):
        forget_consumer(process.table.context, self.name)

    def may_forget(self, kind, name, content):
        return kind == "consumer" and name == f"consumer-{self.name}"


class ReadReferences(Act):
    """Reads what every tag and savepoint holds."""

    def __str__(self):
        return "read all tags and savepoints"

    def do(self, process):
        model = process.world.model
        wanted = {path.rpartition("tag-")[2]: content for path, content in model.tags.items()}
        wanted |= {f"savepoint.{number}": saved for number, (saved, _) in model.savepoints.items()}
        for name, content in wanted.items():
            rows = process.table.at(name).scan().to_arrow()["id"].to_pylist()
            if sorted(rows) != sorted(model.rows_of[model.stamp_of(content)]):
                raise Violation(f"{name} holds {sorted(rows)}")
        return len(wanted)


class References(Scene):
    """Tags, savepoints and consumers hold on to what expiry would remove; overwrites name what they have read."""

    weights: ClassVar = {
        "append": 6, "unchanged": 5, "overwrite": 1, "compact": 1, "expire": 5, "rollback": 1, "soft": 1, "tag": 1,
        "untag": 1, "read": 1, "save": 4, "unsave": 1, "consume": 3, "forget": 1, "clean": 1,
    }  # fmt: skip

    def settings(self, rng):
        found = super().settings(rng)
        found.power_losses = 0.0
        return found

    def _unchanged(self, world, rng):
        return OverwriteUnchanged(world.rows(1))

    def _save(self, world, rng):
        return CreateSavepoint(rng.choice((0, 0, 1)))

    def _unsave(self, world, rng):
        return DeleteSavepoint(rng.choice((1, 2, 3)))

    def _consume(self, world, rng):
        return Consume(rng.choice("xy"), rng.choice((0, 1, 2, 3)))

    def _forget(self, world, rng):
        return Forget(rng.choice("xy"))

    def ending(self, world):
        yield ReadReferences()
        for name in [*world.model.consumers]:
            yield Forget(name)
        yield from super().ending(world)
        yield ReadReferences()
        for number in [*world.model.savepoints]:
            yield DeleteSavepoint(number)

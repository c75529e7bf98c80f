"""A table is dropped and another made under its name; handles of the first are still about."""

from typing import ClassVar

from anabranch.catalog.filesystem import FilesystemCatalog
from anabranch.catalog.folders import Identifier
from tests.simulation import acts, references
from tests.simulation.scenes import Create
from tests.simulation.store import View


class Recreate(Create):
    """Drops the table and makes it again, with a row; whoever has a handle of the first keeps it."""

    def __init__(self, layout, rows):
        super().__init__(layout)
        self.rows = rows

    def do(self, process):
        world = process.world
        world.old_handles.append(process.table.context)
        world.model.is_away = True
        catalog = FilesystemCatalog(View(world.store, process), runtime=process.runtime)
        catalog.drop_table(Identifier.parse("db.t"))
        super().do(process)
        world.model.begin_again()
        world.open(process).append(acts.table_of(self.rows))

    def rows_after(self, content, before, model):
        return (*before, *self.rows)


class Recreated(references.References):
    """Half of the processes have a handle of a table that was dropped: they change nothing in the new one."""

    weights: ClassVar = {
        **references.References.weights, "soft": 2, "untag": 3, "unsave": 3, "forget": 3, "clean": 4, "rollback": 2,
    }  # fmt: skip
    phases = 2

    def settings(self, rng):
        found = super().settings(rng)
        found.acts = 8
        return found

    def between(self, world, number):
        yield Recreate(world.settings.layout, world.rows(1))
        for name in ("t0", "t1"):
            yield acts.CreateTag(name)
            yield acts.Append(world.rows(1))
        yield references.CreateSavepoint()
        yield references.Consume("x", 0)
        world.now += 2 * 86_400_000

"""Random histories of a lake, made by seed, with a note of every commit that was ever seen in a branch of its own."""

import random

from anabranch.errors import AnabranchError
from anabranch.kernel.log.archive import is_own
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.replacement.release import release_due
from anabranch.lake import Lake
from anabranch.lineage.commit import CommitRef
from anabranch.storage.open import open_storage
from tests.support.chance import Chance
from tests.support.tables import SCHEMA, rows

NAMES = ("db.a", "db.b", "db.c")
REFUSED = "refused"


class World:
    """A lake in which things happen; `seen` is what lineage must know at the end, by branch and id the stamp."""

    def __init__(self, url, seed):
        self.rng = random.Random(seed)
        self.chance = Chance(seed)
        self.lake = Lake(open_storage(url), runtime=self.chance.runtime)
        for name in NAMES:
            self.lake.create_table(name, SCHEMA, options={"branch.replaced-main.time-retained": "1 ms"})
        self.seen = {}
        self.done = []
        self._next = 0

    def step(self):
        """One thing more."""
        act = self.rng.choice(self._ACTS)
        try:
            act(self)
        except AnabranchError as error:
            self.done.append((act.__name__, REFUSED, error.message[:60]))
        else:
            self.done.append((act.__name__,))
        self.look()

    def look(self):
        """Note what is there."""
        for name in NAMES:
            for branch in self.contexts(self.lake.table(name)):
                self._look(branch)

    def contexts(self, table):
        """Every branch of a table by its folder."""
        context = table.context
        names = [None, *branch_names(context)]
        return [context.on_branch(name) for name in names]

    def _look(self, branch):
        known = self.seen.setdefault(branch.branch_uuid, {})
        ids = [number for number in branch.snapshots.ids() if is_own(branch, number)]
        for number in ids:
            if number not in known:
                known[number] = branch.snapshots.get(number).stamp

    # What happens

    def _table(self):
        return self.lake.table(self.rng.choice(NAMES))

    def _place(self):
        """A table, or a branch of it."""
        table = self._table()
        branches = table.branches()
        return table.branch(self.rng.choice(branches)) if branches and self.rng.random() < 0.5 else table

    def _rows(self):
        self._next += 3
        return rows(self._next, 2)

    def append(self):
        place = self._place()
        for _ in range(self.rng.randint(1, 4)):
            place.append(self._rows())

    def run(self):
        sink, source = self._place(), self._place()
        with self.lake.job(self.rng.choice(("copy", "clean", "join"))) as job:
            source.scan().to_arrow()
            if self.rng.random() < 0.3:
                job.read_from("s3://raw", kind="files", end={"logOffset": self._next})
            if self.rng.random() < 0.3:
                sink.overwrite(self._rows())
            else:
                sink.append(self._rows())

    def compact(self):
        self._place().compact(full=True)

    def roll_back(self):
        place = self._place()
        ids = place.context.snapshots.ids()
        place.rollback(self.rng.choice(ids or [1]))

    def roll_back_for_good(self):
        place = self._place()
        context = place.context
        ids = context.snapshots.ids()
        target = self.rng.choice(ids[-4:] or [1])
        place.rollback(target, destructive=True, force=True)
        known = self.seen[context.branch_uuid]
        for number in [number for number in known if number > target]:
            del known[number]

    def branch(self):
        table = self._table()
        if len(table.branches()) < 3:
            self._next += 1
            table.create_tag(f"tag{self._next}")
            table.create_branch(f"b{self._next}", f"tag{self._next}")

    def merge(self):
        table = self._table()
        table.merge_branch(self.rng.choice(table.branches() or ["none"]), allow_source_overlap=True)

    def replace(self):
        table = self._table()
        mode = self.rng.choice(("pointer", "pointer", "commit"))
        table.replace_main_branch(self.rng.choice(table.branches() or ["none"]), mode=mode, force=True)

    def undo(self):
        self._table().undo_replace()

    def drop_replaced(self):
        for name in NAMES:
            release_due(self.lake.table(name).context, 0)

    def delete(self):
        table = self._table()
        table.delete_branch(self.rng.choice(table.branches() or ["none"]))

    def expire(self):
        self._place().expire_snapshots(retain_max=self.rng.randint(2, 4), retain_min=2, older_than=10**15)

    _ACTS = (
        *[append] * 4, *[run] * 4, compact, roll_back, roll_back_for_good, *[branch] * 3, merge, *[replace] * 2, undo,
        drop_replaced, delete, *[expire] * 2,
    )  # fmt: skip


def told(store):
    """All that a store of commits answers, as values that can be compared."""
    found = {"flows": list(store.flows()), "jobs": list(store.jobs()), "lines": list(store.lines())}
    for line in store.lines():
        branch, newest = line.branch_uuid, store.newest(line.branch_uuid)
        everything = (branch, 1, newest)
        refs = [CommitRef(branch, number) for number in range(1, newest + 1)]
        found[branch] = {
            "newest": newest,
            "commits": [store.commit(ref) for ref in refs],
            "later": list(store.commits(branch, 3)),
            "breaks": list(store.breaks(branch)),
            "gaps": list(store.gaps(branch)),
            "rowless": list(store.rowless(*everything)),
            "unsaid": list(store.unsaid(*everything)),
            "problems": list(store.problems(*everything)),
            "reads": list(store.reads(*everything)),
            "other_reads": list(store.other_reads(*everything)),
            "inputs": sorted(store.newest_inputs(*everything), key=repr),
            "early inputs": sorted(store.newest_inputs(branch, 1, max(newest - 2, 1)), key=repr),
            "readers": [sorted(store.readers(branch, at, at + 1)) for at in range(newest + 1)],
        }
    return found

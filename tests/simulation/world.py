"""A simulated world: a table, those who work on it, and what is wrong with their machines, all by one seed."""

import threading
from dataclasses import replace
from itertools import islice
from random import Random
from unittest import mock

import anabranch
from anabranch.errors import CorruptTableError
from anabranch.kernel.log import merge_log
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.provenance import notes
from tests.simulation.model import Model
from tests.simulation.process import Killed, Known, Process, Violation
from tests.simulation.store import Store, View

ROOT = "db.db/t"
BEGIN = 1_700_000_000_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
_PATIENCE = 60


class World:
    """One seed's table and processes. `play` lets them work; a `Violation` says what went wrong, and `told` why."""

    def __init__(self, seed, scene, *, keep_trace="acts", known=()):
        self.seed, self.scene, self.known = seed, scene, known
        self.rng = Random(seed)
        self.told, self.keep_trace = [], keep_trace
        self.steps = 0
        self.now = BEGIN
        self.violation = None
        self.back = threading.Semaphore(0)
        self.is_calm = True
        self.settings = scene.settings(self.rng)
        self.is_queue = self.settings.is_queue
        self.skews, self.zones = self.settings.skews, self.settings.zones
        self.pausing, self.trouble, self.fates = (
            self.settings.pausing,
            self.settings.trouble,
            self.settings.fates,
        )
        self.processes, self.next_row, self.number = [], 0, 0
        self.again = []
        """Acts of processes that died which others do again."""
        self.old_handles = []
        """Handles of tables that were dropped."""
        self.model, self.cache = None, MetadataCache()
        self.store = Store(lambda: int(self.now), self._saw)
        self.model = Model(self, ROOT)
        self._begin()

    # Parts

    def open(self, process):
        """The table as a process has it that opens it now."""
        view = View(self.store, process, ROOT, has_folders=self.settings.has_folders)
        process.is_old = not self.is_calm and bool(self.old_handles) and self.rng.random() < 0.5
        if process.is_old:
            old = self.rng.choice(self.old_handles)
            return anabranch.Table(replace(old, storage=view, runtime=process.runtime, cache=MetadataCache()))
        context = TableContext(view, "db.t", None, process.runtime, cache=MetadataCache())
        return anabranch.Table(_opened(context))

    def rows(self, count):
        first = self.next_row
        self.next_row += count
        return tuple(range(first, first + count))

    # Playing

    def play(self, most_steps=4_000):
        """Let everybody work to the end, then look whether all is well. Raises `Violation`."""
        # Every merge leaves notes and a summary, as those of long histories do.
        with mock.patch.object(notes, "WORTH", 1), mock.patch.object(merge_log, "WORTH", 1):
            return self._play(most_steps)

    def _play(self, most_steps):
        try:
            for number in range(self.scene.phases):
                for act in self.scene.between(self, number) if number else ():
                    self.run(act)
                self._work(most_steps)
                if self.violation is not None:
                    break
            if self.violation is None:
                self._end()
        finally:
            self._kill_all()
        if self.violation is not None:
            raise self.violation
        return self

    def _work(self, most_steps):
        """Let everybody work until all that was to be done in a phase is done."""
        self.is_calm = False
        budget = self.settings.acts
        most_steps += self.steps
        while budget or any(not p.is_done for p in self.processes):
            self.processes = [p for p in self.processes if not p.is_done]
            while budget and len(self.processes) < self.settings.slots:
                count = min(budget, self.rng.choice((1, 2, 3)))
                budget -= count
                again, self.again = self.again, []
                self._start([*again, *(self.scene.act(self) for _ in range(count))])
            self._go_on()
            self._happen()
            if self.violation is None and self.steps > most_steps:
                self.fail(Violation(f"nobody comes to an end: {[str(p.act) for p in self.processes]}"))
            if self.violation is not None:
                return
        self.processes = [p for p in self.processes if not p.is_done]

    def run(self, act):
        """One act by a process of its own to which nothing happens."""
        was, self.is_calm = self.is_calm, True
        process = self._start([act])
        process.skew, process.zone = 0, 0
        process.burst = 10**9
        process.turn.release()
        assert self.back.acquire(timeout=_PATIENCE), f"{act} hangs"
        process.thread.join()
        self.processes.remove(process)
        self.is_calm = was
        if self.violation is not None:
            raise self.violation
        return act

    def hand_over(self, process):
        """A process waits until it is its turn again."""
        self.back.release()
        process.turn.acquire()
        if process.is_dead:
            raise Killed

    def step(self, process, call, path):
        self.steps += 1
        self.now += 1
        if self.keep_trace == "calls":
            self.tell(process, f"  {call} {path}")

    def tell(self, process, what):
        if self.keep_trace:
            name = "world" if process is None else process.name
            self.told.append(f"{self.steps:5} {self.now - BEGIN:>9} {name}: {what}")

    def fail(self, error):
        if self.violation is None:
            self.violation = error

    def is_critical(self, call, path):
        """Calls at which much is decided."""
        if call == "put_if_absent":
            return True
        return call in {"delete", "delete_many"} and "bucket-" not in path

    def check_head(self, branch):
        """Whoever opens the table now must find the newest snapshot of its history."""
        if self.model is None:
            return
        line = self.model.lines.get(branch)
        if line is None or line.is_deleted:
            return
        name = branch.rpartition("branch-")[2] or None
        view = View(self.store, _NOBODY, ROOT)
        try:
            snapshots = TableContext(view, "db.t", name, cache=self.cache).snapshots
            found = snapshots.head()
        except CorruptTableError as error:
            if self.model.damaged:
                return
            raise Violation(f"nobody can tell the newest snapshot of '{branch}': {error}") from error
        expected = line.head
        if (None if found is None else found.stamp) != (None if expected is None else expected.stamp):
            is_alone = found is not None and len([*islice(snapshots.backwards(found), 2)]) == 1
            kind = Known if self._is_astray_above_a_gap(line, found, branch, is_alone) else Violation
            raise kind(
                f"readers find snapshot {found and found.id} of '{branch}', by {found and found.commit_user}; the newest is "
                f"{expected and expected.id} by {expected and expected.act}"
            )

    def _is_astray_above_a_gap(self, line, found, branch, is_alone):
        """Whether it stands above what another engine rolled back: nothing tells that from a lost snapshot.

        Put by another engine it stays there; what a writer of ours has put, it takes away if it lives. But if another engine has
        expired the history below, what it put is all there is, and a writer of ours goes on with that. Another late one may have
        the number below: what was found *is alone* if that is not what it was built on.
        """
        if "astray" not in self.known or found is None:
            return False

        def is_there(number):
            return f"{ROOT}/{branch}/snapshot/snapshot-{number}".replace("//", "/") in self.store.objects

        act, below = line.astray.get(found.id), found.id - 1
        if act is not None and not (line.head and is_there(line.head.id)) and is_there(below):
            act, below = line.astray.get(below), below - 1
        is_late = act is not None and (act.is_rescued or line.is_cut_by_another_engine)
        # One of another engine names no parent, so what is astray below it may be what it was built on.
        while act is not None and act.is_rescued and below in line.astray and is_there(below):
            below -= 1
        return is_late and (is_alone or not is_there(below))

    def is_hint_of_what_another_engine_rolled_back(self, error):
        """Whether a late writer of another engine pointed the hint at its snapshot after that had been rolled back.

        Nothing tells that from a newest snapshot that was deleted by hand: writers are refused until `repair`.
        """
        is_refused = (
            isinstance(error, CorruptTableError) and "by the hint, but it is not there" in error.message
        )
        return "astray" in self.known and is_refused and self.model.lines[""].is_cut_by_another_engine

    def _start(self, acts):
        self.number += 1
        process = Process(self, f"p{self.number}", acts)
        process.burst = self.rng.choice((0, 2, 10, 50))
        self.processes.append(process)
        process.thread.start()
        return process

    def _go_on(self):
        """One process works, until it waits."""
        alone = [p for p in self.processes if p.act is not None and p.act.is_alone]
        if alone:
            alone[0].paused_until = 0
            self.now = max(self.now, alone[0].wakes)
            return self._let(alone[0])
        ready = [p for p in self.processes if p.paused_until <= self.steps and p.wakes <= self.now]
        if not ready:
            sleeping = min(self.processes, key=lambda p: (p.paused_until > self.steps, p.wakes))
            sleeping.paused_until = 0
            self.now = max(self.now, sleeping.wakes)
            ready = [sleeping]
        return self._let(self.rng.choice(ready))

    def _let(self, process):
        process.burst = self.rng.choice((0, 0, 1, 3, 10, 40))
        process.turn.release()
        if not self.back.acquire(timeout=_PATIENCE):
            self.fail(Violation(f"{process.act} hangs"))

    def _happen(self):
        """What befalls the world itself."""
        luck = self.rng.random()
        if luck < self.settings.jumps:
            ahead = self.rng.choice((SECOND, MINUTE, HOUR, 7 * HOUR, DAY, 3 * DAY))
            self.now += ahead
            self.tell(None, f"{ahead // SECOND} s pass")
        elif luck < self.settings.jumps + self.settings.wrong_clocks:
            process = self.rng.choice(self.processes)
            process.skew = self.rng.choice(self.skews)
            self.tell(None, f"the clock of {process.name} is {process.skew} ms off")
        elif luck < self.settings.jumps + self.settings.wrong_clocks + self.settings.power_losses:
            self.tell(None, "power is lost")
            self._kill_all()
            self.store.lose_power(self.rng)

    def _kill_all(self):
        for process in self.processes:
            process.is_dead = True
            while not process.is_done:
                process.turn.release()
                if not self.back.acquire(timeout=_PATIENCE):
                    raise Violation(f"{process.act} cannot be killed")

    def _begin(self):
        for act in self.scene.beginning(self):
            self.run(act)

    def _end(self):
        """Nobody works any more: all is as it must be, and everything can be done."""
        self.is_calm = True
        self.store.blocks = None
        self.old_handles = []
        self.tell(None, "the end")
        try:
            for act in self.scene.ending(self):
                self.run(act)
            self.model.check_refs(is_end=True)
        except Violation as error:
            self.fail(error)

    def _saw(self, change):
        self.model.saw(change)


def _opened(context):
    from anabranch.kernel.log.main_branch import main_of

    context = replace(context, known_uuid=context.read_table_uuid())
    return main_of(context)


class _Nobody:
    """Looks without being a process."""

    act = None

    def reach(self, call, path):
        return None

    def is_slow(self, call, path):
        return False


_NOBODY = _Nobody()

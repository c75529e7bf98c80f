"""Processes of a simulated world: threads of which one runs at a time, from one storage call to the next.

At each call the world's dice decide whether the process goes on, waits while others work, is told an error, or dies.
Whatever a dead process would do afterwards is not done: each further call of it ends it again.
"""

import threading
import uuid
from random import Random

from anabranch.errors import AnabranchError
from anabranch.runtime import Runtime

PAUSES = (3, 15, 60, 250)


class Killed(BaseException):
    """The process is dead; no `except` of the product catches that."""


class Violation(AssertionError):
    """Something is not as it must be."""


class Known(Exception):
    """A defect that is not looked for; the world ends there, and nothing is said of it."""


class Process:
    """Does acts one after the other, as somebody else on another machine: clock, time zone and caches of its own."""

    def __init__(self, world, name, acts):
        self.world, self.name, self.acts = world, name, acts
        rng = world.rng
        self.skew = rng.choice(world.skews)
        self.zone = rng.choice(world.zones)
        self.rng = Random(rng.random())
        self.act = None
        self.is_dead = self.is_done = False
        self.paused_until = 0
        self.wakes = 0
        self.burst = 0
        self.begun = 0
        """The step at which the act began."""
        self.turn = threading.Lock()
        self.turn.acquire()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.runtime = Runtime(self, self, self)
        self._table = None
        self.is_old = False
        """Whether its handle is of a table that was dropped before it began."""

    @property
    def table(self):
        """The table, opened once: whoever works on with it later has an old handle."""
        if self._table is None:
            self._table = self.world.open(self)
        return self._table

    # Time and chance, as `Runtime` asks for them

    def now_millis(self):
        self.world.now += 1
        return int(self.world.now) + self.skew

    def monotonic(self):
        return self.world.now / 1000

    def local_offset_millis(self, at_millis):
        return self.zone

    def uuid(self):
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def jitter(self):
        return self.rng.random()

    def sleep(self, seconds):
        self.wakes = self.world.now + seconds * 1000
        self.burst = 0
        self.reach("sleep", "")

    async def pause(self, seconds):
        self.sleep(seconds)

    # Life

    def reach(self, call, path):
        """Before a call: let the world go on; what is to become of the call, or None."""
        world = self.world
        if self.is_dead:
            raise Killed
        if world.is_calm:
            world.step(self, call, path)
            return None
        rng, critical = world.rng, world.is_critical(call, path)
        if rng.random() < world.pausing * (12 if critical else 1):
            self.paused_until = world.steps + rng.choice(PAUSES)
            self.burst = 0
        if self.burst <= 0 and call != "begin":
            world.hand_over(self)
        self.burst -= 1
        world.step(self, call, path)
        luck = rng.random() / (8 if critical else 1)
        if call == "sleep" or luck >= world.trouble:
            return None
        fate = rng.choice(world.fates)
        if fate == "die":
            self.die()
        world.tell(self, f"  {call} {path}: {fate}")
        return fate

    def is_slow(self, call, path):
        """Whether others work while a listing is under way."""
        if self.world.is_calm or self.world.rng.random() < 0.8:
            return False
        self.burst = 0
        self.reach(call, path)
        return True

    def die(self):
        self.is_dead = True
        self.world.tell(self, "  dies")
        raise Killed

    def _run(self):
        self.turn.acquire()
        try:
            while self.acts and not self.is_dead:
                self._do(self.acts.pop(0))
        except Killed:
            self.is_dead = True
            if self.act is not None and self.act.is_repeated:
                self.world.again.append(self.act)
        except Violation as error:
            self.world.fail(error)
        except BaseException as error:
            self.world.fail(error)
        self.is_done = True
        self.world.back.release()

    def _do(self, act):
        self.act, self.begun = act, self.world.steps
        self.world.tell(self, f"begins {act}")
        self.reach("begin", "")
        try:
            result = act.do(self)
        except AnabranchError as error:
            self.world.tell(self, f"{act} failed: {type(error).__name__} {error.message[:150]}")
            act.failed(self, error)
        else:
            if self.is_old and not act.is_harmless_on_old(result):
                raise Violation(f"{act} was done with a handle of a table that is gone")
            self.world.tell(self, f"{act} is done" if result is None else f"{act} is done: {result}")
            act.done(self, result)
        self.act = None

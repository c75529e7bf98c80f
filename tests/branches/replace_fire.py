"""Stages of replacing main at which a process dies."""

import threading
from dataclasses import dataclass, field, replace
from random import Random

import anabranch
from anabranch.kernel.log.cache import MetadataCache
from anabranch.runtime import Runtime
from tests.branches.replacing import Ids, Time
from tests.support.faults import FaultyStorage, run

DECIDING = ("put_if_absent", "put", "delete", "delete_many", "get", "exists")
"""Calls at which another actor may come first; the others read or write what only one knows of."""


class Killed(BaseException):
    """The process of an actor ended."""


@dataclass
class Actor:
    name: str
    work: object
    """Called with the table as this actor has it."""
    dies_at: int | None = None
    """After so many of its calls."""
    calls: int = 0
    is_done: bool = False
    error: BaseException | None = None
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Stage:
    """Lets one actor run at a time, from one storage call to the next."""

    def __init__(self, table, seed):
        self.table, self.random, self.time = table, Random(seed), Time()
        self.actors = []
        self._back = threading.Semaphore(0)

    def add(self, name, work, dies_at=None):
        self.actors.append(Actor(name, work, dies_at))

    def play(self):
        threads = [threading.Thread(target=self._act, args=(actor,), daemon=True) for actor in self.actors]
        for thread in threads:
            thread.start()
        steps = 0
        while alive := [actor for actor in self.actors if not actor.is_done]:
            # Mostly the same one goes on, so that whole operations come in between others' calls.
            actor = self.random.choice(alive)
            for _ in range(self.random.choice((1, 1, 3, 10, 40))):
                if actor.is_done:
                    break
                actor.turn.release()
                assert self._back.acquire(timeout=60), "an actor is stuck in a call"
                steps += 1
                assert steps < 60_000, f"nobody comes to an end: {[a.name for a in alive]}"
        for actor in self.actors:
            if isinstance(actor.error, Exception):
                raise actor.error

    def _act(self, actor):
        actor.turn.acquire()
        try:
            actor.work(self._view(actor))
        except Killed:
            pass
        except BaseException as error:
            actor.error = error
        finally:
            actor.is_done = True
            self._back.release()

    def _view(self, actor):
        def pause(path):
            actor.calls += 1
            if actor.dies_at is not None and actor.calls > actor.dies_at:
                raise Killed
            if path.startswith(("snapshot", "branch", "tag", "savepoint", "schema")):
                self._back.release()
                actor.turn.acquire()

        class Sleeper:
            def sleep(_, seconds):
                self.time.sleep(seconds)
                self._back.release()
                actor.turn.acquire()

        hooks = [run("before", call, pause, times=10**9) for call in DECIDING]
        storage = FaultyStorage(self.table.context.storage, hooks)
        runtime = Runtime(self.time, Ids(self.random.random()), Sleeper())
        context = replace(self.table.context, storage=storage, runtime=runtime, cache=MetadataCache())
        return anabranch.Table(context)

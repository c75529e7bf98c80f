"""Writers as processes of their own: their store fails, they die, and others come in between their calls.

A world has what they share: ``storage`` and ``table``; ``rng``, by which all is determined; ``trouble``, how likely a call
goes wrong; ``crowd``, how likely somebody comes first where it matters; ``meanwhile(writer)``, which lets them.
"""

from dataclasses import dataclass, replace
from typing import Any

import anabranch
from anabranch.errors import StorageError
from anabranch.kernel.log.cache import MetadataCache
from anabranch.runtime import Runtime
from tests.support.faults import FaultyStorage, run

READS = ("get", "exists", "list", "info", "open_input")
WRITES = ("put", "put_many", "put_if_absent", "write", "delete", "delete_many")


class Died(BaseException):
    """The process of a writer ended; nothing it would do in response happens."""


class NoWait:
    def sleep(self, seconds):
        pass


@dataclass
class Writer:
    """A process: its own view of the store, which may fail and in which others may come in between."""

    world: Any
    number: int
    dead: bool = False
    table: anabranch.Table = None

    def __post_init__(self):
        hooks = [
            run(when, call, self._hook(when, call), times=10**9)
            for call in READS + WRITES
            for when in ("before", "after")
        ]
        storage = FaultyStorage(self.world.storage, hooks)
        runtime = Runtime(sleeper=NoWait())
        context = replace(self.world.table.context, storage=storage, runtime=runtime, cache=MetadataCache())
        self.table = anabranch.Table(context)

    def _hook(self, when, call):
        def act(path):
            rng = self.world.rng
            if self.dead:
                raise Died
            if when == "before" and call == "put_if_absent" and rng.random() < self.world.crowd:
                self.world.meanwhile(self)
            # Everything turns on the call that decides, so most goes wrong there.
            if rng.random() >= self.world.trouble * (20 if call == "put_if_absent" else 1):
                return
            if rng.random() < 0.3:
                self.dead = True
                raise Died
            if when == "before" or call in WRITES:
                # Only conditional writes promise to say whether they happened.
                unknown = when == "after" or (call in WRITES and rng.random() < 0.5)
                raise StorageError(f"the test made {call} of {path} fail", outcome_unknown=unknown)

        return act

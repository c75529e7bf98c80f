"""A small table with a branch that is to take the place of main, and time that passes only by waiting."""

import itertools
import threading
import uuid
from dataclasses import replace
from random import Random

import anabranch
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.properties import WRITER_PROPERTY
from anabranch.runtime import Runtime
from tests.support.tables import make_table, rows

_names = itertools.count()

BEGIN = 1_700_000_000_000


class Time:
    """A clock and a sleeper: it is later by what was slept, and by a millisecond at each look."""

    def __init__(self):
        self.millis = BEGIN

    def now_millis(self):
        self.millis += 1
        return int(self.millis)

    def monotonic(self):
        return self.now_millis() / 1000

    def local_offset_millis(self, at_millis):
        return 0

    def sleep(self, seconds):
        self.millis += seconds * 1000

    async def pause(self, seconds):
        self.sleep(seconds)


class Ids:
    """Names and chance from a seed; safe for the threads of one process."""

    def __init__(self, seed=0):
        self._random = Random(seed)
        self._lock = threading.Lock()

    def uuid(self):
        with self._lock:
            return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def jitter(self):
        with self._lock:
            return self._random.random()


def timed(table, time=None):
    """The same table as another process has it for which time passes only by waiting."""
    time = time or Time()
    runtime = Runtime(time, Ids(next(_names)), time)
    return anabranch.Table(replace(table.context, runtime=runtime, cache=MetadataCache()))


def again(table):
    """The table as another process has it that opened it now, or held it open since it was opened."""
    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def parted(*, fix=1, main=1, options=None, schema="id BIGINT NOT NULL, v STRING"):
    """Rows 0 to 5 in snapshots 1 and 2, tag `good` and savepoint 1 of snapshot 2, tag `old` of snapshot 1.

    Then so many appends to main, of 1000, 1001 and so on, and to the branch `fix` of `good`, of 100, 101 and so on.
    """
    table = timed(make_table(f"memory://replacing{next(_names)}", schema=schema, options=options))
    table.append(rows(0, 3))
    table.append(rows(3, 3))
    table.create_tag("good")
    table.create_tag("old", 1)
    table.create_savepoint()
    table.create_branch("fix", "good")
    for i in range(main):
        table.append(rows(1000 + i, 1))
    for i in range(fix):
        table.branch("fix").append(rows(100 + i, 1))
    return table


def twice_replaced():
    """A table whose main was replaced by `fix`, and that by `next`, which began there."""
    table = parted()
    table.replace_main_branch("fix")
    table.create_tag("better")
    table.create_branch("next", "better")
    table.replace_main_branch("next")
    return table


BEFORE = [0, 1, 2, 3, 4, 5]
"""What both have."""


def files(table, prefix="", *, recursive=True):
    return sorted(info.path for info in table.context.storage.list(prefix, recursive=recursive))


def kinds(error):
    return [conflict.kind for conflict in error.value.conflicts]


def as_foreign(table, snapshot_id):
    """Take the marks off a snapshot, as if another engine had made it."""
    context = table.context
    snapshot = context.snapshots.get(snapshot_id)
    plain = replace(
        snapshot, properties={k: v for k, v in snapshot.properties.items() if k != WRITER_PROPERTY}
    )
    context.storage.put(context.layout.snapshot_path(snapshot_id), plain.to_json())

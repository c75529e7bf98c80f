"""A table under a clock that stands still, to expire its snapshots."""

from dataclasses import replace

import pyarrow as pa

import anabranch
from anabranch.kernel.expiry.expire import expire
from anabranch.kernel.expiry.retention import Retention
from anabranch.kernel.log.cache import MetadataCache
from anabranch.lake import Lake
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.support.clock import MINUTE
from tests.support.faults import FaultyStorage


def new_table(clock, **options):
    """A table in memory, its snapshots a minute apart as far as the tests move the clock."""
    runtime = Runtime(clock=clock)
    lake = Lake(MemoryStorage(runtime=runtime), runtime=runtime)
    options = {key.replace("_", "-"): value for key, value in options.items()}
    return lake.create_table("db.t", "id BIGINT, p STRING", partition_by=["p"], options=options)


def fill(table, count, *, clock=None, overwrite=False, expires=False):
    """Snapshots of one row each; ids count on from the last snapshot."""
    table = table if expires else table.with_options({"write-only": "true"})
    first = 0 if table.snapshot is None else table.snapshot.id
    for number in range(first + 1, first + count + 1):
        data = pa.table({"id": [number], "p": ["a"]})
        (table.overwrite if overwrite else table.append)(data)
        if clock is not None:
            clock.now += MINUTE


def ids(table):
    return sorted(snapshot.id for snapshot in table.snapshots())


def expire_to(table, at_most):
    """Expire all snapshots but the newest, and do nothing else."""
    return expire(table.context, Retention(at_least=1, at_most=at_most, replaced_before=0))


def through(table, *faults, is_far=None):
    """The table through a store with faults."""
    storage = FaultyStorage(table.context.storage, faults, is_far=is_far)
    return anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache()))

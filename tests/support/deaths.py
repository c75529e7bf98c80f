"""Letting work die at each of its storage calls, in this process: nothing it would do afterwards is done."""

from collections import Counter
from dataclasses import replace

import anabranch
from tests.support.faults import FaultyStorage, run


class Died(BaseException):
    """No `except` of the library catches it, as none runs after a kill."""


def through(table, *faults):
    """The same view of a table, its storage with faults."""
    storage = FaultyStorage(table.context.storage, faults)
    return anabranch.Table(replace(table.context, storage=storage))


def calls_of(table, work):
    """(name, nth of that name) of every storage call of `work(table)`, which is done."""
    watched = through(table)
    work(watched)
    seen = Counter()
    for call in watched.context.storage.calls:
        seen[call.name] += 1
        yield call.name, seen[call.name]


def each_death(make, work, *, whens=("before", "after")):
    """For each call of `work`, a table fresh from `make()` on which it died there: (table, when, call, nth)."""
    for name, nth in [*calls_of(make(), work)]:
        for when in whens:
            table = make()
            try:
                work(through(table, run(when, name, die, nth=nth)))
            except Died:
                yield table, when, name, nth
            else:  # a read that finds nothing has no moment after it
                assert (when, name) == ("after", "get"), (when, name, nth)


def die(path):
    """End the work here."""
    raise Died(path)

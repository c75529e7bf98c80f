"""A process that dies at a storage call, in this process: from that call on its store answers nothing any more."""

import itertools
from dataclasses import replace

import anabranch
from anabranch.kernel.log.cache import MetadataCache
from anabranch.storage.open import open_storage
from tests.support.faults import FaultyStorage

CHANGING = {"put", "put_if_absent", "put_many", "write", "delete", "delete_many", "delete_folder"}
_names = itertools.count()


class Died(BaseException):
    """The process is dead."""


class DyingStorage(FaultyStorage):
    """`inner` until the process dies, right before its call number `at` or right after it.

    Calls are numbered from 1, over all scoped views together.
    """

    def __init__(self, inner, at, *, after=False, _record=None, _prefix=""):
        super().__init__(inner, (), _record=_record, _prefix=_prefix)
        self.at = at
        self.after = after

    def scoped(self, prefix):
        view = super().scoped(prefix)
        return DyingStorage(view.inner, self.at, after=self.after, _record=self._record, _prefix=view._prefix)

    def _begin(self, name, path):
        due = super()._begin(name, path)
        if len(self._record.calls) >= self.at + self.after:
            raise Died
        return due

    def _end(self, due, path):
        if len(self._record.calls) >= self.at:
            raise Died
        super()._end(due, path)


def through(table, storage):
    """The table as another process has it that sees the store through `storage`."""
    return anabranch.Table(replace(table.context, storage=storage, cache=MetadataCache()))


def copy_of(table):
    """The same table in a store of its own."""
    here = table.context.storage
    there = open_storage(f"memory://copy{next(_names)}")
    there.put_many({info.path: here.get(info.path) for info in here.list(recursive=True)})
    return anabranch.Table(replace(table.context, storage=there, cache=MetadataCache()))


def deaths(table, work, *, every=1, limit=2_000):
    """Do `work(table)` in processes that die ever later, before and after each call or every so many, until one lives through it.

    Yields a copy of the table for each of them, as the dead process left it, unless it changed as much as the one
    before; the last is whole.
    """
    changes = -1
    for at, after in itertools.product(range(1, limit, every), (False, True)):
        left = copy_of(table)
        storage = DyingStorage(left.context.storage, at, after=after)
        try:
            work(through(left, storage))
        except Died:
            done = storage.calls if after else storage.calls[:-1]
            before, changes = changes, sum(call.name in CHANGING for call in done)
            if changes != before:
                yield left
        else:
            assert at > 1, "it makes no call"
            yield left
            return
    raise AssertionError("it never ends")

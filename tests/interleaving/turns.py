"""Processes that take turns at their storage calls, and which calls can make a difference to each other."""

import threading
from dataclasses import dataclass, replace

import anabranch
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import main_of
from anabranch.storage.memory import MemoryStorage
from tests.support.faults import FaultyStorage

WRITES = {"put", "put_many", "put_if_absent", "delete", "delete_many", "delete_folder", "delete_empty_folder"}
WRITES |= {"move_many", "rename_folder", "open_output"}
_WHOLE_FOLDERS = {"put_many", "delete_many", "move_many"}
"""Calls that are recorded with one of their paths."""
_PATIENCE = 60
"""Seconds after which a work that does not come to its next call is stuck."""


class Turns(FaultyStorage):
    """A store that stops whoever uses it before a call, until it is let go on."""

    def __init__(self, inner, process):
        super().__init__(inner)
        self._process = process

    def scoped(self, prefix):
        raise NotImplementedError("the works are given a table")

    def _begin(self, name, path):
        self._process.reach(name, path)
        return []

    def _end(self, due, path):
        pass


class Process:
    """A work in a thread of its own; it stands still before the call of a number, or goes on to its end."""

    def __init__(self, work, table):
        self.calls, self.error, self.is_over = [], None, False
        self._work, self._stop_before = work, None
        self._stands, self._goes = threading.Event(), threading.Event()
        self._context = replace(table.context, storage=Turns(table.context.storage, self))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def until(self, call=None):
        """Run until before a call, counted from 0, or to the end."""
        if self.is_over:
            return
        self._stop_before = call
        self._stands.clear()
        self._goes.set()
        if self._thread.ident is None:
            self._thread.start()
        if not self._stands.wait(_PATIENCE):
            raise TimeoutError(f"{self._work.__name__} is stuck after {self.calls[-3:]}")

    def reach(self, name, path):
        if len(self.calls) == self._stop_before:
            self._goes.clear()
            self._stands.set()
            self._goes.wait()
        self.calls.append((name, path))

    def _run(self):
        try:
            self._work(opened(self._context))
        except Exception as error:
            self.error = error
        self.is_over = True
        self._stands.set()


@dataclass(frozen=True)
class Beginning:
    """A table as it is before the works, of which each try has a copy."""

    name: str
    objects: dict
    runtime: object

    @classmethod
    def of(cls, table):
        storage = table.context.storage
        objects = {info.path: storage.get(info.path) for info in storage.list(recursive=True)}
        return cls(table.context.name, objects, table.context.runtime)

    def again(self):
        storage = MemoryStorage(runtime=self.runtime)
        storage.put_many(self.objects)
        return opened(TableContext(storage, self.name, runtime=self.runtime))


def opened(context):
    """The table as a process opens it that knows nothing of it."""
    return anabranch.Table(
        main_of(replace(context, branch=None, main_generation=None, cache=MetadataCache()))
    )


def matter(calls, others):
    """Numbers of the calls that what others do can change, or that can change what others do."""
    return [number for number, call in enumerate(calls) if any(_meet(call, other) for other in others)]


def _meet(one, other):
    if one[0] not in WRITES and other[0] not in WRITES:
        return False
    left, right = _place(one), _place(other)
    return left == right or left.startswith(right + "/") or right.startswith(left + "/")


def _place(call):
    name, path = call
    return path.rpartition("/")[0] if name in _WHOLE_FOLDERS else path

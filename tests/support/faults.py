"""A store that fails as told, for tests of everything that stores.

    storage = FaultyStorage(inner, [lose_answer("put_if_absent"), kill("before", "put_many", nth=2)])
    ...
    assert storage.counts()["put_if_absent"] == 1

Calls are counted by the method's name, over all scoped views together, and only those whose path matches
``where`` (a glob; paths are as seen from the outermost view; of a call with many, the smallest counts). A
piece written to an open output is a call named ``write``; with a fault at ``put_object``, `put_many`
stores one object at a time, each a call of that name. In another process, faults are given as text: ``FaultyStorage(inner, parse("kill before
put_if_absent 1"))``, or as the pickled store itself.
"""

import errno
import fnmatch
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.errors import StorageError
from anabranch.storage import names
from anabranch.storage.os_errors import translate


class Call(NamedTuple):
    name: str
    path: str


@dataclass(frozen=True)
class Fault:
    """At the calls number `nth` to `nth + times - 1` of `call`, do `action`, before or after it happened."""

    when: str  # before, after
    call: str
    action: Callable[[str], None]  # given the path
    nth: int = 1
    times: int = 1
    where: str = "*"

    def __str__(self):
        """The same in every process, so that tests may be named by it."""
        action = getattr(self.action, "__name__", self.action)
        return f"{self.when} {self.call} {self.nth} times {self.times} at {self.where}: {action}"

    def __post_init__(self):
        assert self.when in {"before", "after"}
        assert self.call in {"write", "put_object"} or callable(getattr(FaultyStorage, self.call, None)), (
            self.call
        )


def fail(call, *, retryable=True, **at):
    """The store answers with an error and nothing happened."""
    return Fault("before", call, _Raise(retryable=retryable), **at)


def lose_answer(call, **at):
    """It happened, but the store did not say so."""
    return Fault("after", call, _Raise(retryable=True, outcome_unknown=True), **at)


def lose_request(call, **at):
    """It did not happen, but the store did not say so either."""
    return Fault("before", call, _Raise(retryable=True, outcome_unknown=True), **at)


def no_space(call, **at):
    """The file system is full."""
    return Fault("before", call, _no_space, **at)


def kill(when, call, **at):
    """This process ends by SIGKILL, before the call or after it happened."""
    return Fault(when, call, _kill, **at)


def run(when, call, action, **at):
    """`action(path)` comes in between: a competitor's commit, an expiry, an assertion."""
    return Fault(when, call, action, **at)


def parse(text):
    """Faults from text, as ``kill before put_if_absent 2; no_space write 1 */data-*``."""
    return [_parse(words.split()) for words in text.split(";") if words.strip()]


@dataclass
class _Record:
    """What all views of one store share."""

    faults: tuple
    calls: list = field(default_factory=list)
    seen: Counter = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __getstate__(self):
        return self.faults

    def __setstate__(self, faults):
        self.__init__(faults)


class FaultyStorage:
    """`inner` with faults. Counts and records every call, so it also serves without any.

    Pickled, it keeps its faults and counts from zero again in the other process.
    """

    def __init__(self, inner, faults: Iterable[Fault] = (), *, is_far=None, _record=None, _prefix=""):
        self.inner = inner
        self.is_far = inner.is_far if is_far is None else is_far
        self._record = _record or _Record(tuple(faults))
        self._prefix = _prefix

    @property
    def calls(self):
        """Calls so far, in the order they began."""
        return list(self._record.calls)

    def counts(self):
        """How often each method was called."""
        return Counter(call.name for call in self._record.calls)

    def forget_calls(self):
        """Record anew; faults go on counting."""
        self._record.calls.clear()

    @property
    def url(self):
        return self.inner.url

    def scoped(self, prefix):
        inner = self.inner.scoped(prefix)
        return FaultyStorage(
            inner, is_far=self.is_far, _record=self._record, _prefix=names.join(self._prefix, prefix)
        )

    def get(self, path):
        return self._do("get", path, lambda: self.inner.get(path))

    def get_range(self, path, start, length):
        return self._do("get_range", path, lambda: self.inner.get_range(path, start, length))

    def info(self, path):
        return self._do("info", path, lambda: self.inner.info(path))

    def exists(self, path):
        return self._do("exists", path, lambda: self.inner.exists(path))

    def open_input(self, path, *, size=None):
        return self._do("open_input", path, lambda: self.inner.open_input(path, size=size))

    @contextmanager
    def open_output(self, path):
        due = self._begin("open_output", path)
        with self.inner.open_output(path) as sink:
            yield _FaultySink(sink, self, path)
        self._end(due, path)

    def put(self, path, data, *, durable=True):
        return self._do("put", path, lambda: self.inner.put(path, data, durable=durable))

    def put_many(self, objects):
        def store():
            if any(fault.call == "put_object" for fault in self._record.faults):
                for path, data in objects.items():
                    self._do(
                        "put_object", path, lambda path=path, data=data: self.inner.put_many({path: data})
                    )
            else:
                self.inner.put_many(objects)

        return self._do("put_many", min(objects, default=""), store)

    def put_if_absent(self, path, data):
        return self._do("put_if_absent", path, lambda: self.inner.put_if_absent(path, data))

    def list(self, prefix="", *, recursive=False, include_temporary=False):
        found = lambda: self.inner.list(prefix, recursive=recursive, include_temporary=include_temporary)  # noqa: E731
        return self._do("list", prefix, found)

    def list_folders(self, prefix=""):
        return self._do("list_folders", prefix, lambda: self.inner.list_folders(prefix))

    def delete(self, path):
        return self._do("delete", path, lambda: self.inner.delete(path))

    def delete_many(self, paths):
        paths = list(paths)
        return self._do("delete_many", min(paths, default=""), lambda: self.inner.delete_many(paths))

    def move_many(self, moves):
        return self._do("move_many", min(moves, default=""), lambda: self.inner.move_many(moves))

    def delete_empty_folder(self, prefix):
        return self._do("delete_empty_folder", prefix, lambda: self.inner.delete_empty_folder(prefix))

    def delete_folder(self, prefix):
        return self._do("delete_folder", prefix, lambda: self.inner.delete_folder(prefix))

    def rename_folder(self, source, target):
        return self._do("rename_folder", source, lambda: self.inner.rename_folder(source, target))

    def _do(self, name, path, call):
        due = self._begin(name, path)
        result = call()
        self._end(due, path)
        return result

    def _begin(self, name, path):
        """Record a call and act what comes before it; returns what is to come after."""
        whole = names.join(self._prefix, path)
        due = []
        with self._record.lock:
            self._record.calls.append(Call(name, whole))
            for number, fault in enumerate(self._record.faults):
                if fault.call == name and fnmatch.fnmatch(whole, fault.where):
                    self._record.seen[number] += 1
                    if 0 <= self._record.seen[number] - fault.nth < fault.times:
                        due.append(fault)
        for fault in due:
            if fault.when == "before":
                fault.action(whole)
        return due

    def _end(self, due, path):
        for fault in due:
            if fault.when == "after":
                fault.action(names.join(self._prefix, path))


class _FaultySink:
    def __init__(self, sink, storage, path):
        self._sink = sink
        self._storage = storage
        self._path = path

    def write(self, data):
        return self._storage._do("write", self._path, lambda: self._sink.write(data))

    def __getattr__(self, name):
        return getattr(self._sink, name)


@dataclass(frozen=True)
class _Raise:
    retryable: bool = False
    outcome_unknown: bool = False

    def __call__(self, path):
        raise StorageError(
            f"the test made {path} fail", retryable=self.retryable, outcome_unknown=self.outcome_unknown
        )


def _no_space(path):
    raise translate(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "write", path)


def _kill(path):
    os.kill(os.getpid(), signal.SIGKILL)


_ACTIONS = {
    "fail": fail,
    "lose_answer": lose_answer,
    "lose_request": lose_request,
    "no_space": no_space,
    "kill": kill,
}


def _parse(words):
    make, rest = _ACTIONS[words[0]], words[1:]
    count = 2 if make is kill else 1
    at = {"nth": int(rest[count])} if len(rest) > count else {}
    if len(rest) > count + 1:
        at["where"] = rest[count + 1]
    return make(*rest[:count], **at)

"""The store of a simulated world: objects in memory, and the view that each process has of them.

Everything a process does to the store goes through its `View`, which asks the process before each call whether it may
go on. There it is paused, killed, or told an error. `Store` tells the world of every change at the moment it happens.
"""

import io
from contextlib import contextmanager
from typing import NamedTuple

from anabranch.errors import AlreadyExistsError, NotFoundError, StorageError, UnsupportedFeatureError
from anabranch.storage import names
from anabranch.storage.protocol import ObjectInfo

WRITES = {"put", "put_many", "put_if_absent", "write", "delete", "delete_many", "move_many", "delete_folder"}
FILLING = {"put", "put_many", "put_if_absent", "write"}
BLOCK = 4_096


class Stored(NamedTuple):
    data: bytes
    modified_millis: int


class Change(NamedTuple):
    """An object that came, went, or was replaced, and by which process; None for the world itself."""

    path: str
    old: Stored | None
    new: Stored | None
    by: object


class Store:
    """Objects by path. `watch` is called with every `Change`."""

    def __init__(self, clock, watch, objects=None):
        self.clock = clock
        self.watch = watch
        self.objects = dict(objects or {})
        self.blocks = None
        """How many blocks the disk has; every object takes at least one. None for as many as anybody wants."""
        self.hints = {}
        """What a loss of power may undo: the object that was there before a write that was not durable."""

    def put(self, path, data, by=None, *, durable=True):
        old = self.objects.get(path)
        if durable:
            self.hints.pop(path, None)
        else:
            self.hints.setdefault(path, old)
        self.objects[path] = new = Stored(bytes(data), self.clock())
        self.watch(Change(path, old, new, by))

    def delete(self, path, by=None):
        old = self.objects.pop(path, None)
        self.hints.pop(path, None)
        if old is not None:
            self.watch(Change(path, old, None, by))

    def has_room(self, size):
        """Whether so many bytes more fit on the disk."""
        used = sum(blocks_of(len(found.data)) for found in self.objects.values())
        return self.blocks is None or used + blocks_of(size) <= self.blocks

    def lose_power(self, rng):
        """Writes that were not durable are there, or not, or torn."""
        for path, before in [*self.hints.items()]:
            fate, now = rng.choice(("there", "lost", "torn", "zeros")), self.objects.get(path)
            if now is None or fate == "there":
                continue
            if fate == "lost":
                if before is None:
                    self.delete(path)
                else:
                    self.put(path, before.data)
            else:
                self.put(path, now.data[: len(now.data) // 2] if fate == "torn" else bytes(len(now.data)))
        self.hints.clear()

    def below(self, folder):
        """Paths and objects in a folder, at any depth."""
        start = folder + "/" if folder else ""
        return {path: found for path, found in self.objects.items() if path.startswith(start)}


def blocks_of(size):
    """How many blocks of a disk so many bytes take."""
    return max(1, -(-size // BLOCK))


class View:
    """The store as a process has it, in the shape of `anabranch.storage.protocol.Storage`."""

    def __init__(self, store, process, prefix="", *, has_folders=True):
        self.store, self.process, self._prefix, self._has_folders = store, process, prefix, has_folders

    @property
    def url(self):
        return "simulated://" + self._prefix

    @property
    def is_far(self):
        """Stores without folders are those in the cloud, of which more is asked ahead of its use."""
        return not self._has_folders

    def scoped(self, prefix):
        return View(self.store, self.process, names.join(self._prefix, prefix), has_folders=self._has_folders)

    # Reading

    def get(self, path):
        return self._read("get", path).data

    def get_range(self, path, start, length):
        return self._read("get_range", path).data[start : start + length]

    def info(self, path):
        found = self._read("info", path)
        return ObjectInfo(path, len(found.data), found.modified_millis)

    def exists(self, path):
        key = self._key(path)
        return self._do("exists", key, lambda: key in self.store.objects)

    def open_input(self, path, *, size=None):
        return io.BytesIO(self._read("open_input", path).data)

    def list(self, prefix="", *, recursive=False, include_temporary=False):
        folder = names.join(self._prefix, prefix)
        for rest, found in self._listed("list", folder).items():
            if (recursive or "/" not in rest) and (include_temporary or not names.is_temporary(rest)):
                yield ObjectInfo(names.join(prefix, rest), len(found.data), found.modified_millis)

    def list_folders(self, prefix=""):
        folder = names.join(self._prefix, prefix)
        found = self._listed("list_folders", folder)
        children = dict.fromkeys(rest.partition("/")[0] for rest in found if "/" in rest)
        return (names.join(prefix, name) for name in children)

    def _listed(self, call, folder):
        """What is listed: sure of what was there all the time, of the rest some."""
        cut = len(folder) + 1 if folder else 0
        before = self._do(call, folder, lambda: self.store.below(folder))
        found = before
        if self.process.is_slow(call, folder):
            after, rng = self.store.below(folder), self.process.world.rng
            paths = sorted({*before, *after})
            kept = [p for p in paths if (p in before and p in after) or rng.random() < 0.5]
            found = {path: after.get(path) or before[path] for path in kept}
        return {path[cut:]: stored for path, stored in found.items()}

    # Writing

    def put(self, path, data, *, durable=True):
        key = self._key(path)
        self._do("put", key, lambda: self.store.put(key, data, self.process, durable=durable), len(data))

    def put_many(self, objects):
        for path, data in objects.items():
            key = self._key(path)
            self._do(
                "put_many", key, lambda key=key, data=data: self.store.put(key, data, self.process), len(data)
            )

    def put_if_absent(self, path, data):
        key = self._key(path)

        def put():
            found = self.store.objects.get(key)
            if found is None:
                self.store.put(key, data, self.process)
            return found is None or found.data == data

        return self._do("put_if_absent", key, put, len(data))

    @contextmanager
    def open_output(self, path):
        key, sink = self._key(path), _Sink()
        yield sink
        data = sink.getvalue()
        self._do("write", key, lambda: self.store.put(key, data, self.process), len(data))

    def delete(self, path):
        key = self._key(path)
        self._do("delete", key, lambda: self.store.delete(key, self.process))

    def delete_many(self, paths):
        for path in [*paths]:
            key = self._key(path)
            self._do("delete_many", key, lambda key=key: self.store.delete(key, self.process))

    def move_many(self, moves):
        for source, target in moves.items():
            here, there = self._key(source), self._key(target)
            self._do("move_many", here, lambda here=here, there=there: self._move(here, there))

    def delete_folder(self, prefix):
        folder = self._key(prefix)
        for path in self._do("delete_folder", folder, lambda: sorted(self.store.below(folder))):
            self.process.reach("delete_folder", path)
            self.store.delete(path, self.process)

    def delete_empty_folder(self, prefix):
        self._key(prefix)

    def rename_folder(self, source, target):
        here, there = self._key(source), self._key(target)

        def rename():
            moved = self.store.below(here)
            if not moved:
                raise NotFoundError(f"{source} does not exist")
            if self.store.below(there):
                raise AlreadyExistsError(f"{target} exists")
            for path in moved:
                self._move(path, there + path[len(here) :])

        if not self._has_folders:
            raise UnsupportedFeatureError("no folders here", feature="rename-folder")
        self._do("rename_folder", here, rename)

    def _move(self, here, there):
        found = self.store.objects.get(here)
        if found is not None:
            self.store.put(there, found.data, self.process)
            self.store.delete(here, self.process)

    def _key(self, path):
        names.check_path(path)
        return names.join(self._prefix, path)

    def _read(self, call, path):
        key = self._key(path)

        def read():
            found = self.store.objects.get(key)
            if found is None:
                raise NotFoundError(f"{path} does not exist in {self.url}")
            return found

        return self._do(call, key, read)

    def _do(self, call, key, act, size=0):
        """One call: perhaps later, perhaps not at all, perhaps without an answer. `size` is what it needs on the disk."""
        fate = self.process.reach(call, key)
        if fate == "fail":
            raise StorageError(f"the simulation made {call} of {key} fail", retryable=True)
        if call in FILLING and not self.store.has_room(size):
            error = StorageError(f"no space left to {call} {key}", hint="free some.")
            error.out_of_space = True
            raise error
        if fate == "lose request":
            raise StorageError(
                f"no answer to {call} of {key}", retryable=True, outcome_unknown=call in WRITES
            )
        result = act()
        if fate == "lose answer":
            raise StorageError(
                f"no answer to {call} of {key}", retryable=True, outcome_unknown=call in WRITES
            )
        if fate == "die after":
            self.process.die()
        return result


class _Sink(io.BytesIO):
    def close(self):
        """What was written stays to be stored."""

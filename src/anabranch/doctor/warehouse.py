"""Checks of a warehouse: the operations jobs need of its store, tried on a few small objects that are removed again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from anabranch.catalog.filesystem import FilesystemCatalog
from anabranch.catalog.folders import DATABASE_SUFFIX
from anabranch.doctor.check import MachineCheck
from anabranch.errors import AnabranchError, NotFoundError
from anabranch.jobs.checkpoint import FOLDER, local_root
from anabranch.runtime import Runtime
from anabranch.storage.open import local_folder, open_storage
from anabranch.storage.protocol import Storage

_QUICK = {"retries": "1", "connect-timeout": "3 s", "timeout": "5 s", "retry-timeout": "8 s"}
"""Store timeouts, unless settings say otherwise: a person is waiting."""
_WRITERS = 4
"""Writers that compete for one name."""
_PROBES = ".anabranch-doctor-"
_CLOCKS_APART_MILLIS = 60_000
_COARSE_MILLIS = 1_000
"""Stores with times in whole seconds truncate them."""
_REFUSED = "check what the credentials may do: list, read, write and delete below the warehouse."


def warehouse_checks(warehouse: str, *, read_only: bool, runtime: Runtime) -> Iterator[MachineCheck]:
    """Check whether a warehouse can be listed, read and written, whether one of several writers wins, and its clock."""
    try:
        storage = _opened(warehouse)
        yield MachineCheck("warehouse", "ok", _described(storage))
    except AnabranchError as error:
        yield _failed("warehouse", error)
        return
    local = local_folder(warehouse)
    if local is not None and not Path(local).exists():
        yield _not_there_yet(Path(local), read_only=read_only)
        return
    trial = _Trial(storage, runtime)
    yield from trial.read_only() if read_only else trial.all()


def checkpoint_checks(warehouse: str) -> Iterator[MachineCheck]:
    """Check whether jobs can keep local checkpoints on this machine."""
    try:
        root = local_root(warehouse)
    except AnabranchError:
        return  # already reported for the warehouse
    if root is None:
        place = Path(local_folder(warehouse) or warehouse, FOLDER)
        what = "in the warehouse"
    else:
        place = root
        what = "on this machine's disk, with copies of state in the warehouse"
    there = next(parent for parent in (place, *place.parents) if parent.exists())
    obstacle = _cannot_write(there)
    if obstacle is None:
        yield MachineCheck("checkpoints", "ok", f"jobs keep them {what}: {place}")
        return
    yield MachineCheck(
        "checkpoints",
        "warning" if root is None else "failed",
        f"jobs keep them {what}: {place}, but {obstacle}",
        "name a folder for them with --checkpoints, or by the variable ANABRANCH_CHECKPOINTS."
        if root is not None
        else "run jobs where the warehouse can be written, or name a folder with --checkpoints.",
    )


def _cannot_write(folder: Path) -> str | None:
    """Return why nothing can be written to a folder; None if a test file could be."""
    if not folder.is_dir():
        return f"{folder} is no folder"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"probe")
    except OSError as error:
        return f"nothing can be written to {folder}: {error.strerror}"
    return None


def _opened(warehouse: str) -> Storage:
    """Open the store with a short timeout, unless settings say how long to wait."""
    storage = open_storage(warehouse)
    settings = getattr(storage, "settings", None)
    if settings is None:
        return storage
    prefix = next((key.partition(".")[0] for key in settings), _prefix(warehouse))
    quick = {f"{prefix}.{name}": value for name, value in _QUICK.items()}
    return open_storage(warehouse, {**quick, **settings})


def _prefix(warehouse: str) -> str:
    scheme = warehouse.partition("://")[0].lower()
    return "s3" if scheme.startswith("s3") else "gs" if scheme == "gs" else "az"


def _described(storage: Storage) -> str:
    """Return the location and its settings, without secrets."""
    settings = getattr(storage, "settings", None) or {}
    from anabranch.storage.object_options import KINDS  # slow to import

    hidden = {
        kind.prefixes[0] + option.name
        for kind in KINDS
        for option in kind.options
        if option.secret or option.name == "access-key"
    }
    quick = _QUICK.keys()
    told = [
        f"{key}{' is given' if key in hidden else f'={value}'}"
        for key, value in sorted(settings.items())
        if key.partition(".")[2] not in quick
    ]
    return storage.url + (f" ({', '.join(told)})" if told else "")


def _not_there_yet(folder: Path, *, read_only: bool) -> MachineCheck:
    if read_only:
        return MachineCheck("warehouse: list", "failed", f"there is no {folder}", "check the path.")
    there = next(parent for parent in folder.parents if parent.exists())
    obstacle = _cannot_write(there)
    if obstacle is not None:
        return MachineCheck(
            "warehouse: write", "failed", f"it is not there, and {obstacle}", "choose another place."
        )
    return MachineCheck(
        "warehouse: list",
        "missing",
        f"there is no {folder} yet, and it can be made",
        "it is made by the first table that is created in it, or by `--create`.",
    )


def _failed(name: str, error: AnabranchError, hint: str = _REFUSED) -> MachineCheck:
    return MachineCheck(name, "failed", error.message, error.hint or hint)


@dataclass
class _Trial:
    """The steps, each of which yields one finding. After a failure, dependent steps are left out."""

    storage: Storage
    runtime: Runtime

    def read_only(self) -> Iterator[MachineCheck]:
        listed = self._list()
        yield listed
        if listed.status == "ok":
            yield self._read_something()

    def all(self) -> Iterator[MachineCheck]:
        listed = self._list()
        yield listed
        if listed.status != "ok":
            return
        probe = f"{_PROBES}{self.runtime.ids.uuid()}"
        contested = f"{probe}-contested"
        clock = self.runtime.clock
        before = clock.now_millis()
        try:
            self.storage.put(probe, b"probe")
        except AnabranchError as error:
            yield MachineCheck(
                "warehouse: write",
                "failed",
                error.message,
                f"{error.hint or _REFUSED} If it is only to be read here: anabranch doctor --read-only.",
            )
            yield self._read_something()
            # After some errors it is not certain whether it was written.
            self._remove_quietly(probe)
            return
        after = clock.now_millis()
        yield MachineCheck("warehouse: write", "ok", f"an object was written in {after - before} ms")
        try:
            yield self._step("warehouse: read", lambda: self._read_back(probe))
            yield self._step("warehouse: clock", lambda: self._clock(probe, before, after))
            yield self._step("warehouse: commit", lambda: self._compete(contested))
        finally:
            # This message is also for a person who interrupts the examination.
            removed = self._remove([probe, contested])
        yield removed

    def _step(self, name: str, call: Callable[[], MachineCheck]) -> MachineCheck:
        try:
            return call()
        except AnabranchError as error:
            return _failed(name, error)

    def _list(self) -> MachineCheck:
        def listed() -> MachineCheck:
            catalog = FilesystemCatalog(self.storage, runtime=self.runtime)
            databases = catalog.databases()
            if databases or local_folder(self.storage.url) is not None:
                catalog.check_there(databases)
            told = f"{len(databases)} databases" if len(databases) != 1 else "1 database"
            return MachineCheck("warehouse: list", "ok", told)

        return self._step("warehouse: list", listed)

    def _read_something(self) -> MachineCheck:
        """Read something that exists: the first schema of the first table."""

        def read() -> MachineCheck:
            for database in self.storage.list_folders():
                if not database.endswith(DATABASE_SUFFIX):
                    continue
                for table in self.storage.list_folders(database):
                    for found in self.storage.list(f"{table}/schema"):
                        self.storage.get(found.path)
                        return MachineCheck("warehouse: read", "ok", f"{found.path} was read")
            return MachineCheck(
                "warehouse: read",
                "missing",
                "not tried, for there is no table yet",
                "try again when there is one.",
            )

        return self._step("warehouse: read", read)

    def _read_back(self, probe: str) -> MachineCheck:
        found = self.storage.get(probe)
        if found == b"probe":
            return MachineCheck("warehouse: read", "ok", "the object was read back")
        return MachineCheck(
            "warehouse: read",
            "failed",
            f"the object that was written came back with other content ({len(found)} bytes)",
            "look for what stands between this machine and the store: a cache, or a proxy that changes answers.",
        )

    def _clock(self, probe: str, before: int, after: int) -> MachineCheck:
        store = self.storage.info(probe).modified_millis
        ahead, behind = store - after, before - store - _COARSE_MILLIS
        apart = max(ahead, behind, 0)
        if apart <= _CLOCKS_APART_MILLIS:
            told = "within a second" if apart < _COARSE_MILLIS else f"{apart / 1000:.0f} s"
            return MachineCheck("warehouse: clock", "ok", f"of the store and of this machine: {told}")
        which = "ahead of" if ahead > 0 else "behind"
        return MachineCheck(
            "warehouse: clock",
            "warning",
            f"the store's clock is {apart / 1000:,.0f} s {which} this machine's: times of snapshots and the age of files "
            "are wrong by so much, and stores refuse requests from 15 minutes on",
            "set the clock of this machine, by NTP say.",
        )

    def _compete(self, contested: str) -> MachineCheck:
        """Let several writers put an object of one name at the same moment, as commits do: only one may win."""
        with ThreadPoolExecutor(_WRITERS) as threads:
            tries = [
                threads.submit(self.storage.put_if_absent, contested, f"writer {number}".encode())
                for number in range(_WRITERS)
            ]
            winners = sum([one.result() for one in tries])
        late = self.storage.put_if_absent(contested, b"late")
        if winners == 1 and not late:
            return MachineCheck(
                "warehouse: commit", "ok", f"of {_WRITERS} writers of one name exactly one has won"
            )
        return MachineCheck(
            "warehouse: commit",
            "failed",
            f"of {_WRITERS} writers of one name {winners} have won{', and another one afterwards' if late else ''}: commits "
            "of several writers would be lost",
            "use a store with conditional writes (If-None-Match: *), and a version of the server that has them.",
        )

    def _remove(self, paths: list[str]) -> MachineCheck:
        try:
            for path in paths:
                self.storage.delete(path)
            left = [path for path in paths if self.storage.exists(path)]
        except AnabranchError as error:
            return MachineCheck(
                "warehouse: delete",
                "failed",
                error.message,
                f"{error.hint or _REFUSED} Until then objects called {_PROBES}... lie in the warehouse.",
            )
        if left:
            return MachineCheck(
                "warehouse: delete",
                "failed",
                f"{', '.join(left)} is there although it was removed",
                "look for retention rules or a lock of the bucket; expiry needs to remove files.",
            )
        return MachineCheck("warehouse: delete", "ok", "what was written is removed again")

    def _remove_quietly(self, path: str) -> None:
        try:
            self.storage.delete(path)
        except (AnabranchError, NotFoundError):
            return

"""Records in the warehouse of jobs and of the processes that run them: ``_jobs/<job>/run-<n>``.

A process that runs a job has the highest number; taking the next one, which only one process can, is taking the job over.
The process writes its record anew every few seconds: so others know that it lives, and what the job is doing. What others
ask of it lies beside the record, ``ask-<n>-<what>``. All of it is small, and what is over is removed after a week. A damaged
record is one of an unknown process: if that process lives, it writes the record anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError, UnsupportedFeatureError
from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.format.text.record import JsonFile, Stored
from anabranch.jobs.status import MOMENT, UNKNOWN, JobStatus, Process, State
from anabranch.jobs.task import Ask
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.names import temporary_name
from anabranch.storage.protocol import Storage

FOLDER: Final = "_jobs"
"""In the warehouse."""
BEAT_SECONDS: Final = 10.0
"""Between two writes of a record."""
SILENCE_SECONDS: Final = 35.0
"""Without a write for so long, a process of another machine is taken for dead."""
KEPT_MILLIS: Final = 7 * 24 * 3600 * 1000
"""For which the record of a job that is over stays."""
_RUN: Final = re.compile(r"run-([1-9][0-9]{0,17})")

_ASKS: Final[tuple[Ask, ...]] = ("stop", "restart", "yield")


@dataclass(frozen=True, slots=True)
class JobRecord(JsonFile):
    """A job, and the process that runs it or was the last that did."""

    WHAT: ClassVar = "record of a job"
    HINT: ClassVar = (
        "A process that runs the job writes its record anew within seconds; if none does, run the job again."
    )
    SNAKE: ClassVar = True

    key: Annotated[str, Stored(apart=True)]
    """Name of the folder: the job, with ``@`` and the branch where it writes to one."""
    number: Annotated[int, Stored(apart=True)]
    process: Process
    token: str
    """Of the run, which has another number if it takes the job back."""
    since_millis: Annotated[int, MOMENT]
    """When the process took the job."""
    job: str
    sink: str
    beat: int = 0
    written_millis: Annotated[int, MOMENT] = 0
    status: JobStatus | None = None
    """None before the first look at it."""

    @property
    def last_write(self) -> tuple[int, int]:
        """Which write of which process it is: another one after every write."""
        return self.number, self.beat

    @property
    def may_go_back(self) -> bool:
        """Whether the process has not got all the jobs that it wanted, or has left this one: it may go on where it was.

        Once it has them all it writes their records anew.
        """
        return self.is_left or (self.beat == 0 and self.status is None)

    @property
    def is_over(self) -> bool:
        """Whether the process has let go of the job."""
        return self.status is not None and self.status.state.is_over

    @property
    def is_left(self) -> bool:
        """Whether the process has left the job to another one."""
        return self.status is not None and self.status.state is State.TAKEN

    @property
    def has_ended(self) -> bool:
        """Whether the job came to its own end."""
        return self.status is not None and self.status.state is State.ENDED


@dataclass(frozen=True)
class Board:
    """The records of a warehouse's jobs."""

    storage: Storage
    """Store of the warehouse."""
    runtime: Runtime = field(default=SYSTEM)
    folder: str = FOLDER
    """Where the records lie."""

    def newest(self, key: str) -> JobRecord | None:
        """Return the record of the process that has a job, or had it last.

        Raises `StorageError`, or `UnsupportedFeatureError` if a newer version wrote it.
        """
        for number, modified_millis in sorted(self._numbers(key).items(), reverse=True):
            path = self._path(key, number)
            try:
                return JobRecord.from_json(self.storage.get(path), key=key, number=number, path=path)
            except NotFoundError:
                continue  # removed by the next one
            except CorruptTableError as error:
                # As after a loss of power: its next write mends it, if it lives.
                said = f"its record is damaged: {error.message}"
                return _unread(key, number, modified_millis, said, error.hint)
        return None

    def numbers(self, key: str) -> list[int]:
        """Return the numbers of the processes that have, or had, a job."""
        return [*self._numbers(key)]

    def _numbers(self, key: str) -> dict[int, int]:
        """Return the numbers, each with when its record was written."""
        found = {info.path.rpartition("/")[2]: info for info in self.storage.list(f"{self.folder}/{key}")}
        matches = ((_RUN.fullmatch(name), info) for name, info in found.items())
        return {int(match[1]): info.modified_millis for match, info in matches if match is not None}

    def claim(self, record: JobRecord) -> bool:
        """Store the record of a process that takes a job; False if another one was quicker."""
        if not self.storage.put_if_absent(self._path(record.key, record.number), record.to_json()):
            return False
        old = [number for number in self.numbers(record.key) if number < record.number]
        self.storage.delete_many([self._path(record.key, number) for number in old])
        self.storage.delete_many([self._ask(record.key, n, what) for n in old for what in _ASKS])
        return True

    def write(self, record: JobRecord) -> None:
        """Store a record anew."""
        self.storage.put(self._path(record.key, record.number), record.to_json(), durable=False)

    def ask(self, record: JobRecord, what: Ask) -> None:
        """Ask the process of a record for something."""
        path = self._ask(record.key, record.number, what)
        self.storage.put(path, to_bytes(Process.own().to_dict()), durable=False)

    def withdraw(self, record: JobRecord, what: Ask) -> None:
        """Take back what this process asked, if it has not been taken in yet."""
        path = self._ask(record.key, record.number, what)
        try:
            if _asker(self.storage.get(path)) == Process.own():
                self.storage.delete(path)
        except NotFoundError:
            return

    def is_asked(self, record: JobRecord, what: Ask) -> bool:
        """Whether the process of a record has not taken in yet what was asked."""
        return self.storage.exists(self._ask(record.key, record.number, what))

    def asked(self, record: JobRecord) -> dict[Ask, Process]:
        """Return what was asked of a record's process, and by whom. Each is returned once.

        A job is not left to a process that has died since it asked for it: nobody would run it.
        """
        found: dict[Ask, Process] = {}
        there = {info.path for info in self.storage.list(f"{self.folder}/{record.key}")}
        for what in _ASKS:
            path = self._ask(record.key, record.number, what)
            if path not in there:
                continue
            try:
                asker = _asker(self.storage.get(path))
            except NotFoundError:
                continue
            self.storage.delete(path)
            if what != "yield" or asker.is_dead() is not True:
                found[what] = asker
        return found

    def all(self) -> Iterator[JobRecord]:
        """Yield the newest record of every job, by its key; one that a newer version wrote as that of an unknown process."""
        for folder in sorted(self.storage.list_folders(self.folder)):
            key = folder.rpartition("/")[2]
            try:
                found = self.newest(key)
            except UnsupportedFeatureError as error:  # stops nobody who wants another job
                number, modified_millis = max(self._numbers(key).items(), default=(0, 0))
                found = _unread(key, number, modified_millis, error.message, error.hint)
            if found is not None:
                yield found

    def sweep(self) -> None:
        """Remove the records of jobs that have been over, or silent, for a week."""
        now = self.runtime.clock.now_millis()
        for record in self.all():
            if (
                now - record.written_millis > KEPT_MILLIS
                and (record.is_over or record.process.is_dead() is not False)
                and self.silence_millis(record) > KEPT_MILLIS
            ):
                self.storage.delete_folder(f"{self.folder}/{record.key}")

    def silence_millis(self, record: JobRecord) -> int:
        """Return for how long a record has not been written, by the store's clock where that of this machine calls it long."""
        try:
            written = self.storage.info(self._path(record.key, record.number)).modified_millis
        except NotFoundError:  # another process has just taken the job
            return 0
        apart = self.runtime.clock.now_millis() - written
        if abs(apart) <= SILENCE_SECONDS * 1000:
            return max(0, apart)
        probe = f"{self.folder}/{temporary_name('clock', self.runtime.ids.uuid())}"
        try:
            self.storage.put(probe, b"", durable=False)
            return max(0, self.storage.info(probe).modified_millis - written)
        except AnabranchError:  # it cannot be written to, or only read
            return max(0, apart)
        finally:
            with suppress(AnabranchError):
                self.storage.delete(probe)

    def is_alive(self, record: JobRecord, since: float | None = None) -> bool:
        """Whether the process of a record still runs the job; of one of another machine by whether its record is written.

        Takes up to `SILENCE_SECONDS` for a process of another machine that is silent; `since` is when the record was read first, by
        the clock that only goes forward, if not now.
        """
        if record.is_over:
            return False
        is_dead = record.process.is_dead()
        if is_dead is not None:
            return not is_dead
        clock = self.runtime.clock
        end = (clock.monotonic() if since is None else since) + SILENCE_SECONDS
        while clock.monotonic() < end:
            now = self.newest(record.key)
            if now is None or now.is_over:
                return False
            if now.last_write != record.last_write:
                return True
            self.runtime.sleeper.sleep(1.0)
        return False

    def _path(self, key: str, number: int) -> str:
        return f"{self.folder}/{key}/run-{number}"

    def _ask(self, key: str, number: int, what: Ask) -> str:
        return f"{self.folder}/{key}/ask-{number}-{what}"


def _unread(key: str, number: int, modified_millis: int, said: str, hint: str | None) -> JobRecord:
    """Return what stands for a record that cannot be read."""
    status = JobStatus(key, "", State.RUNNING, message=said, hint=hint)
    return JobRecord(key, number, UNKNOWN, "", modified_millis, key, "", -1, modified_millis, status)


def _asker(content: bytes) -> Process:
    """Return who asked; an unknown process if that cannot be read."""
    try:
        return Process.from_object(JsonObject.parse(content, path="what was asked"))
    except CorruptTableError:
        return UNKNOWN

"""The checkpoint of a job: its location, and the positions the job began with.

By default it lies in the warehouse, ``_checkpoints/<job>`` for main and ``_checkpoints/<job>@<branch>`` for a branch;
databases have other names. For an object store it lies on the driver's disk; a folder can be named for all of them, or
for one. Spark keeps its logs there, the sink its identity (`anabranch.streaming.sink_identity`), and we, in
``anabranch/job.json``, where the sources begin. That file is written once, before the first batch, which is thus planned
from the same positions again, even if their tag is gone.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import unquote, urlsplit

from anabranch.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from anabranch.format.text.record import JsonFile, JsonRecord, Stored
from anabranch.jobs.state.point import Point
from anabranch.storage.open import local_folder, open_storage
from anabranch.storage.protocol import Storage
from anabranch.streaming.sink_identity import SinkRecord

FOLDER = "_checkpoints"
"""In the warehouse."""
_COPIES = "@copies"
"""In it, where checkpoints lie on drivers' disks: a folder for each job and branch, with one for each query."""
_VARIABLE = "ANABRANCH_CHECKPOINTS"
_HOME = "~/.anabranch/checkpoints"
ASIDE = "@@"
"""In the names of checkpoints that were set aside, before their number."""
_FILE = "anabranch/job.json"
_DEFINITIONS = "anabranch/definitions"
_LEFT = re.compile(r"\..+\.tmp(?:\.crc)?")
"""Names of files of ours and of Spark before they are whole, and of their checksums."""


@dataclass(frozen=True, slots=True)
class BeganFrom(JsonRecord):
    """A tag whose positions a job began at, and the snapshot that it named."""

    name: str
    snapshot: int
    stamp: str


@dataclass(frozen=True, slots=True)
class Beginning(JsonFile):
    """The state a job began with."""

    WHAT: ClassVar = "beginning of a job"
    HINT: ClassVar = "restore the checkpoint, or name another one with --checkpoint."

    job: str
    table_uuid: Annotated[str, Stored(key="table")]
    branch_uuid: Annotated[str, Stored(key="branch")]
    """Identity of the sink's branch."""
    tag: BeganFrom | None = None
    starts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By source, the options that give its start, if the declaration does not."""
    point: Annotated[Point | None, Stored(seldom=True)] = None
    """The batch of another query after which it continues, taking over its state if it has some."""
    hands_over: Annotated[bool, Stored(seldom=True)] = False
    """Whether the query ends before its branch becomes main, so that the job's run on main continues here."""

    @property
    def origin(self) -> str:
        """Text for people."""
        tag = self.tag
        return "as it is declared" if tag is None else f"from tag '{tag.name}' (snapshot {tag.snapshot})"


@dataclass(frozen=True)
class JobCheckpoint:
    """The checkpoint of a job."""

    location: str
    """Path or URL, as given to Spark."""
    storage: Storage
    """Store rooted there."""
    copies: Storage | None = None
    """Where its state is copied in the warehouse, if it is on the driver's disk; see `anabranch.jobs.state.mirror`."""

    def beginning(self, make: Callable[[], Beginning]) -> Beginning:
        """Return what the job began with; the result of `make` is stored first if nothing is known yet."""
        found = self.known()
        if found is not None:
            return found
        made = make()
        if self.storage.put_if_absent(_FILE, made.to_json()):
            return made
        stored = self.known()
        assert stored is not None, "it was there a moment ago, and nobody removes it"
        return stored

    def known(self) -> Beginning | None:
        """Return what the job began with, or None before its first start. Raises `CorruptTableError`."""
        try:
            data = self.storage.get(_FILE)
        except NotFoundError:
            return None
        return Beginning.from_json(data, path=f"{self.location}/{_FILE}")

    def note_definition(self, definition: str | None) -> None:
        """Record that a job with this definition is started here; see `anabranch.jobs.definition`."""
        self.storage.put_if_absent(f"{_DEFINITIONS}/{definition or 'unknown'}", b"")

    @property
    def definitions(self) -> frozenset[str]:
        """Definitions of all jobs that were started here; unknown ones as ``unknown``."""
        return frozenset(info.path.rpartition("/")[2] for info in self.storage.list(_DEFINITIONS))

    def forget_definitions(self) -> None:
        """Forget the definitions of jobs that were started here and have made nothing."""
        self.storage.delete_folder(_DEFINITIONS)

    @property
    def is_in_use(self) -> bool:
        """Whether a query has begun here, whoever started it."""
        return self.storage.exists("metadata")

    def forget_if_damaged(self, branch_uuid: str) -> None:
        """Remove the rest of a checkpoint that a query used to write to a branch, if Spark's part of it is gone.

        A query that began there would number its batches anew, and mistake the first ones for those of the lost query.
        """
        if not self.is_in_use and SinkRecord(self.storage, branch_uuid).known_identity() is not None:
            self._forget()

    def forget_beginning(self, job: str, branch_uuid: str) -> None:
        """Forget how a job was to begin, with all that was prepared for it, if no query has begun here."""
        known = self.known()
        if known is not None and (known.job, known.branch_uuid) == (job, branch_uuid) and not self.is_in_use:
            self._forget()

    def _forget(self) -> None:
        for folder in ("anabranch", "offsets", "commits", "state", "sources"):
            self.storage.delete_folder(folder)

    def sweep(self) -> None:
        """Remove the unfinished files of processes that were killed. Nobody else may be running the job."""
        left = [
            info.path
            for info in self.storage.list(recursive=True, include_temporary=True)
            if _LEFT.fullmatch(info.path.rpartition("/")[2])
        ]
        self.storage.delete_many(left)

    def writes_to(self, branch_uuid: str) -> bool:
        """Whether the job was begun here for that branch, or a query has written to it, or was about to."""
        known = self.known()
        if known is not None and known.branch_uuid == branch_uuid:
            return True
        return SinkRecord(self.storage, branch_uuid).known_identity() is not None


def set_aside(checkpoint: JobCheckpoint, options: Mapping[str, str]) -> str | None:
    """Give a checkpoint another name, ``<its name>@@<n>``, and return where it is; None if nothing has begun there.

    Raises `InvalidInputError` in an object store, where a folder cannot be renamed.
    """
    if not checkpoint.is_in_use:
        return None
    above, name = _place(checkpoint.location)
    storage = open_storage(above, options)
    taken = {folder.rpartition("/")[2] for folder in storage.list_folders()}
    aside = next(one for n in count(1) if (one := f"{name}{ASIDE}{n}") not in taken)
    try:
        storage.rename_folder(name, aside)
    except UnsupportedFeatureError as error:
        raise InvalidInputError(
            f"the checkpoint {checkpoint.location} cannot be set aside: {error.message}",
            hint="name another folder instead: --checkpoint.",
        ) from error
    return _in(above, aside)


@dataclass(frozen=True, slots=True)
class Places:
    """Where checkpoints are that do not lie in the warehouse."""

    one: str | None = None
    """Folder of the checkpoint of a single job. Those of its corrections lie beside it; see `beside`."""
    root: str | None = None
    """Folder with the checkpoints of all jobs; see `default_checkpoint`."""


IN_WAREHOUSE = Places()
"""Where they are by default."""


def beside(checkpoint: str, branch: str) -> str:
    """Return the folder for a job's checkpoint on a branch, where one was named for its run on main: ``<that>@<branch>``."""
    above, name = _place(checkpoint.rstrip("/"))
    return _in(above, f"{name}@{branch}")


def _in(above: str, name: str) -> str:
    return f"{above.removesuffix('/')}/{name}"


def _place(location: str) -> tuple[str, str]:
    """Split a location into the folder it is in and its name there, which is empty for a whole bucket."""
    if "://" in location and not urlsplit(location).path:
        return location, ""
    above, slash, name = location.rpartition("/")
    return (above or "/") if slash else ".", name


def checkpoints_of(
    warehouse: str, job: str, options: Mapping[str, str], places: Places = IN_WAREHOUSE
) -> Iterator[JobCheckpoint]:
    """Return the checkpoints of a job, of main and of branches, and copies of them.

    They are looked for in the places that are given, and then in their default places.
    """
    if places.one is not None:
        one = opened(places.one, options)
        yield one
        above, name = _place(one.location)
        yield from (found for found in _below(above, name, options) if found.location != one.location)
    if places.root is not None:
        yield from _below(places.root, job, options)
    yield from _checkpoints(warehouse, lambda name: _is_of(job, name), options)


def _below(root: str, job: str, options: Mapping[str, str]) -> Iterator[JobCheckpoint]:
    storage = open_storage(root, options)
    for folder in storage.list_folders():
        if _is_of(job, folder):
            yield opened(f"{_plain(storage.url).rstrip('/')}/{folder}", options)


def _is_of(job: str, folder: str) -> bool:
    return folder == job or folder.startswith(f"{job}@")


def all_checkpoints(warehouse: str, options: Mapping[str, str]) -> Iterator[JobCheckpoint]:
    """Return the checkpoints of all jobs in their default places, of main and of branches, and copies of them."""
    return _checkpoints(warehouse, lambda name: name != _COPIES, options)


def _checkpoints(
    warehouse: str, is_wanted: Callable[[str], bool], options: Mapping[str, str]
) -> Iterator[JobCheckpoint]:
    storage = open_storage(warehouse, options)
    for root in (FOLDER, f"{FOLDER}/{_COPIES}"):
        for folder in storage.list_folders(root):
            if is_wanted(folder.rpartition("/")[2]):
                inner = [folder] if root == FOLDER else list(storage.list_folders(folder))
                yield from (opened(f"{_plain(warehouse).rstrip('/')}/{one}", options) for one in inner)
    local = local_root(warehouse)
    for place in sorted(local.glob("*")) if local is not None and local.is_dir() else ():
        if is_wanted(place.name):
            yield opened(str(place), options)


def local_root(warehouse: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return where this machine keeps checkpoints of a warehouse in an object store; None if the warehouse is a folder.

    Below the folder that the variable ANABRANCH_CHECKPOINTS names, or else ``~/.anabranch/checkpoints``.
    """
    if local_folder(warehouse) is not None:
        return None
    name = hashlib.sha256(warehouse.rstrip("/").encode()).hexdigest()[:16]
    return Path(environment.get(_VARIABLE) or _HOME).expanduser().absolute() / name


def default_checkpoint(
    warehouse: str, job: str, branch: str | None, options: Mapping[str, str], root: str | None = None
) -> JobCheckpoint:
    """Return the checkpoint of a job for which none is named; below `root`, if a folder for all jobs is."""
    name = job if branch is None else f"{job}@{branch}"
    if root is not None:
        found = opened(f"{root.rstrip('/')}/{name}", options)
        is_on_disk = local_folder(found.location) is not None and local_folder(warehouse) is None
        return replace(found, copies=_copies(warehouse, name, options)) if is_on_disk else found
    in_warehouse, local = f"{_plain(warehouse).rstrip('/')}/{FOLDER}/{name}", local_root(warehouse)
    if local is None:
        return opened(in_warehouse, options)
    there = opened(in_warehouse, options)
    if there.is_in_use:
        return there  # Spark has a connector of its own, and was told to use it
    return replace(opened(str(local / name), {}), copies=_copies(warehouse, name, options))


def check_places(places: Places, streaming: int, also: str = "") -> None:
    """Raise `InvalidInputError` if a checkpoint is named for several jobs, or a folder for all of them besides.

    Args:
        places: what is named.
        streaming: number of jobs with a stream among their sources; others have no checkpoint.
        also: the end of the hint: what else its reader can do.
    """
    if places.one is not None and places.root is not None:
        raise InvalidInputError(
            "a checkpoint is named, and a folder of checkpoints too",
            hint="give one of them: --checkpoint for a single job, --checkpoints for all.",
        )
    if places.one is not None and streaming > 1:
        raise InvalidInputError(
            f"one checkpoint is named for {streaming} jobs, and each has its own",
            hint=f"name a folder for the checkpoints of all of them: --checkpoints{also}.",
        )


def _copies(warehouse: str, name: str, options: Mapping[str, str]) -> Storage:
    return open_storage(warehouse, options).scoped(f"{FOLDER}/{_COPIES}/{name}")


def opened(location: str, options: Mapping[str, str]) -> JobCheckpoint:
    """Return the checkpoint at a path or URL, which need not exist yet."""
    storage = open_storage(location, options)
    plain = _plain(storage.url)
    if "://" in plain:
        from anabranch.storage.hadoop import (
            hadoop_location,
        )  # loads the client of object stores, for them alone

        plain = hadoop_location(plain, options)
    return JobCheckpoint(plain, storage)


def _plain(url: str) -> str:
    """Return a local URL as a path: Hadoop would take percent signs in a URL for parts of folder names."""
    return unquote(urlsplit(url).path) if url.startswith("file:") else url

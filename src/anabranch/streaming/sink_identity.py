"""Identity of a streaming query at its sink table: fixed once, kept in the query's checkpoint.

In ``<checkpoint>/anabranch/``, one pair of files for each branch of a table the query writes to:

* ``sink-<branch uuid>.json``, write-once: the commit user, and the *floor*, a snapshot older than everything
  the query will ever commit. Whether a batch was committed before is looked up in snapshots above the floor.
  So a query that starts anew under an old job name, with batch 0 again, is not mistaken for the old one.
* ``sink-<branch uuid>.progress.json``: the last two batches with the snapshots they became. They raise the
  floor for later batches, which keeps the look-up short and independent of what has expired below. If the
  file is lost, only that advantage is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from anabranch.errors import AnabranchError, SealedBranchError
from anabranch.format.records.main_pointer import MainPointer, former_main_name
from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot, SnapshotRef
from anabranch.format.text.record import JsonFile, Stored
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.ledger import recorded_after
from anabranch.kernel.log.main_pointer import replacements
from anabranch.storage.protocol import Storage

_FOLDER = "anabranch"
_KEPT_BATCHES = 2


@dataclass(frozen=True, slots=True)
class SinkIdentity(JsonFile):
    """Commit user of a query at one branch, and the floor of its history."""

    WHAT: ClassVar = "identity of a sink"
    HINT: ClassVar = "restore the checkpoint; without this file rows could be written twice."

    job: str
    user: str
    floor: SnapshotRef
    follows: Annotated[int | None, Stored(seldom=True)] = None
    """Fork snapshot of the two mains, for a query that followed from a replaced one."""

    @classmethod
    def of_job(cls, job: str, branch_uuid: str, head: Snapshot | None, *, follows: int | None = None) -> Self:
        """Return the identity of a query that starts now, when `head` is the newest snapshot."""
        return cls(job, f"{job}@{branch_uuid}", reference(branch_uuid, head), follows)


@dataclass(frozen=True)
class SinkRecord:
    """Files of one branch in a query's checkpoint."""

    checkpoint: Storage
    """Storage rooted at the checkpoint's folder."""
    branch_uuid: str

    def identity(self, create: Callable[[], SinkIdentity]) -> SinkIdentity:
        """Return the stored identity; if there is none, store the one that `create` makes.

        Raises `CorruptTableError`, `StorageError`.
        """
        found = self.known_identity()
        if found is not None:
            return found
        made = create()
        if self.checkpoint.put_if_absent(self._identity_path, made.to_json()):
            return made
        stored = self.known_identity()
        assert stored is not None, "it was there a moment ago, and nobody removes it"
        return stored

    def floor_before(self, batch: int, identity: SinkIdentity) -> SnapshotRef:
        """Return the newest snapshot known to be older than any commit of that batch."""
        return next((ref for done, ref in self._progress() if done < batch), identity.floor)

    def committed(self, batch: int, snapshot: SnapshotRef) -> None:
        """Record that a batch became a snapshot. Failing to write the record is not an error."""
        known = [(done, ref) for done, ref in self._progress() if done < batch]
        batches = [(batch, snapshot), *known][:_KEPT_BATCHES]
        content = [{"batch": done, "snapshot": ref.to_dict()} for done, ref in batches]
        try:
            self.checkpoint.put(self._progress_path, json.dumps(content).encode(), durable=False)
        except AnabranchError:
            return

    @property
    def has_committed(self) -> bool:
        """Whether a batch is recorded."""
        return bool(self._progress())

    def known_identity(self) -> SinkIdentity | None:
        """Return the stored identity, or None if the query never wrote to the branch. Raises `CorruptTableError`."""
        return SinkIdentity.find(self.checkpoint, self._identity_path)

    def _progress(self) -> list[tuple[int, SnapshotRef]]:
        """Return the recorded batches, newest first; empty if there are none or they cannot be read."""
        try:
            content: Any = json.loads(self.checkpoint.get(self._progress_path))
            return [
                (int(entry["batch"]), SnapshotRef.from_dict(entry["snapshot"], where=self._progress_path))
                for entry in content
            ]
        except (AnabranchError, ValueError, KeyError, TypeError):
            return []

    @property
    def _identity_path(self) -> str:
        return f"{_FOLDER}/sink-{self.branch_uuid}.json"

    @property
    def _progress_path(self) -> str:
        return f"{_FOLDER}/sink-{self.branch_uuid}.progress.json"


def reference(branch_uuid: str, snapshot: Snapshot | None) -> SnapshotRef:
    """Return a reference to the snapshot; None is the moment before the first one."""
    if snapshot is None:
        return SnapshotRef(branch_uuid, 0, "")
    return SnapshotRef(branch_uuid, snapshot.id, snapshot.stamp)


# Check whether a streaming query may write to main after main was replaced.
#
# A query that wrote to the old main does not go on with the new one by itself: the job of the branch that took its place
# has read the same sources, so every event would be there twice. It is known by what its checkpoint holds: identities are
# kept by branch. The query of that job finds its own, and goes on. With ``sink.on-replace=follow`` an old one is let
# through, under a new identity, unless it is certain to write what is there already.


def former_identity(checkpoint: Storage, main: TableContext) -> tuple[SinkIdentity, MainPointer] | None:
    """Return a query's identity at a replaced main, and the replacement.

    None for a query that writes to this branch already, or that never wrote to main.
    """
    if not main.main_generation or SinkRecord(checkpoint, main.branch_uuid).known_identity() is not None:
        return None
    for pointer in reversed(replacements(main)):
        if pointer.replaced is None or pointer.replaced.old.uuid == main.branch_uuid:
            continue
        found = SinkRecord(checkpoint, pointer.replaced.old.uuid).known_identity()
        if found is not None:
            return found, pointer
    return None


def fenced(main: TableContext, job: str, pointer: MainPointer) -> SealedBranchError:
    """Return the error for a query that wrote to the old main."""
    others = [name for name in jobs_of(main, pointer) if name]
    at_work = f" Its rows come from the job '{others[0]}'." if others else ""
    return SealedBranchError(
        f"the streaming query '{job}' wrote to the main of '{main.name}' that was replaced by {pointer.main}: replacement "
        f"{pointer.generation}.{at_work} Nothing was written",
        hint="end this query if that job does its work; otherwise every event would be there twice. What it wrote is kept "
        f"as '{former_main_name(pointer.generation)}'. To write to the new main nevertheless, restart it with "
        "sink.on-replace=follow.",
    )


def check_may_follow(main: TableContext, job: str, pointer: MainPointer) -> None:
    """Raise `SealedBranchError` if the new main has a writer of the same job name."""
    if job in jobs_of(main, pointer):
        raise SealedBranchError(
            f"the streaming query '{job}' cannot follow to the new main of '{main.name}': {pointer.main} is written by a "
            "job of the same name",
            hint="end this query, or give it another job name and a new checkpoint location.",
        )


def jobs_of(main: TableContext, pointer: MainPointer) -> list[str]:
    """Return the jobs that write streams to the new main, latest first."""
    fork = 0 if pointer.replaced is None else pointer.replaced.fork.id
    head = main.snapshots.head()
    users = []
    for snapshot in () if head is None else main.snapshots.backwards(head):
        if snapshot.id <= fork:
            break
        if snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER:
            users.append(snapshot.commit_user)
    users += recorded_after(main, fork)
    suffix = f"@{main.branch_uuid}"
    return list(dict.fromkeys(user.removesuffix(suffix) for user in users if user.endswith(suffix)))


# Origin of a streaming query's initial state, kept in its checkpoint as ``anabranch/state.json``.
#
# Written once, before the query's first batch. The sink reads it: batches before `BegunState.first_batch` only build state
# up again from rows whose results are in the table already, so the sink drops what they emit.

STATE_PROPERTY = "anabranch.state"
"""Key in the properties of the first snapshot that a query with such a beginning commits."""

Way = Literal["carried", "rebuilt", "beginning", "empty"]
"""``carried``: copied from the checkpoint of the query that made the point. ``rebuilt``: made again from the sources, with
the output up to the point withheld. ``beginning``: the whole result is made again. ``empty``: accepted by a person."""

_PATH = "anabranch/state.json"
_TITLES: Mapping[str, str] = {
    "carried": "carried",
    "rebuilt": "rebuilt",
    "beginning": "from the beginning",
    "empty": "empty, as accepted",
}


@dataclass(frozen=True, slots=True)
class BegunState(JsonFile):
    """Way in which a query got the state for the point at which it begins."""

    WHAT: ClassVar = "record of how a query got its state"
    SNAKE: ClassVar = True
    HINT: ClassVar = "restore the checkpoint: without this file rows could be published twice."

    way: Way
    first_batch: int
    """Number of the first batch whose rows are published; those before it are withheld."""
    reason: str
    """Reason for the way, for people."""
    query: str | None = None
    """Id of the query whose commits the point contains."""
    batch: int | None = None
    """Last batch of that query that the point contains."""
    starts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Per source, the options of its start, which replace those of the point."""

    @property
    def title(self) -> str:
        """Text for people: the way, and its reason."""
        return f"{_TITLES[self.way]}: {self.reason}"

    def to_property(self) -> str:
        """Return the value of `STATE_PROPERTY`."""
        value = {"way": self.way, "reason": self.reason, "query": self.query, "batch": self.batch}
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def begun_state(checkpoint: Storage) -> BegunState | None:
    """Return the origin of a checkpoint's state; None if it began with none. Raises `CorruptTableError`."""
    return BegunState.find(checkpoint, _PATH, whole=True)


def record_begun_state(checkpoint: Storage, state: BegunState) -> None:
    """Record the origin of a query's state, before its first batch."""
    checkpoint.put(_PATH, state.to_json())

"""Properties that our snapshots carry: their keys, and what the ones of merges and replacements say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Final

from anabranch.errors import CorruptTableError
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.text.json_object import JsonObject
from anabranch.format.text.record import JsonFile, JsonRecord, Stored

BRANCH_PROPERTY = "anabranch.branch"
"""Identity of the branch a snapshot was made on."""
WRITER_PROPERTY = "anabranch.writer"
"""Marks our snapshots, with the version of the writer."""
PARENT_PROPERTY = "anabranch.parent"
"""Stamp of the snapshot it was built on."""
OVERWRITE_PROPERTY = "anabranch.overwrite"
"""Partitions that an overwrite replaced."""
EXPIRED_PARTITIONS_PROPERTY = "anabranch.expired-partitions"
"""Partitions that an overwrite took away because of their age."""
ROLLBACK_PROPERTY = "anabranch.rollback"
"""Snapshot that a rollback restored."""
WATERMARK_PROPERTY = "anabranch.watermark"
"""Event-time progress of the sources of the rows."""
AHEAD_PROPERTY = "anabranch.rows-ahead"
"""Number of rows of a commit whose event times are too far ahead of the clock to move the watermark."""
WATERMARK_SINCE_PROPERTY = "anabranch.watermark-since"
"""Id of the last snapshot whose watermark was reset, so that it may be lower than the one before."""
REWRITE_PROPERTY = "anabranch.rewrite"
"""How a compaction rewrote files; rows are unchanged."""
MERGE_PROPERTY = "anabranch.merge"
"""Branch that a snapshot of main merged, up to which snapshot, and how."""
FENCE_PROPERTY = "anabranch.fence"
"""Marks a branch snapshot that only records a merge point: compaction keeps older rows from younger ones."""
SEAL_PROPERTY = "anabranch.seal"
"""Number of the replacement of main for which this snapshot, which changes nothing, seals the old main."""
REPLACE_PROPERTY = "anabranch.replace"
"""Branch whose content an overwrite put in place of main's."""
LEFTOVER_PROPERTY = "anabranch.leftover"
"""Stamp of the overtaken writer's snapshot in whose place this one was stored."""


MERGE_USER: Final = "merge:"
"""Prefix of the commit users of merges; the uuid of the branch follows."""


@dataclass(frozen=True, slots=True)
class MergeFacts(JsonFile):
    """Merge metadata of a snapshot. All of it has to be there: what is missing would be taken for merged, or for appended."""

    branch_uuid: Annotated[str, Stored(key="branch")]
    branch: Annotated[str, Stored(key="name")]
    """Its name."""
    head: SnapshotRef
    """The snapshot of the branch that was merged."""
    replaced: frozenset[bytes]
    """Partition rows whose files were replaced by the branch's."""
    theirs: frozenset[bytes]
    """Those of them where both sides had changes and a person chose the branch's."""
    ours: frozenset[bytes]
    """Partition rows that a person chose to leave as they are on main."""
    is_ended: Annotated[bool, Stored(key="ended")]
    """Whether this only marks a merge as ended without merging, so that a delayed process stops."""
    along: Annotated[Mapping[str, int], Stored(seldom=True, minimum=0)] = field(default_factory=dict)
    """Other branches of which rows came along, by uuid, each with the id of its newest snapshot that did: the branch was main
    when they were merged."""

    @property
    def branches(self) -> Mapping[str, int]:
        """All branches of which rows came with it, this one and others, as in `along`."""
        return {**self.along, self.branch_uuid: self.head.id}

    def to_text(self) -> str:
        """The value of the property."""
        return json.dumps({"version": self.VERSION, **self.to_dict()}, separators=(",", ":"))


def merge_facts(snapshot: Snapshot | PastSnapshot) -> MergeFacts:
    """Parse the merge metadata of a snapshot. Raises `CorruptTableError` if it is missing or unreadable."""
    where = f"snapshot {snapshot.id}"
    try:
        return MergeFacts.from_json(snapshot.properties.get(MERGE_PROPERTY, "").encode(), path=where)
    except CorruptTableError as error:
        raise CorruptTableError(f"property '{MERGE_PROPERTY}' cannot be read", path=where) from error


def is_marker(snapshot: Snapshot) -> bool:
    """Whether a merge's snapshot only marks that the merge was ended. Raises as `merge_facts` if it does not say."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        # Asked of every merge that is left in main's history; to read the facts as a whole takes many times as long.
        said = json.loads(snapshot.properties.get(MERGE_PROPERTY, ""))
        if said["version"] == MergeFacts.VERSION and isinstance(said["ended"], bool):
            return said["ended"]
    return merge_facts(snapshot).is_ended


@dataclass(frozen=True, slots=True)
class ReplaceFacts(JsonRecord):
    """Branch and snapshot whose content main was given, by whom and why."""

    taken: Annotated[SnapshotRef, Stored(key="by")]
    branch: str | None
    """The branch's name at the time."""
    by: Annotated[str | None, Stored(key="madeBy", seldom=True)] = None
    reason: Annotated[str | None, Stored(seldom=True)] = None

    def to_properties(self) -> Mapping[str, str]:
        """Return these facts as snapshot properties."""
        return {REPLACE_PROPERTY: json.dumps(self.to_dict())}


def replace_facts(snapshot: Snapshot | PastSnapshot) -> ReplaceFacts | None:
    """Parse the facts of a snapshot; None if it has none, or whose content main was given cannot be read."""
    text = snapshot.properties.get(REPLACE_PROPERTY)
    if text is None:
        return None
    try:
        said = JsonObject.parse(text.encode(), path=f"snapshot {snapshot.id}")
        # Names and reasons are for people: what is no text in them hides no replacement.
        known = {key: value for key, value in said.values.items() if key == "by" or isinstance(value, str)}
        return ReplaceFacts.from_object(JsonObject(known, said.path))
    except CorruptTableError:
        return None

"""Origin of a streaming query's initial state, kept in its checkpoint as ``anabranch/state.json``.

Written once, before the query's first batch. The sink reads it: batches before `BegunState.first_batch` only build state
up again from rows whose results are in the table already, so the sink drops what they emit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from anabranch.format.text.record import JsonFile
from anabranch.storage.protocol import Storage

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

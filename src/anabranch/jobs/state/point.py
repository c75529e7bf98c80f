"""The batch of a streaming query at which another one begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from anabranch.format.text.record import JsonRecord
from anabranch.lineage.model import LineageEntry


@dataclass(frozen=True, slots=True)
class Point(JsonRecord):
    """A job's last batch in the content it begins with."""

    query: str
    """Id of the query that made it."""
    batch: int
    watermark: int | None = None
    """Event-time watermark that the batch ran under, epoch milliseconds; None if the commit does not say."""

    @classmethod
    def of(cls, entry: LineageEntry | None) -> Self | None:
        """Return the batch that made a commit; None if it was not a streaming batch."""
        if entry is None or entry.engine.query is None or entry.engine.batch is None:
            return None
        return cls(entry.engine.query, entry.engine.batch, entry.watermark)

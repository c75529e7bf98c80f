"""The batch of a streaming query at which another one begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from anabranch.lineage.model import LineageEntry


@dataclass(frozen=True, slots=True)
class Point:
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any] | None) -> Self | None:
        """The point, or None if `value` is none."""
        match value:
            case {"query": str(query), "batch": int(batch), "watermark": watermark}:
                return cls(query, batch, watermark if isinstance(watermark, int) else None)
        return None

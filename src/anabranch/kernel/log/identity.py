"""Commit identity: makes a commit idempotent, however often it is tried."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.format.records.snapshot import BATCH_COMMIT_IDENTIFIER
from anabranch.runtime import Runtime


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    """A commit user and the number of the commit among that user's commits.

    A streaming job keeps its user and counts up, so a repeated commit is recognised. A one-shot batch
    commit has its own user.
    """

    user: str
    identifier: int

    @classmethod
    def batch(cls, runtime: Runtime) -> CommitIdentity:
        """Return a new, unique identity."""
        return cls(runtime.ids.uuid(), BATCH_COMMIT_IDENTIFIER)

    @property
    def is_batch(self) -> bool:
        return self.identifier == BATCH_COMMIT_IDENTIFIER

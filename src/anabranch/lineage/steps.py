"""Steps of streams handed out to a run, kept until they are worked through and its commits have named them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.lineage.joining import joined
from anabranch.lineage.model import Input


@dataclass(eq=False)
class StreamStep:
    """A part of a stream that was handed out."""

    read: Input
    number: int
    """Number within the run, from 1."""
    is_done: bool = False
    """Whether it was worked through: the next one was asked for."""


class Steps:
    """The steps of a run. Not thread-safe: the caller serialises access."""

    def __init__(self) -> None:
        self.delivered = 0
        """Number of steps so far."""
        self._steps: list[StreamStep] = []
        self._told: dict[str, int] = {}
        """By branch identity: the last step up to which its commits have named all."""

    def deliver(self, read: Input) -> StreamStep:
        """Add a step, which is not worked through yet."""
        self.delivered += 1
        step = StreamStep(read, self.delivered)
        self._steps.append(step)
        return step

    def of(self, sink: str) -> list[Input]:
        """Return the reads that may go into the rows of a commit to that branch."""
        return [step.read for step in self._steps if not self._is_over(step, sink)]

    def committed(self, sink: str, through: int) -> None:
        """Record that a commit to that branch has named all steps up to that number."""
        self._told[sink] = max(through, self._told.get(sink, 0))
        self._steps = self._fewer()

    def _is_over(self, step: StreamStep, sink: str) -> bool:
        """Whether no rows of a step can go into later commits to that branch."""
        return step.is_done and step.number <= self._told.get(sink, 0)

    def _fewer(self) -> list[StreamStep]:
        """Join steps that differ only in what was read, so that a long run does not remember each of them.

        If a commit is made meanwhile that names only the first of them, the next one to its branch names them again.
        """
        fewer: list[StreamStep] = []
        for step in self._steps:
            last = fewer[-1] if fewer else None
            if last is not None and last.is_done and step.is_done and self._whose(last) == self._whose(step):
                both = joined([last.read, step.read])
                if len(both) == 1:
                    fewer[-1] = replace(step, read=both[0])
                    continue
            fewer.append(step)
        return fewer

    def _whose(self, step: StreamStep) -> set[str]:
        """Return the branches whose commits have named a step."""
        return {sink for sink, number in self._told.items() if step.number <= number}

"""How long jobs run, and what happens when they fail."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from anabranch.errors import InvalidInputError
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, ONCE, Trigger


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long jobs run, and what happens when they fail."""

    trigger: Trigger | None = None
    """Replaces declared triggers: `AVAILABLE_NOW` or `ONCE`; None for the declared ones."""
    policy: Policy = field(default_factory=Policy)
    patience_seconds: float = 60.0
    """How long a clean end waits for current batches."""


def with_trigger(schedule: Schedule, *, available_now: bool, once: bool) -> Schedule:
    """Return the schedule with the trigger that flags ask for. Raises `InvalidInputError` for both."""
    if available_now and once:
        raise InvalidInputError(
            "take what is there in several batches, or in one", hint="give one of the two."
        )
    if not available_now and not once:
        return schedule
    return replace(schedule, trigger=AVAILABLE_NOW if available_now else ONCE)

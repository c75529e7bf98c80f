"""The trigger of a streaming job: when its batches begin."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from anabranch.errors import InvalidInputError, OptionError
from anabranch.jobs.task import Policy
from anabranch.option_kinds import parse_duration

_AVAILABLE_NOW: Final = "available-now"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger of Spark Structured Streaming."""

    kind: Literal["continuous", "interval", "available-now", "once"]
    """``continuous``: one batch right after the other; ``available-now``: what is there, then it ends; ``once``: that in a
    single batch."""
    millis: int | None = None
    """Length of an interval."""

    @property
    def ends(self) -> bool:
        """Whether the job ends by itself."""
        return self.kind in (_AVAILABLE_NOW, "once")

    def __str__(self) -> str:
        return f"every {self.millis} ms" if self.kind == "interval" else self.kind

    def spark(self) -> dict[str, Any]:
        """Arguments of ``DataStreamWriter.trigger``; empty for Spark's default."""
        match self.kind:
            case "interval":
                return {"processingTime": f"{self.millis} milliseconds"}
            case "available-now":
                return {"availableNow": True}
            case "once":
                return {"once": True}
            case _:
                return {}


AVAILABLE_NOW = Trigger(_AVAILABLE_NOW)
ONCE = Trigger("once")


def trigger_of(text: Any, where: str) -> Trigger:
    """Parse the trigger of a declaration. Raises `OptionError` naming `where`."""
    if text is None:
        return Trigger("continuous")
    if isinstance(text, str):
        if text.strip().lower() == _AVAILABLE_NOW:
            return AVAILABLE_NOW
        try:
            return Trigger("interval", parse_duration(text))
        except ValueError:
            pass
    raise OptionError(
        f"{where}: its trigger is {text!r}", hint="write an interval such as '5 seconds', or 'available-now'."
    )


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

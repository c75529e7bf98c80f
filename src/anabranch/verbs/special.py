"""The few special forms of verbs: questions, progress, and the statuses of jobs. Who calls the verb gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from anabranch.verbs.caller import Caller
from anabranch.verbs.verb import Parameter


@dataclass(frozen=True)
class _Special:
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class Asking(_Special):
    """A question that is asked before something is removed or replaced: the command has ``--yes``."""

    def value(self, caller: Caller, _given: Mapping[str, Any]) -> Callable[[str], None]:
        """Return what asks it, and raises if the answer is no."""
        return caller.confirm


@dataclass(frozen=True)
class Progressing(_Special):
    """What long work is at."""

    def value(self, caller: Caller, _given: Mapping[str, Any]) -> Callable[[str], None]:
        """Return what is told."""
        return caller.progress


@dataclass(frozen=True)
class Calling(_Special):
    """Who calls, for verbs that are about the process or the terminal themselves."""

    def value(self, caller: Caller, _given: Mapping[str, Any]) -> Caller:
        """Return it."""
        return caller


@dataclass(frozen=True)
class Ordered(_Special):
    """The names of the parameters in the order in which they were given."""

    def value(self, caller: Caller, _given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return them."""
        return caller.order


Confirm = Annotated[Callable[[str], None], Asking()]
Progress = Annotated[Callable[[str], None], Progressing()]
Called = Annotated[Caller, Calling()]
Order = Annotated[tuple[str, ...], Ordered()]

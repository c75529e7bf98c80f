"""A step of a repair, and what carries it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.kernel.repair.problem import Kind


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a repair does, or would do."""

    kind: Kind
    what: str
    """A sentence."""
    path: str = ""


Act = Callable[[], bool]
"""Carries a step out; False if there was nothing to do any more."""

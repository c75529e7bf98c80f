"""A step of a repair, and the action that executes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.kernel.repair.problem import Kind


@dataclass(frozen=True, slots=True)
class Step:
    """A step that a repair does, or would do."""

    kind: Kind
    what: str
    """A sentence."""
    path: str = ""


Act = Callable[[], bool]
"""Executes a step; False if there was nothing left to do."""

"""What was read of a table so far while it is checked, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anabranch.errors import (
    AnabranchError,
    CorruptTableError,
    NotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.seals import dropped_until
from anabranch.kernel.repair.problem import Kind, Problem

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RefState:
    """A table state named by a ref."""

    name: str
    """For people: ``snapshot 5 of branch 'fix'``."""
    path: str
    context: TableContext
    snapshot: Snapshot
    whole: bool
    """Whether to check all of its files, or only added ones because the state before it is checked too."""


@dataclass
class Found:
    """Everything read so far."""

    states: list[RefState] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    branches: int = 0
    snapshots: int = 0
    refs: int = 0


def of_branch(context: TableContext) -> str:
    """Return the branch for a message; nothing for main."""
    is_main = context.branch is None or context.main_generation is not None
    return "" if is_main else f" of branch '{context.branch}'"


def dropped_if_known(context: TableContext) -> int | None:
    """Return the result of `dropped_until`; None too if that record is damaged, which is reported separately."""
    try:
        return dropped_until(context)
    except (CorruptTableError, UnsupportedFeatureError):
        return None


def tried(
    found: Found,
    kind: Kind,
    context: TableContext,
    read: Callable[[], _T | None],
    path: str = "",
    **about: Any,
) -> _T | None:
    """Return the result of `read`; None, with a problem noted, if it cannot be read."""
    try:
        return read()
    except NotFoundError:
        return None
    except StorageError:
        raise
    except AnabranchError as error:
        path = path or getattr(error, "path", None) or ""
        if not any(p.path == path and p.kind == kind for p in found.problems):
            found.problems.append(Problem(kind, str(error.message), path, context.branch, **about))
        return None

"""Remembers what this process has read, so that a commit which cannot name its inputs can say so.

Rows that a program holds do not record their origin. Two things are known all the same: which tables this
process has read, and the contents of the very objects that reads have returned.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch.lineage.model import TableInput

T = TypeVar("T")
Reads = Callable[[], Iterable[TableInput]]

SOME_THREAD: Final = 0
_MOST_TABLES: Final = 200
_MOST_NAMED: Final = 5

_TABLES: Final[dict[tuple[str, int | None], str]] = {}
"""Titles of branches that were read, by their identity and the thread, as given to `read`."""
_HANDED_OUT: Final[dict[int, tuple[Callable[[], Any], Reads]]] = {}
"""Row objects that are still alive, by id, and what they were read from."""


@dataclass(frozen=True, slots=True)
class Handed:
    """What is known of rows that a program passes to a write."""

    inputs: tuple[TableInput, ...]
    is_whole: bool
    """Whether nothing else can have been added to the object since it was read."""


def read(branch_uuid: str, title: str, *, thread: int | None) -> None:
    """Remember that a branch was read.

    Args:
        branch_uuid: identity of the branch.
        title: its name.
        thread: number of the thread that read it for a job, `SOME_THREAD` if that is unknown; None for outside of jobs.
    """
    key = (branch_uuid, thread)
    _TABLES.pop(key, None)
    _TABLES[key] = title
    while len(_TABLES) > _MOST_TABLES:
        _TABLES.pop(next(iter(_TABLES)), None)


def may_hold(but: Collection[str] = (), *, of_jobs: bool = True) -> str | None:
    """Return tables that rows of this thread may be made of, for people; None if there are none.

    Args:
        but: branches to leave out, because they are known.
        of_jobs: whether to count reads of jobs in this thread, or in an unknown one; other jobs name them themselves.
    """
    threads = (None, SOME_THREAD, threading.get_ident()) if of_jobs else (None,)
    titles = {branch: title for (branch, thread), title in list(_TABLES.items()) if thread in threads}
    return listed([title for branch, title in titles.items() if branch not in but])


def listed(titles: Sequence[str]) -> str | None:
    """Return some names, and how many more there are; None for none."""
    found = sorted(set(titles))
    more = len(found) - _MOST_NAMED
    return ", ".join(found[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "") or None


def hand_out(rows: T, reads: Reads) -> T:
    """Remember what an object of rows was read from, as long as it lives."""
    key = id(rows)

    def gone(reference: object) -> None:
        known = _HANDED_OUT.get(key)
        if known is not None and known[0] is reference:
            _HANDED_OUT.pop(key, None)

    with suppress(TypeError):  # such an object cannot be tracked
        _HANDED_OUT[key] = (weakref.ref(rows, gone), reads)
    return rows


def handed(data: Any) -> Handed | None:
    """Return what an object of rows, or each of several, was read from; None if that is not known."""
    if isinstance(data, list | tuple):
        parts = [handed(part) for part in data] if data and not isinstance(data[0], dict) else []
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        inputs = dict.fromkeys(read for part in known for read in part.inputs)
        return Handed(tuple(inputs), all(part.is_whole for part in known))
    found = _HANDED_OUT.get(id(data))
    if found is None or found[0]() is not data:
        return None
    try:
        inputs = dict.fromkeys(found[1]())
    except AnabranchError:  # lineage must not fail a write
        return None
    # Columns of a data frame can be set, and rows put in.
    is_fixed = isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterator)
    return Handed(tuple(inputs), is_fixed)


def forget() -> None:
    """Forget everything, as in a new process."""
    _TABLES.clear()
    _HANDED_OUT.clear()

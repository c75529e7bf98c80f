"""Snapshots of branches as short lines, read in portions and kept: a history never changes below its newest."""

from __future__ import annotations

import json
import sys
import threading
from collections import OrderedDict
from itertools import islice
from typing import Any, NamedTuple

from anabranch import Snapshot, Table
from anabranch.ui.side_by_side import side_by_side

_SAMPLE = 240
"""Snapshots that a trend is drawn from."""
_MOST_LINES = 150_000
"""Lines kept, of all branches together: about 60 MB."""


class Line(NamedTuple):
    """One snapshot."""

    id: int
    kind: str
    """The kind of its commit, or what ours say more exactly: ``merge``, ``replace``, ``seal``, ``fence``, ``rollback``."""
    millis: int
    rows: int | None
    added: int | None
    watermark: int | None
    schema: int
    user: str
    job: str | None
    code: str | None
    run: str | None
    engine: str | None
    batch: int | None
    stamp: str


COLUMNS = Line._fields


class History:
    """The lines of one branch that were read so far, newest first."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._last: Snapshot | None = None
        """The oldest snapshot read."""
        self._is_whole = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._lines)

    def page(self, table: Table, before: int | None, most: int) -> tuple[list[Line], bool]:
        """Return snapshots below an id, newest first, and whether there are older ones.

        Args:
            table: the branch.
            before: only below this id; all if None.
            most: at most so many.
        """
        with self._lock:
            self._begin(table)
            start = self._place(before)
            self._read_on(table, start + most + 1 - len(self._lines))
            found = self._lines[start : start + most]
            return found, start + most < len(self._lines) or not self._is_whole

    def down_to(self, table: Table, least: int) -> list[Line]:
        """Return snapshots down to an id, newest first."""
        with self._lock:
            self._begin(table)
            if self._last is not None and self._last.id > least:
                self._read_on(table, self._last.id - least)
            return self._lines[: self._place(least - 1) if least > 0 else len(self._lines)]

    def _place(self, before: int | None) -> int:
        """Return the number of lines at or above an id. Ids of a history are without gaps."""
        if before is None or not self._lines:
            return 0
        return min(max(self._lines[0].id - before + 1, 0), len(self._lines))

    def _begin(self, table: Table) -> None:
        """Put what was committed since on top; begin anew where history was rewritten."""
        head = table.snapshot
        if head is None:
            self._lines, self._last, self._is_whole = [], None, True
            return
        self._forget_expired(table)
        if self._lines and self._lines[0].stamp == head.stamp:
            return
        known = {line.id: line.stamp for line in self._lines[:1]}
        young: list[Line] = []
        if self._lines and head.id > self._lines[0].id:
            for snapshot in table.context.snapshots.down_to(head, self._lines[0].id):
                if known.get(snapshot.id) == snapshot.stamp:
                    self._lines[:0] = young
                    return
                young.append(line_of(snapshot))
        self._lines, self._last, self._is_whole = [line_of(head)], head, head.id == 1

    def _forget_expired(self, table: Table) -> None:
        """Leave out snapshots that are gone: expiry takes the oldest."""
        snapshots = table.context.snapshots
        # One question, where finding the earliest may list a long history.
        if not self._lines or snapshots.is_there(self._lines[-1].id):
            return
        earliest = snapshots.earliest_id()
        if earliest is None or self._lines[-1].id >= earliest:
            return
        self._lines = [line for line in self._lines if line.id >= earliest]
        self._is_whole = True

    def _read_on(self, table: Table, most: int) -> None:
        last = self._last
        if most <= 0 or last is None or self._is_whole:
            return
        older = islice(table.context.snapshots.down_to(last, last.id - most), 1, None)
        found = 0
        for snapshot in older:
            self._lines.append(line_of(snapshot))
            self._last = snapshot
            found += 1
        self._is_whole = found < most or (self._last is not None and self._last.id == 1)


class Histories:
    """Histories by branch, those last used."""

    def __init__(self, most: int = _MOST_LINES) -> None:
        self._most = most
        self._found: OrderedDict[str, History] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, table: Table) -> History:
        """Return the history of a branch."""
        key = f"{table.context.storage.url}/{table.branch_uuid}/{table.name}"
        with self._lock:
            found = self._found.setdefault(key, History())
            self._found.move_to_end(key)
            while len(self._found) > 1 and sum(map(len, self._found.values())) > self._most:
                self._found.popitem(last=False)
            return found


def sampled(table: Table, most: int = _SAMPLE) -> list[Line]:
    """Return snapshots of a branch that are spread evenly over its history, oldest first, without reading those between.

    Args:
        table: the branch.
        most: at most so many, at least two.
    """
    head = table.snapshot
    if head is None:
        return []
    snapshots = table.context.snapshots
    reach = head.id - (snapshots.earliest_id() or head.id)
    steps = min(most - 1, reach)
    ids = [head.id - reach + reach * step // steps for step in range(steps)] if steps else []
    found = side_by_side(snapshots.find, ids)
    return [*(line_of(one) for one in found if one is not None), line_of(head)]


def line_of(snapshot: Snapshot) -> Line:
    """Return the line of a snapshot; texts that many share are stored once."""
    lineage = _object(snapshot.properties.get("anabranch.lineage"))
    engine = lineage.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    return Line(
        snapshot.id,
        _kind(snapshot),
        snapshot.time_millis,
        snapshot.total_record_count,
        snapshot.delta_record_count,
        snapshot.watermark,
        snapshot.schema_id,
        sys.intern(snapshot.commit_user),
        _text(lineage.get("job")),
        _text(lineage.get("code")),
        _text(lineage.get("run")),
        _text(engine.get("name")),
        engine.get("batch") if isinstance(engine.get("batch"), int) else None,
        snapshot.stamp,
    )


_MARKS = ("seal", "fence", "replace", "merge", "rollback")


def _kind(snapshot: Snapshot) -> str:
    for mark in _MARKS:
        if f"anabranch.{mark}" in snapshot.properties:
            return mark
    return snapshot.commit_kind.value.lower()


def _object(text: str | None) -> dict[str, Any]:
    """Parse an object of JSON; what is damaged says nothing."""
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str | None:
    return sys.intern(value) if isinstance(value, str) else None


def snapshot_prefix(view: Table) -> str:
    """Return what goes before the id of a snapshot of a branch: a former main may have had another of that id."""
    return "main.snapshot." if view.context.main_generation else "snapshot."


def other_branches(main: Table) -> list[str]:
    """Return the branches beside main. A branch that took the place of main keeps its name, but is main."""
    context = main.context
    own = context.branch if context.main_generation is not None else None
    return [name for name in main.branches() if name != own]

"""Snapshots of branches as short lines, read in portions and kept: a history never changes below its newest."""

from __future__ import annotations

import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from anabranch import AnabranchError, CorruptTableError, Snapshot, Table
from anabranch.runtime import SYSTEM, Clock, Runtime
from anabranch.verbs.parallel import each

_SAMPLE = 240
"""Snapshots that a trend is drawn from."""
_TRIED_AGAIN = 20
"""Damaged snapshots that are looked at again whenever the page asks: somebody may have mended them."""
_LOOKS = 3
"""Tries to go on below the end of a history where there is a snapshot; it may be a late writer's leftover."""
LATELY_SECONDS = 20.0
"""For which what may change without a new snapshot is not looked at again."""
_MOST_LINES = 150_000
"""Lines kept, of all branches together: about 60 MB."""


class Line(NamedTuple):
    """One snapshot."""

    id: int
    kind: str
    """The kind of its commit, or what ours say more exactly: ``merge``, ``replace``, ``seal``, ``fence``, ``rollback``; or `DAMAGED`."""
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
DAMAGED: Final = "damaged"
"""Kind of a snapshot that cannot be read; its time is that of one beside it, or of its file, and all else is not known."""


class History:
    """The lines of one branch that were read so far, newest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: list[Line] = []
        self._last: Snapshot | None = None
        """The oldest snapshot read."""
        self._is_whole = False
        self._files: dict[int, int] = {}
        """When the file of each snapshot was stored, by what was listed last."""
        self._listed = float("-inf")
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
        head, above = newest(table)
        if head is None:
            self._lines, self._last, self._is_whole = above, None, True
            return
        self._forget_expired(table)
        if not self._is_as_read(table):
            self._begin_at(head, above)
            return
        if self._lines and self._lines[0].stamp == head.stamp:
            if not self._mend(table):
                self._begin_at(head)
            return
        if self._lines and head.id > self._lines[0].id and not above:
            lines, _ = _below(table, head, self._lines[0].id)
            if lines and lines[-1].stamp == self._lines[0].stamp:
                self._lines[:0] = [line_of(head), *lines[:-1]]
                return
        self._begin_at(head, above)

    def _begin_at(self, head: Snapshot, above: Iterable[Line] = ()) -> None:
        self._lines, self._last, self._is_whole = [*above, line_of(head)], head, head.id == 1

    def _is_as_read(self, table: Table) -> bool:
        """Whether the files of the snapshots are those that were read, by the times at which they were stored.

        Nobody writes a snapshot again but who damages it, or puts it back. The folder is listed now and then.
        """
        now = self._clock.monotonic()
        if now - self._listed < LATELY_SECONDS:
            return True
        was, self._files, self._listed = self._files, table.context.snapshots.stored(), now
        known = [line for line in self._lines if line.kind != DAMAGED]  # the others are looked at each time
        if any(was[line.id] != self._files.get(line.id) for line in known if line.id in was):
            return False
        try:  # those that were read since, which are few
            found = [(line, table.context.snapshots.find(line.id)) for line in known if line.id not in was]
        except CorruptTableError:
            return False
        return all(one is not None and one.stamp == line.stamp for line, one in found)

    def _mend(self, table: Table) -> bool:
        """Look again at snapshots that could not be read; False if one is gone, and history ends above it."""
        places = (place for place, line in enumerate(self._lines) if line.kind == DAMAGED)
        for place in islice(places, _TRIED_AGAIN):
            try:
                found = table.context.snapshots.find(self._lines[place].id)
            except AnabranchError as error:
                if error.retryable:
                    raise
                continue
            if found is None:
                return False
            self._lines[place] = line_of(found)
        return True

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
        reached = self._lines[-1].id
        below, found = _below(table, last, reached - most)
        for _ in range(_LOOKS):
            if len(below) >= last.id - (reached - most) or not table.context.snapshots.is_there(found.id - 1):
                break  # or else the table was away for a moment
            below, found = max(
                (below, found), _below(table, last, reached - most), key=lambda one: len(one[0])
            )
        older = [line for line in below if line.id < reached]
        self._lines, self._last = [*self._lines, *older], found
        is_there = table.context.snapshots.is_there(self._lines[0].id)
        self._is_whole = (len(older) < most and is_there) or self._lines[-1].id == 1


def newest(table: Table) -> tuple[Snapshot | None, list[Line]]:
    """Return the newest snapshot that can be read, and the lines of those above it; of all where none can be read."""
    try:
        found = table.snapshot
        is_main = table.context.main_generation is not None
        if found is None or (is_main and _kind(found) == "seal"):
            found = table.snapshot  # it may have been away for a moment
        return found, []
    except CorruptTableError:
        table.tags()  # raises where it is not known which branch is main
        damaged = []
        for number in reversed(table.context.snapshots.ids()):
            try:
                found = table.context.snapshots.find(number)
            except CorruptTableError:
                damaged.append(number)
                continue
            if found is not None:
                return found, [_damaged(table, number, found.time_millis) for number in damaged]
        return None, _all_damaged(table, damaged)


def _below(table: Table, newest: Snapshot, lowest: int) -> tuple[list[Line], Snapshot]:
    """Return the lines below a snapshot, newest first, down to an id or the first gap, and the last that could be read."""
    damaged = dict[int, AnabranchError]()
    lines, last = [], newest
    for snapshot in islice(table.context.snapshots.down_to(newest, lowest, damaged.__setitem__), 1, None):
        between = range(last.id - 1, snapshot.id, -1)
        lines += [*(_damaged(table, number, last.time_millis) for number in between), line_of(snapshot)]
        last = snapshot
    number = last.id - 1
    while number in damaged:  # at the end of history, or of this portion of it
        lines.append(_damaged(table, number, last.time_millis))
        number -= 1
    return lines, last


def _all_damaged(table: Table, numbers: list[int]) -> list[Line]:
    """Return the lines of snapshots of which none can be read, each at the time at which its file was stored."""
    stored = table.context.snapshots.stored()
    return [_damaged(table, number, stored[number]) for number in numbers if number in stored]


def _damaged(table: Table, number: int, millis: int) -> Line:
    """Return the line of a snapshot that cannot be read."""
    stamp = f"{DAMAGED} {table.context.layout.snapshot_path(number)}"
    nothing = {
        "rows": None,
        "added": None,
        "watermark": None,
        "job": None,
        "code": None,
        "run": None,
        "engine": None,
    }
    return Line(number, DAMAGED, millis, **nothing, schema=0, user="", batch=None, stamp=stamp)


class Histories:
    """Histories by branch, those last used."""

    def __init__(self, runtime: Runtime = SYSTEM, most: int = _MOST_LINES) -> None:
        self._most = most
        self._clock = runtime.clock
        self._found: OrderedDict[str, History] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, table: Table) -> History:
        """Return the history of a branch."""
        key = f"{table.context.storage.url}/{table.branch_uuid}/{table.name}"
        with self._lock:
            found = self._found.setdefault(key, History(self._clock))
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
    head, _ = newest(table)
    if head is None:
        return []
    snapshots = table.context.snapshots
    reach = head.id - (snapshots.earliest_id() or head.id)
    steps = min(most - 1, reach)
    ids = [head.id - reach + reach * step // steps for step in range(steps)] if steps else []

    def find(number: int) -> Snapshot | None:
        try:
            return snapshots.find(number)
        except AnabranchError as error:  # which the history tells
            if error.retryable:
                raise
            return None

    return [
        *(line_of(one) for one in each(find, ids, at=table.context.storage) if one is not None),
        line_of(head),
    ]


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

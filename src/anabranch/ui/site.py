"""What the page is about: one warehouse, with what was read of it and need not be read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.lake import Lake
from anabranch.runtime import SYSTEM, Runtime
from anabranch.table import Table
from anabranch.ui.actions import Actions
from anabranch.ui.asked import Asked
from anabranch.ui.calm import CalmLineage
from anabranch.ui.history import LATELY_SECONDS, Histories
from anabranch.verbs.caller import View, open_table

T = TypeVar("T")

_MOST_KEPT = 5_000
"""Answers kept. Most are facts of tables, of about a kilobyte."""


class Kept:
    """The answers last used, by key."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the answer under a key, making it if it is not there; two threads may both make it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                found: T = self._values[key]
                return found
        made = make()
        with self._lock:
            self._values[key] = made
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return made


class Site:
    """A warehouse, as the page shows it."""

    def __init__(
        self,
        lake: Lake,
        *,
        warehouse: str,
        allow_actions: bool = False,
        jobs: Sequence[str] = (),
        checks: Sequence[str] = (),
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Make it; nothing is read yet.

        Args:
            warehouse: its place, as it was named.
            allow_actions: let the page correct tables.
            jobs: files of jobs that a correction may run.
            checks: files of checks that a correction may use.
        """
        self.lake = lake
        self.warehouse = warehouse
        self.allow_actions = allow_actions
        self.jobs = tuple(jobs)
        self.checks = tuple(checks)
        self.runtime = runtime
        self.actions = Actions()
        self.kept = Kept()
        self.histories = Histories(runtime)
        self.is_ending = False
        """Whether the server stops, so that whoever waits for changes shall not."""
        self.calm = CalmLineage(lake, runtime)

    def table(self, asked: Asked) -> Table:
        """Open the table, branch and moment that a request names. Raises `NotFoundError`, `InvalidInputError`."""
        return self.open(asked.text("table"), asked.optional("branch"), asked.optional("at"))

    def open(self, name: str, branch: str | None = None, at: str | None = None) -> Table:
        """Open a table. Raises `NotFoundError`, `InvalidInputError`."""
        return open_table(self.lake, View(name, None if branch == "main" else branch, at))

    def kept_for_good(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is read of a snapshot, which never changes; the key holds its stamp."""
        return self.kept.get(key, make)

    def kept_lately(self, key: Hashable, make: Callable[[], T], *, seconds: float = LATELY_SECONDS) -> T:
        """Return what also changes without a new snapshot, by expiry, a lost file or time: as it was a few seconds ago."""
        return self.kept.get((key, int(self.runtime.clock.monotonic() / seconds)), make)

    @property
    def now(self) -> int:
        """Milliseconds since the epoch."""
        return self.runtime.clock.now_millis()


def looked_again(look: Callable[[], T], seems_damaged: Callable[[T], object]) -> T:
    """Return what a look finds; where that seems damaged, what a second one finds.

    A table that is moved away and back between two requests of one look lacks files that were there all the time.
    """
    try:
        found = look()
    except AnabranchError as error:
        if not isinstance(error, CorruptTableError) and "`repair`" not in (error.hint or ""):
            raise
        return look()
    return look() if seems_damaged(found) else found


_OF_DAMAGE = ("anabranch verify ", "anabranch repair ")
"""Beginnings of the commands that health names for damage."""


def checked_health(opened: Callable[[], Table]) -> tuple[Table, Any]:
    """Return a table and its health; opened and looked at twice before it is said to be damaged."""

    def look() -> tuple[Table, Any]:
        table = opened()
        return table, table.health()

    return looked_again(
        look, lambda found: any((one.command or "").startswith(_OF_DAMAGE) for one in found[1].findings)
    )


def stamp(table: Table) -> str:
    """Return the identity of the state of a view: of its snapshot and schema."""
    snapshot = table.snapshot
    return f"{table.branch_uuid}/{'' if snapshot is None else snapshot.stamp}/{table.schema.id}"

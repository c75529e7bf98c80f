"""A table's refs and records as far as they can be read, and what cannot be: for those who show all there is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.verbs.answer import Note

if TYPE_CHECKING:
    from anabranch.format.records.refs import Tag
    from anabranch.format.records.savepoint import Savepoint
    from anabranch.format.records.snapshot import Snapshot
    from anabranch.format.schema.table_schema import TableSchema
    from anabranch.table import Table


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that could not be read."""

    what: str
    """As people name what it holds."""
    message: str
    hint: str | None
    command: str | None
    """The next step; None where no command helps."""


class Unread:
    """Collects what cannot be read; each file is named once. Thread-safe."""

    def __init__(self, table: str | None = None, hint: str | None = None) -> None:
        """Begin with nothing.

        Args:
            table: the table that it is about; `verify` of it is the next step.
            hint: what to do; what each error says if None.
        """
        self._table = table
        self._hint = hint
        self._found: dict[str, Damage] = {}
        self._lock = threading.Lock()

    def __call__(self, what: str, error: AnabranchError) -> None:
        """Take in what cannot be read, and why."""
        from anabranch.format.text.shell import command_line

        command = None if self._table is None else command_line("verify", self._table)
        with self._lock:
            damage = Damage(what, error.message, self._hint or error.hint, command)
            self._found.setdefault(error.message, damage)

    @property
    def notes(self) -> list[Note]:
        """Everything that could not be read, for people who look at a list of the rest."""
        return [
            Note("\n".join([f"Error: {one.what} cannot be read: {one.message}", *_next_steps(one)]))
            for one in self.found
        ]

    @property
    def code(self) -> int:
        """Exit code of a command that lists the rest."""
        return 1 if self._found else 0

    @property
    def found(self) -> list[Damage]:
        """Everything that could not be read, in the order in which it was met."""
        with self._lock:
            return [*self._found.values()]


def _next_steps(damage: Damage) -> Iterator[str]:
    if damage.hint is not None:
        yield f"  hint: {damage.hint}"
    if damage.command is not None:
        yield f"  next: {damage.command}"


def legible_snapshots(table: Table, unread: Unread, most: int | None = None) -> Iterator[Snapshot]:
    """Yield the snapshots of a branch, newest first, also where the newest of all is damaged; at most so many."""
    from anabranch.kernel.log.parallel import tried

    def told(number: int, error: AnabranchError) -> None:
        unread(f"snapshot {number}", error)

    try:
        newest = table.snapshot
        log = table.context.snapshots  # of the branch that is main now
    except CorruptTableError:
        log = table.context.snapshots
        found = (tried(number, partial(log.find, number), told) for number in reversed(log.ids()))
        newest = next((snapshot for snapshot in found if snapshot is not None), None)
    if newest is not None and (most is None or most > 0):
        lowest = 1 if most is None else newest.id - most + 1
        yield from islice(log.down_to(newest, lowest, told), most)


def visible_tags(table: Table, unread: Unread) -> list[Tag]:
    """Return the tags of a branch, by name, but those that the table itself keeps."""
    from anabranch.kernel.log.parallel import tried
    from anabranch.kernel.log.tag_log import find_tags

    names = tried("the tags", table.tags, unread)
    return find_tags(table.context, names or (), unread)


def legible_savepoints(table: Table, unread: Unread) -> list[Savepoint]:
    """Return the savepoints of a branch, by number."""
    from anabranch.kernel.log.parallel import tried
    from anabranch.kernel.log.savepoint_log import savepoints

    return tried("the savepoints", lambda: savepoints(table.context, unread), unread) or []


def look_at_records(table: Table, unread: Unread) -> None:
    """Tell of damaged records that no list of refs shows: of consumers, and of what replaced main."""
    from anabranch.format.records.main_pointer import RELEASE_PREFIX, SEAL_PREFIX
    from anabranch.kernel.log.consumers import find_consumers
    from anabranch.kernel.log.main_pointer import find_release, find_seal, numbers
    from anabranch.kernel.log.parallel import tried

    context = table.context
    find_consumers(context, unread)
    for prefix, find, what in (
        (SEAL_PREFIX, find_seal, "announcement of replacement {} of main"),
        (RELEASE_PREFIX, find_release, "what became of the main before replacement {}"),
    ):
        for number in tried("the records of replacements", partial(numbers, context, prefix), unread) or ():
            tried(what.format(number), partial(find, context, number), unread)


def legible_schemas(table: Table) -> Iterator[tuple[int, TableSchema | AnabranchError]]:
    """Yield the versions of the schema, oldest first, each with its number; of a damaged one the error."""
    with suppress(AnabranchError):
        _ = table.snapshot  # a view of main follows it
    for number in table.context.schemas.ids():
        try:
            yield number, table.context.schemas.get(number)
        except AnabranchError as error:
            yield number, error


def shortened_texts(table: Table) -> dict[str, int]:
    """Return to how many characters the bounds of text columns are shortened in some file of a table, by column."""
    from anabranch.format.records.stats import StatsKind, stats_modes
    from anabranch.format.rows.binary_row import is_text

    found: dict[str, int] = {}
    # A file has the mode of the version it was written under.
    for schema in [
        table.schema,
        *(one for _, one in legible_schemas(table) if not isinstance(one, AnabranchError)),
    ]:
        for field, mode in zip(schema.fields, stats_modes(schema), strict=True):
            if mode.kind is StatsKind.TRUNCATE and is_text(field.type):
                found[field.name] = min(mode.length, found.get(field.name, mode.length))
    return found

"""Rows added between two moments, as a plan of a batch read: the options ``incremental-between`` and its companion.

The first moment is not part of it, the second is. Moments are snapshots, savepoints or tags; or times, each of which stands for
the newest snapshot that was there, none before the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import polars as pl

from anabranch.errors import NotFoundError, OptionError, SqlError
from anabranch.expr.bound import BoundPredicate
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.main_branch import check_unambiguous
from anabranch.kernel.refs.moments import MOMENT_OPTIONS, resolve_own, to_millis
from anabranch.kernel.refs.published import at_time
from anabranch.kernel.scan.plan import EMPTY_FILES, Plan, PlanStep
from anabranch.options import (
    INCREMENTAL_BETWEEN,
    INCREMENTAL_BETWEEN_TIMESTAMP,
    SCAN_LATE_ROWS,
    SCAN_ON_OVERWRITE,
)
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import Position


@dataclass(frozen=True, slots=True)
class Between:
    """A range of snapshots of one branch."""

    start: int
    """Last snapshot before the range; 0 for everything."""
    end: int
    """Last snapshot of the range."""

    @property
    def positions(self) -> tuple[Position, Position]:
        """Return the start and end of the range as stream positions."""
        return Position(self.start, None), Position(self.end, None)

    def plan(
        self,
        context: TableContext,
        snapshot: Snapshot | None,
        schema: TableSchema,
        predicate: BoundPredicate | None,
        options: Mapping[str, str],
    ) -> Plan:
        """Plan the files that were added, in the order of their commits within a bucket.

        Raises `NotFoundError` if some of the snapshots have expired, `OptionError` at an overwrite unless
        ``scan.on-overwrite`` is ``skip`` or ``added``.
        """
        feed = replace(Feed.of(context, schema, options, predicate), bounded_watermark=None)
        for option, found in ((SCAN_ON_OVERWRITE, feed.on_overwrite), (SCAN_LATE_ROWS, feed.late_rows)):
            if found in {"changes", "drop", "only"}:
                raise OptionError(
                    f"{option.key} is {found}, which a scan of what was added does not do",
                    hint=f"write table.changes({self.start}, {self.end}), which does.",
                )
        folders: dict[str, int] = {}
        rows: list[tuple[int, bytes, int, str, int, int, int]] = []
        starts: list[int] = []
        for split in feed.splits(*self.positions) if self.end > self.start else []:
            starts.append(len(rows))
            for found_file in split.files:
                file = found_file.file
                place, _, name = file.path.rpartition("/")
                number = folders.setdefault(place.rpartition("/")[0], len(folders))
                rows.append(
                    (number, split.partition, split.bucket, name, file.size, file.row_count, file.schema_id)
                )
        files = pl.DataFrame(rows, schema=EMPTY_FILES.schema, orient="row")
        step = PlanStep("added", 0, files.height)
        return Plan(snapshot, files, tuple(folders) or ("",), np.array(starts, dtype=np.int64), (step,))


def between_of(context: TableContext, options: Mapping[str, str], newest: int) -> Between | None:
    """Return the range that the options of a read ask for; None if they ask for none.

    Args:
        newest: the number of the newest snapshot; 0 if there is none.

    Raises:
        OptionError: the options are not understood, or contradict each other.
        NotFoundError: there is no such moment.
    """
    asked = [
        o for o in (INCREMENTAL_BETWEEN, INCREMENTAL_BETWEEN_TIMESTAMP) if options.get(o.key) is not None
    ]
    if not asked:
        return None
    others = [option.key for option in (*asked[1:], *MOMENT_OPTIONS) if option.key in options]
    if others:
        raise OptionError(
            f"a read sees what was added, or one moment, found {asked[0].key} and {others[0]}",
            hint="give one of them only.",
        )
    option = asked[0]
    text = str(option.of(options))
    ends = [end.strip() for end in text.split(",")]
    if len(ends) != 2 or not all(ends):
        raise OptionError(
            f"{option.key} is '{text}', which is not two moments with a comma between them",
            hint="write '5,10', 'tag1,tag2', or for times '2026-01-01 00:00:00,2026-01-02 00:00:00'.",
        )
    find = number_of if option is INCREMENTAL_BETWEEN else _number_at
    start, end = (find(context, each) for each in ends)
    if not 0 <= start <= end <= newest:
        raise OptionError(
            f"{option.key} is '{text}', snapshots {start} to {end}, but they go forward and up to {newest}",
            hint="name the last moment that is known already, and then the last one wanted.",
        )
    return Between(start, end)


def number_of(context: TableContext, moment: int | str) -> int:
    """Return the number of the snapshot that a moment names; an int passes unchanged, as one of this very history.

    Raises `NotFoundError`, and `InvalidInputError` for text with a number that means two snapshots since main was replaced.
    """
    if isinstance(moment, int):
        return moment
    if not (moment.isdecimal() and len(moment) < 19):
        return resolve_own(context, moment).snapshot.id
    number = int(moment)
    check_unambiguous(context, number)
    return number


def _number_at(context: TableContext, time: str) -> int:
    """Return the number of the newest snapshot at a time; 0 before the first."""
    try:
        return at_time(context, to_millis(int(time) if time.isdecimal() else time)).snapshot.id
    except NotFoundError:
        return 0


# Table functions for what was added between two moments, as Paimon names them, in statements of all kinds.
#
# ``paimon_incremental_query('db.t', 'good', 10)`` is ``db.t /*+ OPTIONS('incremental-between' = 'good,10') */``.

FUNCTIONS: Final = {
    "paimon_incremental_query": INCREMENTAL_BETWEEN.key,
    "paimon_incremental_between_timestamp": INCREMENTAL_BETWEEN_TIMESTAMP.key,
}
"""Option of each function."""
_PART: Final = re.compile("`(?:[^`]|``)+`|[^.`]+")
_SIGNS: Final = ("(", ",", ",", ")")


class _Word(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


def between_calls(words: Sequence[_Word]) -> Iterator[tuple[int, int, str]]:
    """Yield where calls of the functions begin and end, and the table with a hint that each stands for.

    Raises `SqlError` for a call that is not of a table and two moments, all of them literals.
    """
    for place, word in enumerate(words):
        option = FUNCTIONS.get(word.text.lower()) if word.kind == "word" else None
        if option is None or place + 1 >= len(words) or words[place + 1].text != "(":
            continue
        given = words[place + 2 : place + 8 : 2]
        signs = tuple(found.text for found in words[place + 1 : place + 8 : 2])
        values = [found.text[1:-1] if found.kind == "text" else found.text for found in given]
        is_call = signs == _SIGNS and given[0].kind == "text" and all(_is_plain(found) for found in given)
        parts = _PART.findall(values[0]) if is_call else []
        if not parts or ".".join(parts) != values[0]:
            raise SqlError(
                f"{word.text} is not written as it is understood here",
                hint=f"write {word.text.lower()}('db.t', 'good', '10'), with literals, or the option '{option}': "
                f"db.t /*+ OPTIONS('{option}' = 'good,10') */.",
            )
        name = ".".join(part if part.startswith("`") else f"`{part}`" for part in parts)
        yield (
            word.start,
            words[place + 7].end,
            f"{name} /*+ OPTIONS('{option}' = '{values[1]},{values[2]}') */",
        )


def _is_plain(word: _Word) -> bool:
    return word.kind == "number" or (word.kind == "text" and not re.search(r"['\"\\]", word.text[1:-1]))

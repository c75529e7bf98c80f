"""End of bounded streams: queries whose sources have delivered everything up to their bound are ended.

Spark has no word with which a source could say that nothing more will come. Ours says it in the offset of a batch
(`Offset.ended`), which stands in the query's progress, so whoever holds the query can see it. A session that was
made or attached by Anabranch looks for it by itself; elsewhere `await_bounded` does.

A query is ended when all of its streaming sources are at their end, and after Spark has found that there is nothing
left to do for it: by then windows that the last watermark closed have been emitted.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.spark.context.notices import BoundReached, leave
from anabranch.streaming.offsets import Offset, is_offset

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 1
_EMPTY_LOOKS = 10
"""Number of empty answers after which there are no queries any more: a busy session may give one."""


def await_bounded(query: StreamingQuery, timeout: float | None = None) -> bool:
    """Wait until all sources of a query have reached their ``scan.bounded.watermark``, and end it.

    That is for queries of sessions that Anabranch neither made nor attached, and of a driver on another machine.
    Where the session ends such queries by itself, ``query.awaitTermination()`` is enough; to call this does no harm.
    A query with a source that is not bounded, or is not a table of ours, never comes to an end by this.

    Args:
        query: classic or of Spark Connect.
        timeout: the most seconds to wait; None for as long as it takes.

    Returns:
        Whether the query is at its end. One that ended otherwise in the meantime is, too.

    Raises:
        StreamingQueryException: the query failed.
    """
    waited = 0.0
    while not _end(query):
        step = _LOOK_SECONDS if timeout is None else min(_LOOK_SECONDS, timeout - waited)
        if step <= 0:
            return False
        if query.awaitTermination(step):  # type: ignore[arg-type] # a part of a second is fine
            return True
        waited += step
    return True


class End:
    """End of one bounded source, as one run of its query finds it."""

    def __init__(self, notices: Path | None) -> None:
        """Create it with no end found yet.

        Args:
            notices: where the session's process waits for word of it; None if it does not.
        """
        self._notices = notices
        self._runs: int | None = None

    def mark(self, found: Offset, start: Offset) -> Offset:
        """Return the offset with the end marked, for one found at the end by a step from `start`."""
        if self._runs is None:
            self._runs = start.ended + 1
            if self._notices is not None:
                leave(BoundReached(found.table_uuid, found.branch_uuid), self._notices)
        return replace(found, ended=self._runs)


class Ends:
    """Terminator of the queries of a process that have reached their end."""

    def __init__(self) -> None:
        self._expected = False
        self._empty_looks = 0
        self._ending: dict[tuple[str, str], threading.Thread] = {}
        self._told: set[tuple[str, str]] = set()

    def expect(self) -> None:
        """Note that some query is at the end of a source."""
        self._expected = True

    def __bool__(self) -> bool:
        """Whether there is anything to check."""
        return self._expected

    def look(self, queries: Mapping[tuple[str, str], StreamingQuery]) -> None:
        """Stop the active queries that are at their end. They are given by ids of query and run."""
        self._empty_looks = 0 if queries else self._empty_looks + 1
        self._expected = self._expected and self._empty_looks < _EMPTY_LOOKS
        self._told &= queries.keys()
        self._ending = {key: thread for key, thread in self._ending.items() if thread.is_alive()}
        if not self._expected:
            return
        for key in queries.keys() - self._ending.keys():
            ended = _ended_sources(queries[key])
            if ended and all(ended):
                # Spark may have to do long work for the query before it can be ended.
                thread = threading.Thread(
                    target=_end_quietly, args=(queries[key],), name="anabranch-bounded", daemon=True
                )
                self._ending[key] = thread
                thread.start()
            elif any(ended) and key not in self._told:
                self._told.add(key)
                _LOG.warning(
                    "query %s goes on: %d of its %d sources have come to their scan.bounded.watermark",
                    _title(queries[key]),
                    sum(ended),
                    len(ended),
                )


def _end(query: StreamingQuery) -> bool:
    """Stop a query if all its sources are at their end."""
    if not _has_ended(query):
        return False
    query.processAllAvailable()
    # What was seen may have been the last batch of an earlier run, which had another bound.
    if not _has_ended(query):
        return False
    if query.isActive:
        query.stop()
        _LOG.info("query %s has come to its scan.bounded.watermark and is ended", _title(query))
    return True


def _end_quietly(query: StreamingQuery) -> None:
    try:
        _end(query)
    except Exception as error:  # whoever waits for the query hears of what happened to it
        _LOG.debug("query %s could not be ended: %s", _title(query), error)


def _has_ended(query: StreamingQuery) -> bool:
    ended = _ended_sources(query)
    return bool(ended) and all(ended)


def _ended_sources(query: StreamingQuery) -> list[bool]:
    """Return for each source of the query whether it is bounded and at its end; empty before the first batch."""
    progress = query.lastProgress
    return [] if progress is None else [_is_end(source.endOffset) for source in progress.sources]


def _is_end(text: str | None) -> bool:
    try:
        offset: Any = json.loads(text or "null")
    except ValueError:  # of somebody else's source
        return False
    return is_offset(offset) and bool(offset.get("ended"))


def _title(query: StreamingQuery) -> str:
    return f"'{query.name}'" if query.name else str(query.id)

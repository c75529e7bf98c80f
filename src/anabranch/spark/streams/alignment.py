"""Alignment of a streaming source, in the process that Spark runs for it.

Spark asks a source for its next offset at every trigger only, and a batch may take long. So signs of life to the
group are given by a thread, and end with the process. Spark terminates that of a query which is stopped, without a
word to the source before. So the process takes the signal as a wish to end, and the source leaves its group on the
way; otherwise the others, and the next run of the same query, would wait for it until the timeout.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Mapping

from anabranch.errors import OptionError
from anabranch.kernel.log.context import TableContext
from anabranch.options import PATH
from anabranch.spark.context.tables import warehouse_of
from anabranch.storage.protocol import Storage
from anabranch.streaming.alignment import Alignment
from anabranch.streaming.group import AlignmentMember, Terms
from anabranch.streaming.offsets import Position
from anabranch.table import Table

_LOG = logging.getLogger(__name__)
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""Main module of the process in which Spark asks a streaming source for its offsets."""


class LiveAlignment:
    """Alignment of one source, which joins its group when it is first asked for more.

    Picklable, as the reader is that has it; copies of readers in tasks ask for nothing.
    """

    def __init__(self, warehouse: Storage, terms: Terms, context: TableContext) -> None:
        self._warehouse = warehouse
        self._terms = terms
        self._context = context
        self._alignment: Alignment | None = None
        self._stopped = threading.Event()

    def __reduce__(self) -> tuple[type[LiveAlignment], tuple[Storage, Terms, TableContext]]:
        return LiveAlignment, (self._warehouse, self._terms, self._context)

    def until(self, start: Position) -> int | None:
        """See `Alignment.until`."""
        if self._alignment is None:
            context = self._context
            member = AlignmentMember(self._warehouse, self._terms, context.title, context.runtime)
            self._alignment = Alignment(member, context.snapshots.find, context.runtime.clock)
            _end_in_order_when_terminated()
            threading.Thread(
                target=self._give_signs_of_life, args=(member,), name="anabranch-alignment", daemon=True
            ).start()
        return self._alignment.until(start)

    def leave(self) -> None:
        """Leave the alignment group: the source is at its end or stopped."""
        self._stopped.set()
        if self._alignment is not None:
            self._alignment.member.leave()

    def _give_signs_of_life(self, member: AlignmentMember) -> None:
        while not self._stopped.wait(self._terms.interval_seconds):
            try:
                member.beat()
            except Exception as error:  # the next one may get through
                _LOG.debug("no sign of life could be given to group '%s': %s", self._terms.group, error)


def _end_in_order_when_terminated() -> None:
    """Make SIGTERM stop the reader before exit, if Spark runs this source in a process of its own."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    is_ours = (
        spec is not None and spec.name == _RUNNER and threading.current_thread() is threading.main_thread()
    )
    if is_ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt what is done at the end
    sys.exit(0)


def alignment_of(table: Table, options: Mapping[str, str]) -> LiveAlignment | None:
    """Return the alignment that the options of a stream or its table ask for; None if they do not.

    Args:
        table: what is read; its options are those of this read over the stored ones.
        options: of this read, as Spark has them.

    Raises:
        OptionError: they contradict each other, or the table lies outside of any warehouse.
        InvalidNameError: the group cannot be called so.
    """
    terms = Terms.of(table.options)
    if terms is None:
        return None
    warehouse = warehouse_of(options)
    if warehouse is None:
        raise OptionError(
            f"the stream shall keep together with the group '{terms.group}', but {PATH.of(options)} is in no warehouse",
            hint="groups are kept in a warehouse: name the table by db.t, or leave out scan.watermark.alignment.*.",
        )
    return LiveAlignment(warehouse, terms, table.context)

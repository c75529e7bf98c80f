"""Versions of the schema that a commit brings: put when all else of it is stored, right before its snapshot.

Readers see a version as soon as it is put, and the snapshot only after it. If the snapshot does not come about after
all, columns that the new versions took away, or made narrower, are put back in a further version. What they added
stays, for somebody else may be completing the same merge at that moment: a column too many is empty, one too few is a
loss. A process that dies in between leaves its versions; running the command again completes them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import AnabranchError, StorageError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.widening import is_wider
from anabranch.kernel.log.context import TableContext

_LOG = logging.getLogger(__name__)
_REQUESTS = 3
"""How often a version is put before a store that does not answer is given up."""


@dataclass
class BroughtSchemas:
    """The versions that the attempts at one commit have put."""

    context: TableContext
    _before: TableSchema | None = field(default=None, init=False)
    """The newest version before the first one."""

    def put(self, before: TableSchema, versions: Sequence[TableSchema]) -> bool:
        """Store versions that follow `before`; False if somebody else stored one of these numbers."""
        for version in versions:
            self._before = self._before or before
            if not self._add(version):
                return False
        return True

    def take_back(self) -> None:
        """Put back the columns that were taken away for a commit that did not come about; as far as possible."""
        before, self._before = self._before, None
        if before is None:
            return
        try:
            while True:
                latest = self.context.schemas.latest()
                restored = None if latest is None else _with_columns_of(before, latest)
                if restored is None:
                    return
                if self._add(replace(restored, time_millis=self.context.runtime.clock.now_millis())):
                    return
        except AnabranchError as error:
            _LOG.warning(
                "the schema of '%s' is that of a commit that failed, and version %d of it could not be put back: %s",
                *(self.context.title, before.id, error),
            )

    def _add(self, version: TableSchema) -> bool:
        for _ in range(_REQUESTS - 1):
            try:
                return self.context.schemas.add(version)
            except StorageError as error:
                if not error.outcome_unknown:
                    raise  # asking again does no harm: the same bytes are the same version
        return self.context.schemas.add(version)


def _with_columns_of(before: TableSchema, latest: TableSchema) -> TableSchema | None:
    """The next version, in which every column of `before` holds its values; None if that is the latest."""
    was = {f.id: f for f in before.fields}
    fields = []
    for f in latest.fields:
        old = was.pop(f.id, f)
        fields.append(f if is_wider(old.type, f.type) else replace(f, type=old.type))
    names = {f.name for f in fields}
    fields += [f for f in was.values() if f.name not in names]
    if tuple(fields) == tuple(latest.fields):
        return None
    order = {f.id: n for n, f in enumerate(before.fields)}
    if order.keys() >= {f.id for f in fields}:
        fields.sort(key=lambda f: order[f.id])
    return replace(latest, id=latest.id + 1, fields=tuple(fields))

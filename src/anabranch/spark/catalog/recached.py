"""Invalidation of Spark's cache for tables whose rows a procedure changes.

Spark invalidates by itself for its own statements; it does not know about a rollback or a merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.catalog import Identifier
from anabranch.errors import NotFoundError
from anabranch.spark.catalog.lookup import NoSuchTableError, Warehouse
from anabranch.spark.jvm.proxy import Jvm

_State = tuple[str, int | None]
"""The branch, and its newest snapshot id."""


@contextmanager
def recached(jvm: Jvm, warehouse: Warehouse, name: str, branch: str | None) -> Iterator[None]:
    """Invalidate Spark's cached data of a table, of the named branch and of its main, where the block moved them.

    Args:
        jvm: of the session.
        warehouse: where the table is.
        name: ``db.t`` or ``db.t$branch_fix``.
        branch: of the table, which the procedure is about too; None for none.
    """
    if jvm.session.sharedState().cacheManager().isEmpty():
        yield
        return
    main = Identifier.parse(name).full_name.partition("$")[0]
    names = {main, name, *([] if branch is None else [f"{main}$branch_{branch}"])}
    before = {each: _state(warehouse, each) for each in names}
    yield
    for each in sorted(names):
        now = _state(warehouse, each)
        if now is not None and now != before[each]:
            parts = (warehouse.catalog, *each.split(".", 1))
            jvm.spark.catalog.refreshTable(".".join("`" + part.replace("`", "``") + "`" for part in parts))


def _state(warehouse: Warehouse, name: str) -> _State | None:
    try:
        table = warehouse.table(name)
        return str(table.branch_uuid), None if table.snapshot is None else table.snapshot.id
    except (NotFoundError, NoSuchTableError):
        return None

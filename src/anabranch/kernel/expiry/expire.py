"""Snapshot expiry: removes old snapshots, and the files that nothing reaches once they are gone.

The order makes it safe against concurrent operations:

0. The expiring snapshots and their metadata are read, and so are all refs: if one that stays cannot be read, nothing
   is changed at all.
1. Merge information is carried over, the ledger of exactly-once and the archive record the snapshots'
   commits and metadata; then their files are removed, oldest first, so that history never has a gap.
2. The hint EARLIEST is written, and all refs of all branches are read again. Whoever meanwhile made one to a snapshot
   that was just removed finds that snapshot gone when it checks, as it must, and takes its ref back.
3. Files named by the removed snapshots that no ref reaches are deleted.

On a full disk the records of step 1 find no space. Then hints are removed, which are dispensable, and
snapshots go a few at a time, then twice as many, and so on: their own files alone free more than their records take,
whatever else is still held. For a few, the archive may be written after their files are removed, into the space that
frees; the ledger never.

A file that no ref reached in step 2 stays unreachable: new refs are made of refs, and new commits are
built on the newest snapshot. A second expirer deletes the same files or others; a kill leaves files that
nothing refers to, which the cleaning of orphans finds.

The cost grows with the history only once: a ref reader and an index of manifest lists serve the whole expiry, so
each snapshot and each list is read once, however many rounds there are. How snapshots go beside rollbacks and other
expiries is in `snapshot_removal`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from anabranch.engine import Engine, LocalEngine
from anabranch.errors import NotFoundError, StorageError
from anabranch.format.schema.support import check_expirable, check_readable
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.expiry.list_index import ListIndex
from anabranch.kernel.expiry.ref_files import RefReader
from anabranch.kernel.expiry.result import Expiry
from anabranch.kernel.expiry.retention import Retention
from anabranch.kernel.expiry.rounds import Round
from anabranch.kernel.expiry.snapshot_removal import SNAPSHOTS_IF_FULL
from anabranch.kernel.log.archive import tidy as tidy_archive
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.ledger import is_long, tidy
from anabranch.kernel.log.lost_pointers import check_main_readable
from anabranch.kernel.log.parallel import reading
from anabranch.kernel.log.store_clock import removal_time
from anabranch.options import LEDGER_TIME_RETAINED

_SNAPSHOTS_AT_ONCE = 50_000
"""Bounds memory for the metadata of one round."""


def expire(
    context: TableContext,
    retention: Retention,
    *,
    engine: Engine | None = None,
    dry_run: bool = False,
    without: Collection[str] = (),
    without_tags: Collection[str] = (),
    checked: TableSchema | None = None,
) -> Expiry:
    """Remove the snapshots of this branch that need not be kept, and what only they reached. See `Table.expire_snapshots`.

    A tag or savepoint does not keep a snapshot from expiring; it keeps its files. A consumer of the branch
    keeps the snapshots from the one it reads next.

    Args:
        without: names of consumers to ignore.
        without_tags: names of tags of the branch to ignore in a dry run. Otherwise they
            must be removed already.
        checked: what `check_cleanable` returned a moment ago; None to call it here.

    Raises as the method, and:
        CorruptTableError: also if a branch's newest snapshot was deleted by hand; nothing was deleted.
        CommitConflictError: history was rolled back meanwhile; nothing more was deleted.
    """
    schema = check_cleanable(context) if checked is None else checked
    check_expirable(schema, path=context.layout.schema_path(schema.id))
    total = Expiry(dry_run=dry_run)
    at_once = _SNAPSHOTS_AT_ONCE
    reader, lists = RefReader(context), ListIndex(context)
    while True:
        limit = None if retention.limit is None else retention.limit - len(total.snapshots)
        if not dry_run:
            limit = at_once if limit is None else min(limit, at_once)
        given_up = (
            frozenset(context.layout.tag_path(name) for name in without_tags) if dry_run else frozenset()
        )
        this_round = Round(
            *(context, schema, replace(retention, limit=limit), without, given_up),
            *(engine or LocalEngine(), reader, lists),
        )
        try:
            part, was_cut = this_round.run(dry_run)
        except StorageError as error:
            if not error.out_of_space or at_once == SNAPSHOTS_IF_FULL or not _make_room(context):
                raise
            at_once = SNAPSHOTS_IF_FULL
            continue
        total += part
        is_all = not was_cut and len(part.snapshots) < at_once
        if dry_run or is_all or len(total.snapshots) == retention.limit:
            break
        at_once = min(2 * at_once, _SNAPSHOTS_AT_ONCE)
    if total.snapshots and not dry_run:
        _tidy_records(context, schema)
    return total


def _make_room(context: TableContext) -> bool:
    """Free a little of a full disk, where every file takes a block, by removing hints, which are dispensable.

    Returns False if there are none.
    """
    layouts = [context.on_branch(name).layout for name in (None, *branch_names(context))]
    hints = [path for layout in layouts for path in (layout.earliest_hint_path, layout.latest_hint_path)]
    there = [path for path in hints if context.storage.exists(path)]
    context.storage.delete_many(there)
    return bool(there)


def _tidy_records(context: TableContext, schema: TableSchema) -> None:
    """Join small records; if there is no space for that, a later expiry does it."""
    try:
        with reading(context.storage) as begin:
            tidied = begin(partial(_tidy_ledger, context, schema)), begin(partial(tidy_archive, context))
            for done in tidied:
                done()
    except StorageError as error:
        if not error.out_of_space:
            raise


def _tidy_ledger(context: TableContext, schema: TableSchema) -> None:
    if is_long(context):
        tidy(context, removal_time(context) - LEDGER_TIME_RETAINED.of(schema.options))


def check_cleanable(context: TableContext) -> TableSchema:
    """Return the newest schema, if this version supports everything the table uses.

    Raises `NotFoundError`, `UnsupportedFeatureError`, `CorruptTableError`.
    """
    with reading(context.storage) as begin:
        readable, latest = begin(partial(check_main_readable, context)), begin(context.schemas.latest)
        readable()
        schema = latest()
    if schema is None:
        raise NotFoundError(f"table '{context.title}' does not exist: there is no schema")
    check_readable(schema, path=context.layout.schema_path(schema.id))
    return schema

"""Expires snapshots according to a table's options, on request and in the jobs that write it.

Here is when and with which limits; what is removed, in which order, is in `anabranch.kernel.expiry.expire`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from anabranch.engine import Engine
from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.format.records.snapshot import Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.kernel.expiry.consumer_expiry import expire_consumers, next_read
from anabranch.kernel.expiry.expire import check_cleanable, expire
from anabranch.kernel.expiry.result import Expiry
from anabranch.kernel.expiry.retention import FOREVER, LEAST_RETAINED, Retention
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.parallel import reading, together
from anabranch.kernel.log.rollback_pins import tend_pins
from anabranch.kernel.log.shared_past import former_mains, sharing
from anabranch.kernel.log.store_clock import commit_time, removal_time
from anabranch.kernel.provenance.job_states import job_states
from anabranch.kernel.refs.moments import Cutoff, cutoff_of
from anabranch.kernel.refs.savepoints import tend as tend_savepoints
from anabranch.kernel.refs.tags import expire_tags
from anabranch.kernel.repair.health import size_text
from anabranch.options import (
    CONSUMER_EXPIRATION_TIME,
    EXPIRE_GRACE,
    SNAPSHOT_EXPIRE_LIMIT,
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
    SNAPSHOT_TIME_RETAINED,
    WRITE_ONLY,
)

_LOG = logging.getLogger(__name__)

_PER_EXPIRY = 20
"""In jobs, expiry waits until one in this many snapshots is due: it reads all that stay, so this keeps its
cost per commit constant however many are retained."""


def expire_snapshots(
    context: TableContext,
    options: Mapping[str, str] | Callable[[], Mapping[str, str]],
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: Cutoff | None = None,
    engine: Engine | None = None,
    dry_run: bool = False,
) -> Expiry:
    """Expire everything that is due, with the tags that were kept long enough and the consumers that have not moved for
    `consumer.expiration-time`. See `Table.expire_snapshots`.

    The options are those of the table, with those of the call over them, or what reads them. Raises as
    `anabranch.kernel.expiry.expire.expire`, and `InvalidInputError`.
    """

    def retention(now: int) -> Retention:
        return _retention(said, now, retain_max, retain_min, older_than)

    with reading(context.storage) as begin:
        asked = begin(options) if callable(options) else (lambda: options)
        checked = begin(partial(check_cleanable, context))
        said, schema = asked(), checked()
        # What cannot be used is refused before anything is removed.
        retention(context.runtime.clock.now_millis())
        # The store's time beside what does not depend on it: one of a moment before only makes things look younger.
        timed = begin(partial(removal_time, context))
        if context.storage.is_far and CONSUMER_EXPIRATION_TIME.of(said) is None:
            return _expire(context, lambda: retention(timed()), engine, (), schema, dry_run=dry_run)
        retained = retention(timed())
        # Of former mains, where nothing else expires, those too that hold nothing of main: they keep it from being dropped.
        mains = () if context.main_generation is None else former_mains(context)
        gone = _expire_consumers([context, *mains], said, dry_run=dry_run)
        return _expire(context, lambda: retained, engine, gone, schema, dry_run=dry_run)


def expire_after_commit(context: TableContext, options: Mapping[str, str]) -> Expiry | None:
    """Expire after a job's commits: nothing if `write-only`, and cheap while nothing is due.

    At most `snapshot.expire.limit` snapshots are removed at once, and none until one in twenty of all is due.

    Returns:
        What was removed; None if it was not worth reading all refs of the table.

    Raises as `expire_snapshots`. A job may continue after any error: the next call resumes the work.
    """
    if WRITE_ONLY.of(options):
        return None
    gone = _expire_consumers([context, *(former for former, _ in sharing(context))], options, dry_run=False)
    now = context.runtime.clock.now_millis()
    retention = _retention(options, now)
    is_worth_it = _is_worth_it(context, retention)
    if is_worth_it and (of_store := removal_time(context)) < now:
        retention = _retention(options, of_store)
        is_worth_it = _is_worth_it(context, retention)
    if not is_worth_it:
        return Expiry(consumers=gone) if gone else None
    schema = check_cleanable(context)
    limited = replace(retention, limit=SNAPSHOT_EXPIRE_LIMIT.of(options))
    return _expire(context, lambda: limited, None, gone, schema)


def expire_now_and_then(context: TableContext, options: Mapping[str, str], committed: Snapshot) -> None:
    """Expire after a single-commit write: every twentieth commit of a branch expires what is due.

    The commit is acknowledged in any case: a failure is logged, and a later write resumes the work.

    Args:
        options: of the write, over the table's.
    """
    if committed.id % _PER_EXPIRY:
        return
    try:
        schema = context.schemas.get(committed.schema_id)
        expire_after_commit(context, {**schema.options, **options})
    except AnabranchError as error:
        _LOG.warning("%s: old snapshots were not expired: %s", context.title, error)


def _expire(
    context: TableContext,
    retention: Callable[[], Retention],
    engine: Engine | None,
    consumers: tuple[str, ...],
    schema: TableSchema,
    *,
    dry_run: bool = False,
) -> Expiry:
    """Remove unneeded refs first, then snapshots, so that what only those refs held is removed as well."""
    tags: tuple[str, ...] = ()

    def remove_tags() -> None:
        nonlocal tags
        tags = tuple(expire_tags(context, dry_run=dry_run))

    # Of different tags, and any of it may be done by several processes at once.
    tending = () if dry_run else (partial(tend_pins, context), partial(tend_savepoints, context))
    together(*tending, remove_tags, at=context.storage)
    expiry = expire(
        *(context, retention()),
        engine=engine,
        dry_run=dry_run,
        without=consumers,
        without_tags=tags,
        checked=schema,
    )
    return replace(expiry, consumers=consumers, tags=tags, states=tuple(_released(context, tags)))


def _released(context: TableContext, tags: Collection[str]) -> Iterator[str]:
    """Yield the state that jobs kept for these tags alone."""
    for state in job_states(context) if tags else ():
        for kept in state.needed_only_by(tags):
            held = f"{', '.join(kept.tags)}: {kept.files:,} files, {size_text(kept.bytes)}"
            yield f"job '{state.job}' after batch {kept.batch}, kept for {held}"


def _is_worth_it(context: TableContext, retention: Retention) -> bool:
    """Whether expiry is worth its cost, judged from a few small reads."""
    head, first = context.snapshots.head(), context.snapshots.earliest_id()
    if head is None or first is None:
        return False
    there = head.id - first + 1
    wanted = max(1, there // _PER_EXPIRY)
    if there - max(retention.at_least, LEAST_RETAINED) < wanted:
        return False
    following = context.snapshots.find(first + wanted)
    if following is None:
        return False  # others are expiring just now
    is_too_many = there - max(retention.at_most, LEAST_RETAINED) >= wanted
    if commit_time(context, following) > retention.until(is_one_too_many=is_too_many):
        return False
    unread = next_read(context)
    return unread is None or first + wanted <= unread


def _expire_consumers(
    branches: Sequence[TableContext], options: Mapping[str, str], *, dry_run: bool
) -> tuple[str, ...]:
    kept = CONSUMER_EXPIRATION_TIME.of(options)
    if kept is None:
        return ()
    if not expire_consumers(branches, branches[0].runtime.clock.now_millis() - kept, dry_run=True):
        return ()
    return expire_consumers(branches, removal_time(branches[0]) - kept, dry_run=dry_run)


def _retention(
    options: Mapping[str, str],
    now: int,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: Cutoff | None = None,
) -> Retention:
    for name, count in (("retain_max", retain_max), ("retain_min", retain_min)):
        if count is not None and (not isinstance(count, int) or count < 1):
            raise InvalidInputError(f"{name} is {count!r}, expected a whole number above 0")
    at_most = SNAPSHOT_NUM_RETAINED_MAX.of(options) if retain_max is None else retain_max
    at_least = SNAPSHOT_NUM_RETAINED_MIN.of(options) if retain_min is None else retain_min
    if retain_min is None and (retain_max is not None or SNAPSHOT_NUM_RETAINED_MIN.key not in options):
        at_least = min(at_least, at_most)  # explicit values take precedence over defaults
    elif retain_min is not None and retain_max is None:
        at_most = max(at_least, at_most)
    age, grace = SNAPSHOT_TIME_RETAINED.of(options), EXPIRE_GRACE.of(options)
    return Retention(
        at_least=at_least,
        at_most=at_most,
        replaced_before=now - age if older_than is None else cutoff_of(older_than, now),
        in_grace_since=now - grace if grace else FOREVER,
    )

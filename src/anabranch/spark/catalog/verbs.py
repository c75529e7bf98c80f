"""The catalog's procedures: parameters, result columns, and the table method each one calls.

    CALL lake.sys.create_tag(table => 'db.t', tag => 'good', snapshot => '5')

`table` names a table of the catalog, ``db.t``, or a branch of it, ``db.t$branch_fix``. Arguments that are left out are
NULL, which means what it means in Python: the default. `partitions` is a condition such as ``dt < '2026-01-01'``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from anabranch.errors import NotFoundError
from anabranch.format.records.refs import Tag
from anabranch.format.records.savepoint import Savepoint
from anabranch.kernel.log.consumers import forget_consumer, move_consumer
from anabranch.kernel.repair.problem import Problem
from anabranch.maintenance.compact import CompactionResult
from anabranch.spark.catalog.branch_verbs import BRANCH_VERBS
from anabranch.spark.catalog.correction_verbs import CORRECTION_VERBS
from anabranch.spark.catalog.lineage_verbs import LINEAGE_VERBS
from anabranch.spark.catalog.verb import DRY_RUN, Arguments, Parameter, Row, Verb, without
from anabranch.table import Table


def verb(name: str) -> Verb:
    """Return the procedure of that name. Raises `NotFoundError` naming the most similar one."""
    found = VERBS.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), VERBS, n=1)
        raise NotFoundError(
            f"there is no procedure '{name}'",
            hint=(f"did you mean '{near[0]}'? " if near else "")
            + f"Procedures there are: {', '.join(VERBS)}.",
        )
    return found


_TAG_NAME: Final = Parameter("tag", "STRING", "name of the tag", required=True)
_SNAPSHOT: Final = Parameter(
    "snapshot", "STRING", "a snapshot's id, 'snapshot.N', 'savepoint.N' or a tag; the newest if left out"
)
_TIMESTAMP: Final = Parameter("timestamp", "STRING", "the table as it was then; instead of a snapshot")
_RETAINED: Final = Parameter("retained", "STRING", "how long to keep the tag, such as '7 d'")
_PARTITIONS: Final = Parameter("partitions", "STRING", "a condition on partition columns; all if left out")
_CONSUMER: Final = Parameter("consumer", "STRING", "name of the consumer", required=True)
_TAG_COLUMNS: Final = "tag_name STRING, snapshot_id BIGINT, record_count BIGINT"
_SAVEPOINT_COLUMNS: Final = (
    "savepoint_id BIGINT, saved_snapshot_id BIGINT, schema_id BIGINT, save_time BIGINT, record_count BIGINT"
)
_COMPACTION_COLUMNS: Final = (
    "snapshot_id BIGINT, files_before BIGINT, files_after BIGINT, bytes_before BIGINT, bytes_after BIGINT, "
    "rows BIGINT, given_up BIGINT"
)


def _tag(tag: Tag) -> Row:
    return (tag.name, tag.snapshot.id, tag.snapshot.total_record_count)


def _savepoint(savepoint: Savepoint) -> Row:
    return (
        *(savepoint.id, savepoint.saved_snapshot_id, savepoint.schema_id),
        *(savepoint.save_time, savepoint.record_count),
    )


def _compaction(done: CompactionResult) -> Row:
    return (
        None if done.snapshot is None else done.snapshot.id,
        *(done.files_before, done.files_after, done.bytes_before, done.bytes_after),
        *(done.rows, done.given_up),
    )


def _create_tag(table: Table, given: Arguments) -> Iterable[Row]:
    return [_tag(table.create_tag(given["tag"], **without(given, "tag")))]


def _delete_tag(table: Table, given: Arguments) -> Iterable[Row]:
    return [_tag(table.delete_tag(given["tag"]))]


def _rename_tag(table: Table, given: Arguments) -> Iterable[Row]:
    return [_tag(table.rename_tag(given["tag"], given["new_name"]))]


def _replace_tag(table: Table, given: Arguments) -> Iterable[Row]:
    return [_tag(table.replace_tag(given["tag"], **without(given, "tag")))]


def _create_savepoint(table: Table, given: Arguments) -> Iterable[Row]:
    return [_savepoint(table.create_savepoint(**given))]


def _delete_savepoint(table: Table, given: Arguments) -> Iterable[Row]:
    return [_savepoint(table.delete_savepoint(given["id"]))]


def _rollback(table: Table, given: Arguments) -> Iterable[Row]:
    done = table.rollback(given["to"], **without(given, "to"))
    removed = 0 if done.removal is None else len(done.removal.snapshots)
    changed = done.changed
    newest = None if done.snapshot is None else done.snapshot.id
    return [(done.target.id, newest, changed.rows_removed, changed.rows_restored, removed)]


def _reset_watermark(table: Table, given: Arguments) -> Iterable[Row]:
    found = table.reset_watermark(given.get("to"))
    return [(None, None) if found is None else (found.id, found.watermark)]


def _compact(table: Table, given: Arguments) -> Iterable[Row]:
    return [_compaction(table.compact(**given))]


def _sort_compact(table: Table, given: Arguments) -> Iterable[Row]:
    by = [name.strip() for name in given["order_by"].split(",") if name.strip()]
    return [_compaction(table.sort_compact(by, **without(given, "order_by")))]


def _expire_snapshots(table: Table, given: Arguments) -> Iterable[Row]:
    done = table.expire_snapshots(**given)
    removed = done.removed
    data = removed.get("data")
    files = sum(tally.files for tally in removed.values())
    data_files = 0 if data is None else data.files
    size = sum(tally.bytes for tally in removed.values())
    return [(len(done.snapshots), done.left, data_files, files - data_files, size)]


def _expire_partitions(table: Table, given: Arguments) -> Iterable[Row]:
    done = table.expire_partitions(**given)
    number = None if done.snapshot is None else done.snapshot.id
    return [(one.partition, one.time, one.rows, one.files, one.bytes, number) for one in done.partitions]


def _remove_orphan_files(table: Table, given: Arguments) -> Iterable[Row]:
    done = table.remove_orphan_files(**given)
    moved = done.moved.values()
    return [
        (
            done.run,
            sum(t.files for t in moved),
            sum(t.bytes for t in moved),
            done.purged.files,
            done.purged.bytes,
        )
    ]


def _restore_orphan_files(table: Table, given: Arguments) -> Iterable[Row]:
    tally = table.restore_orphan_files(given["run"])
    return [(tally.files, tally.bytes)]


def _maintain(table: Table, given: Arguments) -> Iterable[Row]:
    done = table.maintain(**given)
    compacted, expired, cleaned = done.compaction, done.expiry, done.cleaning
    return [
        (
            *(compacted.files_before, compacted.files_after, len(expired.snapshots)),
            sum(tally.files for tally in expired.removed.values()),
            *(cleaned.files.height, cleaned.purged.files),
        )
    ]


def _health(table: Table, _given: Arguments) -> Iterable[Row]:
    found = table.health()
    about = (found.score, found.files, found.small_files, found.snapshots)
    return [(*about, f.points, f.why, f.command) for f in found.findings] or [(*about, None, None, None)]


def _verify(table: Table, given: Arguments) -> Iterable[Row]:
    return [_problem(problem) for problem in table.verify(**given).problems]


def _problem(problem: Problem) -> Row:
    return (
        *(problem.severity, problem.kind.value, problem.message, problem.path, problem.branch),
        *(
            problem.snapshot_id,
            problem.partition,
            problem.rows,
            problem.time_millis,
            problem.job,
            problem.repair,
        ),
    )


def _repair(table: Table, given: Arguments) -> Iterable[Row]:
    done = table.repair(**given)
    steps = [("step", step.kind.value, step.what, step.path, None, None, None, None) for step in done.steps]
    left = [
        ("left", p.kind.value, p.message, p.path, p.partition, p.rows, p.time_millis, p.job)
        for p in done.left
    ]
    return [*steps, *left]


def _reset_consumer(table: Table, given: Arguments) -> Iterable[Row]:
    name = given["consumer"]
    return [(name, move_consumer(table.context, name, given.get("next_snapshot")))]


def _delete_consumer(table: Table, given: Arguments) -> Iterable[Row]:
    forget_consumer(table.context, given["consumer"])
    return [(given["consumer"],)]


VERBS: Final[dict[str, Verb]] = {
    found.name: found
    for found in (
        Verb(
            "create_tag",
            "Name a moment, which keeps it from expiring.",
            (_TAG_NAME, _SNAPSHOT, _TIMESTAMP, _RETAINED),
            _TAG_COLUMNS,
            _create_tag,
        ),
        Verb("delete_tag", "Remove a tag.", (_TAG_NAME,), _TAG_COLUMNS, _delete_tag),
        Verb(
            "rename_tag",
            "Give a tag another name.",
            (_TAG_NAME, Parameter("new_name", "STRING", "what to call it", required=True)),
            _TAG_COLUMNS,
            _rename_tag,
        ),
        Verb(
            "replace_tag",
            "Let a tag name another moment.",
            (_TAG_NAME, _SNAPSHOT, _TIMESTAMP, _RETAINED),
            _TAG_COLUMNS,
            _replace_tag,
        ),
        Verb(
            "create_savepoint",
            "Keep a moment for good, under the next number.",
            (_SNAPSHOT, _TIMESTAMP),
            _SAVEPOINT_COLUMNS,
            _create_savepoint,
        ),
        Verb(
            "delete_savepoint",
            "Let go of a savepoint.",
            (Parameter("id", "BIGINT", "number of the savepoint", required=True),),
            _SAVEPOINT_COLUMNS,
            _delete_savepoint,
        ),
        Verb(
            "rollback",
            "Go back to an earlier moment.",
            (
                Parameter(
                    "to", "STRING", "a snapshot's id, 'snapshot.N', 'savepoint.N' or a tag", required=True
                ),
                Parameter("destructive", "BOOLEAN", "remove the snapshots after it for good"),
                Parameter("force", "BOOLEAN", "also remove what refers to them"),
                DRY_RUN,
            ),
            "target_snapshot_id BIGINT, snapshot_id BIGINT, rows_removed BIGINT, rows_restored BIGINT, "
            "snapshots_removed BIGINT",
            _rollback,
        ),
        Verb(
            "reset_watermark",
            "Set the watermark anew, because a row from a wrong clock has moved it too far.",
            (Parameter("to", "STRING", "a time; the highest that is not ahead of the clock if left out"),),
            "snapshot_id BIGINT, watermark BIGINT",
            _reset_watermark,
        ),
        Verb(
            "compact",
            "Rewrite small files as larger ones.",
            (
                Parameter("full", "BOOLEAN", "leave no small file"),
                _PARTITIONS,
                Parameter("idle", "STRING", "only partitions without new files for so long, such as '1 h'"),
            ),
            _COMPACTION_COLUMNS,
            _compact,
        ),
        Verb(
            "sort_compact",
            "Rewrite partitions with their rows sorted.",
            (
                Parameter("order_by", "STRING", "columns, separated by commas", required=True),
                Parameter("strategy", "STRING", "'order', 'zorder' or 'hilbert'"),
                _PARTITIONS,
            ),
            _COMPACTION_COLUMNS,
            _sort_compact,
        ),
        Verb(
            "expire_snapshots",
            "Remove old snapshots, and the files that nothing else reaches.",
            (
                Parameter("retain_max", "BIGINT", "keep at most so many"),
                Parameter("retain_min", "BIGINT", "keep at least so many"),
                Parameter("older_than", "STRING", "an age such as '1 d', or a time"),
                DRY_RUN,
            ),
            "snapshots BIGINT, snapshots_left BIGINT, data_files BIGINT, metadata_files BIGINT, bytes BIGINT",
            _expire_snapshots,
        ),
        Verb(
            "expire_partitions",
            "Take partitions away that are older than their option says: one row for each.",
            (
                Parameter("older_than", "STRING", "an age such as '90 d', instead of the option"),
                DRY_RUN,
            ),
            "partition STRING, time TIMESTAMP(3) WITH LOCAL TIME ZONE, rows BIGINT, files BIGINT, bytes BIGINT, "
            "snapshot_id BIGINT",
            _expire_partitions,
        ),
        Verb(
            "remove_orphan_files",
            "Move files out of the way that nothing reaches, and purge those moved before.",
            (Parameter("older_than", "STRING", "spares what was stored since; '1 d' if left out"), DRY_RUN),
            "run BIGINT, moved BIGINT, moved_bytes BIGINT, purged BIGINT, purged_bytes BIGINT",
            _remove_orphan_files,
        ),
        Verb(
            "restore_orphan_files",
            "Bring back what a run of remove_orphan_files moved.",
            (Parameter("run", "BIGINT", "number of the run", required=True),),
            "files BIGINT, bytes BIGINT",
            _restore_orphan_files,
        ),
        Verb(
            "maintain",
            "Compact, expire and clean up, as the table's options say.",
            (DRY_RUN,),
            "files_before BIGINT, files_after BIGINT, snapshots_expired BIGINT, files_expired BIGINT, "
            "orphans_moved BIGINT, orphans_purged BIGINT",
            _maintain,
        ),
        Verb(
            "health",
            "How the table is, and what would mend it: one row for each finding.",
            (),
            "score INT, files BIGINT, small_files BIGINT, snapshots BIGINT, points INT, finding STRING, command STRING",
            _health,
        ),
        Verb(
            "verify",
            "Find what is wrong with the table: one row for each problem.",
            (Parameter("deep", "BOOLEAN", "also read every data file in full"),),
            "severity STRING, kind STRING, problem STRING, path STRING, branch STRING, snapshot_id BIGINT, "
            "partition STRING, rows BIGINT, time_millis BIGINT, job STRING, repair STRING",
            _verify,
        ),
        Verb(
            "repair",
            "Bring the table back from what verify finds: one row for each step, and for each problem that is left.",
            (DRY_RUN,),
            "what STRING, kind STRING, text STRING, path STRING, partition STRING, rows BIGINT, time_millis BIGINT, "
            "job STRING",
            _repair,
        ),
        *BRANCH_VERBS,
        *CORRECTION_VERBS,
        *LINEAGE_VERBS,
        Verb(
            "reset_consumer",
            "Let a consumer read on from elsewhere.",
            (
                _CONSUMER,
                Parameter(
                    "next_snapshot", "BIGINT", "what it reads next; what is committed next if left out"
                ),
            ),
            "consumer STRING, next_snapshot BIGINT",
            _reset_consumer,
        ),
        Verb(
            "delete_consumer",
            "Let go of a consumer, and of what was kept for it.",
            (_CONSUMER,),
            "consumer STRING",
            _delete_consumer,
        ),
    )
}
"""All procedures, by name."""

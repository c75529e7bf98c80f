"""System tables about references to a table's snapshots: tags, savepoints, branches, consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.kernel.branches.branch_info import BranchInfo, branch_infos
from anabranch.kernel.branches.operations import operations
from anabranch.kernel.log.consumers import consumer_lags
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.savepoint_log import savepoints
from anabranch.kernel.log.tag_log import find_tags, tag_names, visible_tags
from anabranch.lineage.only_on_main import only_on_main
from anabranch.system_tables.definition import Rows, SystemTable, View, as_json, damaged_row, problem_of


def _tags(view: View) -> Rows:
    context, damaged = view.context, _Damaged()
    rows = [
        (
            *(tag.name, tag.snapshot.id, tag.snapshot.schema_id, tag.snapshot.time_millis),
            *(tag.snapshot.total_record_count, tag.create_time, _duration(tag.time_retained)),
            *(tag.snapshot.stamp, None),
        )
        for tag in visible_tags(context, damaged)
    ]
    rows += [damaged_row(TAGS.fields, why, tag_name=name) for name, why in damaged.named("tag")]
    return sorted(rows, key=lambda row: str(row[0]))


class _Damaged:
    """Collects what cannot be read. Thread-safe."""

    def __init__(self) -> None:
        self._found: list[tuple[str, AnabranchError]] = []

    def __call__(self, what: str, error: AnabranchError) -> None:
        self._found.append((what, error))

    def named(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield the name and problem of each thing of a kind. Raises the error of what is none: it stands for all of them."""
        for what, error in self._found:
            if not what.startswith(f"{kind} "):
                raise error
            yield what.removeprefix(f"{kind} ").strip("'"), problem_of(error)

    @property
    def problems(self) -> list[str]:
        """Everything that cannot be read, and why."""
        return [f"{what}: {problem_of(error)}" for what, error in self._found]


TAGS = SystemTable(
    "tags",
    "Tags of the branch, by name; those that the table itself keeps are left out.",
    "tag_name STRING NOT NULL, snapshot_id BIGINT, schema_id BIGINT, "
    "commit_time TIMESTAMP(3) WITH LOCAL TIME ZONE, record_count BIGINT, create_time TIMESTAMP(3), "
    "time_retained STRING, stamp STRING, problem STRING",
    _tags,
)


def _savepoints(view: View) -> Rows:
    damaged = _Damaged()
    rows = [
        (s.id, s.saved_snapshot_id, s.schema_id, s.save_time, s.record_count, s.full_manifest_list, None)
        for s in savepoints(view.context, damaged)
    ]
    rows += [
        damaged_row(SAVEPOINTS.fields, why, savepoint_id=int(number))
        for number, why in damaged.named("savepoint")
    ]
    return sorted(rows, key=lambda row: int(row[0]))


SAVEPOINTS = SystemTable(
    "savepoints",
    "Savepoints of the branch; damaged ones of whatever branch, for they do not say it.",
    "savepoint_id BIGINT NOT NULL, saved_snapshot_id BIGINT, schema_id BIGINT, "
    "save_time BIGINT, record_count BIGINT, full_manifest_list STRING, problem STRING",
    _savepoints,
)


def _branches(view: View) -> Rows:
    gaps = only_on_main if "only_on_main" in view.columns else None
    _, *others = branch_infos(main_of(view.context), gaps)
    return (_branch_row(view, info) for info in others)


def _problem(info: BranchInfo) -> str | None:
    return None if info.problem is None else f"{info.problem}{f' ({info.hint})' if info.hint else ''}"


def _branch_row(view: View, info: BranchInfo) -> tuple[Any, ...]:
    made, first = info.created, info.fork_snapshot
    if info.tag is None and info.problem is None:  # another engine made it: what can be seen of it
        branch = view.context.on_branch(info.folder)
        schemas = branch.storage.list(branch.layout.schema_folder)
        made = min((schema.modified_millis for schema in schemas), default=None)
        known = [*branch.snapshots.ids(), *(tag.snapshot.id for tag in find_tags(branch, tag_names(branch)))]
        first = min(known, default=None)
    return (
        *(info.name, made, first, info.head, info.rows, info.tag, info.uuid, info.state, info.created_by),
        *(info.expires, info.snapshots_ahead, info.snapshots_behind, info.rows_ahead, info.rows_behind),
        *(_commits_only_on_main(info), _problem(info)),
    )


def _commits_only_on_main(info: BranchInfo) -> int | None:
    return None if info.only_on_main is None else sum(len(job.commits) for job in info.only_on_main)


BRANCHES = SystemTable(
    "branches",
    "Branches besides main: how each began, and how far it (ahead) and main (behind) have moved since.",
    "branch_name STRING NOT NULL, create_time TIMESTAMP(3) WITH LOCAL TIME ZONE, first_snapshot_id BIGINT, "
    "latest_snapshot_id BIGINT, record_count BIGINT, created_from_tag STRING, branch_uuid STRING, "
    "state STRING NOT NULL, created_by STRING, expire_time TIMESTAMP(3) WITH LOCAL TIME ZONE, "
    "snapshots_ahead BIGINT, snapshots_behind BIGINT, rows_ahead BIGINT, rows_behind BIGINT, only_on_main BIGINT, "
    "problem STRING",
    _branches,
)


def _only_on_main(view: View) -> Rows:
    _, *others = branch_infos(main_of(view.context), only_on_main)
    rows = [
        (
            *(info.name, info.uuid, job.job, commit.snapshot, commit.time_millis, commit.rows),
            *(commit.reason, job.bring, None),
        )
        for info in others
        for job in info.only_on_main or ()
        for commit in job.commits
    ]
    rows += [
        damaged_row(ONLY_ON_MAIN.fields, problem, branch_name=info.name, branch_uuid=info.uuid)
        for info in others
        if (problem := _problem(info)) is not None
    ]
    return rows


ONLY_ON_MAIN = SystemTable(
    "only_on_main",
    "Commits of main that a branch lacks and that none of its jobs is going to make: replacing main by it drops them.",
    "branch_name STRING NOT NULL, branch_uuid STRING, job STRING, snapshot_id BIGINT, "
    "commit_time TIMESTAMP(3) WITH LOCAL TIME ZONE, record_count BIGINT, reason STRING, bring STRING, problem STRING",
    _only_on_main,
)


def _consumers(view: View) -> Rows:
    damaged = _Damaged()
    rows = [
        (lag.name, lag.next_snapshot, lag.modified_millis, lag.snapshots, lag.rows, lag.millis, None)
        for lag in consumer_lags(view.context, damaged)
    ]
    rows += [damaged_row(CONSUMERS.fields, why, consumer_id=name) for name, why in damaged.named("consumer")]
    return sorted(rows, key=lambda row: str(row[0]))


CONSUMERS = SystemTable(
    "consumers",
    "Named readers of the branch, whose positions keep snapshots from expiring.",
    "consumer_id STRING NOT NULL, next_snapshot_id BIGINT, "
    "update_time TIMESTAMP(3) WITH LOCAL TIME ZONE, snapshots_behind BIGINT, "
    "rows_behind BIGINT, millis_behind BIGINT, problem STRING",
    _consumers,
)


def _duration(millis: int | None) -> str | None:
    """Format as ISO 8601: ``PT36H``, ``PT1M0.5S``."""
    if millis is None:
        return None
    minutes, rest = divmod(millis, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".")
    parts = [(f"{hours}H", hours), (f"{minutes}M", minutes), (f"{seconds}S", rest or not millis)]
    return "PT" + "".join(text for text, shown in parts if shown)


def _branches_log(view: View) -> Rows:
    damaged = _Damaged()
    rows = [
        (
            *(o.time_millis, o.operation, o.branch, o.branch_uuid, o.snapshot_id, o.main_snapshot_id),
            *(o.by, as_json(dict(o.details)), None),
        )
        for o in operations(view.context, unread=damaged)
    ]
    return [*rows, *(damaged_row(BRANCHES_LOG.fields, problem) for problem in damaged.problems)]


BRANCHES_LOG = SystemTable(
    "branches_log",
    "What was done with the table's branches, newest first: created, audited, merged, put in main's place, deleted.",
    "operation_time TIMESTAMP(3) WITH LOCAL TIME ZONE, operation STRING, "
    "branch_name STRING, branch_uuid STRING, snapshot_id BIGINT, main_snapshot_id BIGINT, "
    "performed_by STRING, details STRING, problem STRING",
    _branches_log,
)

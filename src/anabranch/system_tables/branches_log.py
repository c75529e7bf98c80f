"""The log of actions on the branches of a table."""

from __future__ import annotations

from anabranch.kernel.branches.operations import operations
from anabranch.system_tables.definition import Columns, SystemTable, View, as_json, by_column


def _branches_log(view: View) -> Columns:
    return by_column(
        BRANCHES_LOG.fields,
        (
            (
                *(o.time_millis, o.operation, o.branch, o.branch_uuid, o.snapshot_id, o.main_snapshot_id),
                *(o.by, as_json(dict(o.details))),
            )
            for o in operations(view.context)
        ),
    )


BRANCHES_LOG = SystemTable(
    "branches_log",
    "What was done with the table's branches, newest first: created, audited, merged, put in main's place, deleted.",
    "operation_time TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL, operation STRING NOT NULL, "
    "branch_name STRING NOT NULL, branch_uuid STRING NOT NULL, snapshot_id BIGINT, main_snapshot_id BIGINT, "
    "performed_by STRING, details STRING NOT NULL",
    _branches_log,
)

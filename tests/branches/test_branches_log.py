"""The log of what was done with branches, which outlives them."""

import itertools
import json

import pytest

from anabranch.audit import Checks
from anabranch.kernel.branches.operations import record_deletion
from tests.support.dying import deaths
from tests.support.tables import make_table, rows

_PLACES = itertools.count()
CHECKS = Checks.parse("name: nightly\nchecks:\n  - row_count: {max: 2}")


def forked():
    table = make_table(f"memory://branches-log{next(_PLACES)}")
    table.append(rows(0, 2))
    table.create_tag("good")
    table.create_branch("fix", "good", created_by="ann", retained="7 d")
    return table


def log_of(table):
    """Operations, oldest first, without their times."""
    told = table.system("branches_log").sort_by("operation_time").to_pylist()
    return [(o["operation"], o["branch_name"], o["snapshot_id"], o["main_snapshot_id"]) for o in told]


def test_everything_is_told_once():
    table = forked()
    branch = table.branch("fix")
    assert log_of(table) == [("created", "fix", 1, 1)]
    branch.append(rows(2, 1))
    table.append(rows(5, 1))
    branch.audit(CHECKS, by="bob")
    table.merge_branch("fix")
    table.delete_branch("fix")
    table.create_branch("fix", "good")
    table.replace_main_branch("fix", force=True, reason="better")
    table.undo_replace()
    assert log_of(table) == [
        ("created", "fix", 1, 1),
        ("audited", "fix", 2, 2),
        ("merged", "fix", 2, 3),
        ("deleted", "fix", None, None),
        ("created", "fix", 1, 1),
        ("replaced_main", "fix", 1, 3),
        ("undone", "main", 4, 1),
    ]
    told = table.system("branches_log").to_pylist()
    assert told[-1]["performed_by"] == "ann"
    assert told[-1]["details"] == '{"tag":"good","timeRetainedMillis":604800000}'
    assert told[-2]["performed_by"] == "bob"
    assert '"failed":["row_count"]' in told[-2]["details"]
    assert '"reason":"better"' in told[1]["details"]
    # Two branches of one name are two.
    assert len({o["branch_uuid"] for o in told if o["branch_name"] == "fix"}) == 2


def test_a_replacement_as_a_commit_is_told_also_when_it_has_expired_or_main_was_replaced():
    table = forked()
    table.branch("fix").append(rows(2, 1))
    table.replace_main_branch("fix", mode="commit", by="ann", reason="wrong prices")
    wanted = [("replaced_main", "fix", 2, 2)]
    assert log_of(table) == [("created", "fix", 1, 1), *wanted]
    told = next(o for o in table.system("branches_log").to_pylist() if o["operation"] == "replaced_main")
    assert (told["performed_by"], told["branch_uuid"]) == ("ann", table.branch("fix").branch_uuid)
    assert told["details"] == '{"mode":"commit","reason":"wrong prices"}'
    for i in range(3):
        table.append(rows(10 + i, 1))
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert table.context.snapshots.find(2) is None
    assert log_of(table)[1:] == wanted
    table.create_tag("later")
    table.create_branch("next", "later")
    table.replace_main_branch("next")
    assert [o for o in log_of(table) if o[0] == "replaced_main"] == [*wanted, ("replaced_main", "next", 5, 5)]


OTHER_TYPES = (7, True, ["ann"], {"text": "ann"}, None)


@pytest.mark.parametrize("value", OTHER_TYPES, ids=repr)
@pytest.mark.parametrize(
    ("key", "column"),
    [("reason", "details"), ("madeBy", "performed_by"), ("branch", "branch_name")],
)
def test_a_replacement_as_a_commit_is_told_whatever_is_said_of_it(key, column, value):
    table = forked()
    table.branch("fix").append(rows(2, 1))
    table.replace_main_branch("fix", mode="commit", by="ann", reason="wrong prices")

    def told():
        return next(o for o in table.system("branches_log").to_pylist() if o["operation"] == "replaced_main")

    before = told()
    stored = json.loads(table.context.storage.get("snapshot/snapshot-2"))
    said = json.loads(stored["properties"]["anabranch.replace"])
    assert key in said
    del stored["properties"]["anabranch.checksum"]  # as of one whose writer makes none
    stored["properties"]["anabranch.replace"] = json.dumps({**said, key: value, "later": [1]})
    table.context.storage.put("snapshot/snapshot-2", json.dumps(stored).encode())
    unknown = {"details": '{"mode":"commit","reason":null}', "performed_by": None, "branch_name": "main"}
    assert told() == {**before, column: unknown[column]}


def test_a_deletion_that_dies_tells_no_lie_and_repeats_nothing():
    table = forked()
    table.branch("fix").audit(CHECKS)
    before = log_of(table)
    for left in deaths(table, lambda found: found.delete_branch("fix")):
        told = log_of(left)
        gone = "fix" not in left.branches()
        assert told == [*before, ("deleted", "fix", None, None)] if gone else told[: len(before)] != []
        if not gone:
            left.delete_branch("fix")
        assert log_of(left) == [*before, ("deleted", "fix", None, None)]


def test_damage_is_named():
    table = forked()
    record_deletion(table.branch("fix").context)
    path = f"branch/DELETED-{table.branch('fix').branch_uuid}"
    assert table.context.storage.exists(path)
    assert log_of(table) == [("created", "fix", 1, 1)]  # it is still there
    for data in (b"{}", b'{"version": 1, "operations": [5]}', b'{"version": 1, "operations": [{}]}'):
        table.context.storage.put(path, data)
        *others, damaged = table.system("branches_log").to_pylist()
        assert "DELETED-" in damaged["problem"]
        assert damaged["operation"] is None
        assert [(one["operation"], one["problem"]) for one in others] == [("created", None)], (
            "the rest is told"
        )


def test_a_branch_of_another_engine_leaves_a_trace_each_time():
    table = forked()
    schema = table.context.storage.get("schema/schema-0")
    for _ in range(2):
        table.context.storage.put("branch/branch-theirs/schema/schema-0", schema)
        assert table.branches() == ["fix", "theirs"]
        table.delete_branch("theirs")
    assert [o for o in log_of(table) if o[1] == "theirs"] == [("deleted", "theirs", None, None)] * 2

"""The procedures that make and delete branches, as a catalog calls them."""

import pytest

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.verbs.caller import Session
from anabranch.verbs.registry import call as call_procedure
from anabranch.verbs.registry import procedure as procedure_named
from tests.branches.creating import tagged
from tests.support.tables import ids_of


def call(table, name, **given):
    procedure = procedure_named(name)
    names = [column.split()[0] for column in procedure.columns.split(", ")]
    return [
        dict(zip(names, row, strict=True)) for row in call_procedure(procedure, Session(None, table), given)
    ]


def test_a_branch_is_created_and_deleted():
    table = tagged()
    (made,) = call(table, "create_branch", branch="fix", tag="good", retained="7 d", snapshot=None)
    fix = table.branch("fix")
    assert made == {"branch": "fix", "branch_uuid": fix.branch_uuid, "tag": "good", "snapshot_id": 3}
    assert fix.context.fork.time_retained == 7 * 86_400_000
    (other,) = call(table, "create_branch", branch="other", snapshot="2")
    assert (other["tag"], other["snapshot_id"], ids_of(table.branch("other"))) == ("other", 2, [0, 1])
    assert call(table, "delete_branch", branch="fix") == [made]
    assert table.branches() == ["other"]


def test_what_is_missing_or_wrong():
    table = tagged()
    with pytest.raises(InvalidInputError, match="needs the argument 'branch'"):
        call(table, "create_branch", tag="good")
    with pytest.raises(NotFoundError):
        call(table, "delete_branch", branch="fix")

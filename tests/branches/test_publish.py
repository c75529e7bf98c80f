"""Write, audit, publish: all of it or nothing, and a branch to look at where it was nothing."""

import itertools

import pytest

from anabranch.audit import Checks
from anabranch.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from tests.support.dying import Died, DyingStorage, copy_of, through
from tests.support.tables import ids_of, make_table, rows

_PLACES = itertools.count()
GOOD = Checks.parse("name: nightly\nchecks:\n  - not_null: v\n  - row_count: {max: 100}")
BAD = Checks.parse(
    "name: nightly\nchecks:\n  - row_count: {max: 1}\n  - row_count: {max: 2}\n    severity: warn"
)


def filled():
    table = make_table(f"memory://publish{next(_PLACES)}")
    table.append(rows(0, 3))
    return table


def test_rows_come_to_main_at_once():
    table = filled()
    publication = table.publish("nightly", GOOD, by="ann")
    with publication as branch:
        branch.append(rows(10, 2))
        branch.append(rows(20, 2))
        assert branch.name == "db.t$branch_nightly"
        assert ids_of(table) == [0, 1, 2]
    assert ids_of(table) == [0, 1, 2, 10, 11, 20, 21]
    assert table.snapshot.id == 2
    assert publication.verdict.passed
    assert publication.merged.rows_added == 4
    assert table.branches() == []
    assert table.tags(include_internal=False) == []
    told = table.system("branches_log").to_pylist()
    assert [o["operation"] for o in told] == ["deleted", "merged", "audited", "created"]
    assert told[-1]["performed_by"] == "ann"
    # The name is free again.
    with table.publish("nightly") as branch:
        branch.append(rows(30, 1))
    assert table.scan().to_arrow().num_rows == 8


def test_main_may_move_meanwhile():
    table = filled()
    with table.publish("nightly", GOOD) as branch:
        branch.append(rows(10, 2))
        table.append(rows(5, 1))
    assert ids_of(table) == [0, 1, 2, 5, 10, 11]


def test_a_failed_check_keeps_the_branch():
    table = filled()
    publication = table.publish("nightly", BAD)
    with (
        pytest.raises(CommitConflictError, match="'nightly' is not published") as raised,
        publication as branch,
    ):
        branch.append(rows(10, 2))
    (conflict,) = raised.value.conflicts
    assert conflict.kind == "AUDIT_FAILED"
    assert "row_count: expected at most 1 row, found 5 rows" in str(raised.value)
    assert "'db.t', a check failed: row_count" in str(raised.value)
    assert "table.diff('main', 'nightly')" in raised.value.__notes__[0]
    assert not publication.verdict
    assert publication.merged is None
    assert ids_of(table) == [0, 1, 2]
    assert ids_of(table.branch("nightly")) == [0, 1, 2, 10, 11]
    with pytest.raises(AlreadyExistsError, match="nothing can be published through it") as again:
        table.publish("nightly", GOOD).__enter__()
    assert "`merge_branch`" in again.value.hint
    # As the note says.
    table.merge_branch("nightly")
    assert ids_of(table) == [0, 1, 2, 10, 11]
    table.delete_branch("nightly")
    with table.publish("nightly", GOOD) as branch:
        branch.append(rows(20, 1))
    assert table.scan().to_arrow().num_rows == 6


def test_an_error_in_the_block_keeps_the_branch():
    table = filled()

    def write():
        with table.publish("nightly", GOOD) as branch:
            branch.append(rows(10, 2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        write()
    assert "is kept" in raised.value.__notes__[0]
    assert ids_of(table) == [0, 1, 2]
    assert table.branches() == ["nightly"]


def test_an_error_after_the_merge_says_that_the_rows_are_in_main(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 3))
    in_the_way = (
        tmp_path / "db.db" / "t" / "lineage"
    )  # the archive of history that a deletion writes finds no folder
    publication = table.publish("nightly", GOOD)

    def publish():
        with publication as branch:
            branch.append(rows(10, 2))
            in_the_way.write_text("")

    with pytest.raises(StorageError, match="are in main") as caught:
        publish()
    assert "do not publish them again" in caught.value.hint
    assert not any("merge_branch" in note for note in getattr(caught.value, "__notes__", []))
    assert publication.merged.rows_added == 2
    assert ids_of(table) == [0, 1, 2, 10, 11]
    with pytest.raises(AlreadyExistsError, match="in main already"), table.publish("nightly"):
        pass
    in_the_way.unlink()
    table.delete_branch("nightly")
    with table.publish("nightly", GOOD) as branch:
        branch.append(rows(20, 1))
    assert ids_of(table) == [0, 1, 2, 10, 11, 20]


def test_a_conflict_keeps_the_branch():
    table = filled()

    def write():
        with table.publish("nightly", GOOD) as branch:
            branch.append(rows(10, 2))
            table.overwrite(rows(7, 1))

    with pytest.raises(CommitConflictError) as raised:
        write()
    assert raised.value.conflicts[0].kind == "APPEND_VS_OVERWRITE"
    assert "is kept" in raised.value.__notes__[0]
    assert ids_of(table) == [7]


def test_what_is_wrong_at_once():
    table = filled()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        table.publish("nightly", "/no/such/checks.yml")
    assert table.branches() == []
    empty = make_table(f"memory://publish{next(_PLACES)}")
    with pytest.raises(NotFoundError, match="nothing was ever written"):
        empty.publish("nightly").__enter__()
    with table.publish("nightly") as branch, pytest.raises(InvalidInputError, match="tag of main"):
        branch.publish("inner").__enter__()


def test_nothing_written_publishes_nothing():
    table = filled()
    with table.publish("nightly", GOOD):
        pass
    assert table.snapshot.id == 1
    assert table.branches() == []


def work(table):
    with table.publish("nightly", GOOD) as branch:
        branch.append(rows(10, 2))


def carry_on(table):
    """What somebody does who finds a publication that died, following what the library says."""
    try:
        work(table)
    except AlreadyExistsError:
        try:
            is_written = 10 in ids_of(table.branch("nightly"))
        except NotFoundError:  # it is being made, or deleted
            is_written = False
        if is_written:
            table.merge_branch("nightly")
        table.delete_branch("nightly")
        if 10 not in ids_of(table):
            work(table)


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.long)])
def test_dying_anywhere_loses_nothing_and_repeats_nothing(step):
    table = filled()
    died = 0
    for at in range(1, 1000, step):
        left = copy_of(table)
        try:
            work(through(left, DyingStorage(left.context.storage, at, after=bool(at % 2))))
        except Died:
            died += 1
        else:
            break
        assert ids_of(left) in ([0, 1, 2], [0, 1, 2, 10, 11])
        # Where the rows are in main and the branch is gone, somebody would see that first.
        if left.branches() or 10 not in ids_of(left):
            carry_on(left)
        assert ids_of(left) == [0, 1, 2, 10, 11]
        assert left.branches() == []
    assert died > 5

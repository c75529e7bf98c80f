"""A branch that was main is put in the place of main again, by its name and not by an undo."""

from itertools import count

import pytest

from anabranch.errors import CommitConflictError
from tests.branches.creating import again
from tests.support.tables import ids_of, make_table, rows

_PLACES = count()


def corrected_twice():
    """Main is `theirs`; before it `ours` was, which began with snapshot 1. Both have snapshots 1 to 3."""
    table = make_table(f"memory://back{next(_PLACES)}")
    table.append(rows(1, 1))
    table.create_branch("ours", snapshot=1)
    table.replace_main_branch("ours", by="ann")
    table.append(rows(2, 1))
    table.append(rows(3, 1))
    table.create_branch("theirs", snapshot=3)
    table.create_branch("other", snapshot=3)
    for name in ("theirs", "other"):
        table.branch(name).append(rows(30, 1))
    table.replace_main_branch("theirs", by="bob", reason="prices were wrong")
    return again(table)


@pytest.mark.parametrize("how", [{}, {"dry_run": True}, {"mode": "commit"}])
@pytest.mark.parametrize("name", ["ours", "other"])
def test_somebody_elses_correction_is_not_dropped_without_a_word(name, how):
    table = corrected_twice()
    with pytest.raises(
        CommitConflictError, match=r"CORRECTION_DROPPED: replacement 2 .* by bob \(prices"
    ) as raised:
        table.replace_main_branch(name, by="ann", **how)
    assert [conflict.kind for conflict in raised.value.conflicts] == ["CORRECTION_DROPPED"]
    assert ids_of(again(table)) == [1, 2, 3, 30]


def test_what_was_taken_back_is_no_correction():
    table = corrected_twice()
    table.undo_replace()
    table.undo_replace(1)
    assert ids_of(again(table)) == [1]
    again(table).replace_main_branch("ours")
    assert ids_of(again(table)) == [1, 2, 3]


def test_it_parts_from_main_where_it_was_replaced():
    table = corrected_twice()
    for number in (1, 2, 3):
        table.create_tag(f"late{number}", number)
    table.create_tag("theirs-alone", 4)
    saved = table.create_savepoint(2)
    result = table.replace_main_branch("ours", force=True)
    assert result.fork == 3
    table = again(table)
    assert ids_of(table) == [1, 2, 3]
    assert set(table.tags()) >= {"late1", "late2", "late3"}
    assert "theirs-alone" not in table.tags()
    assert [savepoint.id for savepoint in table.savepoints()] == [saved.id]
    assert ids_of(table.at(f"savepoint.{saved.id}")) == [1, 2]
    for version in (3, "snapshot.3", "late3", "main.snapshot.3", "main@2.snapshot.3", "main@3.snapshot.3"):
        assert ids_of(table.at(version)) == [1, 2, 3], version
    assert ids_of(table.branch("main@3")) == [1, 2, 3, 30]
    table.append(rows(40, 1))
    table.create_branch("next", snapshot=table.snapshot.id)
    table.branch("next").append(rows(50, 1))
    assert table.replace_main_branch("next").fork == 5
    assert ids_of(again(table)) == [1, 2, 3, 40, 50]


@pytest.mark.parametrize("name", ["ours", "other"])
@pytest.mark.parametrize(
    ("how", "expected"), [("replay", {"ours": [40], "other": [30, 40]}), ("continue", None)]
)
def test_a_reader_goes_on_after_what_both_have(name, how, expected):
    table = corrected_twice()
    reader = table.with_options({"scan.on-replace": how})
    assert [row for batch in reader.tail("c", idle=0) for row in batch["id"].to_pylist()] == [1, 2, 3, 30]
    table.replace_main_branch(name, force=True)
    again(table).append(rows(40, 1))
    found = [row for batch in reader.tail("c", idle=0) for row in batch["id"].to_pylist()]
    assert found == ([40] if expected is None else expected[name])


def test_after_an_expiry_it_is_still_known_who_made_what():
    table = corrected_twice()
    table.replace_main_branch("ours", force=True)
    table = again(table)
    for number in range(40, 44):
        table.append(rows(number, 1))
    table.expire_snapshots(retain_max=2, retain_min=1, older_than="0 ms")
    # It began with snapshot 3, which has expired everywhere but under its tag.
    table.branch("other").append(rows(60, 1))
    assert table.merge_branch("other").rows_added == 2
    assert ids_of(again(table)) == [1, 2, 3, 30, *range(40, 44), 60]

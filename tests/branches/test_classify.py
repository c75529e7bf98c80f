"""What snapshots did, partition by partition, and that it can be kept for when they are gone."""

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest

from anabranch.errors import CorruptTableError
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.provenance.classify import LastChanges, Span, WideOverwrite, joined, marks_of, span_of
from anabranch.kernel.provenance.sides import covered, keyed
from anabranch.kernel.scan.partitions import key_of_row
from tests.branches.merging import branched, commit_as_others, lake, parted, rewriting, rows


def marks(table, snapshot=None):
    """By partition value: what the newest snapshot did, as letters."""
    found = marks_of(table.context, snapshot or table.snapshot)
    return {key_of_row(row, table.schema)[0]: _letters(made) for row, made in found.partitions.items()}


def _letters(made):
    return ("A" if made.appended else "") + ("O" if made.overwritten else "")


def history(table):
    return [*table.context.snapshots.backwards(table.snapshot)][::-1]


CONVERT = {
    "DATE": dt.date.fromisoformat,
    "TIMESTAMP(3)": dt.datetime.fromisoformat,
    "DECIMAL(5, 2)": decimal.Decimal,
}

CASES = {
    "append": (lambda t: t.append(rows([5], "a")), {"a": "A"}),
    "compact": (lambda t: (t.append(rows([5], "a")), t.compact(full=True)), {}),
    "sort": (lambda t: (t.append(rows([5], "a")), t.sort_compact(["id"])), {}),
    "dynamic overwrite": (lambda t: t.overwrite(rows([5], "a")), {"a": "O"}),
    "of a partition": (lambda t: t.overwrite(rows([5], "a"), {"dt": "a"}), {"a": "O"}),
    "emptied": (lambda t: t.overwrite(rows([], "a"), {"dt": "a"}), {"a": "O"}),
    "whole": (lambda t: t.replace(rows([5], "c")), {"a": "O", "b": "O", "c": "O"}),
    "where": (lambda t: t.replace(rows([], "a"), where="dt < 'b'"), {"a": "O"}),
    "rollback": (lambda t: t.rollback(1), {"b": "O"}),
    "appending deletes": (lambda t: rewriting(t, "a", CommitKind.APPEND), {"a": "AO"}),
    "losing compaction": (lambda t: rewriting(t, "a", keep=lambda i: i == 1), {"a": "O"}),
    "others' compaction": (lambda t: rewriting(t, "a"), {}),
    "others' sorting": (lambda t: rewriting(t, "a", CommitKind.OVERWRITE), {"a": "O"}),
    "statistics": (lambda t: commit_as_others(t, CommitKind.ANALYZE, lambda base: []), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_one_snapshot(case):
    act, expected = CASES[case]
    table, _ = parted()
    act(table)
    assert marks(table) == expected


def test_merges_of_other_branches_replaced_what_they_say():
    table, fix = parted()
    fix.append(rows([10], "a"))
    fix.overwrite(rows([11], "b"))
    table.merge_branch("fix")
    assert table.snapshot.commit_kind == CommitKind.OVERWRITE
    assert marks(table) == {"a": "A", "b": "O"}


def test_merges_of_the_branch_itself_are_told_apart():
    table, fix = parted()
    branched(table, "other")
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    ours, others = (span_of(table.context, history(table)[2:], besides=b.branch_uuid) for b in (fix, table))
    assert (len(ours.marks), [m.number for m in ours.merges]) == (0, [1])
    assert (len(others.marks), others.merges) == (1, ())


def keys_covered(table, *partitions):
    """Of partitions with these values, those that the newest snapshot overwrote without need of a file there."""
    scratch, _ = parted()
    for value in partitions:
        scratch.append(rows([0], value))
    found = span_of(scratch.context, history(scratch)[2:])
    places = dict(keyed(found.marks, table.schema))
    wide = marks_of(table.context, table.snapshot).wide
    return {key[0] for w in wide for key in covered(table.context, w, places)}


def test_overwrites_concern_partitions_without_files_too():
    table, _ = parted()
    table.overwrite(rows([5], "a"))
    assert keys_covered(table, "a", "x", "y") == set(), "those in the rows alone"
    table.overwrite(rows([5], "a"), {"dt": "a"})
    assert keys_covered(table, "a", "x", "y") == {"a"}
    table.replace(rows([5], "x"), where="dt >= 'x'")
    assert keys_covered(table, "a", "x", "y") == {"x", "y"}
    table.replace(rows([5], "x"))
    assert keys_covered(table, "a", "x", "y") == {"a", "x", "y"}
    commit_as_others(table, CommitKind.OVERWRITE, lambda base: [])
    assert keys_covered(table, "a", "x", "y") == {"a", "x", "y"}


@pytest.mark.parametrize(
    "spec", ["{", "[]", '{"where": "no such column = 1"}', '{"partition": {"dt": {}}}', "{}"]
)
def test_what_cannot_be_understood_concerns_everything(spec):
    table, _ = parted()
    places = dict(keyed(span_of(table.context, history(table)).marks, table.schema))
    assert len(covered(table.context, WideOverwrite(3, 0, spec), places)) == 2


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("DATE", ["2026-01-01", "2026-01-02"]),
        ("INT", [1, 2]),
        ("BOOLEAN", [True, False]),
        ("TIMESTAMP(3)", ["2026-01-01 10:00:00", "2026-01-01 10:00:01"]),
        ("DECIMAL(5, 2)", ["1.50", "2.50"]),
        ("DOUBLE", [0.5, 1.5]),
    ],
)
def test_partitions_of_all_types_are_found_in_what_an_overwrite_says(column, values):
    convert = CONVERT.get(column, lambda value: value)
    typed = [convert(value) for value in values]
    table = lake().create_table("db.t", f"id BIGINT NOT NULL, p {column}", partition_by=["p"])
    table.append(pa.table({"id": pa.array([1, 2], pa.int64()), "p": typed}))
    places = dict(keyed(span_of(table.context, history(table)).marks, table.schema))
    table.overwrite(pa.table({"id": pa.array([3], pa.int64()), "p": typed[:1]}), {"p": typed[0]})
    (wide,) = marks_of(table.context, table.snapshot).wide
    assert len(covered(table.context, wide, places)) == 1


# Kept for later


def test_a_span_is_what_it_was_after_it_was_stored():
    table, fix = parted()
    fix.append(rows([10], "a"))
    table.merge_branch("fix")
    table.overwrite(rows([5], "a"), {"dt": "a"})
    table.rollback(1)
    span = span_of(table.context, history(table)[1:], besides=fix.branch_uuid)
    stored = json.loads(json.dumps(span.to_dict()))
    assert Span.from_dict(stored, where="carry") == span
    with pytest.raises(CorruptTableError, match="carry"):
        Span.from_dict({**stored, "marks": [["zz", 1, 2]]}, where="carry")


def test_spans_that_follow_each_other_are_one():
    table, fix = parted()
    fix.append(rows([10], "a"))
    table.append(rows([50], "a"))
    table.merge_branch("fix")
    table.overwrite(rows([60], "b"))
    table.rollback(3)  # for good measure: to before the merge
    snapshots = history(table)[2:]
    whole = span_of(table.context, snapshots, besides=fix.branch_uuid)
    assert (whole.merges, set(whole.marks.values())) == ((), {LastChanges(appended=3)})
    for cut in range(1, len(snapshots)):
        parts = (snapshots[:cut], snapshots[cut:])
        one = joined(span_of(table.context, part, besides=fix.branch_uuid) for part in parts)
        assert (one.first, one.last, one.before, one.end) == (
            whole.first,
            whole.last,
            whole.before,
            whole.end,
        )
        assert one.merges == (), "the merge is undone, wherever history is cut"
        for row, made in whole.marks.items():
            assert one.marks[row].appended == made.appended

"""Checks of a branch: what each counts, how the file of checks is read, and what a verdict is worth."""

import datetime as dt
import itertools
import json
from decimal import Decimal

import pyarrow as pa
import pytest

import anabranch
from anabranch.audit import Checks
from anabranch.errors import CommitConflictError, CorruptTableError, InvalidInputError
from anabranch.kernel.commit.gates import check_audited
from anabranch.kernel.log.audit_log import audits
from anabranch.kernel.log.context import TableContext
from anabranch.runtime import Runtime
from tests.support.tables import make_table, rows

_PLACES = itertools.count()
SCHEMA = "id BIGINT, dt STRING, v DOUBLE, price DECIMAL(10, 2), ts TIMESTAMP(3), r ROW<x INT>"
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("dt", pa.string()),
        ("v", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("ts", pa.timestamp("ms")),
        ("r", pa.struct([("x", pa.int32())])),
    ]
)
NOW = 1_800_000_000_000
TODAY = dt.datetime.fromtimestamp(NOW / 1000, dt.UTC).replace(tzinfo=None)


class StoppedClock:
    def now_millis(self):
        return NOW

    def monotonic(self):
        return 0.0

    def local_offset_millis(self, at_millis):
        return 0


def row(number, day="a", v=1.0, price="1.25", ts=TODAY, x=1):
    price = None if price is None else Decimal(price)
    return {"id": number, "dt": day, "v": v, "price": price, "ts": ts, "r": {"x": x}}


def table_of(*found):
    return pa.Table.from_pylist(list(found), schema=ARROW)


def forked(*first, **how):
    """A table with a snapshot of these rows, and the branch ``fix`` of it; the time stands still."""
    made = make_table(f"memory://audit{next(_PLACES)}", schema=SCHEMA, **how)
    context = made.context
    runtime = Runtime(clock=StoppedClock())
    table = anabranch.Table(TableContext(context.storage, context.name, runtime=runtime, main_generation=0))
    table.append(table_of(*first))
    table.create_tag("good")
    table.create_branch("fix", "good")
    return table, table.branch("fix")


def checks(text, name="checks"):
    """A file of checks with these entries."""
    return Checks.parse("checks:\n" + "\n".join(f"  {line}" for line in text.strip().splitlines()), name=name)


def only(branch, text):
    """What came of the one check."""
    (result,) = branch.audit(checks(text)).checks
    return result


@pytest.mark.parametrize(
    ("text", "passed", "found"),
    [
        ("- row_count: {min: 4, max: 4}", True, "4 rows"),
        ("- row_count: {min: 5}", False, "4 rows"),
        ("- row_count: {max: 3}", False, "4 rows"),
        ("- row_count: {max: 1}\n  where: dt = 'b'", True, "1 row"),
        ("- not_null: id", True, "0 nulls"),
        ("- not_null: [v]", False, "1 null"),
        ("- not_null: v\n  where: id = 1", True, "0 nulls"),
        ("- not_null: v\n  at_most: 1", True, "1 null"),
        ("- not_null: v\n  at_most: 25 %", True, "1 null"),
        ("- not_null: v\n  at_most: 24.9 %", False, "1 null"),
        ("- not_null: r.x", False, "1 null"),
        ("- unique: id", False, "1 repeated row"),
        ("- unique: [id, dt]", True, "0 repeated rows"),
        ("- unique: v", False, "1 repeated row"),  # null is no value, NaN is one
        ("- range: {column: v, min: 0, max: 2}", False, "1 other row"),
        ("- range: {column: v, min: 0}", True, "0 other rows"),  # NaN is above all
        ("- range: {column: price, min: 0.5, max: 1.25}", True, "0 other rows"),
        ("- range: {column: ts, min: '2027-01-01'}", True, "0 other rows"),
        ("- range: {column: r.x, max: 0}", False, "3 other rows"),
        ("- accepted_values: {column: dt, values: [a, b]}", True, "0 other rows"),
        ("- accepted_values: {column: dt, values: [a]}", False, "1 other row"),
        ("- accepted_values: {column: v, values: [1, 0]}", False, "1 other row"),
        ("- accepted_values: {column: id, values: [1, 2, 3]}", True, "0 other rows"),
        ("- condition: id > 0", True, "0 other rows"),
        ("- condition: v > 0", False, "1 other row"),  # unknown is not TRUE
        ("- condition: price = 1.25 OR dt = 'b'", True, "0 other rows"),
        ("- freshness: {column: ts, within: 1 min}", True, None),
        ("- freshness: {column: ts, within: 1 min}\n  where: dt = 'b'", False, None),
        ("- freshness: {column: ts, within: 1 min}\n  where: dt = 'z'", False, "nothing"),
        ("- freshness: {within: 1 min}", True, None),
        ("- row_count_vs_main: {within: 0 %}", False, "4 here, 3 in main"),
        ("- row_count_vs_main: {within: 33 %}", False, "4 here, 3 in main"),
        ("- row_count_vs_main: {within: 33.4 %}", True, "4 here, 3 in main"),
        ("- row_count_vs_main: {within: 0 %}\n  where: dt = 'a'", True, "3 here, 3 in main"),
        ("- sum_vs_main: {column: id, within: 10 %}", False, "7 here, 6 in main"),
        ("- sum_vs_main: {column: price, within: 50 %}", True, "4.75 here, 3.75 in main"),
        ("- sum_vs_main: {column: v, within: 1000 %}", False, "nan here, 3.0 in main"),
        ("- no_removed_keys: id", True, "0 missing keys"),
        ("- no_removed_keys: [id, dt]", True, "0 missing keys"),
        ("- no_removed_keys: [dt, v]", True, "0 missing keys"),
    ],
)
def test_each_check(text, passed, found):
    _, branch = forked(row(1), row(2), row(3))
    branch.overwrite(
        table_of(
            row(1),
            row(2, v=float("nan"), ts=None),
            row(3, v=None, x=None),
            row(1, "b", price="1.00", ts=TODAY - dt.timedelta(hours=2)),
        )
    )
    result = only(branch, text)
    assert result.passed is passed
    assert found is None or result.found == found


def test_rows_that_offend_are_shown():
    _, branch = forked(*(row(i, v=float(-i)) for i in range(20)))
    verdict = branch.audit(
        Checks.parse(
            "show: [id, r]\nchecks:\n  - range: {column: v, min: -3}\n  - unique: dt\n  - not_null: v"
        )
    )
    wrong, repeated, fine = verdict.checks
    assert wrong.offending == 16
    assert wrong.sample == tuple({"v": float(-i), "id": i, "r": {"x": 1}} for i in range(4, 9))
    assert repeated.offending == 19
    assert repeated.sample == ({"dt": "a"},)
    assert fine.sample == ()
    text = repr(verdict)
    assert "audit 'checks' of db.t$branch_fix: failed" in text
    assert '{"v": -4.0, "id": 4, "r": {"x": 1}}' in text
    assert "16 other rows" in verdict._repr_html_()


def test_keys_that_the_branch_lost():
    table, branch = forked(*(row(i) for i in range(10)), row(None))
    branch.overwrite(table_of(*(row(i) for i in range(3, 20))))
    result = only(branch, "- no_removed_keys: id")
    assert (result.passed, result.offending) == (False, 3)
    assert sorted(r["id"] for r in result.sample) == [0, 1, 2]
    assert only(branch, "- no_removed_keys: id\n  where: id > 1").offending == 1
    # What main got since the branch began is missing too, unless it is compared with that.
    table.append(table_of(row(50)))
    assert only(branch, "- no_removed_keys: id").offending == 4
    fork = Checks.parse(
        "compare_with: fork\nchecks:\n  - no_removed_keys: id\n  - row_count_vs_main: {within: 60 %}"
    )
    verdict = branch.audit(fork)
    assert verdict.checks[0].offending == 3
    assert verdict.checks[1].found == "17 here, 11 in main"
    assert verdict.record.against == branch.context.fork.snapshot


def test_names_are_those_of_the_branch():
    table, branch = forked(row(1), row(2))
    branch.alter().rename_column("id", "key").widen_column("price", "DECIMAL(20, 4)").drop_column("v").apply()
    assert only(branch, "- no_removed_keys: key").passed
    assert only(branch, "- sum_vs_main: {column: price, within: 0 %}").found == "2.5 here, 2.5 in main"
    with pytest.raises(InvalidInputError, match="line 2: there is no column id"):
        branch.audit(checks("- not_null: id"))
    assert table.audit(checks("- not_null: id"))


def test_sums_are_exact():
    large = "99999999.99"
    _, branch = forked(*(row(2**62 + i, price=large) for i in range(4)))
    branch.append(table_of(row(1, price="0.01")))
    assert only(branch, "- sum_vs_main: {column: id, within: 0 %}").found == (
        f"{4 * 2**62 + 7:,} here, {4 * 2**62 + 6:,} in main"
    )
    assert only(branch, "- sum_vs_main: {column: price, within: 0 %}").passed is False


def test_warnings_do_not_fail_and_checks_have_names():
    _, branch = forked(row(1))
    verdict = branch.audit(
        checks("- row_count: {min: 9}\n  severity: warn\n  name: enough\n- not_null: [id, dt]\n  name: there")
    )
    assert verdict
    assert [c.name for c in verdict.failed] == ["enough"]
    assert [c.name for c in verdict.checks] == ["enough", "there: not_null id", "there: not_null dt"]
    assert "warning" in repr(verdict)


def test_one_pass_over_the_rows_for_all_checks(monkeypatch):
    _, branch = forked(row(1), row(2))
    from anabranch.arrow import reader

    reads = []
    whole = reader._Scan.tables
    monkeypatch.setattr(
        reader._Scan, "tables", lambda scan, splits: reads.append(scan) or whole(scan, splits)
    )
    branch.audit(
        checks(
            "- row_count: {min: 1}\n- not_null: [id, v]\n- unique: id\n- range: {column: v, min: 0}\n"
            "- condition: id > 0\n- freshness: {column: ts, within: 1 h}\n- sum_vs_main: {column: v, within: 0 %}\n"
            "- row_count_vs_main: {within: 0 %}\n- no_removed_keys: id"
        )
    )
    assert len(reads) == 2  # one of the branch, one of main; all files of main are on the branch
    reads.clear()
    branch.audit(checks("- row_count: {min: 1}\n- freshness: {within: 1 h}\n- no_removed_keys: id"))
    assert not reads


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("checks: [", "line 1", None),
        ("", "is empty", "checks:"),
        ("check:\n  - not_null: id", "line 1: 'check' is not known here", "did you mean 'checks'?"),
        ("name: x", "line 1: there are no 'checks'", None),
        ("checks: []", "line 1: there are no checks", None),
        ("checks: 5", "line 1: expected a list, found '5'", None),
        ("checks:\n  - not_nul: id", "line 2: 'not_nul' is not known here", "did you mean 'not_null'?"),
        ("checks:\n  - not_null: idd", "line 2: there is no column idd", "did you mean id?"),
        ("checks:\n  - unique: [id, id]", "line 2: expected names, each once", None),
        ("checks:\n  - unique: [idd]", "line 2: there is no column idd", "did you mean id?"),
        (
            "checks:\n  - not_null: id\n    unique: id",
            "an entry is one check, found not_null and unique",
            None,
        ),
        ("checks:\n  - where: id > 1", "an entry is one check, found none", None),
        ("checks:\n  - row_count: {}", "neither 'min' nor 'max'", None),
        ("checks:\n  - row_count: {min: many}", "expected a number, found 'many'", None),
        ("checks:\n  - row_count: {min: -1}", "expected a whole number", None),
        ("checks:\n  - row_count:\n      min: 1\n      min: 2", "line 4: 'min' is here twice", None),
        ("checks:\n  - row_count: {minimum: 1}", "'minimum' is not known", "did you mean 'min'?"),
        ("checks:\n  - range: {min: 1}", "'range' needs 'column'", None),
        ("checks:\n  - range: {column: id, min: x}", "cannot be compared with 'x'", None),
        ("checks:\n  - range: {column: r, min: 1}", "cannot be compared", None),
        ("checks:\n  - sum_vs_main: {column: dt, within: 5 %}", "is of type STRING", None),
        (
            "checks:\n  - sum_vs_main: {column: v, within: 5}",
            "expected a percentage, found '5'",
            "write '5 %'.",
        ),
        ("checks:\n  - freshness: {column: ts, within: soon}", "expected a duration, found 'soon'", None),
        ("checks:\n  - freshness: {column: v, within: 1 h}", "is of type DOUBLE", None),
        ("checks:\n  - condition: id >", "line 2", None),
        ("checks:\n  - condition: idd > 1", "line 2: there is no column idd", "did you mean id?"),
        ("checks:\n  - not_null: id\n    where: x = 1", "line 3: there is no column x", None),
        (
            "checks:\n  - not_null: id\n    severity: warning",
            "line 3: expected one of error, warn",
            "'warn'?",
        ),
        ("checks:\n  - row_count: {min: 1}\n    at_most: 3", "line 3: 'row_count' has no 'at_most'", None),
        ("checks:\n  - sql: SELECT 1", "needs Spark", "spark=spark"),
        ("show: [w]\nchecks:\n  - not_null: id", "line 1: there is no column 'w'", None),
        ("checks: &a\n  - not_null: id\nname: *a", "anchors and aliases", None),
        ("checks:\n\t- not_null: id", "line 2", None),
        ("compare_with: tag\nchecks:\n  - not_null: id", "expected one of main, fork", None),
    ],
)
def test_mistakes_name_the_line(text, message, hint):
    _, branch = forked(row(1))
    with pytest.raises(InvalidInputError) as raised:
        branch.audit(Checks.parse(text, name="nightly", file="nightly.yml"))
    assert "nightly.yml" in raised.value.message
    assert message in raised.value.message
    assert hint is None or hint in raised.value.hint
    assert not audits(branch.context)


def test_words_of_yaml_that_mean_something_else_there():
    _, branch = forked(row(1, "no"), row(2, "007"), row(3, "1e3"))
    assert only(branch, "- accepted_values: {column: dt, values: [no, 007, 1e3]}").passed


def test_files(tmp_path):
    _, branch = forked(row(1))
    path = tmp_path / "nightly.yml"
    path.write_text("checks:\n  - row_count: {min: 1}\n")
    assert branch.audit(path).record.name == "nightly"
    assert branch.audit(str(path), by="ann").record.created_by == "ann"
    with pytest.raises(InvalidInputError, match="cannot be read"):
        branch.audit(tmp_path / "no.yml")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="UTF-8"):
        branch.audit(path)


def test_comparing_main_with_main_is_refused():
    table, _ = forked(row(1))
    with pytest.raises(InvalidInputError, match="is main"):
        table.audit(checks("- row_count_vs_main: {within: 5 %}"))
    with pytest.raises(InvalidInputError, match="not known"):
        table.audit(Checks.parse("compare_with: fork\nchecks:\n  - row_count_vs_main: {within: 5 %}"))
    assert table.audit(checks("- row_count: {min: 1}"))
    assert [n for n, _ in audits(table.context)] == [1]
    assert table.context.storage.exists("branch/AUDIT-1")


def test_the_record():
    table, branch = forked(row(1))
    verdict = branch.audit(checks("- row_count: {min: 1}\n- row_count_vs_main: {within: 5 %}"))
    stored = json.loads(branch.context.storage.get("branch/branch-fix/AUDIT-1"))
    assert stored["passed"] is True
    assert stored["snapshot"]["branch"] == branch.branch_uuid
    assert stored["snapshot"]["stamp"] == branch.snapshot.stamp
    assert stored["against"]["branch"] == table.branch_uuid
    assert stored["createdMillis"] == NOW
    assert len(stored["digest"]) == 64
    assert branch.audit(checks("- row_count: {max: 0}")).number == 2
    ((_, first), (_, second)) = audits(branch.context)
    assert first == verdict.record
    assert not second.passed
    branch.context.storage.put("branch/branch-fix/AUDIT-3", b'{"version": 1}')
    with pytest.raises(CorruptTableError, match="AUDIT-3"):
        audits(branch.context)


GOOD, BAD = "- row_count: {min: 1}", "- row_count: {min: 100}"


def refused(branch, name=None):
    with pytest.raises(CommitConflictError) as raised:
        check_audited(branch.context, branch.snapshot, name)
    (conflict,) = raised.value.conflicts
    return conflict.kind


def test_a_verdict_is_of_one_head():
    _, branch = forked(row(1))
    assert refused(branch) == "NOT_AUDITED"
    branch.audit(checks(GOOD))
    assert check_audited(branch.context, branch.snapshot).passed
    branch.append(table_of(row(2)))
    assert refused(branch) == "NOT_AUDITED"
    branch.audit(checks(BAD))
    assert refused(branch) == "AUDIT_FAILED"
    branch.audit(checks(GOOD))
    assert check_audited(branch.context, branch.snapshot, True).passed
    # The newest counts, also where an older one passed.
    branch.audit(checks(BAD))
    assert refused(branch) == "AUDIT_FAILED"


def test_a_verdict_is_of_one_set_of_checks():
    _, branch = forked(row(1))
    branch.audit(checks(GOOD, name="nightly"))
    branch.audit(checks(BAD, name="other"))
    assert check_audited(branch.context, branch.snapshot, "nightly").name == "nightly"
    assert refused(branch, "other") == "AUDIT_FAILED"
    assert refused(branch, "third") == "NOT_AUDITED"


def test_compaction_keeps_a_verdict_and_a_changed_schema_does_not():
    _, branch = forked(row(1))
    for number in range(6):
        branch.append(table_of(row(number)))
    branch.audit(checks(GOOD))
    before = branch.snapshot
    branch.compact(full=True)
    assert branch.snapshot.id > before.id
    assert check_audited(branch.context, branch.snapshot).snapshot.id == before.id
    branch.alter().drop_column("v").apply()
    assert refused(branch) == "NOT_AUDITED"


def test_a_branch_of_the_same_name_inherits_nothing():
    table, branch = forked(row(1))
    branch.audit(checks(GOOD))
    old = branch.context.storage.get("branch/branch-fix/AUDIT-1")
    table.delete_branch("fix")
    table.create_branch("fix", "good")
    table.context.storage.put("branch/branch-fix/AUDIT-1", old)
    assert refused(table.branch("fix")) == "NOT_AUDITED"
    assert table.branch("fix").audit(checks(GOOD)).number == 2


def test_merging_can_require_an_audit():
    table, branch = forked(row(1))
    branch.append(table_of(row(2)))
    assert [c.kind for c in table.merge_branch("fix", require_audit=True, dry_run=True).conflicts] == [
        "NOT_AUDITED"
    ]
    with pytest.raises(CommitConflictError, match="has passed no audit 'nightly' as it is now"):
        table.merge_branch("fix", require_audit="nightly")
    assert table.snapshot.total_record_count == 1
    branch.audit(checks(GOOD, name="nightly"))
    assert table.merge_branch("fix", require_audit="nightly").rows_added == 1
    # Merging left a snapshot on the branch, which changed no rows.
    branch.append(table_of(row(3)))
    with pytest.raises(CommitConflictError):
        table.merge_branch("fix", require_audit="nightly")
    branch.audit(checks(GOOD, name="nightly"))
    table.merge_branch("fix", require_audit=True)
    assert table.snapshot.total_record_count == 3


def test_replacing_main_can_require_an_audit():
    table, branch = forked(row(1))
    branch.append(table_of(row(2)))
    with pytest.raises(CommitConflictError, match="has passed no audit"):
        table.replace_main_branch("fix", require_audit=True)
    branch.audit(checks(GOOD))
    table.replace_main_branch("fix", require_audit=True)
    assert table.snapshot.total_record_count == 2


def test_rows_without_any():
    made = make_table(f"memory://audit{next(_PLACES)}")
    assert only(made, "- row_count: {max: 0}").passed
    assert only(made, "- unique: id").passed
    assert only(made, "- freshness: {within: 1 h}").found == "nothing"
    made.append(rows(0, 1))
    assert only(made, "- not_null: v").passed


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("row_count: {min: 1e999999999}", "expected a number"),
        ("row_count: {min: 1e-999999999}", "expected a number"),
        ("range: {column: price, min: 1e999999999}", "digits"),
        ("row_count_vs_main: {within: 1e999999999 %}", "expected a percentage"),
        ('{name: "a\\e[31m", row_count: {min: 1}}', "cannot be printed"),
        ('{name: "a\\nError: b", row_count: {min: 1}}', "cannot be printed"),
    ],
)
def test_values_that_would_take_for_ever_or_play_tricks_are_refused(check, told):
    _, fix = forked(row(1))
    with pytest.raises(InvalidInputError, match=told):
        fix.audit(Checks.parse(f"checks:\n  - {check}"))


def test_so_many_checks_are_refused():
    _, fix = forked(row(1))
    with pytest.raises(InvalidInputError, match="40,000 checks|characters"):
        fix.audit(Checks.parse("checks:\n" + "  - unique: id\n" * 40_000))
    with pytest.raises(InvalidInputError, match="1,001 checks"):
        fix.audit(Checks.parse("checks:\n" + "  - unique: id\n" * 1_001))


@pytest.mark.parametrize(("condition", "passed"), [("id > 1e999", False), ("id < 1e999", True)])
def test_conditions_that_are_the_same_for_all_rows(condition, passed):
    _, fix = forked(row(1), row(2))
    verdict = fix.audit(Checks.parse(f"checks:\n  - condition: {condition}"))
    assert verdict.passed is passed
    counted = Checks.parse(f"checks:\n  - {{row_count: {{min: 1}}, where: {condition}}}")
    assert fix.audit(counted).passed is passed

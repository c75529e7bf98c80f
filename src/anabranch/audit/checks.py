"""The checks a file can ask for: what each measures, and when it passes.

    checks:
      - row_count: {min: 1, max: 1000000}
      - not_null: [id, ts]
      - unique: id
      - range: {column: price, min: 0}
      - accepted_values: {column: state, values: [open, paid]}
      - condition: shipped >= ordered
      - freshness: {column: ts, within: 2 h}
      - row_count_vs_main: {within: 5 %}
      - sum_vs_main: {column: price, within: 1 %}
      - no_removed_keys: id
      - sql: SELECT ... FROM {branch}

The top level may also have a ``name`` of the whole, columns to ``show`` of offending rows, and
``compare_with: fork`` to compare with main as it was when the branch began. Each check may have a ``name``, a condition
``where`` on the rows it is about, ``severity: warn`` if the audit should not fail with it, and, if it counts
offending rows, ``at_most``: how many are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.audit.check import Check, CheckEntry
from anabranch.audit.check_kinds import COUNTING, READERS
from anabranch.audit.checks_file import Checks, Item
from anabranch.format.types.data_types import Field

_MOST_CHECKS = 1_000


@dataclass(frozen=True)
class CheckSet:
    """All checks of a file, bound to a table."""

    name: str
    checks: tuple[Check, ...]
    against: str
    """What main is in comparisons: ``main`` at its newest state, or the ``fork``, as it was when the branch began."""


def read_checks(file: Checks, fields: Sequence[Field], *, own_language: bool = True) -> CheckSet:
    """Bind the checks of a file to a table.

    Args:
        file: the parsed file.
        fields: the table's columns.
        own_language: whether conditions are in our language of filters; otherwise in Spark's SQL.

    Raises:
        InvalidInputError: naming the line: a key is unknown, a column does not exist, a value is invalid.
    """
    top = file.root.mapping(("name", "show", "compare_with", "checks"))
    known = {f.name for f in fields}
    shown = tuple(top["show"].texts()) if "show" in top else ()
    for column in shown:
        if column not in known:
            top["show"].fail(f"there is no column '{column}'", f"the columns are {', '.join(known)}.")
    if "checks" not in top:
        file.root.fail("there are no 'checks'", "write a list of checks under 'checks:'.")
    entries = top["checks"].items()
    if len(entries) > _MOST_CHECKS:
        top["checks"].fail(
            f"there are {len(entries):,} checks, and a file may have {_MOST_CHECKS:,}",
            "make several files of them; each is an audit of its own.",
        )
    checks = tuple(
        check for entry in entries for check in _read_entry(entry, fields, shown, own_language=own_language)
    )
    if not checks:
        top["checks"].fail("there are no checks", "write '- row_count: {min: 1}', or others.")
    return CheckSet(
        top["name"].line() if "name" in top else file.name,
        checks,
        top["compare_with"].choice("main", "fork") if "compare_with" in top else "main",
    )


_COMMON = ("name", "where", "severity", "at_most")


def _read_entry(
    entry: Item, fields: Sequence[Field], shown: tuple[str, ...], *, own_language: bool
) -> list[Check]:
    given = entry.mapping((*READERS, *_COMMON))
    kinds = [kind for kind in given if kind in READERS]
    if len(kinds) != 1:
        entry.fail(
            f"an entry is one check, found {' and '.join(kinds) or 'none'}",
            f"begin each with '- ' and one of {', '.join(READERS)}.",
        )
    (kind,) = kinds
    severity = given["severity"].choice("error", "warn") if "severity" in given else "error"
    for key, allowed in (("at_most", COUNTING), ("where", READERS.keys() - {"sql"})):
        if key in given and kind not in allowed:
            given[key].fail(f"'{kind}' has no '{key}'")
    asked = CheckEntry(kind, given[kind], fields, shown, own_language, most=given.get("at_most"))
    if "where" in given:
        asked = replace(asked, where=asked.condition(given["where"]))
    made = READERS[kind](asked)
    named = given["name"].line() if "name" in given else None
    suffix = "" if asked.where is None else f" where {asked.where}"
    return [
        Check(
            kind,
            c.name + suffix if named is None else named if len(made) == 1 else f"{named}: {c.name}",
            c.expected,
            c.measures,
            c.judge,
            severity == "error",
        )
        for c in made
    ]

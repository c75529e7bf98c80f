"""Several tables of one warehouse at once: replace their mains together, and pin them consistently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.errors import InvalidInputError
from anabranch.kernel.log.main_branch import main_of
from anabranch.kernel.log.moment import newest
from anabranch.kernel.replacement.group import Member, planned_group, replace_group
from anabranch.kernel.replacement.release import release_due
from anabranch.kernel.replacement.request import Expected, ExpectedMain, Replacement, SeenMain
from anabranch.kernel.replacement.result import GroupInfo, GroupResult
from anabranch.lineage.coverage import coverage
from anabranch.lineage.only_on_main import only_on_main
from anabranch.options import REPLACED_MAIN_TIME_RETAINED
from anabranch.table.replacing import wait_millis
from anabranch.table.table import Table

__all__ = ["GroupInfo", "pinned_together", "replace_together"]


def replace_together(
    tables: Sequence[tuple[Table, str]],
    *,
    expect_main: Mapping[str, ExpectedMain] | None = None,
    seen: Mapping[str, SeenMain] | None = None,
    wait: str | bool | None = None,
    force: bool = False,
    require_audit: str | bool | None = None,
    by: str | None = None,
    reason: str | None = None,
    dry_run: bool = False,
) -> GroupResult:
    """Replace main by a branch in each of these tables, atomically for all; see `Lake.replace_group`.

    `seen` says of tables, by name, what their mains were when it was looked at them, and what may have followed.
    """
    expected = {name: Expected.of(asked) for name, asked in (expect_main or {}).items()}
    unknown = expected.keys() - {table.context.name for table, _ in tables}
    if unknown:
        raise InvalidInputError(
            f"a snapshot is expected of {sorted(unknown)}, whose main is not to be replaced"
        )
    members = [
        Member(
            table.context,
            Replacement(
                branch,
                expected.get(table.context.name),
                wait_millis(wait),
                force,
                require_audit or False,
                by=by,
                reason=reason,
                coverage=coverage,
                gaps=only_on_main,
                seen=(seen or {}).get(table.context.name),
            ),
        )
        for table, branch in tables
    ]
    if dry_run:
        return planned_group(members)
    made = replace_group(members)
    for table, _ in tables:
        if REPLACED_MAIN_TIME_RETAINED.of(table.options) == 0:
            release_due(table.context, 0)
    return made


def pinned_together(tables: Sequence[Table]) -> tuple[Table, ...]:
    """Pin the tables to newest snapshots that were all current at one moment.

    Raises `NotFoundError`: one of them was never written.
    """
    while True:
        mains = [main_of(table.context) for table in tables]
        found = [newest(main) for main in mains]
        # Mains that are unchanged after the reads were main throughout, in all tables at the same time.
        if all(main_of(main) is main for main in mains):
            pinned = zip(tables, found, mains, strict=True)
            return tuple(table._pinned_to(moment, main) for table, moment, main in pinned)  # noqa: SLF001

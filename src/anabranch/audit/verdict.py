"""The result of an audit, for people and for gates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.format.records.audit import AuditRecord, CheckResult
from anabranch.kernel.log.moment import time_text
from anabranch.tabular import as_html, as_text

_COLUMNS = ("", "check", "expected", "found")


@dataclass(frozen=True, repr=False)
class Verdict:
    """The result of an audit, as it was recorded. Truthy if it passed.

    Example:
        >>> from anabranch.audit import Checks
        >>> verdict = table.branch("fix").audit(Checks.parse("checks: [row_count: {min: 1}]"))
        >>> bool(verdict)
        True
    """

    branch: str
    """``database.table``, with ``$branch_<name>`` on a branch."""
    number: int
    """Number of the record: ``AUDIT-<number>`` in the branch's folder."""
    record: AuditRecord
    """The checks, the snapshot, and the findings."""

    @property
    def passed(self) -> bool:
        """Whether no check failed, other than those of severity ``warn``."""
        return self.record.passed

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """All checks with what was expected and found, in the order of the file."""
        return self.record.checks

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that did not pass, including those of severity ``warn``."""
        return tuple(check for check in self.checks if not check.passed)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        lines = [self._title, *(f"  {line}" for line in self._about), "", as_text(_COLUMNS, self._rows())]
        return "\n".join([*lines, *self._samples()])

    def _repr_html_(self) -> str:
        return as_html(self._title, [*self._about, *self._samples()], _COLUMNS, self._rows())

    @property
    def _title(self) -> str:
        return f"audit '{self.record.name}' of {self.branch}: {'passed' if self.passed else 'failed'}"

    @property
    def _about(self) -> tuple[str, ...]:
        record = self.record
        passed = sum(check.passed for check in record.checks)
        count = f"{passed} of {len(record.checks)} checks passed"
        return (f"snapshot {record.snapshot.id}, {count}, {time_text(record.created_millis)}",)

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for check in self.checks:
            mark = "passed" if check.passed else "failed" if check.blocking else "warning"
            yield mark, check.name, check.expected, check.found

    def _samples(self) -> Iterator[str]:
        for check in self.failed:
            for row in check.sample:
                yield f"  {check.name}: {_as_json(row)}"


def _as_json(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False)

"""Answers about corrections, and a command of the user that is told of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError
from anabranch.verbs.answer import Answer

if TYPE_CHECKING:
    from anabranch.cascade import CascadePlan, CascadeResult
    from anabranch.jobs.hooks import Event, Hook
    from anabranch.kernel.replacement.result import GroupResult

COLUMNS = (
    "table STRING, branch STRING, is_there BOOLEAN, fork BIGINT, is_empty BOOLEAN, bad STRING, anew BIGINT, rows BIGINT, "
    "jobs STRING, problems STRING, notes STRING, done BOOLEAN, published BOOLEAN, group_number BIGINT, message STRING"
)


def planned(plan: CascadePlan, files: Sequence[str] | None, more: Sequence[str] = ()) -> Answer:
    """Return what a correction would do."""
    from anabranch.cascade.telling import told_plan

    return Answer(plan.to_dict(), told_plan(plan, files or (), more), rows=_rows(plan, None))


class Told:
    """Answers with what was published or taken back, and tells a command of the user."""

    def __init__(self, table: str | None, command: str | None) -> None:
        """Raises `OptionError` if the command cannot be read."""
        self._table = table
        self._hook: Hook | None = None
        if command is not None:
            from anabranch.jobs.hooks import Hook

            self._hook = Hook.of(command)

    @contextmanager
    def of_errors(self) -> Iterator[None]:
        """Tell the command, too, what stood against a correction in this block."""
        try:
            yield
        except AnabranchError as error:
            self._tell("failed", error.message, {}, hint=error.hint)
            raise
        except Exception as error:
            self._tell("failed", str(error), {})
            raise

    def corrected(
        self,
        made: CascadeResult,
        files: Sequence[str] | None,
        more: Sequence[str] = (),
        kept: Sequence[str] = (),
    ) -> Answer:
        """Return what a correction did, and what is left; `kept` are words that say where checkpoints are."""
        from anabranch.cascade.telling import told_result

        is_left = not made.is_published and (made.failed or made.waiting is not None)
        if made.group is not None:
            self._tell("published", ", ".join(name for name, _ in made.group.tables), made.to_dict())
        elif is_left:
            troubles = [f"job '{one.job}': {one.message}" for one in made.failed]
            by_hand = [] if made.waiting is None else [f"{made.waiting.table} has to be made by hand"]
            self._tell("failed", "; ".join([*troubles, *by_hand]), made.to_dict())
        return Answer(
            made.to_dict(),
            told_result(made, files or (), more, kept),
            rows=_rows(made.plan, made),
            code=1 if is_left else 0,
        )

    def undone(self, made: GroupResult) -> Answer:
        """Return what was taken back."""
        from anabranch.cascade.telling import told_group

        self._tell("undone", ", ".join(name for name, _ in made.tables), asdict(made))
        rows = [
            (name, one.branch, *(None,) * 9, False, False, made.number, "taken back")
            for name, one in made.tables
        ]
        return Answer(made, told_group(made), rows=rows)

    def _tell(self, event: Event, message: str, values: Mapping[str, Any], hint: str | None = None) -> None:
        if self._hook is not None:
            self._hook.run(event, self._table or "", message, hint, values, kind="table")
            self._hook.wait()


def _rows(plan: CascadePlan, made: CascadeResult | None) -> Iterable[tuple[Any, ...]]:
    """Yield a row for each table, in the order in which they feed each other."""
    from anabranch.system_tables.definition import as_json

    messages = {} if made is None else {status.job: status.message for status in made.failed}
    group = None if made is None or made.group is None else made.group.number
    for step in plan.steps:
        failed = [f"job '{p.job}': {messages[p.job]}" for p in step.jobs if p.job in messages]
        waits = made is not None and made.waiting == step
        message = "; ".join(failed) or ("it has to be made by hand before it goes on" if waits else None)
        parts = [asdict(part) for part in step.jobs]
        yield (
            *(step.table, step.branch, step.is_there, step.fork, step.is_empty, as_json(step.bad)),
            *(step.anew, step.rows, as_json(parts), as_json(step.problems), as_json(step.notes)),
            made is not None and step.table in made.done,
            made is not None and made.is_published,
            *(group, message),
        )

"""Verbs about this machine, and statements in SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.verbs.answer import Answer, Cut, Grid, Line, Lines, Note
from anabranch.verbs.parameters import Conf, Limit, limit, most_rows, settings
from anabranch.verbs.verb import Called, Group, argument, option, verb

if TYPE_CHECKING:
    from anabranch.verbs.scripts import Started, StatementRows

MACHINE: Group = "This machine"
_MARKS = {
    "ok": ("ok     ", "green"),
    "missing": ("missing", "yellow"),
    "warning": ("warning", "yellow"),
    "failed": ("failed ", "red"),
}


@verb("Tables and rows", "Lake.sql", sql="any statement", shows_itself=True)
def sql(
    statement: Annotated[
        str | None,
        argument("One statement, or several with semicolons between; - for standard input."),
    ] = None,
    file: Annotated[str | None, option("A file of statements.", "--file", "-f")] = None,
    limit: Annotated[Limit | None, limit("100 of each statement")] = None,
    engine: Annotated[
        str,
        option(
            "duckdb or spark; auto is DuckDB, which starts at once, for scripts that only read, else Spark."
        ),
    ] = "auto",
    *,
    caller: Called,
) -> Iterator[Answer]:
    """Carry out statements in SQL; with --json one object a row. Those that only read need no Spark.

    Without a statement, a terminal gets a shell with completion and a history.

    Tables are db.t, or t in database default. INSERT from a stream, such as a topic, runs until it is interrupted.
    """
    from anabranch.verbs.scripts import carry_out, script_of

    most = most_rows(limit, 100, is_watched=caller.is_watched)
    if statement is None and file is None and caller.converse is not None:
        caller.converse(most, engine)
        return
    try:
        for found in carry_out(caller.warehouse, script_of(statement, file), limit=most, engine=engine):
            yield answered(found)
    except KeyboardInterrupt:
        yield Answer(None, Note("interrupted; the same statement goes on from here"))


def answered(found: StatementRows | Started) -> Answer:
    """Return the rows of a statement, or that its query was started, as an answer."""
    from anabranch.verbs.scripts import Started

    if isinstance(found, Started):
        value = {"query": found.name, "id": found.id}
        return Answer(value, f"started {found.name}; press Ctrl-C to end it")
    values = [tuple(map(_plain, row)) for row in found.rows]
    objects = Lines(dict(zip(found.columns, row, strict=True)) for row in values)
    shown = [Grid(found.columns, values, grouped=False)] if found.columns else []
    return Answer(objects, *shown, Cut(lambda: len(values) if found.more else None))


def _plain(value: Any) -> Any:
    """Rows inside rows as dicts, bytes as they are."""
    if hasattr(value, "asDict"):
        return {key: _plain(inner) for key, inner in value.asDict().items()}
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


@verb(MACHINE, "")
def doctor(
    master: Annotated[
        str | None, option("Spark master to try: its executors too. None is started if absent.")
    ] = None,
    conf: Conf = None,
    read_only: Annotated[
        bool, option("The warehouse is only to be read: write nothing to try it.", "--read-only")
    ] = False,
    *,
    caller: Called,
) -> Iterator[Answer]:
    """Try what Anabranch needs: Python, Java, Spark and its executors, the warehouse and its store, the place of checkpoints.

    Exit code 1 if something failed; what is missing is optional.
    """
    from anabranch.doctor.machine import Examination, examine

    found = []
    for check in examine(Examination(caller.warehouse, read_only, master, settings(conf))):
        found.append(check)
        line = Line(f" {check.name}: {check.found}", folded=False, mark=_MARKS[check.status])
        remedy = [Line(f"        {check.remedy}", "dim", folded=False)] if check.remedy else []
        yield Answer(None, line, *remedy)
    is_bad = any(check.status == "failed" for check in found)
    yield Answer(found, code=1 if is_bad else 0)


@verb(MACHINE, "", shows_itself=True)
def demo(
    days: Annotated[int, option("How many days of flights to stream.", min=2, max=365)] = 365,
    keep: Annotated[
        str | None,
        option("Where to keep the demo's warehouse: an empty folder, or a URL of an object store."),
    ] = None,
    master: Annotated[
        str, option("Spark master; a cluster's machines must see this one's files.")
    ] = "local[2]",
    conf: Conf = None,
    *,
    caller: Called,
) -> Answer:
    """A stream of real flights goes wrong, is corrected on a branch and put in place while it runs; every row is checked."""
    from anabranch.demo.story import run_demo

    facts = run_demo(days=days, keep=keep, master=master, conf=settings(conf), quiet=caller.wants_values)
    return Answer(facts, code=0 if facts.correct else 1)

"""The declaration of a job: its sources, its transformation, and the table it writes to.

    @anabranch.job("clean-orders", sources={"raw": "db.raw_orders"}, sink="db.orders", trigger="5 seconds")
    def clean_orders(raw):
        return raw.where("price > 0")

The same declaration runs on main, on a branch, and from the source positions of a tag: `anabranch.jobs.run`. Declaring
imports no Spark, and the job stays a function of DataFrames that a test can call.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from anabranch.catalog import Identifier
from anabranch.errors import InvalidInputError, InvalidNameError, OptionError
from anabranch.jobs.source import Options, Source, source_of, text_options
from anabranch.jobs.trigger import Trigger, trigger_of
from anabranch.tabular import Glance, Shown

Mode = Literal["append", "complete", "overwrite"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_DECLARED: ContextVar[list[Declared] | None] = ContextVar("jobs that the file declares", default=None)


@dataclass(frozen=True, slots=True)
class DeclaredAt:
    """Place where a job is declared."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, repr=False)
class Job(Shown):
    """A job declared by `job` or `sql_job`. Calling it calls its function.

    Example:
        >>> @anabranch.job("clean-orders", sources={"raw": "db.orders"}, sink="db.clean")
        ... def clean(raw):
        ...     return raw.where("price > 0")
        >>> clean.name, clean.tables
        ('clean-orders', ('db.orders',))
    """

    name: str
    """Stable, and chosen by people: it names the checkpoint and the producer in lineage."""
    sources: Mapping[str, Source] = field(hash=False)
    sink: str
    """``database.table``."""
    transform: Callable[..., Any] | str
    """A function of one DataFrame for each source, by name; or a statement in SQL that names the sources as tables."""
    trigger: Trigger
    mode: Mode
    options: Mapping[str, str] = field(hash=False)
    """Of the write to the sink."""
    place: DeclaredAt

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables of the lake that it reads."""
        return tuple(dict.fromkeys(s.table for s in self.sources.values() if s.table is not None))

    @property
    def reads_files(self) -> bool:
        """Whether a source of it is a folder, whose files it reads as they arrive."""
        return any(source.kind == "files" for source in self.sources.values())

    def __call__(self, *frames: Any, **named: Any) -> Any:
        """Return the rows of the job for these DataFrames, as its function gives them; for tests."""
        if isinstance(self.transform, str):
            raise InvalidInputError(f"job '{self.name}' is a statement in SQL, which cannot be called")
        return self.transform(*frames, **named)

    def __str__(self) -> str:
        return f"job '{self.name}' ({self.place})"

    def _glance(self) -> Glance:
        how = (
            "SQL"
            if isinstance(self.transform, str)
            else f"{getattr(self.transform, '__name__', 'a function')}()"
        )
        facts = [f"to {self.sink}, {self.mode}, {self.trigger}, by {how}"]
        rows = [(name, f"{source.kind} {source.name}") for name, source in self.sources.items()]
        return Glance(str(self).capitalize(), facts, ("source", "reads"), rows)


def job(
    name: str,
    *,
    sources: Mapping[str, Any],
    sink: str,
    trigger: str | None = None,
    mode: Mode = "append",
    options: Options = None,
) -> Callable[[Callable[..., Any]], Job]:
    """Declare the decorated function as a job: it takes a DataFrame for each source, by name, and returns the rows.

    Without a source that is a stream it is a batch job: a run makes one commit.

    Args:
        name: stable, for people; it stays the job's identity in checkpoints and lineage, whatever the code does.
        sources: what the parameters of the function are: the name of a table for a stream of it, what
            `anabranch.stream`, `static`, `topic` and `files` return, or a function of the SparkSession.
        sink: ``database.table``. It must exist.
        trigger: how often a batch begins, such as ``5 seconds``; ``available-now`` to take what is there and end;
            None for one batch right after the other.
        mode: ``append``; ``complete`` for an aggregation that replaces all rows with each batch; ``overwrite`` for a
            batch job that does.
        options: of the write.

    Raises:
        InvalidInputError, OptionError, InvalidNameError: the declaration is wrong; it names file and line.

    Example:
        >>> @anabranch.job("totals", sources={"orders": anabranch.static("db.orders")}, sink="db.totals")
        ... def totals(orders):
        ...     return orders.groupBy("day").sum("price")
        >>> totals.name, totals.sources["orders"].kind
        ('totals', 'static')
    """
    place = _place()

    def declare(function: Callable[..., Any]) -> Job:
        return _declared(name, sources, sink, function, trigger, mode, options, place)

    return declare


def sql_job(
    name: str,
    query: str,
    *,
    sources: Mapping[str, Any],
    sink: str,
    trigger: str | None = None,
    mode: Mode = "append",
    options: Options = None,
) -> Job:
    """Declare a statement in SQL as a job: ``SELECT ... FROM raw``, where ``raw`` is one of the sources.

    Arguments, and what is raised, are as for `job`.

    Example:
        >>> query = "SELECT id, price FROM raw WHERE price > 0"
        >>> anabranch.sql_job("clean", query, sources={"raw": "db.orders"}, sink="db.clean").tables
        ('db.orders',)
    """
    return _declared(name, sources, sink, query, trigger, mode, options, _place())


@dataclass(frozen=True, slots=True)
class Declared:
    """A job, and the file that was run or imported when it was declared; possibly by a function of another file."""

    job: Job
    file: str


@contextmanager
def collecting() -> Iterator[list[Declared]]:
    """Collect the jobs declared in the block, in order."""
    found: list[Declared] = []
    token = _DECLARED.set(found)
    try:
        yield found
    finally:
        _DECLARED.reset(token)


def _declared(  # noqa: PLR0917 - the arguments of a declaration
    name: str,
    sources: Any,
    sink: Any,
    transform: Any,
    trigger: str | None,
    mode: Mode,
    options: Options,
    place: DeclaredAt,
) -> Job:
    where = f"job '{name}' ({place})"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidNameError(
            f"{place}: '{name}' is no name for a job",
            hint="use letters, digits, '_', '-' and '.', at most 128 characters; it begins with a letter or digit.",
        )
    made = Job(
        name,
        _sources(sources, where),
        _sink(sink, where),
        transform,
        trigger_of(trigger, where),
        _mode(mode, where),
        text_options(options),
        place,
    )
    if isinstance(transform, str):
        _check_statement(transform, made)
    else:
        _check_parameters(transform, made)
    declared = _DECLARED.get()
    if declared is not None:
        declared.append(Declared(made, _running_file()))
    return made


def _sources(sources: Any, where: str) -> dict[str, Source]:
    if not isinstance(sources, Mapping) or not sources:
        raise InvalidInputError(
            f"{where}: its sources are {sources!r}",
            hint='give them by name, such as sources={"raw": "db.raw_orders"}.',
        )
    found = {}
    for name, value in sources.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidInputError(
                f"{where}: a source is called {name!r}",
                hint="sources are called as parameters of a function are.",
            )
        try:
            found[name] = source_of(value, name)
        except (InvalidInputError, OptionError) as error:
            raise type(error)(f"{where}: {error.message}", hint=error.hint) from None
    return found


def _sink(sink: Any, where: str) -> str:
    if not isinstance(sink, str):
        found = f"{len(sink)} sinks" if isinstance(sink, list | tuple | set | Mapping) else repr(sink)
        raise InvalidInputError(
            f"{where}: it has {found}, and a job writes one table",
            hint='write sink="db.orders", and declare a job of its own for every other table.',
        )
    try:
        identifier = Identifier.parse(sink)
    except InvalidNameError as error:
        raise InvalidNameError(f"{where}: sink {error.message}", hint=error.hint) from None
    if identifier.branch is not None or identifier.system is not None:
        raise InvalidInputError(
            f"{where}: its sink is '{sink}'",
            hint=f'write sink="{identifier.full_name}"; the branch is said when it is run: anabranch run ... --branch.',
        )
    return identifier.full_name


def _mode(mode: Any, where: str) -> Mode:
    if mode not in ("append", "complete", "overwrite"):
        raise OptionError(f"{where}: its mode is {mode!r}", hint="use append, complete or overwrite.")
    return mode  # type: ignore[no-any-return] # it is one of them


def _check_parameters(transform: Any, made: Job) -> None:
    """Raise `InvalidInputError` if a function does not take exactly the sources."""
    if not callable(transform):
        raise InvalidInputError(
            f"{made}: it is {transform!r}",
            hint="decorate a function of DataFrames, or use anabranch.sql_job.",
        )
    parameters = inspect.signature(transform).parameters.values()
    kinds = inspect.Parameter
    named = [p for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    unknown = [p.name for p in named if p.name not in made.sources and p.default is kinds.empty]
    unknown += [p.name for p in parameters if p.kind is kinds.POSITIONAL_ONLY]
    takes_any = any(p.kind is kinds.VAR_KEYWORD for p in parameters)
    unused = [] if takes_any else [name for name in made.sources if name not in {p.name for p in named}]
    if unknown or unused:
        wrong = (
            f"its function takes '{unknown[0]}', which is none of its sources"
            if unknown
            else f"its function does not take the source '{unused[0]}'"
        )
        raise InvalidInputError(
            f"{made}: {wrong} ({', '.join(made.sources)})",
            hint=f"write def {getattr(transform, '__name__', 'job')}({', '.join(made.sources)}).",
        )


def _check_statement(query: str, made: Job) -> None:
    """Raise `InvalidInputError` if a statement leaves out a source."""
    words = {word.lower() for word in re.findall(r"\w+", query)}
    unused = [name for name in made.sources if name.lower() not in words]
    if unused:
        raise InvalidInputError(
            f"{made}: its statement does not name the source '{unused[0]}' ({', '.join(made.sources)})",
            hint=f"name it in FROM: ... FROM {unused[0]}; or leave the source out.",
        )


def _place() -> DeclaredAt:
    """Return where the caller of the declaring function is."""
    frame = sys._getframe(2)  # noqa: SLF001 - as warnings do
    return DeclaredAt(frame.f_code.co_filename, frame.f_lineno)


def _running_file() -> str:
    """Return the file whose module-level code is running."""
    frame = sys._getframe(1)  # noqa: SLF001 - as warnings do
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename

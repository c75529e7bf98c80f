"""Declaration of a verb: one function whose signature, docstring and answer say all that a command, a procedure and a page need.

    @verb(MOMENTS, "Table.rename_tag", columns="tag_name STRING, snapshot_id BIGINT", changes=True)
    def rename_tag(table: OnBranch, name: TagName, to: Annotated[str, option("Its new name.", "--to")]) -> Answer:
        \"\"\"Give a tag another name.\"\"\"

A parameter is an option or an argument of the command, and an argument of the procedure. One whose type is of
`anabranch.verbs.subject` or `anabranch.verbs.verb` is given by who calls the verb: the table, a question to ask.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, Final, Literal, ParamSpec, Protocol, TypeVar, get_args, get_origin

from anabranch.verbs.answer import Answer
from anabranch.verbs.caller import Caller

P = ParamSpec("P")
R = TypeVar("R", Answer, Iterator[Answer])

Group = Literal[
    "Tables and rows", "Branches", "Moments", "Jobs and corrections", "Lineage", "Upkeep", "This machine"
]
REQUIRED: Final = inspect.Parameter.empty
"""Default of a parameter that must be given."""
_SQL_TYPES: Final = {str: "STRING", int: "BIGINT", bool: "BOOLEAN", float: "DOUBLE"}


@dataclass(frozen=True)
class Option:
    """How a parameter is written, and what it means."""

    help: str
    flags: tuple[str, ...] = ()
    """On the command line, such as ``--name`` and ``-n``; made of the parameter's name if empty."""
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    parser: Callable[[str], Any] | None = None
    """Converts the text of a command line."""
    sql: str | None = ""
    """Name in SQL; the parameter's own if empty, None if procedures do not have it."""
    required_in_sql: bool = False
    in_command: bool = True
    """False if only procedures have it."""
    is_argument: bool = False


def option(help: str, *flags: str, **how: Any) -> Option:
    """Describe a parameter that is an option of the command. `how` is as `Option` has it."""
    return Option(help, flags, **how)


def argument(help: str, metavar: str | None = None, **how: Any) -> Option:
    """Describe a parameter that the command takes by its position."""
    return Option(help, metavar=metavar, is_argument=True, **how)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a verb."""

    name: str
    type: Any
    """``str``, ``int``, ``float``, ``bool``, ``list[str]``, or what its parser makes."""
    option: Option
    default: Any = REQUIRED

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def is_needed_in_sql(self) -> bool:
        return self.is_required or self.option.required_in_sql

    @property
    def sql_name(self) -> str:
        return self.option.sql or self.name

    @property
    def sql_type(self) -> str:
        """Type in Spark's SQL. A list of texts is a single one there."""
        return _SQL_TYPES.get(self.type, "STRING")

    def of_sql(self, value: Any) -> Any:
        """Convert a value of SQL."""
        return [value] if self.type == list[str] else value


class Given(Protocol):
    """What is given by who calls the verb, and not by a parameter of its own."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters by which it is asked for: a table has a name."""
        ...

    def value(self, caller: Any, given: Mapping[str, Any]) -> Any:
        """Return it, given the values of these parameters."""
        ...


@dataclass(frozen=True)
class Verb:
    """A verb."""

    name: str
    group: Group
    function: Callable[..., Answer | Iterator[Answer]]
    python: str
    """What does the same in Python, such as ``Table.create_tag``."""
    columns: str | None = None
    """Columns of the procedure's result, as DDL; None if SQL says it otherwise."""
    sql: str | None = None
    """How SQL says it, if not by a procedure."""
    procedure: str = ""
    """Name in SQL, if not that of the command."""
    changes: bool = False
    """Whether it changes anything that is stored."""
    has_json: bool = True
    shows_itself: bool = False
    """Whether it shows on its own how far it has come."""
    parent: str | None = None
    """The command that it is below: ``lineage``."""

    @property
    def help(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def words(self) -> str:
        """The command, such as ``create-tag`` or ``lineage up``."""
        return self.name if self.parent is None else f"{self.parent} {self.name}"

    @property
    def sql_name(self) -> str:
        return self.procedure or self.words.replace("-", "_").replace(" ", "_")

    @cached_property
    def inputs(self) -> Mapping[str, Parameter | Given]:
        """What the function takes, in its order."""
        return {
            parameter.name: _input(parameter, self.function)
            for parameter in inspect.signature(self.function).parameters.values()
        }

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters: of the subject first, then the verb's own; the subject's options at the end."""
        given, own = self._given, self._own
        return (
            *(p for p in given if p.option.is_argument),
            *own,
            *(p for p in given if not p.option.is_argument),
        )

    @property
    def _given(self) -> tuple[Parameter, ...]:
        return tuple(
            p for one in self.inputs.values() if not isinstance(one, Parameter) for p in one.parameters
        )

    @property
    def _own(self) -> tuple[Parameter, ...]:
        return tuple(one for one in self.inputs.values() if isinstance(one, Parameter))

    @property
    def of_procedure(self) -> tuple[Parameter, ...]:
        """The parameters of the procedure, in their order."""
        return tuple(p for p in (*self._given, *self._own) if p.option.sql is not None)

    def takes(self, kind: type) -> bool:
        """Whether it takes something that its caller gives, such as `anabranch.verbs.verb.Asking`."""
        return any(isinstance(one, kind) for one in self.inputs.values())

    def answers(self, caller: Any, given: Mapping[str, Any]) -> Iterator[Answer]:
        """Do it. There is one answer, or one after the other where the verb goes on."""
        values = {
            name: given.get(name, one.default) if isinstance(one, Parameter) else one.value(caller, given)
            for name, one in self.inputs.items()
        }
        made = self.function(**values)
        if isinstance(made, Answer):
            yield made
        else:
            yield from made


VERBS: Final[dict[str, Verb]] = {}
"""All verbs that were imported, by their words; `anabranch.verbs.registry` imports them all."""


def verb(
    group: Group, python: str, *, name: str | None = None, **how: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare a function as a verb. `how` is as `Verb` has it."""

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        own = name or function.__name__.rstrip("_").replace("_", "-")
        made = Verb(own, group, function, python, **how)
        VERBS[made.words] = made
        return function

    return declare


def _input(parameter: inspect.Parameter, function: Callable[..., Any]) -> Parameter | Given:
    """Read a parameter of a function. Annotations are text, and others of the function may name types that are not imported."""

    def alone() -> None: ...

    alone.__annotations__ = {"it": parameter.annotation}
    annotation = inspect.get_annotations(alone, globals=function.__globals__, eval_str=True)["it"]
    kind, how = get_args(annotation)[:2]
    if not isinstance(how, Option):
        given: Given = how
        return given
    if get_origin(kind) is UnionType:
        (kind,) = [one for one in get_args(kind) if one is not type(None)]
    return Parameter(parameter.name, kind, how, parameter.default)


@dataclass(frozen=True)
class _Special:
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class Asking(_Special):
    """A question that is asked before something is removed or replaced: the command has ``--yes``."""

    def value(self, caller: Caller, _given: Mapping[str, Any]) -> Callable[[str], None]:
        """Return what asks it, and raises if the answer is no."""
        return caller.confirm


@dataclass(frozen=True)
class Progressing(_Special):
    """What long work is at."""

    def value(self, caller: Caller, _given: Mapping[str, Any]) -> Callable[[str], None]:
        """Return what is told."""
        return caller.progress


@dataclass(frozen=True)
class Calling(_Special):
    """Who calls, for verbs that are about the process or the terminal themselves."""

    def value(self, caller: Caller, _given: Mapping[str, Any]) -> Caller:
        """Return it."""
        return caller


@dataclass(frozen=True)
class Ordered(_Special):
    """The names of the parameters in the order in which they were given."""

    def value(self, caller: Caller, _given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return them."""
        return caller.order


Confirm = Annotated[Callable[[str], None], Asking()]
Progress = Annotated[Callable[[str], None], Progressing()]
Called = Annotated[Caller, Calling()]
Order = Annotated[tuple[str, ...], Ordered()]

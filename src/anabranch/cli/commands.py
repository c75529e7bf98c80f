"""Makes the commands of the declared verbs: this module knows none by its name."""

from __future__ import annotations

import inspect
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from anabranch.cli import output, state
from anabranch.cli.job_statuses import ShownStatuses
from anabranch.cli.output import runnable, say, show_json, told, working
from anabranch.cli.pager import paged
from anabranch.cli.shown import show
from anabranch.cli.streams import is_typed
from anabranch.verbs.answer import Answer
from anabranch.verbs.caller import Caller, Statuses, accounted, user
from anabranch.verbs.verb import Asking, Parameter, Progressing, Verb


class InOrder(TyperCommand):
    """A command that knows in which order its options were given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[__name__] = tuple(parameter.name for parameter in order)
        return super().parse_args(ctx, args)


def group_of(verbs: Iterable[Verb], parents: Mapping[str, str]) -> type[TyperGroup]:
    """Return the class of a group with the commands of verbs; `parents` are the helps of commands that others are below."""
    makers: dict[str, Callable[[], Any]] = {}
    below: dict[str, list[Verb]] = {}
    for verb in verbs:
        if verb.parent is None:
            makers[verb.name] = partial(_made, verb, panel=verb.group)
        else:
            below.setdefault(verb.parent, []).append(verb)
            makers.setdefault(
                verb.parent, partial(_parent, verb.parent, parents[verb.parent], below[verb.parent])
            )

    class Verbs(TyperGroup):
        def __init__(self, **how: Any) -> None:
            super().__init__(**how)
            self.commands = _WhenAsked(makers)

    return Verbs


class _WhenAsked(UserDict[str, Any]):
    """Commands by name, each made when it is asked for: to make all of them takes longer than to list tables."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        super().__init__(dict.fromkeys(makers))
        self._makers = makers

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            self.data[name] = self._makers[name]()
        return self.data[name]


def _made(verb: Verb, *, panel: str | None) -> Any:
    """Make the command of a verb."""
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    alone.command(verb.name, help=verb.help, rich_help_panel=panel, cls=InOrder)(_command(verb))
    return typer.main.get_command(alone)


def _parent(name: str, help: str, verbs: Sequence[Verb]) -> Any:
    """Make a command with the commands of verbs below it."""
    app = typer.Typer(
        name=name, no_args_is_help=True, rich_markup_mode="rich", add_completion=False, help=help
    )
    app.callback()(lambda: None)
    for verb in verbs:
        app.command(verb.name, help=verb.help, cls=InOrder)(_command(verb))
    group = typer.main.get_command(app)
    group.rich_help_panel = verbs[0].group  # type: ignore[attr-defined]
    return group


def _command(verb: Verb) -> Callable[..., None]:
    """Make the function that typer reads the options from, and calls."""
    parameters = [
        inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *(_typed(parameter) for parameter in verb.parameters if parameter.option.in_command),
    ]
    if verb.takes(Asking):
        parameters.append(_flag("yes", "Do not ask.", "--yes", "-y"))
    if verb.has_json:
        parameters.append(_flag("json", "Print JSON instead of text.", "--json"))
    parameters.append(_flag("stats", "Say on standard error what was asked of the store.", "--stats"))

    def command(
        *, ctx: typer.Context, yes: bool = False, json: bool = False, stats: bool = False, **given: Any
    ) -> None:
        with _accounted(json=json) if stats else nullcontext():
            _run(verb, given, yes=yes, json=json, order=ctx.meta[__name__])

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _typed(parameter: Parameter) -> inspect.Parameter:
    option = parameter.option
    how: dict[str, Any] = {
        "help": option.help,
        "metavar": option.metavar,
        "min": option.min,
        "max": option.max,
    }
    if option.parser is not None:
        how |= {"parser": _parser(option.parser), "show_default": False}
    kind = parameter.type if parameter.default is not None else parameter.type | None
    info: Any
    if option.is_argument:
        info = typer.Argument(**how)
    else:
        flag = f"--{parameter.name.strip('_').replace('_', '-')}"
        info = typer.Option(*(option.flags or (flag,)), **how)
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=parameter.default,
        annotation=Annotated[kind, info],
    )


def _flag(name: str, help: str, *flags: str) -> inspect.Parameter:
    info = typer.Option(*flags, help=help)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, info]
    )


def _parser(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parsed


def _run(verb: Verb, given: dict[str, Any], *, yes: bool, json: bool, order: Sequence[str]) -> None:
    caller = Caller(
        state.warehouse,
        by=user(),
        confirm=lambda question: confirm(question, yes=yes or json or bool(given.get("dry_run"))),
        say=lambda line: None if json else say(line),
        tell=lambda line: say(line, err=True),
        statuses=partial(_statuses, json=json),
        runnable=runnable,
        converse=_shell(json=json),
        is_watched=output.on_terminal(),
        wants_values=json,
        is_loud=state.debug,
        order=tuple(order),
    )
    is_list = not (json or verb.changes or verb.shows_itself or verb.takes(Progressing) or given.get("watch"))
    state.changes = verb.changes and not given.get("dry_run")
    code, silent = 0, json or verb.shows_itself or verb.takes(Progressing)
    with paged(wanted=is_list and state.pages):
        with _progress(verb, caller, silent=json):
            answers = verb.answers(caller, given)
            if verb.takes(Progressing):
                answers = iter([*answers])
        while (answer := _next(answers, silent=silent)) is not None:
            code = answer.code or code
            show(answer, json=json)
    if code:
        raise typer.Exit(code)


def _next(answers: Iterator[Answer], *, silent: bool) -> Answer | None:
    """Work for the next answer, and show how far it has come meanwhile."""
    with working(json=silent):
        return next(answers, None)


@contextmanager
def _accounted(*, json: bool) -> Iterator[None]:
    """Say afterwards what was asked of the store, also if the command fails."""
    with accounted() as asked:
        try:
            yield
        finally:
            if json:
                show_json({"stats": asked.to_dict()}, err=True)
            else:
                say(asked, err=True)


@contextmanager
def _progress(verb: Verb, caller: Caller, *, silent: bool) -> Iterator[None]:
    if not verb.takes(Progressing):
        yield
        return
    with told(silent=silent) as progress:
        caller.progress = progress
        yield


def _statuses(*, changes: bool = True, json: bool, **how: Any) -> Any:
    """Open what shows jobs at work."""
    if json and not changes:
        return Statuses()
    return ShownStatuses(json=json, tells_failures=changes, **how)


def _shell(*, json: bool) -> Callable[[int | None, str], None] | None:
    """Return what opens the shell, where a person types and reads."""
    if json or not output.on_terminal() or not is_typed():
        return None
    from anabranch.cli.shell import converse

    return converse


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal, unless the answer was given beforehand; without a terminal nobody is asked."""
    if not yes and is_typed():
        typer.confirm(question, abort=True)

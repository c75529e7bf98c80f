"""Writes docs/reference/commands.md from the command line's own help."""

import click
import typer.main

from anabranch.cli.main import app
from anabranch.verbs.verb import VERBS

PATH = "reference/commands.md"
HEADER = """<!-- blocks: forms of commands, made from the program; tests/project/test_docs.py compares them with it, tests/cli runs every verb -->
# Commands

Every command with its options, made from the program's own help. [Command line](../cli.md) says what they have in common: the
warehouse, JSON, exit codes. In front of the verb stand `--warehouse W` (or the variable `ANABRANCH_WAREHOUSE`), `--option key=value` for
the store, `--create` and `--debug`.
"""


def page() -> str:
    """The page's text."""
    group = typer.main.get_command(app)
    return HEADER + "".join(_command(name, command) for name, command in _commands(group))


def _commands(group, prefix=""):
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group) or hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        elif not command.hidden:
            yield f"{prefix}{name}", command


def _command(name, command) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not getattr(p, "hidden", False)]
    usage = " ".join(["anabranch", name, *map(_usage, arguments)])
    rows = "".join(_option(option) for option in options if "--help" not in option.opts)
    table = f"\n| option | meaning |\n|---|---|\n{rows}" if rows else ""
    return f"\n## {name}\n\n```\n{usage}\n```\n\n{text_of(command.help)}\n{_elsewhere(VERBS[name])}{table}"


def _elsewhere(verb) -> str:
    """How Python and SQL say it."""
    said = [] if not verb.python else [f"In Python: `{verb.python}`."]
    if verb.columns is not None:
        from anabranch.spark.catalog.called import arguments

        names = ", ".join(f"{parameter.sql_name} => ..." for parameter in arguments(verb))
        said.append(f"In SQL: `CALL lake.sys.{verb.sql_name}({names})`.")
    elif verb.sql is not None:
        said.append(f"In SQL: `{verb.sql}`." if verb.sql != "any statement" else "In SQL: any statement.")
    return "\n" + " ".join(said) + "\n" if said else ""


def _usage(argument) -> str:
    word = argument.metavar or argument.name.upper()
    word = f"{word}..." if argument.nargs == -1 and not word.endswith("...") else word
    return word if argument.required else f"[{word}]"


def _option(option) -> str:
    names = ", ".join(
        f"`{name}`" for name in sorted(option.opts + option.secondary_opts, key=len, reverse=True)
    )
    takes = "" if getattr(option, "is_flag", False) else f" {_metavar(option)}"
    return f"| {names}{takes} | {text_of(option.help)} |\n"


def _metavar(option) -> str:
    return (option.metavar or option.name).upper().replace("|", r"\|").replace("_", "-")


def text_of(help_text) -> str:
    """A text on one line, as it may stand in a table."""
    return " ".join((help_text or "").split()).replace("|", r"\|").replace("<", "&lt;")

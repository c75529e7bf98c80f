"""The entry of the command line, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from typing import Annotated, Any

import typer
import typer.main

from anabranch.cli import state, streams
from anabranch.cli.commands import group_of
from anabranch.cli.output import NOBODY_READS, OUTPUT_LOST, runnable, say, show_json
from anabranch.errors import (
    AnabranchError,
    CommitConflictError,
    InvalidInputError,
    JobTakenError,
    SealedBranchError,
)
from anabranch.ui import verbs as _of_page  # noqa: F401 - declares them
from anabranch.verbs import lineage
from anabranch.verbs.parameters import settings
from anabranch.verbs.registry import in_order
from anabranch.verbs.verb import VERBS
from anabranch.version import __version__

FAILED, WRONG_USAGE, CONFLICT, TAKEN, ENGINE_GONE = 1, 2, 3, 4, 5
INTERRUPTED = 130
"""As shells say it of a program that SIGINT ended."""

app = typer.Typer(
    name="anabranch",
    cls=group_of(in_order(), {"lineage": lineage.HELP}),
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="A streaming lakehouse for PySpark: append-only tables in the open Apache Paimon format.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"anabranch {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    warehouse: Annotated[
        str,
        typer.Option("--warehouse", "-w", envvar="ANABRANCH_WAREHOUSE", help="Path or URL of the warehouse."),
    ] = "warehouse",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="key=value of the store, such as s3.endpoint=URL; may be repeated."),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the warehouse if it is not there.")] = False,
    no_pager: Annotated[
        bool, typer.Option("--no-pager", help="Do not show long lists in the pager (PAGER, else less).")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    _use_in_stores(option or [])
    state.warehouse = warehouse
    source = context.get_parameter_source("warehouse")
    state.named = warehouse if source is not None and source.name == "COMMANDLINE" else None
    if create:
        from anabranch.verbs.caller import create_warehouse

        create_warehouse(warehouse)
    state.debug = debug
    state.pages = not no_pager


def _use_in_stores(options: list[str]) -> None:
    """Options of stores, for this process and those that it starts: Spark's too."""
    if options:
        from anabranch.verbs.caller import store_variables

        os.environ.update(store_variables(settings(options)))


def main() -> None:
    """Run the command line and exit with its code: 0, 1 (failed), 2 (wrong usage), 3 (conflict), or one of a verb's own."""
    streams.make_ready()
    try:
        code = run(sys.argv[1:])
    finally:
        streams.let_go()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; problems are printed, never raised unless ``--debug``.

    They go to standard error, with ``--json`` as one JSON object.
    """
    state.json, state.changes = "--json" in arguments, False
    try:
        result = _command()(arguments, standalone_mode=False)
        if result == INTERRUPTED:  # how typer says it; older ones raise Abort
            return _interrupted()
        return _written(result if isinstance(result, int) else 0)
    except typer.Abort as stop:
        if isinstance(stop.__cause__ or stop.__context__, KeyboardInterrupt):
            return _interrupted()
        return FAILED
    except KeyboardInterrupt:
        return _interrupted()
    except typer.Exit as stop:
        return _written(getattr(stop, "exit_code", FAILED))
    except SystemExit as stop:  # of click, which has made standard output silent
        if isinstance(stop.__context__, BrokenPipeError):
            return NOBODY_READS
        raise
    except AnabranchError as error:
        return _report(error, _exit_code(error))
    except Exception as error:
        if error is streams.lost():
            return _written(0)
        usage = getattr(error, "format_message", None)
        if usage is not None:  # click's own complaint about the arguments
            if state.json:
                _report_json("UsageError", usage(), None, WRONG_USAGE)
            else:
                say(f"Error: {usage()}", err=True)
            return WRONG_USAGE
        if _is_of_jvm(error):
            return _report(_jvm_gone(error), ENGINE_GONE)
        return _report(error, FAILED)


@cache
def _command() -> Any:
    """The command that all others are below; typer would make it anew at each call."""
    return typer.main.get_command(app)


def _written(code: int) -> int:
    """Return the exit code of what has ended: one of its own, and a word, where its output could not be written.

    A script that repeats what failed would else do a second time what was done.
    """
    streams.finish()
    lost = streams.lost()
    if lost is None:
        return code
    if isinstance(lost, BrokenPipeError):
        return code or NOBODY_READS
    code = OUTPUT_LOST if code in (0, NOBODY_READS) else code
    message = f"standard output cannot be written: {lost.strerror}"
    hint = (
        "what was asked was done; do not run it again for what it would have printed."
        if state.changes
        else "what was printed is not all; what was done before stays."
    )
    if state.json:
        _report_json("OutputLost", message, hint, code)
    else:
        say(f"Error: {message}\n  hint: {hint}", err=True)
    return code


def _interrupted() -> int:
    """Say what an interrupted command leaves: what it had committed, and nothing half done."""
    message = "interrupted: what was committed before stays, nothing else was changed"
    if state.json:
        _report_json("Interrupted", message, None, INTERRUPTED)
    else:
        say(message, err=True)
    return INTERRUPTED


def _exit_code(error: AnabranchError) -> int:
    if isinstance(error, CommitConflictError | SealedBranchError):
        return CONFLICT
    if isinstance(error, JobTakenError):
        return TAKEN
    return WRONG_USAGE if isinstance(error, InvalidInputError) else FAILED


def _is_of_jvm(error: BaseException) -> bool:
    """Whether Spark's JVM did not answer: it was killed, ran out of memory, or never came up."""
    module, name = type(error).__module__, type(error).__name__
    return (module.startswith("py4j.") and "Network" in name) or "JAVA_GATEWAY_EXITED" in str(error)


def _jvm_gone(error: Exception) -> AnabranchError:
    return AnabranchError(
        f"Spark's JVM is gone or does not answer: {error}",
        hint="look for 'out of memory' or 'killed' in the system's log; more memory is --conf spark.driver.memory=4g.",
    )


def _is_exhausted(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    )


def _report(error: Exception, code: int) -> int:
    if state.debug:
        raise error
    known = isinstance(error, AnabranchError)
    if state.json:
        message = error.message if isinstance(error, AnabranchError) else str(error)
        hint = error.hint if isinstance(error, AnabranchError) else None
        spoken = None if hint is None else in_verbs(f"  hint: {hint}").removeprefix("  hint: ")
        _report_json(type(error).__name__, message, spoken, code)
        return code
    if _is_exhausted(error):
        say(f"Error: this process got no more memory or threads: {error}", err=True)
        say(
            "  hint: what was committed is whole. Give it more, see ulimit -v and -u and the limits of the container.",
            err=True,
        )
        return code
    text = in_verbs(str(error)) if known else f"{type(error).__name__}: {error}"
    say(f"Error: {text}", err=True)
    if not known:
        say("  hint: this is not an error we know; run again with --debug for its origin.", err=True)
    return code


def _report_json(kind: str, message: str, hint: str | None, code: int) -> None:
    error = {
        "error": kind,
        "message": message,
        "hint": None if hint is None else runnable(hint),
        "exit_code": code,
    }
    show_json(error, err=True)


def in_verbs(text: str) -> str:
    """An error whose hints name operations as they are typed here: ``replace_tag`` is the verb ``replace-tag``."""
    verbs = {verb.name.replace("-", "_"): verb.name for verb in VERBS.values() if verb.parent is None}

    def spoken(hint: re.Match[str]) -> str:
        return re.sub(r"`([a-z_]+)`", lambda named: f"`{verbs.get(named[1], named[1])}`", hint[0])

    return re.sub(r"^  hint: .*", spoken, text, flags=re.MULTILINE)

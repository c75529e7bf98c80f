"""The interactive shell of the verb sql: statements over several lines, completion by Tab, a history that is kept."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from anabranch.cli import state
from anabranch.cli.output import say, show_table
from anabranch.cli.shown import show
from anabranch.errors import AnabranchError
from anabranch.runtime import SYSTEM
from anabranch.verbs.caller import Caller
from anabranch.verbs.machine import answered
from anabranch.verbs.tables import columns_of

_PROMPT, _MORE = "anabranch> ", "      ...> "
_DELIMITERS = " \t\n(),;=<>+*/'\""
_MOST_KEPT = 5_000
"""Lines of history."""
_HELP = """Statements end with a semicolon and may take several lines. Tab completes names and columns.
  \\d           the tables         \\d db.t       the columns of one
  \\engine E    duckdb, spark, or auto: DuckDB for what only reads
  \\q           leave, as Ctrl-D; Ctrl-C takes back what was typed, or ends the statement"""


def converse(limit: int | None, engine: str) -> None:
    """Read statements from a terminal and print their rows, until the end of input."""
    from anabranch.verbs.sql_shell import Completions, Engines, is_complete

    keyboard = _Keyboard(Completions(state.warehouse))
    say(f"Anabranch {state.warehouse}; \\? for help, Ctrl-D to leave.")
    with Engines(state.warehouse, engine) as engines:
        lines: list[str] = []
        while True:
            try:
                lines.append(keyboard.read(_MORE if lines else _PROMPT, lines))
            except KeyboardInterrupt:
                say("")
                lines = []
                continue
            except EOFError:
                say("")
                break
            text = "\n".join(lines).strip()
            if len(lines) == 1 and text.rstrip(";").lower() in ("\\q", "exit", "quit"):
                break
            is_command = text.startswith("\\")
            if text and not is_command and not is_complete(text):
                continue
            lines = []
            if text:
                keyboard.keep(" ".join(text.split("\n")))
                _answer(engines, text, limit, is_command=is_command)


def _answer(engines: Any, text: str, limit: int | None, *, is_command: bool) -> None:
    """Run one statement or command; what goes wrong is said, and the shell goes on."""
    try:
        if is_command:
            _command(engines, text)
        else:
            _statements(engines, text, limit)
    except KeyboardInterrupt:
        say("interrupted", err=True)
    except AnabranchError as error:
        say(f"Error: {error}", err=True)
    except Exception as error:
        if state.debug:
            raise
        say(f"Error: {type(error).__name__}: {error}", err=True)


def _statements(engines: Any, text: str, limit: int | None) -> None:
    clock = SYSTEM.clock
    begun = clock.monotonic()
    for found in engines.run(text, limit):
        show(answered(found), json=False)
        if hasattr(found, "rows"):
            rows = "1 row" if len(found.rows) == 1 else f"{len(found.rows):,} rows"
            say(f"({rows}, {clock.monotonic() - begun:.2f} s)", err=True)
        begun = clock.monotonic()


def _command(engines: Any, text: str) -> None:
    verb, _, rest = text.rstrip(";").partition(" ")
    match verb, rest.strip():
        case "\\d", "":
            from anabranch.verbs.caller import names_in

            names = names_in(state.warehouse)
            show_table(["table"], [[f"{base}.{t}"] for base in names.databases() for t in names.tables(base)])
        case "\\d", name:
            columns = columns_of(Caller(state.warehouse).lake().table(name).schema)
            show_table(["column", "type", "nullable"], [(c.name, c.type, c.nullable) for c in columns])
        case "\\engine", ("auto" | "duckdb" | "spark") as engine:
            engines.engine = engine
        case _:
            say(_HELP)


class _Keyboard:
    """Lines from a terminal, edited and completed by readline where Python has it."""

    def __init__(self, names: Any) -> None:
        self._names = names
        self._before: list[str] = []
        self._found: list[str] = []
        self._readline: Any = None
        with suppress(ImportError):
            self._readline = import_module("readline")
        self._file = Path(os.environ.get("ANABRANCH_HISTORY") or "~/.anabranch/sql_history").expanduser()
        if self._readline is not None:
            self._readline.set_auto_history(False)
            self._readline.set_completer_delims(_DELIMITERS)
            self._readline.set_completer(self._complete)
            self._readline.parse_and_bind("tab: complete")
            self._readline.set_history_length(_MOST_KEPT)
            with suppress(OSError):
                self._readline.read_history_file(self._file)

    def read(self, prompt: str, before: list[str]) -> str:
        """Return the next line. Raises `EOFError`, `KeyboardInterrupt`."""
        self._before = before
        return input(prompt)

    def keep(self, statement: str) -> None:
        """Add a statement to the history, also of later shells."""
        if self._readline is None:
            return
        self._readline.add_history(statement)
        with suppress(OSError):  # a home that cannot be written to has no history
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._readline.write_history_file(self._file)

    def _complete(self, text: str, number: int) -> str | None:
        if number == 0:
            statement = "\n".join([*self._before, self._readline.get_line_buffer()])
            self._found = self._names.completions(text, statement)
        return self._found[number] if number < len(self._found) else None

"""The demo's commands: run and shown as a person would type them, with programs that run beside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from anabranch.errors import AnabranchError

_WIDTH = "110"
_LAST_LINES = 15
_PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Program:
    """A command that runs in the background."""

    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise `AnabranchError` with the end of its log if it is no longer running."""
        if self.process.poll() is not None:
            raise AnabranchError(
                f"`anabranch {' '.join(self.arguments)}` ended with {self.process.returncode}:\n{_tail(self.log)}",
                hint=f"its whole log is {self.log}.",
            )

    def kill(self) -> None:
        """Send SIGKILL to it and all its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        """Ask for a clean exit, and wait for it. Raises `AnabranchError` if it does not come."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AnabranchError(
                f"`anabranch {' '.join(self.arguments)}` did not end when it was asked to:\n{_tail(self.log)}",
                hint=f"its whole log is {self.log}.",
            ) from None


@dataclass
class Terminal:
    """Runs commands of `anabranch` on one warehouse, in the folder of the demo."""

    console: Console
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment of the programs, in addition to this process's."""
    _programs: list[Program] = field(default_factory=list, init=False)

    def say(self, text: str) -> None:
        """Print a line of the story, with rich's markup."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def run(
        self,
        *arguments: str,
        unsaid: Sequence[str] = (),
        expected: Sequence[int] = (0,),
        shown: int | None = None,
    ) -> None:
        """Run a command and show what it prints, at most `shown` lines of it.

        Arguments in `unsaid` are passed to it as well, and not shown: how little of this machine it may use.

        Raises `AnabranchError` if it exits with another code than those expected.
        """
        self._prompt(arguments)
        done = subprocess.run(  # noqa: S603 - our own program
            _command([*arguments, *unsaid]),
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in expected:
            raise AnabranchError(
                f"`anabranch {' '.join(arguments)}` ended with {done.returncode}:\n{done.stdout}{done.stderr}",
                hint=f"the warehouse is as it was left, in {self.folder}.",
            )
        lines = (done.stdout + done.stderr).rstrip().splitlines()
        for line in lines[:shown]:
            self.console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        if shown is not None and len(lines) > shown:
            self.console.print(f"  ... and {len(lines) - shown} lines more", style="dim")

    def start(self, *arguments: str, unsaid: Sequence[str] = (), log: str) -> Program:
        """Start a command in the background; its output goes to a file."""
        self._prompt((*arguments, "&"))
        path = self.folder / log
        with path.open("ab") as sink:
            process = subprocess.Popen(  # noqa: S603 - our own program
                _command([*arguments, *unsaid]),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        program = Program(arguments, process, path)
        self._programs.append(program)
        return program

    def close(self) -> None:
        """Kill everything that is still running."""
        for program in self._programs:
            program.kill()

    def _prompt(self, arguments: Sequence[str]) -> None:
        typed = " ".join(f'"{word}"' if " " in word else word for word in arguments)
        self.console.print(f"[bold cyan]$[/bold cyan] anabranch {typed}", highlight=False, soft_wrap=True)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "COLUMNS": _WIDTH, **self.environment}


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "anabranch", *arguments]


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])

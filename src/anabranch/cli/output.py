"""How results are shown: tables for people, JSON for programs."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, is_dataclass
from typing import Any, Literal

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from anabranch.cli import state
from anabranch.cli.pager import Paged
from anabranch.long_work import progress
from anabranch.tabular import is_number

console = Console(soft_wrap=False)

_MOST_FOLDED = 8
"""Columns that may be folded to fit a terminal; of more a line a value is easier to read."""
_WHOLE = 26
"""Values up to this width are never folded; the width that longer ones need at least."""
_LEAST_HEADER = 8
_GAP = 2
"""Blanks between two columns."""
_COMMAND = re.compile(r"(?m)((?:^|(?<=[`' ])|(?<=: ))anabranch) (?=[a-z][a-z-]+ [^ ])")
"""The beginning of a command with its verb and an argument."""
NOBODY_READS = 141
"""Exit code if nobody reads standard output any more; as shells say it of a program that SIGPIPE ended."""
OUTPUT_LOST = 74
"""Exit code if standard output cannot be written, as on a full disk; sysexits.h says it so of input and output."""
_LINES_AT_ONCE = 10_000
"""Rows in a pipe that are aligned with each other before they are written."""
_UNSHOWN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal may take for a command, or cannot be written as UTF-8; JSON can spell it."""


def show_json(value: Any, *, err: bool = False) -> None:
    """One JSON value on standard output, or with `err` on standard error; numbers that JSON does not have are text: "NaN", "Infinity", "-Infinity"."""
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    is_narrow = encoding.lower().replace("-", "").replace("_", "") != "utf8"
    text = json.dumps(_plain(value), default=_encode, ensure_ascii=is_narrow, allow_nan=False)
    shown = _UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    _print(shown, err=err)


def _print(line: str, *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    stream.write(
        f"{line}\n"
    )  # at once: print writes the end apart, and what another thread says would come in between


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """A line, or several, for people; whatever a name or a value in it holds, a terminal is not told to do anything.

    Commands in it name the warehouse as it was named here, so that they run as they are printed.
    """
    is_paged = isinstance(sys.stdout, Paged)  # a line beside the list would be written over a pager
    typer.echo(printable(runnable(str(text))), err=err and not is_paged, nl=nl)


def runnable(text: str) -> str:
    """Text with ``-w`` in its commands, ``anabranch VERB ...``, where the warehouse was named so."""
    if state.named is None:
        return text
    place = f"-w {shlex.quote(state.named)}"
    return _COMMAND.sub(lambda found: f"{found[1]} {place} ", text)


def printable(text: str, *, keep: str = "\n\t") -> str:
    """Text without signs for terminals, which are shown as Python spells them."""
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, grouped: bool = True) -> None:
    """Rows under a header; numbers to the right.

    What is wider than a terminal is folded or, where short values would be folded too, shown a line a value; elsewhere, as in a pipe, lines
    are as long as they are.

    Args:
        columns: what stands at the top.
        rows: their values.
        grouped: write digits of whole numbers in groups of three.
    """
    if not console.is_terminal:
        _show_lines(columns, rows, grouped=grouped)
        return
    shown = [list(row) for row in rows]
    widths = _widths(columns, shown, grouped=grouped)
    if widths is None:
        for number, row in enumerate(shown, 1):
            console.print(f"row {number}", style="dim")
            show_pairs(zip(columns, row, strict=True), grouped=grouped)
        return
    table = Table(header_style="bold", box=None, pad_edge=False)
    for i, (column, width) in enumerate(zip(columns, widths, strict=True)):
        numeric = all(is_number(row[i]) for row in shown)
        justify: Literal["right", "left"] = "right" if numeric and shown else "left"
        table.add_column(_text(column), justify=justify, overflow="fold", width=width)
    for row in shown:
        table.add_row(*(_text(value, grouped=grouped) for value in row))
    console.print(table)


def _widths(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, grouped: bool) -> list[int] | None:
    """Return the widths of columns on this terminal; None if short values would have to be folded."""
    values = [max((_width(row[i], grouped=grouped) for row in rows), default=0) for i in range(len(columns))]
    whole = [max(cell_len(name), width) for name, width in zip(columns, values, strict=True)]
    left = console.width - _GAP * (len(columns) - 1)
    if len(columns) == 1:
        return [min(whole[0], left)]
    if len(columns) > _MOST_FOLDED and sum(whole) > left and rows:
        return None
    least = [
        max(min(cell_len(name), _LEAST_HEADER), min(width, _WHOLE))
        for name, width in zip(columns, values, strict=True)
    ]
    if sum(least) > left and rows:
        return None
    for i, width in enumerate(whole):
        least[i] += max(0, min(width - least[i], left - sum(least)))
    return least


def _width(value: Any, *, grouped: bool) -> int:
    return max(map(cell_len, _text(value, grouped=grouped).plain.splitlines()), default=0)


def _show_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, grouped: bool) -> None:
    """Rows where nobody looks: one line each, aligned with those that came shortly before."""
    widths = [cell_len(printable(column, keep="")) for column in columns]
    pending: list[Sequence[Any]] = []
    header: Sequence[str] | None = columns
    for row in rows:
        pending.append(row)
        if len(pending) == _LINES_AT_ONCE:
            _print_lines(header, pending, widths, grouped=grouped)
            header, pending = None, []
    if pending or header is not None:
        _print_lines(header, pending, widths, grouped=grouped)


def _print_lines(
    header: Sequence[str] | None, rows: Sequence[Sequence[Any]], widths: list[int], *, grouped: bool
) -> None:
    cells = [[_text(value, grouped=grouped).plain for value in row] for row in rows]
    right = [all(is_number(row[i]) for row in rows) and bool(rows) for i in range(len(widths))]
    for i in range(len(widths)):
        widths[i] = max([widths[i], *(cell_len(line[i]) for line in cells)])
    if header is not None:
        cells.insert(0, [printable(column, keep="") for column in header])
    for line in cells:
        padded = [
            " " * (width - cell_len(cell)) + cell if to_right else cell + " " * (width - cell_len(cell))
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        _print("  ".join(padded).rstrip() if len(padded) > 1 or not right[0] else padded[0])


def show_pairs(pairs: Iterable[tuple[str, Any]], *, grouped: bool = True) -> None:
    """Names and values, one a line."""
    if not console.is_terminal:
        shown = [(printable(name, keep=""), _text(value, grouped=grouped).plain) for name, value in pairs]
        width = max((cell_len(name) for name, _ in shown), default=0)
        for name, value in shown:
            _print(f"{name}{' ' * (width - cell_len(name))}  {value}".rstrip())
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(_text(name), _text(value, grouped=grouped))
    console.print(table)


@contextmanager
def told(*, silent: bool = False) -> Iterator[Callable[[str], None]]:
    """What long work is at, on one line of a terminal that goes when it is done; nothing elsewhere."""
    if silent or not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status("") as status:
        yield lambda text: status.update(_text(text))


def working(*, json: bool) -> AbstractContextManager[None]:
    """Show how far long work in the block has come, on one line of a terminal that goes when it is done."""
    return nullcontext() if json else progress()


def show_tree(top: str, branches: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Something with what hangs on it, and on that, as a drawing."""
    # A node may have several lines: a drawing is for people, in a pipe too.
    tree = Tree(Text(printable(top)), guide_style="dim")
    for label, twigs in branches:
        branch = tree.add(Text(printable(label)))
        for twig in twigs:
            branch.add(Text(printable(twig)))
    console.print(tree)


def on_terminal() -> bool:
    """Whether a person looks at standard output; into a pipe or a file goes everything."""
    return sys.stdout.isatty()


def show_document(text: str) -> None:
    """A document for another program, as it is; on a terminal without signs that tell it to do something."""
    typer.echo(printable(text) if on_terminal() else text, nl=False)


def _text(value: Any, *, grouped: bool = True) -> Text:
    """As it is, whatever markup or signs for terminals it holds."""
    match value:
        case None:
            text = ""
        case bool():
            text = "yes" if value else "no"
        case int():
            text = f"{value:,}" if grouped else str(value)
        case bytes():
            text = value.hex()
        case dt.datetime() if console.is_terminal:
            text = re.sub(r"(\.\d*?)0+(?!\d)", r"\1", str(value)).replace(".+", "+")
        case _:
            text = str(value)
    # In a pipe a line is a row, and a value with a line break would make another one.
    return Text(printable(text, keep="\n\t" if console.is_terminal else ""))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _encode(value: Any) -> Any:
    match value:
        case decimal.Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case _:
            return str(value)

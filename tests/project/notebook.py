"""Runs a notebook as Jupyter does, and keeps what its cells show in it.

``python -m tests.project.notebook examples/everyday.ipynb`` writes what they show now; a test compares it. What differs from run
to run is written as what it stands for, and the clock moves an hour with each cell.
"""

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from anabranch.lineage import remembered
from anabranch.runtime import SystemClock
from tests.support.clock import HOUR

BEGIN = 1_767_603_600_000
"""2026-01-05 09:00 UTC."""
_RANDOM = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "HASH"),
    (re.compile(r"\b[\d.,]+ (bytes|KB|MB)\b"), "SIZE"),
)
_MOST_CHARACTERS = 60_000
"""Characters of what a cell may show: notebooks are to be looked at."""


def run(path: Path) -> dict:
    """The notebook with what its cells show, run in a new folder. Raises what a cell raises."""
    book = json.loads(path.read_text(encoding="utf-8"))
    names: dict = {}
    remembered.forget()  # what this process has read before is no part of the notebook
    before, now_millis = Path.cwd(), SystemClock.now_millis
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
            for number, cell in enumerate(code, 1):
                time = BEGIN + number * HOUR
                SystemClock.now_millis = lambda _self, time=time: time
                cell["execution_count"] = number
                cell["outputs"] = _outputs("".join(cell["source"]), number, names, os.path.realpath(folder))
        finally:
            SystemClock.now_millis = now_millis
            os.chdir(before)
    return book


def _outputs(source: str, number: int, names: dict, folder: str) -> list:
    *before, last = ast.parse(source).body
    value = None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(before, []), f"cell {number}", "exec"), names)
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
        else:
            exec(compile(source, f"cell {number}", "exec"), names)
    outputs: list = []
    if printed.getvalue():
        text = _lines(_settled(printed.getvalue(), folder))
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        data = {"text/plain": repr(value)}
        for kind, method in (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_")):
            if hasattr(value, method):
                data[kind] = getattr(value, method)()
        shown = {kind: _lines(_settled(text, folder)) for kind, text in data.items()}
        assert sum(map(len, data.values())) <= _MOST_CHARACTERS, f"cell {number} shows too much"
        outputs.append(
            {"data": shown, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def _settled(text: str, folder: str) -> str:
    text = text.replace(folder, "/home/you")
    if (
        ">Size of " in text
    ):  # the lengths of bars follow from sizes of files, which follow from Arrow's version
        text = re.sub(r'\b(x|width)="\d+"', r'\1="N"', text)
    for pattern, word in _RANDOM:
        text = pattern.sub(word, text)
    return text


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write(path: Path) -> None:
    """Keep what the cells show now."""
    path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())

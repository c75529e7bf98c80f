"""Writes docs/assets/terminal.svg: the story of a correction as it looks in a terminal, by really running the commands.

python tools/terminal_recording.py
"""

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import anabranch

TARGET = Path(__file__).parent.parent / "docs" / "assets" / "terminal.svg"
COMMANDS = (
    "lineage impact shop.orders@2",
    "create-branch shop.orders --name fix --tag good",
    "append shop.orders corrected.json --branch fix",
    "diff shop.orders main..fix --rows 4",
    "replace-main-branch shop.orders --name fix --yes --reason 'prices were in cents'",
    "undo-replace shop.orders --yes",
)
WIDTH = 104
# Rich's own template loads fonts from elsewhere.
TEMPLATE = """<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="A wrong table is corrected on a branch by a few commands" viewBox="0 0 {width} {height}">
<style>
    .{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
    {styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def prepared(folder: Path) -> None:
    """A table whose newest rows are wrong, another that was made from them, and the right rows in a file."""
    lake = anabranch.connect(str(folder / "warehouse"))
    orders = lake.create_table("shop.orders", "id BIGINT, city STRING, price DOUBLE")
    totals = lake.create_table("shop.totals", "city STRING, price DOUBLE")
    with lake.job("ingest") as job:
        job.read_from("/landing", kind="files", end="day-1")
        orders.append([{"id": 1, "city": "Bonn", "price": 12.5}, {"id": 2, "city": "Rome", "price": 99.0}])
    orders.create_tag("good")
    with lake.job("ingest") as job:
        job.read_from("/landing", kind="files", end="day-2")
        orders.append([{"id": 3, "city": "Oslo", "price": 700.0}, {"id": 4, "city": "Kyiv", "price": 2000.0}])
    with lake.job("totals"):
        rows = orders.scan().to_arrow()
        totals.append(rows.select(["city", "price"]))
    (folder / "corrected.json").write_text(
        '{"id": 3, "city": "Oslo", "price": 7.0}\n{"id": 4, "city": "Kyiv", "price": 20.0}\n'
    )


def recorded() -> tuple[str, str]:
    """The commands with what they print, as text and as a picture."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        prepared(Path(folder))
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "green"), ("anabranch ", "bold"), command))
            console.print(Text.from_ansi(printed(command, folder)))
    text = console.export_text(clear=False)
    return text, console.export_svg(title="anabranch", theme=MONOKAI, code_format=TEMPLATE, unique_id="t")


def printed(command: str, folder: str) -> str:
    """What a command prints on a terminal. Raises `CalledProcessError` if it fails."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    done = subprocess.run(
        f"{sys.executable} -m anabranch {command}",
        shell=True, capture_output=True, text=True, check=True, cwd=folder, env=environment,
    )  # fmt: skip
    return done.stdout.rstrip() + "\n"


if __name__ == "__main__":
    TARGET.write_text(recorded()[1])

"""Writes docs/assets/terminal.svg: the story of a correction as it plays in a terminal, by really running the commands.

python tools/terminal_recording.py

Commands and what they print come one after the other, and begin anew. Where motion is not wanted, or a viewer does not
animate, all of it is there from the start.
"""

import io
import os
import re
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
SECONDS_TO_TYPE, SECONDS_TO_READ, SECONDS_AT_END = 0.9, 2.4, 7.0
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
    picture = console.export_svg(title="anabranch", theme=MONOKAI, code_format=TEMPLATE, unique_id="t")
    return text, played(picture)


def played(picture: str) -> str:
    """The picture with its lines shown one step after the other: a command, what it prints, the next command."""
    step, steps = -1, {}
    for line, words in re.findall(r'<text [^>]*url\(#t-line-(\d+)\)">([^<]*)</text>', picture):
        begins = words.startswith("$") and line not in steps
        if begins:
            step += 2  # a command has an odd number, what it prints the even one after it
        steps.setdefault(line, step if begins else step + step % 2)
    last = max(steps.values())
    turn = SECONDS_TO_TYPE + SECONDS_TO_READ
    begins_at = {n: (n - 1) // 2 * turn + (0 if n % 2 else SECONDS_TO_TYPE) for n in range(1, last + 1)}
    whole = begins_at[last] + SECONDS_AT_END
    styles = "".join(
        f"@keyframes t-s{n} {{ 0%, {100 * at / whole - 0.01:.2f}% {{ visibility: hidden }} {100 * at / whole:.2f}%, 100% {{ visibility: visible }} }}\n"
        f".t-s{n} {{ animation: t-s{n} {whole:.1f}s step-end infinite }}\n"
        for n, at in begins_at.items()
        if n > 1
    )
    styles += "@media (prefers-reduced-motion: reduce) { text { animation: none !important } }\n"
    shown = re.sub(
        r'<text class="([^"]*)"([^>]*url\(#t-line-(\d+)\))',
        lambda found: f'<text class="{found[1]} t-s{steps[found[3]]}"{found[2]}',
        picture,
    )
    return shown.replace("</style>", f"{styles}</style>", 1)


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

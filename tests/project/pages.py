"""Blocks of code in the pages of the documentation, and what is to be done with each.

A page says in its first line what becomes of its blocks: ``<!-- blocks: run -->``, ``run long`` (with Spark), ``none``, ``not run: why; which test
runs the same``, or ``fragments: which tests``. A comment right above a block takes it out: ``<!-- not run: ... -->``; ``<!-- needs: MODULE -->``
runs it where the module is installed.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_BLOCK = re.compile(
    r"(?:<!-- (?P<rule>not run|needs|run): ?(?P<why>[^>]*?) ?-->\n)?^(?P<in> *)```(?P<kind>[\w{}. ]*)\n(?P<code>.*?)^(?P=in)```$",
    flags=re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    page: str
    kind: str
    code: str
    rule: str | None
    why: str | None
    line: int


def pages():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def name_of(page):
    return str(page.relative_to(ROOT))


def policy(page):
    found = re.match(r"<!-- blocks: (.*?) -->\n", page.read_text())
    return None if found is None else found[1]


def blocks(page):
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        indent = len(found["in"])
        code = "".join(line[indent:] or "\n" for line in found["code"].splitlines(keepends=True))
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(name_of(page), found["kind"].strip(), code, found["rule"], found["why"], line)


def named_tests(text):
    return re.findall(r"\btests/[\w/.]+?\.py(?:::\w+)?|\btests/[\w/]+\b", text)


def commands(code):
    """Command lines of anabranch in a block: joined where they are continued, without comments, prompts and output."""
    for line in re.sub(r"\\\n\s*", " ", code).splitlines():
        text = re.sub(r"\s{3,}[a-z(].*$", "", line.strip().removeprefix("$ "))
        if re.match(r"(environment/bin/)?anabranch\s", text):
            words = shlex.split(text, comments=True)[1:]
            yield words[: next((i for i, word in enumerate(words) if word in ("&", ">", "|")), None)]


def carried_out(page, command):
    """Run the blocks of a page one after the other, here; `command` runs the words of a command and returns its exit code."""
    names = {}
    for block in blocks(page):
        if block.rule == "not run" or (block.rule == "needs" and importlib.util.find_spec(block.why) is None):
            continue
        place = f"{block.page}:{block.line}"
        if block.kind == "python":
            exec(compile("\n" * (block.line - 1) + block.code, place, "exec"), names)
        elif block.kind == "sh":
            for words in commands(block.code):
                assert command(words) == 0, f"{place}: anabranch {shlex.join(words)}"


if __name__ == "__main__":  # with every command in a process of its own, as a reader types it
    carried_out(
        ROOT / sys.argv[1],
        lambda words: subprocess.run([sys.executable, "-m", "anabranch", *words], check=False).returncode,
    )

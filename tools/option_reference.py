"""Writes docs/options.md from the declarations in anabranch.options."""

import sys
from pathlib import Path

from anabranch.options import ALL

TARGET = Path(__file__).parent.parent / "docs" / "options.md"
HEADER = """# Options

Options of a table are given when it is created (`options={...}`, `--option key=value`) or changed later
(`t.alter().set_option(...)`), and are stored in its schema as text. The same names work for one read or
write: `t.with_options({...})`, and `.option(...)` in Spark. Names are Apache Paimon's where it has one.

In the options that a table stores, unknown keys are kept, because other engines may own them; those that are nearly one of
ours, or begin with `anabranch.`, are errors with a suggestion. For one read or write every unknown key is an error.
Sizes are powers of 1024.

| option | type | default | meaning |
|---|---|---|---|
"""


def reference() -> str:
    """The page's text."""
    rows = [
        f"| `{option.key}` | {option.kind} | {_shown(option)} | {option.meaning} |"
        for option in sorted(ALL, key=lambda option: option.key)
    ]
    return HEADER + "\n".join(rows) + "\n"


def _shown(option) -> str:
    value = option.default
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if option.kind.startswith("size"):
        return f"`{value >> 20} MB`"
    if option.kind.startswith("duration"):
        units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
        size, unit = next((size, unit) for size, unit in units if value % size == 0)
        return f"`{value // size} {unit}`"
    return f"`{value}`"


if __name__ == "__main__":
    TARGET.write_text(reference())
    sys.exit(0)

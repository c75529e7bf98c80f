"""Writes docs/options.md from the declarations of options of tables and of stores."""

from anabranch.options import ALL
from anabranch.storage.object_options import KINDS

PATH = "options.md"
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

STORES = """
## Options of stores

Given to `connect` and to Spark's sessions, on the command line as `--option key=value` in front of the verb, in the environment, or in a
file: [where they come from](storage.md#settings). Secrets are never shown.
"""


def page() -> str:
    """The page's text."""
    rows = [
        f"| `{option.key}` | {option.kind} | {_shown(option)} | {option.meaning} |"
        for option in sorted(ALL, key=lambda option: option.key)
    ]
    return HEADER + "\n".join(rows) + "\n" + STORES + "".join(map(_of_store, KINDS))


def _of_store(kind) -> str:
    rows = "".join(
        f"| `{kind.prefixes[0]}{option.name}` | {'none' if option.default is None else f'`{option.default}`'} | "
        f"{option.meaning} |\n"
        for option in kind.options
    )
    return f"\n### {kind.title}\n\n| option | default | meaning |\n|---|---|---|\n{rows}"


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
        if value == 0:
            return "`0`"
        size, unit = next((size, unit) for size, unit in units if value % size == 0)
        return f"`{value // size} {unit}`"
    return f"`{value}`"

"""Writes docs/reference/system-table-columns.md: every system table with its columns and types, from the code."""

from anabranch.system_tables import LAKE_TABLES, SYSTEM_TABLES, lake_table

PATH = "reference/system-table-columns.md"
HEADER = """# Columns of system tables

Made from the code. [System tables](../system-tables.md) says how they are read and what the values mean.
"""


def page() -> str:
    """The page's text."""
    parts = [HEADER]
    for table in SYSTEM_TABLES.values():
        past = " Can be read as of a past moment." if table.of_a_moment else ""
        parts.append(_section(f"`t${table.name}`", f"{table.meaning}{past}", table.fields))
    parts += [_section(f"`sys.{name}`", "Of the whole warehouse.", lake_table(name)) for name in LAKE_TABLES]
    return "".join(parts)


def _section(title, meaning, fields) -> str:
    rows = "".join(f"| `{f.name}` | `{f.type}` |\n" for f in fields)
    return f"\n## {title}\n\n{meaning}\n\n| column | type |\n|---|---|\n{rows}"

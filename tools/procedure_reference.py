"""Writes docs/reference/procedures.md from the declarations of the verbs."""

from command_reference import text_of

from anabranch.spark.catalog.called import arguments
from anabranch.verbs.registry import in_order

PATH = "reference/procedures.md"
HEADER = """<!-- blocks: forms of procedures, made from the code; tests/project/test_verbs.py tries each declaration, tests/spark/test_lake_calls.py and tests/spark/test_correction_calls.py call procedures -->
# SQL procedures

Every procedure with its arguments and the columns of its result, made from the code. [SQL on Spark](../spark-sql.md#procedures) says what
they have in common: arguments are given by name or by position, and a missing or NULL one has its default. The name of the catalog is
`lake` here. Each does what the [command](commands.md) of the same name does.
"""


def page() -> str:
    """The page's text."""
    found = HEADER
    group = None
    for verb in in_order():
        if verb.columns is None:
            continue
        if verb.group != group:
            group = verb.group
            found += f"\n## {group}\n"
        found += _procedure(verb)
    return found


def _procedure(verb) -> str:
    given = arguments(verb)
    names = ", ".join(f"{one.sql_name} => ..." for one in given)
    rows = "".join(map(_argument, given))
    table = f"\n| argument | type | meaning |\n|---|---|---|\n{rows}" if rows else ""
    answer = ", ".join(f"`{column.strip()}`" for column in verb.columns.split(","))
    call = f"CALL lake.sys.{verb.sql_name}({names})"
    return (
        f"\n### {verb.sql_name}\n\n```sql\n{call}\n```\n\n{text_of(verb.help)}\n{table}\nReturns {answer}.\n"
    )


def _argument(one) -> str:
    kind = f"{one.sql_type}, required" if one.is_needed_in_sql else one.sql_type
    return f"| `{one.sql_name}` | {kind} | {text_of(one.option.help)} |\n"

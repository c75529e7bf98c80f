"""Statements with what they give, as files of `corpus` have them.

A statement ends with a semicolon at the end of a line. What it gives stands in the lines below:

    --> (1, 'a')      a row, in this order
    --? (1, 'a')      a row, in any order
    --! text | text   an error that has one of these texts
    --*               it succeeds
                      nothing: it succeeds and gives no row

``--@ classic`` above a statement: only where Spark's own catalog has it. Times, dates and decimals are given as text.
"""

import ast
import datetime as dt
import decimal
import re
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.errors import AnabranchError

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.sql"))


@dataclass
class Statement:
    text: str
    line: int
    classic: bool = False
    rows: list = field(default_factory=list)
    ordered: bool = True
    error: str | None = None
    anything: bool = False


def statements_in(file):
    found, lines, classic = [], [], False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        mark, rest = line[:3], line[3:].strip()
        if lines or not line.startswith("--"):
            if line.strip():
                lines.append(line)
            if line.endswith(";"):
                found.append(Statement("\n".join(lines)[:-1], number, classic))
                lines, classic = [], False
        elif mark == "--@":
            classic = rest == "classic"
        elif mark in ("-->", "--?"):
            found[-1].rows.append(ast.literal_eval(rest))
            found[-1].ordered = mark == "-->"
        elif mark == "--!":
            found[-1].error = rest
        elif mark == "--*":
            found[-1].anything = True
    assert not lines, f"{file} ends within a statement"
    return found


def carry_out(sql, statements):
    """Run them one after the other; every one that does not give what it should is told of."""
    from pyspark.errors import PySparkException

    wrong = []
    for statement in statements:
        try:
            given = [_plain(tuple(row)) for row in sql(statement.text).collect()]
        except (PySparkException, AnabranchError) as error:
            given = error
        problem = _problem(statement, given)
        if problem is not None:
            wrong.append(f"line {statement.line}: {statement.text}\n  {problem}")
    assert not wrong, "\n".join(wrong)


def _problem(statement, given):
    if isinstance(given, Exception):
        said = re.sub(r"\s+", " ", str(given))
        known = [] if statement.error is None else statement.error.lower().split(" | ")
        return None if any(text in said.lower() for text in known) else f"raised {said[:600]}"
    if statement.error is not None:
        return f"did not raise, but gave {given}"
    wanted = statement.rows
    same = given == wanted if statement.ordered else sorted(given, key=repr) == sorted(wanted, key=repr)
    return None if same or statement.anything else f"gave {given}"


def _plain(value):
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, dt.date | dt.datetime | decimal.Decimal):
        return str(value)
    return value

"""The shell of `anabranch sql`, on a terminal."""

import os
import pty
import re
import select
import sys
import time

import pytest

import anabranch
from anabranch.verbs.sql_shell import Completions, is_complete

PROMPT = "anabranch> "
PATIENCE = 120


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, arguments, **environment):
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "dumb", "COLUMNS": "80", **environment})
            os.execv(sys.executable, [sys.executable, "-m", "anabranch", *arguments])

    def until(self, mark, patience=PATIENCE):
        """What it prints up to a text."""
        seen, end = "", time.monotonic() + patience
        while mark not in seen:
            assert time.monotonic() < end, seen
            if select.select([self._file], [], [], 1)[0]:
                try:
                    seen += os.read(self._file, 4096).decode()
                except OSError:  # it has ended
                    break
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)

    def type(self, text, then=PROMPT, patience=PATIENCE):
        os.write(self._file, text.encode())
        return self.until(then, patience)

    def take_back(self, text):
        """Type a text and press Ctrl-C, again if need be: Python notices one too late that comes before it waits."""
        self.type(text, then=text)
        for _ in range(PATIENCE):
            try:
                return self.type("\x03", patience=1)
            except AssertionError:
                continue
        raise AssertionError("Ctrl-C does nothing")

    def end(self):
        """Its exit code."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._file)
        return code


@pytest.fixture
def warehouse(tmp_path):
    lake = anabranch.connect(str(tmp_path / "lake"))
    lake.create_table("db.orders", data=[{"id": 1, "city": "Bonn"}, {"id": 2, "city": "Rome"}])
    lake.create_table("default.u", "word STRING")
    return str(tmp_path / "lake")


def test_a_conversation(warehouse, tmp_path):
    history = tmp_path / "kept" / "history"
    shell = Terminal(["-w", warehouse, "sql"], ANABRANCH_HISTORY=str(history))
    assert "\\? for help" in shell.until(PROMPT)
    shell.type("select count(*) as n\n", "...> ")
    # Tab completes the name of the table.
    found = shell.type("from db.ord\t where city <> ';';\n")
    assert "from db.orders where" in found
    assert re.search(r"n\s+2\s+\(1 row, ", found)
    assert "nope" in shell.type("select nope from db.orders;\n")
    assert "compact db.orders`" in shell.type("OPTIMIZE db.orders;\n"), "at once, without Spark"
    assert re.search(r"city\s+STRING", shell.type("\\d db.orders\n"))
    assert "db.orders" in shell.type("\\d\n")
    assert "Error: INSERT" in shell.type("\\engine duckdb\n") + shell.type(
        "insert into db.orders values (3, 'x');\n"
    )
    shell.take_back("select wrong")
    assert re.search(r"one\s+1", shell.type("select 1 as one;\n"))
    shell.type("\x04", "\n")
    assert shell.end() == 0
    lines = history.read_text().splitlines()
    assert "select count(*) as n from db.orders where city <> ';';" in lines
    assert "select 1 as one;" in lines
    assert not any("wrong" in line for line in lines)


@pytest.mark.parametrize(
    ("typed", "is_whole"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- that is all", True),
        ("SELECT ';", False),
        ("SELECT ';';", True),
        ("SELECT /* ;", False),
        ("SELECT 1 -- ;", False),
        ("-- nothing", False),
    ],
)
def test_where_a_statement_ends(typed, is_whole):
    assert is_complete(typed) is is_whole


@pytest.mark.parametrize(
    ("text", "statement", "offered"),
    [
        ("d", "select * from d", ["db.", "default.", "desc", "describe", "detail", "databases", "distinct", "drop"]),
        ("db.", "select * from db.", ["db.orders"]),
        ("db.orders$sn", "select * from db.orders$sn", ["db.orders$snapshots"]),
        ("ci", "select ci from db.orders", ["city"]),
        ("t.ci", "select t.ci from db.orders t", ["t.city"]),
        ("SEL", "SEL", ["SELECT"]),
        ("nope.", "select nope.", []),
        ("u", "select * from u", ["u", "union", "using"]),
    ],
)  # fmt: skip
def test_what_is_offered(warehouse, text, statement, offered):
    assert Completions(warehouse).completions(text, statement) == sorted(offered)


def test_a_warehouse_that_is_not_there_offers_words_of_sql(tmp_path):
    assert Completions(str(tmp_path / "nope")).completions("sel", "sel") == ["select"]

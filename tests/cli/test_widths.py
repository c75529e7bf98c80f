"""Every verb that only looks, on terminals of 80 and 40 columns, in a pipe and without colour, at a table of hostile values."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

import anabranch
from anabranch.cli import output
from anabranch.cli.main import run
from anabranch.verbs.registry import VERBS
from tests.support.lengths import first_short
from tests.support.terminals import on_terminal

EVIL = "\x1b[31m[red]x[/]\n\u202e日本\x9b2J"
UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")


def needs_at_most(verb, *names):
    required = {parameter.name for parameter in verb.parameters if parameter.is_required}
    return required <= {*names} and not verb.changes


OF_TABLES = [verb for verb in VERBS.values() if needs_at_most(verb, "table")]
LONG_OR_ELSEWHERE = {"ui", "demo", "doctor", "run", "sql", "report", "lineage export"}
"""They serve, need another engine, write a file, or go on for as long as they are left."""
LOOKS = [verb for verb in OF_TABLES if verb.words not in LONG_OR_ELSEWHERE]
ANSWERED = (0, 1, 8)
"""Also that something was found; `jobs` says by 8 that there are none."""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    lake = anabranch.connect(str(folder))
    name = "a_name_of_a_table_that_is_not_short"
    table = lake.create_table(
        f"db.{name}",
        "id BIGINT, dt STRING COMMENT 'a\nb', `a column with a long name` STRING, ts TIMESTAMP(3), "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
        partition_by="dt",
        comment=EVIL,
        options={"note": EVIL},
    )
    for number in range(7):
        with lake.job(f"job {number} [bold] of a long name 日本"):
            table.append(
                [{"id": n, "dt": f"{number % 3}{EVIL}", "a column with a long name": EVIL} for n in range(5)]
            )
    table.create_tag("a-tag-with-a-name-that-is-quite-long", 2)
    table.create_savepoint(1)
    table.create_branch("a-branch-with-a-name-that-is-long", "a-tag-with-a-name-that-is-quite-long")
    with lake.job("reader"):
        lake.create_table("db.copy", data=table.scan(columns=["id"]))
    return str(folder), f"db.{name}"


def called(verb, warehouse, *more):
    """Run a verb, of which the table is the one of the warehouse."""
    place, table = warehouse
    given = [table] if any(p.name == "table" for p in verb.parameters) and verb.words != "tables" else []
    about = [f"{one}@2" if verb.words == "lineage impact" else one for one in given]
    return run(["-w", place, *verb.words.split(), *about, *more])


@pytest.mark.parametrize("width", first_short([80, 40]))
@pytest.mark.parametrize("verb", LOOKS, ids=lambda verb: verb.words)
def test_on_a_terminal_no_line_of_a_list_is_longer_than_it(verb, width, warehouse, monkeypatch, capsys):
    shown = io.StringIO()
    console = Console(file=shown, width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "console", console)
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    assert called(verb, warehouse) in ANSWERED, capsys.readouterr()
    said = capsys.readouterr()
    lists = shown.getvalue()
    assert [line for line in lists.splitlines() if cell_len(line.rstrip()) > width] == []
    assert not UNPRINTABLE.search(lists + said.out), lists + said.out
    assert lists + said.out + said.err or verb.words == "groups", "there are none"


@pytest.mark.parametrize("verb", LOOKS, ids=lambda verb: verb.words)
def test_in_a_pipe_nothing_is_folded_and_nothing_tells_a_terminal_what_to_do(verb, warehouse, capfd):

    assert called(verb, warehouse) in ANSWERED
    said = capfd.readouterr().out
    assert not UNPRINTABLE.search(said), said
    if verb.words == "lineage positions":
        assert "there leaves none out and repeats none." in said, "prose is a line in a pipe"
    assert called(verb, warehouse, *(["--json"] if verb.has_json else [])) in ANSWERED
    assert not UNPRINTABLE.search(capfd.readouterr().out)


@pytest.mark.parametrize(
    ("setting", "has_colour"),
    first_short([({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], 2),
)
def test_colour_is_for_terminals_that_want_it(setting, has_colour, tmp_path):
    anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT").append([{"id": 1}])
    (tmp_path / "checks.yaml").write_text("checks: [row_count: {min: 1}]")
    code, found = on_terminal("-w", tmp_path, "audit", "db.t", tmp_path / "checks.yaml", **setting)
    assert code == 0, found
    colours = re.findall(rb"\x1b\[[0-9;]*3[0-7][0-9;]*m", found)
    assert bool(colours) is has_colour, found

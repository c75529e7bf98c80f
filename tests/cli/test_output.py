"""How results look: in a pipe, on a terminal, and with values that would play tricks on either."""

import io
import json

import pyarrow as pa
import pytest
from rich.console import Console

from anabranch.cli import output
from anabranch.cli.main import run
from tests.support.tables import make_table, rows

LONG = "x" * 120


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal of 60 columns shows."""
    shown = io.StringIO()
    monkeypatch.setattr(
        output, "console", Console(file=shown, width=60, force_terminal=True, color_system=None)
    )
    return shown


def test_a_line_a_row_in_a_pipe_however_wide(capsys):
    output.show_table(["name", "n"], [[LONG, 1234567], ["y", None]])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "n"]
    assert first.split() == [LONG, "1,234,567"]
    assert second.split() == ["y"]


def test_few_columns_are_folded_on_a_terminal(terminal):
    output.show_table(["name", "n"], [[LONG, 1]])
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.count("x") for line in lines) == 120


def test_many_columns_have_a_line_a_value_on_a_terminal(terminal):
    columns = [f"column_{i}" for i in range(12)]
    output.show_table(columns, [range(12), range(1000, 1012)], grouped=False)
    lines = [line.split() for line in terminal.getvalue().splitlines()]
    assert ["row", "2"] in lines
    assert ["column_11", "1011"] in lines
    assert len(lines) == 2 * 13


@pytest.mark.parametrize(
    ("width", "verb", "as_table"),
    [
        (80, ["snapshots", "db.t"], True),
        (40, ["snapshots", "db.t"], False),
        (80, ["files", "db.t"], True),
        (80, ["partitions", "db.t"], True),
        (40, ["partitions", "db.t"], False),
        (80, ["health", "db.t"], True),
        (40, ["health", "db.t"], True),
        (40, ["tables"], True),
        (80, ["describe", "db.t"], True),
        (40, ["describe", "db.t"], False),
    ],
)
def test_lists_fit_a_terminal(tmp_path, monkeypatch, capsys, width, verb, as_table):
    """No word is broken, and no line is longer than the terminal but those that name a path or a command."""
    shown = io.StringIO()
    monkeypatch.setattr(
        output, "console", Console(file=shown, width=width, force_terminal=True, color_system=None)
    )
    table = make_table(tmp_path, schema="id BIGINT, v STRING, dt STRING", partition_by="dt")
    for number in range(3):
        table.append([{"id": i, "v": "x", "dt": "2026-01-01"} for i in range(12_345 * number + 1)])
    assert run(["-w", str(tmp_path), *verb]) == 0
    capsys.readouterr()
    text = shown.getvalue()
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert ("row 1" in text) is not as_table
    for whole in {
        "snapshots": ["APPEND", "37,038", "24,691"],
        "partitions": ["2026-01-01", "37038", "-1"],
    }.get(verb[0], []):
        assert whole in text


def test_values_are_shown_as_they_are(capsys, terminal):
    tricks = ["[bold]b[/bold]", "\\[x]", "[/]", "red \x1b[31m", "turned \u202egnp"]
    output.show_table(["[red]c"], [[trick] for trick in tricks])
    assert [line.strip() for line in terminal.getvalue().splitlines()] == [
        *("[red]c", "[bold]b[/bold]", "\\[x]", "[/]"),
        *("red \\x1b[31m", "turned \\u202egnp"),
    ]


def test_numbers_of_rows_are_not_written_in_groups(tmp_path, capsys):
    table = make_table(tmp_path)
    table.append(rows(1_234_567, 1))
    assert run(["-w", str(tmp_path), "read", "db.t"]) == 0
    assert "1234567" in capsys.readouterr().out
    assert run(["-w", str(tmp_path), "read", "db.t$files"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[-1] == "extra_files"
    assert ".parquet" in line


def test_json_has_no_numbers_that_json_does_not_have(capsys):
    output.show_json({"a": [float("nan"), float("inf")], "b": {"c": float("-inf"), "d": 1.5}})
    assert capsys.readouterr().out == '{"a": ["NaN", "Infinity"], "b": {"c": "-Infinity", "d": 1.5}}\n'


def test_a_line_of_json_is_written_at_once(monkeypatch):
    """Two threads of `run --json` had written into one line: the end of a line came apart from it."""
    written = []

    class Stream(io.StringIO):
        def write(self, text):
            written.append(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Stream())
    output.show_json({"a": 1}, err=True)
    assert written == ['{"a": 1}\n']


def test_dates_outside_of_the_years_of_python_are_text(tmp_path, capsys):
    table = make_table(tmp_path, schema="id BIGINT, d DATE, l ARRAY<TIMESTAMP(6)>, m MAP<DATE, ROW<t DATE>>")
    far = pa.array([-1_000_000, 0], pa.int32()).cast(pa.date32())
    table.append(
        pa.table(
            {
                "id": [1, 2],
                "d": far,
                "l": pa.array([[-(10**17)], None]).cast(pa.list_(pa.timestamp("us"))),
                "m": pa.MapArray.from_arrays(
                    [0, 1, 2], far, pa.StructArray.from_arrays([far], fields=[pa.field("t", pa.date32())])
                ),
            }
        )
    )
    assert run(["-w", str(tmp_path), "read", "db.t", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["d"], second["d"]) == ("-0768-02-04", "1970-01-01")
    assert first["l"] == ["-1199-02-15 14:13:20.000000"]
    assert first["m"] == [["-0768-02-04", {"t": "-0768-02-04"}]]
    assert run(["-w", str(tmp_path), "read", "db.t"]) == 0
    assert "-0768-02-04" in capsys.readouterr().out


ESCAPES = "\x1b[31mred\x1b[0m \x9b2J \u202eright-to-left \udc80"


def test_names_and_values_tell_a_terminal_nothing(terminal, capsys):
    output.show_table(["name"], [[ESCAPES]])
    output.say(f"branch '{ESCAPES}' is there")
    output.show_json({"name": ESCAPES})
    shown = terminal.getvalue() + capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\u202e", "\udc80"} & {*shown}
    assert shown.count("red") == 3


def test_a_value_with_a_line_break_is_one_line_in_a_pipe(capsys):
    output.show_table(["name", "n"], [["a\nfake  2", 1], ["b", 3]])
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_json_with_odd_characters_reads_back(capsys):
    output.show_json({"name": ESCAPES})
    assert json.loads(capsys.readouterr().out) == {"name": ESCAPES}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('id,v\n1,"a\n2,b\n3,c\n', "line 2"),
        ('id,v\n1,x\n2,"a\n3,b\n4,"c\n5,d\n', "line 3"),
    ],
)
def test_a_quote_that_is_not_closed_swallows_no_rows(tmp_path, capsys, text, told):
    table = make_table(tmp_path / "lake")
    (tmp_path / "in.csv").write_text(text)
    assert run(["-w", str(tmp_path / "lake"), "append", "db.t", str(tmp_path / "in.csv")]) == 2
    assert told in capsys.readouterr().err
    assert table.snapshot is None


def test_values_of_several_lines_are_read_from_csv(tmp_path, capsys):
    table = make_table(tmp_path / "lake")
    (tmp_path / "in.csv").write_text('id,v\n1,"a ""b""\nc"\n2,5" wide\n')
    assert run(["-w", str(tmp_path / "lake"), "append", "db.t", str(tmp_path / "in.csv")]) == 0
    assert table.scan().to_arrow()["v"].to_pylist() == ['a "b"\nc', '5" wide']

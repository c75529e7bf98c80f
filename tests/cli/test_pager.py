"""Lists that are longer than the terminal go through a pager; others, and what programs read, do not."""

import json

import pytest

import anabranch
from tests.support.lengths import first_short
from tests.support.terminals import on_terminal

LINES = 12
CODE = "from anabranch.cli.main import main; main()"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paged")
    table = anabranch.connect(str(folder)).create_table("db.t", "id BIGINT, v STRING")
    for number in range(20):
        table.append([{"id": number, "v": "日本" * 20}])
    return folder


def paged(warehouse, *words, pager, lines=LINES):
    """Exit code and what a terminal shows."""
    own = {} if pager is None else {"PAGER": pager}
    code, shown = on_terminal(
        "-w", warehouse, *words, code=CODE, lines=lines, TERM="xterm", NO_COLOR="1", **own
    )
    return code, shown.decode()


def test_a_long_list_goes_to_the_pager_whole_and_a_short_one_does_not(warehouse, tmp_path):
    kept = tmp_path / "paged"
    code, shown = paged(warehouse, "snapshots", "db.t", pager=f"cat > {kept}")
    assert (code, shown) == (0, "")
    assert len(kept.read_text().splitlines()) == 21
    kept.unlink()
    code, shown = paged(warehouse, "snapshots", "db.t", pager=f"cat > {kept}", lines=40)
    assert (code, len(shown.splitlines()), kept.exists()) == (0, 21, False)


@pytest.mark.parametrize(("words", "pager"), first_short([(["--no-pager"], "false"), ([], "")]))
def test_who_wants_no_pager_gets_none(warehouse, words, pager):
    code, shown = paged(warehouse, *words, "snapshots", "db.t", pager=pager)
    assert (code, len(shown.splitlines())) == (0, 21)


def test_json_and_commands_that_change_something_are_not_paged(warehouse):
    code, shown = paged(warehouse, "snapshots", "db.t", "--json", pager="false")
    assert (code, len(json.loads(shown))) == (0, 20)
    code, shown = paged(warehouse, "create-tag", "db.t", "--name", "good", pager="false", lines=1)
    assert code == 0
    assert "good" in shown


@pytest.mark.long
def test_a_pager_that_is_left_early_is_no_error(warehouse):
    code, shown = paged(warehouse, "files", "db.t", pager="head -n 1")
    assert code == 0
    assert len(shown.splitlines()) == 1


@pytest.mark.long
def test_what_is_said_beside_a_list_stands_below_it(warehouse, tmp_path):
    kept = tmp_path / "paged"
    code, shown = paged(warehouse, "read", "db.t", "--limit", "15", pager=f"cat > {kept}")
    assert (code, shown) == (0, "")
    assert kept.read_text().splitlines()[-1] == "(the first 15 rows; --limit all shows all)"


@pytest.mark.long
def test_an_error_comes_after_the_pager_is_left(warehouse):
    code, shown = paged(warehouse, "snapshots", "db.nope", pager="false")
    assert code == 1
    assert "db.nope" in shown


@pytest.mark.parametrize("lines", first_short([4, LINES, 60]))
def test_rows_and_what_is_said_beside_them_are_paged(warehouse, lines):
    code, shown = paged(warehouse, "read", "db.t", "--limit", "3", pager="cat -u", lines=lines)
    assert code == 0, shown
    assert shown.count("日本" * 5) >= 3, shown
    assert "Error" not in shown

"""The page that does ten tasks with several libraries: ours runs as it stands, and is never longer."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "side-by-side.md"
OURS, OTHERS = "Anabranch", ("deltalake", "pyiceberg", "pypaimon")


def blocks():
    """Of each block of Python: the heading above it, whose it is (None for everybody's), and the code."""
    heading = owner = None
    found = []
    for part in re.split(
        r"(^## [^\n]*$|^\*\*\w+\*\*[^\n]*$|^```python\n.*?^```$)",
        PAGE.read_text(),
        flags=re.MULTILINE | re.DOTALL,
    ):
        if part.startswith("## "):
            heading, owner = part.removeprefix("## "), None
        elif part.startswith("**"):
            owner = part.split("**")[1]
        elif part.startswith("```python"):
            found.append((heading, owner, part.removeprefix("```python\n").removesuffix("```")))
    return found


def carried_out(owner):
    names = {}
    for heading, of, code in blocks():
        if of in (None, owner):
            exec(compile(code, f"{PAGE.name}: {heading}, {owner}", "exec"), names)
    return names


def test_ours_runs_and_says_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = carried_out(OURS)
    assert names["count"] == 2 + 2 + 1 + 1 + 1 + 1 + 1
    assert sorted(names["cheap"]["city"]) == ["Bonn", "Bonn", "Oslo"]
    totals = dict(names["by_city"].rows())
    assert totals == {"Bonn": 12.5 * 2 + 20.0, "Rome": 99.0 * 2 + 50.0, "Oslo": 7.0, "Kyiv": 60.0}
    assert len(names["then"]) == names["count"]
    assert names["orders"].system("files").num_rows == 1
    page = PAGE.read_text()
    for said in (names["wrong_row"], names["wrong_name"]):
        assert all(line in page for line in said.splitlines())


@pytest.mark.parametrize("owner", OTHERS)
def test_ours_is_never_longer(owner):
    lines = {}
    for heading, of, code in blocks():
        lines.setdefault(heading, {})[of] = len([line for line in code.splitlines() if line.strip()])
    tasks = {heading: of for heading, of in lines.items() if heading is not None}
    assert len(tasks) == 10
    for heading, of in tasks.items():
        assert of[OURS] <= of.get(owner, of[OURS]), heading


@pytest.mark.long
@pytest.mark.parametrize("owner", OTHERS)
def test_what_the_others_do_runs_where_they_are_installed(owner, tmp_path, monkeypatch):
    pytest.importorskip(owner)
    monkeypatch.chdir(tmp_path)
    names = carried_out(owner)
    assert names["count"] == 9

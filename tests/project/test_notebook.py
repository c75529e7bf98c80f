"""The notebook in examples/ runs, and shows what is kept in it: text, tables and pictures."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.project import notebook

BOOK = Path(__file__).parents[2] / "examples" / "everyday.ipynb"


def cells(book):
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def ran():
    return notebook.run(BOOK)


def test_each_cell_shows_what_is_kept(ran):
    kept = json.loads(BOOK.read_text(encoding="utf-8"))
    again = "write them anew, and look at the difference: python -m tests.project.notebook examples/everyday.ipynb"
    for now, before in zip(cells(ran), cells(kept), strict=True):
        source = "".join(now["source"])
        assert now["outputs"] == before["outputs"], f"{again}\n{source}"


def test_pictures_are_pictures_and_all_that_people_hold_is_in_it(ran):
    data = [out["data"] for cell in cells(ran) for out in cell["outputs"] if "data" in out]
    drawings = [
        text[text.index("<svg") : text.rindex("</svg>") + 6]
        for one in data
        for kind in ("image/svg+xml", "text/html")
        if "<svg" in (text := "".join(one.get(kind, ())))
    ]
    assert len(drawings) >= 5, "three charts and two traces"
    for drawing in drawings:
        assert ET.fromstring(drawing).get("viewBox"), "it is as wide as its place"
    shown = "\n".join("".join(one["text/plain"]) for one in data)
    for begin in ("<Lake", "<Table", "<Snapshot", "Scan of", "Plan of", "<Branch", "Merge of", "Job '"):
        assert begin in shown, begin
    for begin in ("100 of 100", "main@good..fix", "Changes of", "upstream of", "downstream of"):
        assert begin in shown, begin


def test_it_is_a_notebook_of_a_version_that_jupyter_and_code_hosts_read():
    book = json.loads(BOOK.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 4)
    assert [cell["execution_count"] for cell in cells(book)] == list(range(1, len(cells(book)) + 1))
    for cell in book["cells"]:
        assert cell.keys() >= {"cell_type", "metadata", "source"}
        assert cell["source"], "no cell is empty"
